package sim

import (
	"cmp"
	"container/heap"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/engine"
	"github.com/aliquot-dev/aliquot/host/policy"
)

// shadowing runs a candidate policy beside what a record says was. A second engine, restored from the record's snapshot, is told what happened
// to nodes, queues and users when it happened. Of its own decisions those that are also in the record get the record's answers; the others are
// taken as done at once, and what they start runs for as long as it ran in the record. So where the candidate decides nothing otherwise, the second engine
// is told word for word what the first one was.
type shadowing struct {
	began engine.Time // the record
	steps []recordedStep
	live  *engine.Engine // takes the record's steps again, to say how the queues stood
	mine  *engine.Engine
	rules ruling
	past  *past

	now   engine.Time
	next  int // the step that comes next
	found []*shadowJob
	// Jobs by the name that the record's engine has for them, and by that of the second one.
	byLive, byMine map[string]*shadowJob
	answers        map[engine.ActionID]openAction // by the record's open proposal: which of the second engine is the same
	starts         map[engine.ActionID]openStart  // by the record's open Place
	due            dues
	seq            int
	wrong          error // of something done by itself

	meter shadowMeter
	out   ShadowResult
}

// shadowJob is a workload on its way through both, over its evictions.
type shadowJob struct {
	work           engine.Workload
	liveID, mineID string
	came           engine.Time
	live, mine     fate
	ran            bool // it ran before the record begins
	stopped        bool // its user ended it

	// together says that its present run is one and the same in both: it was proposed in the same step, so the record's answers count.
	together bool
	run      int // of the second engine, counted: what is due of an earlier one is dropped
	tries    int // under a name of the second engine's own
	placing  engine.ActionID
	tasks    []shadowTask // by number; none: it waits
	done     engine.Time  // in its present run, by replicas that are over
	pace     int          // how often their number changed, while it goes on by itself
	evicted  bool         // its run is ended by the second engine
	ending   bool         // and so is what is left of it
	over     bool         // with the second engine
	// What the second engine is told of when it comes again: what it was served and when it was evicted for others, since it came and before.
	had       engine.Time
	disrupted []engine.Time

	liveEvicted bool // its run is ended by the record's engine, not for its user
}

// shadowTask is a task in its present run.
type shadowTask struct {
	placing engine.Placing
	action  engine.ActionID // that started it; 0: it ran before
	live    bool            // placed, and not ended
	started bool
	since   engine.Time
}

// fate is what became of a job.
type fate struct {
	placed    engine.Time // its first start; -1: none
	where     []engine.Placing
	action    engine.ActionID // that started it first
	evictions int
	// Replicas above those that it is sure of.
	grown, shrunk int
}

// start notes where a job starts, if that is its first start.
func (f *fate) start(a engine.Place, at engine.Time) {
	if f.placed < 0 {
		f.placed, f.where, f.action = at, a.Tasks, a.ID
	}
}

// refused takes a start back.
func (f *fate) refused(id engine.ActionID) {
	if f.placed >= 0 && f.action == id {
		f.placed, f.where, f.action = -1, nil, 0
	}
}

// recordSlack is how much later than the engine asked a host has its tick, and its windows, in the record.
const recordSlack engine.Time = 1_000_000

// Shadow says what a candidate policy would have made of what a record says was.
func Shadow(ctx context.Context, r *Record, candidate *policy.Policy) (*ShadowResult, error) {
	s, err := newShadowing(r, candidate)
	if err != nil {
		return nil, err
	}
	from := s.now
	for s.next < len(s.steps) {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if err := s.forward(); err != nil {
			return nil, err
		}
	}
	s.result(candidate.Name, from)
	return &s.out, nil
}

// newShadowing begins at the record's snapshot, with the candidate in force.
func newShadowing(r *Record, candidate *policy.Policy) (*shadowing, error) {
	state, err := r.state()
	if err != nil {
		return nil, err
	}
	s := &shadowing{
		steps: r.steps, past: pastOf(r.steps, state), byLive: map[string]*shadowJob{}, byMine: map[string]*shadowJob{},
		answers: map[engine.ActionID]openAction{}, starts: map[engine.ActionID]openStart{},
	}
	if s.live, err = engine.Restore(r.snapshot); err != nil {
		return nil, err
	}
	if s.mine, err = engine.Restore(r.snapshot); err != nil {
		return nil, err
	}
	s.now = r.begin(state)
	s.began = s.now
	s.adoptState(state)
	if err := s.useRules(candidate, state); err != nil {
		return nil, err
	}
	s.meter.begin(s)
	s.turn()
	return s, nil
}

// forward takes the next step of the record, what is due before it and what follows from it.
func (s *shadowing) forward() error {
	step := &s.steps[s.next]
	until := max(s.now, step.event.When())
	s.alone(until)
	s.advance(until)
	s.next++
	s.follow(step)
	s.alone(s.now)
	return s.wrong
}

// adoptState takes in the workloads of the snapshot: all of them are the same in both.
func (s *shadowing) adoptState(state *logSnapshot) {
	for i := range state.Workloads {
		w := &state.Workloads[i]
		if w.Of != "" {
			continue
		}
		j := s.come(w.Workload, w.Came)
		j.stopped, j.together, j.ran = w.Cancelled, len(w.Tasks) > 0, len(w.Tasks) > 0
		j.tasks = make([]shadowTask, len(w.Tasks))
		for k, t := range w.Tasks {
			j.tasks[k] = shadowTask{live: t.Node != "", started: t.Started, since: t.Since}
			j.evicted = j.evicted || t.Evicting && !w.Cancelled
		}
		j.liveEvicted = j.evicted
	}
	for i := range state.Workloads {
		if w := &state.Workloads[i]; w.Of != "" {
			t := w.Tasks[0]
			s.byMine[w.Of].setTask(w.First, shadowTask{live: t.Node != "", started: t.Started, since: t.Since})
		}
	}
	for _, j := range s.found {
		for _, p := range s.mine.Grants(j.mineID) {
			j.tasks[p.Task].placing = p
		}
	}
	for _, a := range s.live.Unanswered() {
		j := s.byLive[workloadIn(a)]
		s.same(j, a, a.Action())
	}
}

// useRules readies the candidate for the devices and queues of the record.
func (s *shadowing) useRules(candidate *policy.Policy, state *logSnapshot) error {
	t := &Trace{Queues: state.Queues}
	for _, d := range s.live.Devices() {
		t.Nodes = append(t.Nodes, engine.NodeSet{Node: d.Node, Devices: []engine.Device{d.Device}})
	}
	for i := range s.steps {
		t.Events = append(t.Events, s.steps[i].event)
	}
	rules, err := (&Rules{Policy: candidate, Start: time.UnixMicro(0).UTC()}).of(t)
	if err != nil {
		return fmt.Errorf("the candidate does not hold where the record was made: %w", err)
	}
	s.rules = ruling{Rules: rules, own: state.Queues, next: engine.Never, date: engine.Never}
	return nil
}

// turn tells the second engine what holds from now on by the candidate, if that is anything else than what does.
func (s *shadowing) turn() {
	s.rules.turnHours(s.now, s.mine.Held)
	set := s.rules.turn(s.now)
	if !s.holds(set.Policy) {
		s.step(set, nil)
	}
}

// holds says that a policy holds already.
func (s *shadowing) holds(p engine.Policy) bool {
	is := s.mine.Policy()
	queues := s.mine.Queues()
	for _, q := range p.Queues {
		i := slices.IndexFunc(queues, func(o api.Queue) bool { return o.Name == q.Name })
		if i < 0 || !sameJSON(queues[i].QueueSpec, q) {
			return false
		}
	}
	is.Queues, p.Queues = nil, nil
	is.Window, p.Window = "", ""
	return sameJSON(is, p)
}

// sameJSON compares values that are data.
func sameJSON(a, b any) bool {
	x, err := json.Marshal(a)
	y, wrong := json.Marshal(b)
	return errors.Join(err, wrong) == nil && string(x) == string(y)
}

// maxAlone, and maxDecided for each workload, is how much the second engine does at one moment without a word of the record, at the most.
const maxAlone = 100_000

// alone has the second engine do what is due by a time without a word of the record: its own answers, its ticks, the candidate's windows.
func (s *shadowing) alone(until engine.Time) {
	for done := 0; s.wrong == nil; done++ {
		t, turns, ticks := engine.Never, s.wakesTurn(until), s.wakesTick(until)
		if len(s.due) > 0 {
			t = s.due[0].at
		}
		if t = min(t, turns, ticks); t > until {
			return
		}
		if t > s.now {
			done = 0
		}
		if done > maxAlone+maxDecided*len(s.found) {
			s.wrong = &standstill{s.now - s.began, "starts and ends work"}
			return
		}
		s.advance(t)
		switch {
		case len(s.due) > 0 && s.due[0].at <= s.now:
			heap.Pop(&s.due).(due).do()
		case turns <= s.now:
			s.turn()
			if s.rules.soonest(0, s.now, s.mine.Held) <= s.now {
				s.wrong = errors.New("a window of the candidate begins and does not hold: this is a fault of the program")
			}
		default:
			s.step(engine.Tick{At: engine.At{At: s.now}}, nil)
			if s.mine.Next() <= s.now {
				s.wrong = errors.New("the engine wants a tick at once after one: this is a fault of the program")
			}
		}
	}
}

// wakesTurn is when the candidate has something else hold, by a time; Never: not by then, or the record says so a moment later.
func (s *shadowing) wakesTurn(until engine.Time) engine.Time {
	at := max(s.now, s.rules.soonest(0, s.now, s.mine.Held))
	if at > until || s.inRecord(at, func(e engine.Event) bool { _, set := e.(engine.PolicySet); return set }) {
		return engine.Never
	}
	return at
}

// wakesTick is when the second engine wants a tick, by a time; Never: not by then, or the record has one a moment later.
func (s *shadowing) wakesTick(until engine.Time) engine.Time {
	at := max(s.now, s.mine.Next())
	if at > until || s.inRecord(at, func(e engine.Event) bool { _, tick := e.(engine.Tick); return tick }) {
		return engine.Never
	}
	return at
}

// inRecord says that the record has such an event within recordSlack of a time.
func (s *shadowing) inRecord(at engine.Time, is func(engine.Event) bool) bool {
	for i := s.next; i < len(s.steps) && s.steps[i].event.When() <= at+recordSlack; i++ {
		if is(s.steps[i].event) {
			return true
		}
	}
	return false
}

// later has something done at a time, which is now or to come; what is due at one time is done in the order in which it was said.
func (s *shadowing) later(at engine.Time, do func()) {
	s.seq++
	heap.Push(&s.due, due{max(at, s.now), s.seq, do})
}

// due is something that is to be done.
type due struct {
	at  engine.Time
	seq int
	do  func()
}

// dues is a heap of what is to be done, the earliest first.
type dues []due

func (d dues) Len() int { return len(d) }
func (d dues) Less(i, k int) bool {
	return cmp.Or(cmp.Compare(d[i].at, d[k].at), cmp.Compare(d[i].seq, d[k].seq)) < 0
}
func (d dues) Swap(i, k int) { d[i], d[k] = d[k], d[i] }
func (d *dues) Push(v any)   { *d = append(*d, v.(due)) }
func (d *dues) Pop() any {
	old := *d
	last := len(old) - 1
	v := old[last]
	old[last] = due{}
	*d = old[:last]
	return v
}
