package engine

import (
	"fmt"
	"math"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/engine/fleet"
	"github.com/aliquot-dev/aliquot/engine/ordered"
	"github.com/aliquot-dev/aliquot/engine/place"
	"github.com/aliquot-dev/aliquot/engine/predict"
	"github.com/aliquot-dev/aliquot/engine/queue"
)

// Never is a time that does not come.
const Never Time = math.MaxInt64

// Config is how an engine decides. It is part of a snapshot.
type Config struct {
	// NoBackfill keeps everything behind the first in line that does not fit, whether it would delay it or not.
	NoBackfill bool `json:"noBackfill,omitempty"`
	// FirstAction is the ID of the first action; 0: 1. A host that starts its engine anew gives one that was never used.
	FirstAction ActionID `json:"firstAction,omitempty"`
	// Placement is the policy that scores places; nil: best fit, the least left first (package place).
	Placement *place.Policy `json:"placement,omitempty"`
}

// Engine is the state of all decisions. It is not safe for use by several goroutines at once.
type Engine struct {
	config Config
	policy Policy
	now    Time
	nextID ActionID
	seq    uint64 // counts submissions: first come, first served

	lastCame Time // when what was submitted last came

	fleet  *fleet.Fleet
	placer *place.Placer
	queues *queue.Tree

	predictor *predict.Predictor // of durations
	uses      *predict.Uses

	work     map[string]*workload
	line     *ordered.List[*workload] // all that wait, in their order
	groups   map[groupKey]*group      // those of the line that may be tried
	parked   *ordered.List[*workload] // those of the line that may not be tried before a time
	shapes   map[shapeKey]*shape
	tallies  map[shapeKey]*tally
	soonest  map[shapeKey]*soonest
	gathers  map[shapeKey]*gathering
	pooled   pooling
	guests   map[*workload]bool // that hold something of a pool that is not for them, or did
	elastics map[*workload]bool // elastic workloads that were placed
	surplus  int                // their replicas above those that they are sure of
	tight    bool               // limits may be passed by these
	ungrown  bool               // workloads may grow that did not, for more may be adopted first
	outs     outs
	held     holders                // tasks with a grant on a device
	above    map[fleet.DeviceID]int // how many grants there hold memory above their floors; none: no entry
	foreign  map[string]grantAt     // grants by UID, of those whose UID does not say where they are
	pending  map[ActionID]*proposal
	sparing  map[*workload]bool // that nobody takes back before a time
	early    map[*workload]bool // that were let in by a prediction
	due      Time               // when the next of these is due; Never: none is

	plans   map[ActionID]*plan // of reclaim, preemption and moves, under way
	planned map[*workload]bool // that wait for a plan, under way or carried out
	moving  moving
	lowest  int32                    // no preemptible work was ever of a lower priority
	rise    Time                     // no sooner does any work that runs come to another level of service; Never: none does
	looked  Time                     // until when it was looked whether work came to another level
	ending  map[*task]bool           // that are being ended, and some that were: see someEnd
	endings int                      // of these, when they were looked through last
	settled bool                     // the last pass left nothing that would start by time alone
	moves   uint64                   // counts what may make a plan possible that was not
	guarded Time                     // when the first workload may be evicted that a plan is missing that is guarded; Never: none is missing
	sized   queue.Amounts            // of the fleet, as of sizedAt
	sizedOf map[string]queue.Amounts // of its devices of each model, likewise
	sizedAt uint64                   // Changes, plus 1

	onNode nodeRoom // room for lookAt

	out []Action

	ahead *ahead // what is done is taken back; nil: it is done
}

// New returns an engine with no nodes, no work and the default queue.
func New(config Config) *Engine {
	return newEngine(config, fleet.New())
}

func newEngine(config Config, f *fleet.Fleet) *Engine {
	e := &Engine{
		config: config,
		nextID: max(1, config.FirstAction),
		lowest: math.MaxInt32, rise: Never, ending: map[*task]bool{},
		fleet:  f,
		placer: place.New(f),
		queues: queue.New(),

		predictor: predict.New(predict.Config{}),
		uses:      predict.NewUses(predict.Config{}),

		work:   map[string]*workload{},
		line:   ordered.New(before),
		groups: map[groupKey]*group{},
		parked: ordered.New(func(a, b *workload) bool {
			if a.retryAt != b.retryAt {
				return a.retryAt < b.retryAt
			}
			return a.seq < b.seq
		}),
		shapes:   map[shapeKey]*shape{},
		tallies:  map[shapeKey]*tally{},
		soonest:  map[shapeKey]*soonest{},
		gathers:  map[shapeKey]*gathering{},
		guests:   map[*workload]bool{},
		elastics: map[*workload]bool{},
		outs:     newOuts(),
		above:    map[fleet.DeviceID]int{},
		foreign:  map[string]grantAt{},
		pending:  map[ActionID]*proposal{},
		sparing:  map[*workload]bool{},
		early:    map[*workload]bool{},
		planned:  map[*workload]bool{},
		due:      Never,
		plans:    map[ActionID]*plan{},
		moving:   (*savedMoving)(nil).load(),
		guarded:  Never,
	}
	if config.Placement != nil {
		e.placer.UsePolicy(config.Placement)
	}
	return e
}

// Step takes one event in and returns what follows from it, in the order in which it is to be carried out. An event that cannot be
// applied changes nothing and gives one Reject.
func (e *Engine) Step(event Event) []Action {
	e.now = max(e.now, event.When())
	e.queues.Now = int64(e.now)
	e.out = nil
	before := e.tight
	switch event.(type) {
	case Tick:
		if e.settled && e.Next() > e.now {
			e.looked = e.now
			return nil
		}
	case Submit, Checkpoint:
		e.settled = false
	case QueueSet, PolicySet, NodeSet, Change, Adopt:
		e.tight = true
		e.settled = false
		e.moves++
	default:
		e.settled = false
		e.moves++
	}
	might := e.apply(event)
	switch event.(type) {
	case QueueSet, PolicySet, Change:
		e.findRise()
	}
	if e.rise <= e.now && e.findRise() {
		e.moves++
		might = true
	}
	e.looked = e.now
	if len(e.out) == 1 {
		if _, rejected := e.out[0].(Reject); rejected {
			e.tight = before // nothing changed
		}
	}
	if might || e.Next() <= e.now {
		e.unpark()
		entering := false // there may be more that runs, or waits, and is not told of yet
		switch event.(type) {
		case Adopt, QueuesUsed:
			entering = true
		}
		e.schedule(!entering)
	}
	e.defragment(event)
	return e.out
}

// Next is when the engine wants a Tick: Never if it wants none.
func (e *Engine) Next() Time {
	if e.ungrown {
		return e.now
	}
	next := min(e.nextMoves(), e.guarded, e.due)
	if e.line.Len() > 0 {
		next = min(next, e.rise)
	}
	if c := e.parked.Begin(); c.Valid() {
		next = min(next, c.Value().retryAt)
	}
	for w := range e.sparing {
		next = min(next, w.rarely().sparedUntil)
	}
	return next
}

// Now is the time of the last event.
func (e *Engine) Now() Time { return e.now }

// apply makes the change that an event says, and tells whether something might start because of it.
func (e *Engine) apply(event Event) bool {
	switch ev := clean(event).(type) {
	case NodeSet:
		return e.nodeSet(ev)
	case NodeGone:
		return e.nodeGone(ev)
	case DeviceHealth:
		return e.deviceHealth(ev)
	case Feasibility:
		return e.feasibility(ev)
	case FeasibilityGone:
		return e.feasibilityGone(ev)
	case QueueSet:
		return e.queueSet(ev)
	case QueueGone:
		return e.queueDone(e.queues.Remove(ev.Queue))
	case PolicySet:
		return e.policySet(ev)
	case Submit:
		return e.submit(ev)
	case Change:
		return e.change(ev)
	case Cancel:
		return e.cancel(ev)
	case Adopt:
		return e.adopt(ev)
	case Started:
		return e.started(ev)
	case Ended:
		return e.ended(ev)
	case Shrunk:
		return e.shrunk(ev)
	case Checkpoint:
		return e.checkpoint(ev)
	case Usage:
		return e.usage(ev)
	case Done:
		return e.done(ev)
	case Refused:
		return e.refused(ev)
	case Learn:
		return e.learnPast(ev)
	case QueuesUsed:
		return e.queuesUsed(ev)
	case Tick:
		return true
	}
	return e.reject("", "invalid", "an event of type %T is not known to this engine: use one of the events of its contract", event)
}

// reject says that the event could not be applied. It returns false, for nothing changed.
func (e *Engine) reject(workload, code, format string, args ...any) bool {
	e.out = append(e.out, Reject{ID: e.id(), Workload: workload, Code: code, Reason: fmt.Sprintf(format, args...)})
	return false
}

// NextAction is the ID that the next action will have.
func (e *Engine) NextAction() ActionID { return e.nextID }

func (e *Engine) id() ActionID {
	id := e.nextID
	e.nextID++
	return id
}

// queueSet makes or changes a queue.
func (e *Engine) queueSet(ev QueueSet) bool {
	before := e.lineOrders([]api.QueueSpec{ev.Queue})
	if !e.queueDone(e.queues.Set(ev.Queue)) {
		return false
	}
	e.lineUp(before)
	return true
}

func (e *Engine) queueDone(err error) bool {
	if err != nil {
		return e.reject("", "invalid", "%v", err)
	}
	return true
}

// after is t + d, or Never where that is out of range.
func after(t, d Time) Time {
	if d > 0 && t > Never-d {
		return Never
	}
	return t + d
}
