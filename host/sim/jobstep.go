package sim

import (
	"fmt"
	"strconv"
	"time"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/engine"
)

func (r *jobRun) arrive(j *Job, index int) error {
	if j.Duration <= 0 {
		return fmt.Errorf("job %s never ends: give it a duration", j.ID)
	}
	if r.rules != nil {
		j = r.rules.bounded(j)
	}
	if r.byID[j.ID] != nil {
		return fmt.Errorf("there are two jobs %s at once: give each an ID of its own", j.ID)
	}
	m := &member{job: j, index: index, id: j.ID, left: j.Duration, started: -1, busy: r.busy, kept: engine.Never}
	r.toCome--
	r.awaitDate(m)
	if !r.order.chooses() {
		if r.fitsFleet(m) {
			r.want(m)
		} else {
			r.aside = append(r.aside, m)
		}
		return r.submit(m)
	}
	r.byID[m.id] = m // under none of the engine's IDs yet: keeps it among those that have not ended
	r.lineUp(m)
	return nil
}

// submit hands a job to the engine under an ID of its own.
func (r *jobRun) submit(m *member) error {
	delete(r.byID, m.id)
	w, was := m.job.Workload, ""
	w.Priority = m.job.PriorityAt(r.now)
	if m.starts++; m.starts > 1 {
		w.ID += "~" + strconv.Itoa(m.starts)
		was = m.id
	}
	if r.order != Fair {
		w.Queue = ""
	}
	if r.order.chooses() || r.beside != nil { // it counts what it starts by itself; what shares devices has a speed by these
		w.Max = 0
	}
	m.id = w.ID
	r.byID[m.id] = m
	submit := engine.Submit{At: engine.At{At: r.now}, Was: was}
	for _, at := range m.disrupted {
		submit.Disrupted = append(submit.Disrupted, r.now-at)
	}
	submit.Served = r.engine.ServedIn(&w, m.ran)
	if r.order == Served || r.order == Held { // what comes again is as old as it is
		submit.Waited = r.now - m.job.Submit
	}
	w.Requeue = w.Preemptible // as evict has it
	submit.Workload = w
	return r.step(submit)
}

// stop ends a job that runs, which goes on later.
func (r *jobRun) stop(m *member) error {
	m.stopping = true
	defer func() { m.stopping = false }()
	return r.step(engine.Cancel{At: engine.At{At: r.now}, ID: m.id, Reason: "another job comes first"})
}

// answer is what the engine is to be told of what it proposed, and what follows from that; nil: nothing.
type answer struct {
	event engine.Event
	then  func() error
}

// step feeds the engine an event, carries out what it proposes, and answers that, until there is nothing to be answered.
//
// Answers are given in the order in which things were proposed: what the engine decides on one of them is carried out at once, but is answered when all before it are.
// So it hears of a task's start before it hears of the end that it decided on meanwhile, as from a server.
func (r *jobRun) step(event engine.Event) error {
	if err := r.tell(event); err != nil || r.answering {
		return err
	}
	r.answering = true
	defer func() { r.answering = false }()
	for i := 0; i < len(r.answers); i++ { // there may be more after each
		next := r.answers[i]
		if err := r.tell(next.event); err != nil {
			return err
		}
		if next.then == nil {
			continue
		}
		if err := next.then(); err != nil {
			return err
		}
	}
	r.answers = r.answers[:0]
	return nil
}

// tell feeds the engine an event and carries out what it proposes.
func (r *jobRun) tell(event engine.Event) error {
	if r.rules != nil {
		r.rules.hours.Count(r.now, r.engine.Held)
	}
	r.told++
	r.pieces.event(event)
	r.energy.event(event, r.now)
	actions := r.engine.Step(event)
	if r.log != nil {
		if err := r.log.Append(event, actions); err != nil {
			return err
		}
	}
	for _, a := range actions {
		var err error
		switch a := a.(type) {
		case engine.Place:
			if m := r.byID[a.Workload]; m != nil {
				r.pieces.place(m.job, a, r.now)
			}
			r.energy.place(a, r.now)
			err = r.start(a)
		case engine.Evict:
			err = r.evict(a)
		case engine.Reject:
			if s, ok := event.(engine.Submit); ok {
				r.refused(r.byID[s.Workload.ID], a)
				continue
			}
			err = fmt.Errorf("the engine rejects an event of the trace: %s", a.Reason)
		default:
			err = fmt.Errorf("the simulator does not carry out %T: action %d", a, a.Action())
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// carriedOut has the engine be told that something which it proposed is done, then of what came of that.
func (r *jobRun) carriedOut(id engine.ActionID, what ...answer) {
	r.answers = append(r.answers, answer{event: engine.Done{At: engine.At{At: r.now}, ID: id}})
	r.answers = append(r.answers, what...)
}

func (r *jobRun) start(a engine.Place) error {
	m := r.byID[a.Workload]
	if m == nil {
		return fmt.Errorf("the engine places workload %s, which is not in the trace", a.Workload)
	}
	if err := r.decided(m); err != nil {
		return err
	}
	if m.running || m.over {
		r.grow(m, a)
		return nil
	}
	r.want(m)
	r.begin(m)
	r.expect(m)
	r.occupy(m, a.Tasks)
	r.usage = append(r.usage, change{r.now, m.job.Queue, m.job.Compute()})
	started := make([]answer, len(a.Tasks))
	for i, t := range a.Tasks {
		started[i].event = engine.Started{At: engine.At{At: r.now}, ID: a.Workload, Task: t.Task}
	}
	r.carriedOut(a.ID, started...)
	return nil
}

// evict ends a task at once. When the first task of a job goes, the others go, too, and the job waits again with what it has left.
func (r *jobRun) evict(a engine.Evict) error {
	m := r.byID[a.Workload]
	switch {
	case m == nil:
		return fmt.Errorf("the engine evicts workload %s, which does not run", a.Workload)
	case m.over: // that is about to be told
		return nil
	}
	if err := r.decided(m); err != nil {
		return err
	}
	if m.running && a.Task >= m.job.AllTasks() {
		r.shrink(m, a)
		return nil
	}
	first := m.running
	if first {
		m.settle(r.now)
		if err := r.lose(m); err != nil {
			return err
		}
		r.release(m)
		m.more = nil
		r.out.Preemptions++
		if engine.ForOthers(a.Code) {
			m.disrupted = append(m.disrupted[max(0, len(m.disrupted)+1-api.MaxDisruptions):], r.now)
		}
	}
	ended := engine.Ended{At: engine.At{At: r.now}, ID: a.Workload, Task: a.Task, Used: r.usedBy(m)}
	r.carriedOut(a.ID, answer{ended, func() error { return r.evicted(m, first) }})
	return nil
}

// evicted has the others of a job's tasks go with the first, and the job wait again when the last is over.
func (r *jobRun) evicted(m *member, first bool) error {
	known := r.engine.Known(m.id)
	switch {
	case m.stopping:
		return nil
	case known && first:
		return r.step(engine.Cancel{At: engine.At{At: r.now}, ID: m.id, Reason: "another of its tasks is over"})
	case known:
		return nil
	case r.order.chooses():
		return r.queueUp([]*member{m}, nil)
	}
	return r.submit(m)
}

// maxDecided is how often the engine may decide something of a job at one moment, and once more that often for each of its tasks; maxRounds is how often in a row it is
// asked at one moment. Neither comes near it if the engine is right.
const (
	maxDecided = 1000
	maxRounds  = 10_000
)

// decided notes that the engine starts or ends a job, or a replica of it. A job of which it does so for ever at one moment would never end.
func (r *jobRun) decided(m *member) error {
	if m.decidedAt != r.now {
		m.decidedAt, m.decisions = r.now, 0
	}
	if m.decisions++; m.decisions <= maxDecided*max(m.job.AllTasks(), m.job.Max) {
		return nil
	}
	return &standstill{r.now, "starts and ends job " + m.job.ID}
}

// standstill is the error of a run in which time stands still, for the engine decides in a circle.
type standstill struct {
	at   engine.Time
	what string
}

func (s *standstill) Error() string {
	return fmt.Sprintf("%v into the run the engine %s over and over at one moment, without end: neither what is run nor the policy is to blame, this is a fault of Aliquot; please report it with both",
		time.Duration(s.at)*time.Microsecond, s.what)
}
