package sim

import (
	"cmp"
	"container/heap"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/engine"
)

// Progress is how far a run is.
type Progress struct {
	At     engine.Time // of the trace
	Events int         // that the engine was told of
	Done   int         // jobs that ended, or of pods those that came
	All    int         // jobs that the trace has
}

// Options are how a run goes.
type Options struct {
	Config engine.Config
	// GiveUp cancels what does not start in the step in which it comes; else it waits.
	GiveUp bool
	// Defragment has work moved while jobs come, and the run is over when the last has come; nil: none is moved. What is moved is elsewhere at once and goes on.
	Defragment *engine.Defragment
	// Fragments has the run say what is free and of no use, too.
	Fragments bool
	// Told is called after each job that came; nil: nobody is told.
	Told func(Progress)
	// Clock measures how long deciding takes; nil: not measured.
	Clock func() time.Time
}

// Result is what a run came to.
type Result struct {
	Jobs     int   `json:"jobs"`
	Placed   int   `json:"placed"`
	GivenUp  int   `json:"givenUp"`
	Waiting  int   `json:"waiting"`  // at the end
	Capacity int64 `json:"capacity"` // thousandths of a device
	// Curve is what was allocated (percent of capacity) when so many percent of capacity had arrived: entry i is for i percent.
	Curve []float64 `json:"curve"`
	// Fragmented is what was free then and of no use to jobs like those of the trace; nil: not looked at.
	Fragmented []float64 `json:"fragmented,omitempty"`
	// Held is the mean of what was allocated (percent of capacity) over the second half of the time in which jobs came.
	Held     float64       `json:"held"`
	Moves    int           `json:"moves"`
	Unplaced int           `json:"unplaced,omitempty"` // of those that were moved: did not go on at once
	Deciding time.Duration `json:"decidingNanoseconds,omitempty"`
}

// At is what was allocated when percent of capacity had arrived, or at the end if less arrived in all.
func (r *Result) At(percent int) float64 {
	if len(r.Curve) == 0 {
		return 0
	}
	return r.Curve[min(percent, len(r.Curve)-1)]
}

// fragmentedAt is what was of no use when percent of capacity had arrived, or at the end if less arrived in all.
func (r *Result) fragmentedAt(percent int) float64 {
	if len(r.Fragmented) == 0 {
		return 0
	}
	return r.Fragmented[min(percent, len(r.Fragmented)-1)]
}

// ending is a job's end to come.
type ending struct {
	at  engine.Time
	seq int
	job *Job
	// In a run of jobs: which, and its how manieth start or change of speed; one that was stopped or changed since does not end then.
	member *member
	pace   int
}

type endings []ending

func (e endings) Len() int { return len(e) }
func (e endings) Less(i, j int) bool {
	return cmp.Or(cmp.Compare(e[i].at, e[j].at), cmp.Compare(e[i].seq, e[j].seq)) < 0
}
func (e endings) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *endings) Push(x any)   { *e = append(*e, x.(ending)) }
func (e *endings) Pop() any {
	last := len(*e) - 1
	x := (*e)[last]
	*e = (*e)[:last]
	return x
}

// run is the state of a run.
type run struct {
	Options
	engine    *engine.Engine
	jobs      map[string]*Job
	ends      endings
	seq       int
	pieces    *fragments // nil: not looked at
	told      int        // events that the engine was told of
	arrived   int64
	allocated int64
	ending    map[string]int // by job that runs: seq of its end
	half, at  engine.Time    // from when Held counts, and until when it is counted
	area      float64        // thousandths of a device × µs
	out       Result
}

// Run runs a trace from its first job to its last coming or end, whichever is later. It fails where the engine rejects what
// the trace has, or proposes something that the trace knows nothing of.
func Run(t *Trace, o Options) (*Result, error) {
	r := &run{Options: o, engine: engine.New(o.Config), jobs: make(map[string]*Job, len(t.Jobs)), ending: map[string]int{}}
	r.out.Capacity = t.Capacity()
	if o.Fragments {
		r.pieces = newFragments(t)
	}
	r.out.Jobs = len(t.Jobs)
	for _, n := range t.Nodes {
		if err := r.step(n); err != nil {
			return nil, err
		}
	}
	for _, c := range t.Classes {
		if err := r.step(c); err != nil {
			return nil, err
		}
	}
	if o.Defragment != nil {
		if err := r.step(engine.PolicySet{Policy: engine.Policy{Defragment: o.Defragment}}); err != nil {
			return nil, err
		}
	}
	start := r.now()
	last := engine.Time(0)
	if len(t.Jobs) > 0 {
		last = t.Jobs[len(t.Jobs)-1].Submit
		r.half = t.Jobs[0].Submit + (last-t.Jobs[0].Submit)/2
	}
	for i := range t.Jobs {
		j := &t.Jobs[i]
		if err := r.endUntil(j.Submit); err != nil {
			return nil, err
		}
		if err := r.submit(j); err != nil {
			return nil, err
		}
		if o.Told != nil {
			o.Told(Progress{At: j.Submit, Events: r.told, Done: i + 1, All: len(t.Jobs)})
		}
	}
	if last > r.half {
		r.out.Held = r.area / float64(last-r.half) / float64(r.out.Capacity) * 100
	}
	if o.Defragment == nil { // else the run is over with the last coming: nothing is measured of what is moved later
		if err := r.endUntil(engine.Never); err != nil {
			return nil, err
		}
	}
	if o.Clock != nil {
		r.out.Deciding = o.Clock().Sub(start)
	}
	r.out.Waiting = r.out.Jobs - r.out.Placed - r.out.GivenUp
	return &r.out, nil
}

func (r *run) now() time.Time {
	if r.Clock == nil {
		return time.Time{}
	}
	return r.Clock()
}

// endUntil ends what has run its time, and lets the engine know when it wants to that time has passed.
func (r *run) endUntil(t engine.Time) error {
	for {
		next := r.engine.Next()
		if len(r.ends) > 0 {
			next = min(next, r.ends[0].at)
		}
		if next > t || next == engine.Never {
			r.pass(t)
			return nil
		}
		r.pass(next)
		if len(r.ends) == 0 || r.ends[0].at > next {
			if err := r.step(engine.Tick{At: engine.At{At: next}}); err != nil {
				return err
			}
			continue
		}
		e := heap.Pop(&r.ends).(ending)
		if r.ending[e.job.ID] != e.seq {
			continue // it was moved since
		}
		r.leave(e.job)
		for task := range e.job.AllTasks() {
			if err := r.step(engine.Ended{At: engine.At{At: e.at}, ID: e.job.ID, Task: task}); err != nil {
				return err
			}
		}
	}
}

// pass lets time pass.
func (r *run) pass(to engine.Time) {
	if from := max(r.at, r.half); to > from && to != engine.Never {
		r.area += float64(r.allocated) * float64(to-from)
	}
	if to != engine.Never {
		r.at = max(r.at, to)
	}
}

// leave takes a job that runs out of what is kept of it.
func (r *run) leave(j *Job) {
	r.allocated -= j.Compute()
	delete(r.ending, j.ID)
}

// move ends a job, which comes again under another name and goes on.
func (r *run) move(now engine.Time, a engine.Evict) error {
	j := r.jobs[a.Workload]
	if j == nil || a.Code != engine.EvictMove {
		return fmt.Errorf("the engine evicts workload %s, and the simulator only moves: %s", a.Workload, a.Reason)
	}
	again, at := *j, engine.At{At: now}
	if i := slices.IndexFunc(r.ends, func(e ending) bool { return e.seq == r.ending[j.ID] }); i >= 0 {
		again.Duration = r.ends[i].at - now
	}
	r.leave(j)
	delete(r.jobs, j.ID)
	if err := r.step(engine.Done{At: at, ID: a.ID}); err != nil {
		return err
	}
	if err := r.step(engine.Ended{At: at, ID: j.ID, Task: a.Task}); err != nil {
		return err
	}
	r.out.Moves++
	again.ID += "+"
	r.jobs[again.ID] = &again
	if err := r.step(engine.Submit{At: at, Workload: again.Workload, Was: j.ID}); err != nil {
		return err
	}
	if r.engine.Phase(again.ID) == api.Waiting {
		r.out.Unplaced++
	}
	return nil
}

func (r *run) submit(j *Job) error {
	r.jobs[j.ID] = j
	r.arrived += j.Compute()
	if err := r.step(engine.Submit{At: engine.At{At: j.Submit}, Workload: j.Workload}); err != nil {
		return err
	}
	if r.GiveUp && r.engine.Phase(j.ID) == "waiting" {
		r.out.GivenUp++
		delete(r.jobs, j.ID)
		if err := r.step(engine.Cancel{At: engine.At{At: j.Submit}, ID: j.ID}); err != nil {
			return err
		}
	}
	for int64(len(r.out.Curve))*r.out.Capacity <= r.arrived*100 {
		r.out.Curve = append(r.out.Curve, float64(r.allocated)*100/float64(r.out.Capacity))
		if r.pieces != nil {
			r.out.Fragmented = append(r.out.Fragmented, r.pieces.percent(r.out.Capacity))
		}
	}
	return nil
}

// step feeds the engine an event and carries out what it proposes.
func (r *run) step(event engine.Event) error {
	r.told++
	r.pieces.event(event)
	for _, a := range r.engine.Step(event) {
		switch a := a.(type) {
		case engine.Place:
			if j := r.jobs[a.Workload]; j != nil {
				r.pieces.place(j, a, event.When())
			}
			if err := r.start(event.When(), a); err != nil {
				return err
			}
		case engine.Evict:
			if err := r.move(event.When(), a); err != nil {
				return err
			}
		case engine.Reject:
			return fmt.Errorf("the engine rejects an event of the trace: %s", a.Reason)
		default:
			return fmt.Errorf("the simulator does not carry out %T: action %d", a, a.Action())
		}
	}
	return nil
}

func (r *run) start(now engine.Time, a engine.Place) error {
	j := r.jobs[a.Workload]
	if j == nil {
		return fmt.Errorf("the engine places workload %s, which is not in the trace", a.Workload)
	}
	at := engine.At{At: now}
	if err := r.step(engine.Done{At: at, ID: a.ID}); err != nil {
		return err
	}
	for _, t := range a.Tasks {
		if err := r.step(engine.Started{At: at, ID: j.ID, Task: t.Task}); err != nil {
			return err
		}
	}
	if !strings.HasSuffix(j.ID, "+") { // else it was moved
		r.out.Placed++
	}
	r.allocated += j.Compute()
	if j.Duration > 0 {
		r.seq++
		r.ending[j.ID] = r.seq
		heap.Push(&r.ends, ending{at: now + j.Duration, seq: r.seq, job: j})
	}
	return nil
}
