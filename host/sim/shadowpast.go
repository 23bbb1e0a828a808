package sim

import (
	"slices"

	"github.com/aliquot-dev/aliquot/engine"
)

// past is what a record tells of how long its workloads ran, and which of them are others that were evicted and came again.
type past struct {
	ran  map[string]map[int]engine.Time // by workload and task: from its start to its end, where it ended by itself
	used map[string]map[int]*engine.Used
	work map[string]engine.Time // of elastic workloads: all replicas together, where they ended by themselves
	heir map[string]string      // of each workload that came again: as what
	was  map[string]string      // and the other way round
}

// comesAgain is how long after its end what was evicted is in line again, at the latest.
const comesAgain engine.Time = 1_000_000

// liveRun is a workload of a record while it runs.
type liveRun struct {
	work    engine.Workload
	started map[int]engine.Time
	done    engine.Time // by tasks that are over
	limited bool        // its time limit ended it, so what it did is not all that it would have
	evicted bool        // by the engine, not for its user
	stopped bool        // by its user
	ended   engine.Time // of the last of its tasks that did
	listed  bool        // among those that may come again
}

// pastOf goes through a record. An evicted workload that is over, and one that is said to be it or, where nothing is said, comes within comesAgain and
// differs in nothing but its name and priority, are taken for one and the same.
func pastOf(steps []recordedStep, state *logSnapshot) *past {
	p := &past{ran: map[string]map[int]engine.Time{}, used: map[string]map[int]*engine.Used{}, work: map[string]engine.Time{}, heir: map[string]string{}, was: map[string]string{}}
	known := map[string]*liveRun{}
	for i := range state.Workloads {
		w := &state.Workloads[i]
		if w.Of != "" {
			continue
		}
		r := &liveRun{work: w.Workload, started: map[int]engine.Time{}, stopped: w.Cancelled}
		for k, t := range w.Tasks {
			if t.Started {
				r.started[k] = t.Since
			}
			r.evicted = r.evicted || t.Evicting && !w.Cancelled
		}
		known[w.Workload.ID] = r
	}
	for i := range state.Workloads {
		if w := &state.Workloads[i]; w.Of != "" && known[w.Of] != nil && len(w.Tasks) > 0 && w.Tasks[0].Started {
			known[w.Of].started[w.First] = w.Tasks[0].Since
		}
	}
	var evicted []string // and over, in the order of their ends
	evicting := map[engine.ActionID]string{}
	for i := range steps {
		step := &steps[i]
		if step.rejected() {
			continue
		}
		switch e := step.event.(type) {
		case engine.Submit:
			for k, id := range evicted {
				if was := known[id]; e.Was == id || e.Was == "" && e.At.At-was.ended <= comesAgain && sameWork(was.work, e.Workload) {
					p.heir[id], p.was[e.Workload.ID] = e.Workload.ID, id
					evicted = slices.Delete(evicted, k, k+1)
					break
				}
			}
			known[e.Workload.ID] = &liveRun{work: e.Workload, started: map[int]engine.Time{}}
		case engine.Adopt:
			r := &liveRun{work: e.Workload, started: map[int]engine.Time{}}
			for _, t := range e.Tasks {
				r.started[t.Task] = e.At.At - e.Ran
			}
			known[e.Workload.ID] = r
		case engine.Refused:
			if r := known[evicting[e.ID]]; r != nil {
				r.evicted = false
			}
		case engine.Change:
			if r := known[e.ID]; r != nil {
				changeWork(&r.work, e)
			}
		case engine.Cancel:
			if r := known[e.ID]; r != nil && !r.evicted {
				r.stopped = true
			}
		case engine.Started:
			if r := known[e.ID]; r != nil {
				r.started[e.Task] = e.At.At
			}
		case engine.Ended:
			if r := known[e.ID]; r != nil && p.ended(r, e) {
				evicted = append(evicted, e.ID)
			}
		}
		for _, a := range step.actions {
			switch a := a.(type) {
			case engine.Evict:
				if r := known[a.Workload]; r != nil && a.Code != engine.EvictCancelled && a.Task < r.work.AllTasks() {
					r.evicted = true
					evicting[a.ID] = a.Workload
				}
			case engine.Place: // it may be one that was refused, and evicted meanwhile
				if r := known[a.Workload]; r != nil && taskIn(a) < r.work.AllTasks() {
					r.evicted = false
				}
			}
		}
	}
	return p
}

// ended notes how long a task ran that ended by itself. It says whether that is the first end of an evicted workload's.
func (p *past) ended(r *liveRun, e engine.Ended) bool {
	if e.Used != nil {
		if p.used[e.ID] == nil {
			p.used[e.ID] = map[int]*engine.Used{}
		}
		p.used[e.ID][e.Task] = e.Used
	}
	since, ran := r.started[e.Task]
	delete(r.started, e.Task)
	if ran {
		r.did(p, e.Task, e.At.At-since, !r.evicted && !r.stopped)
	}
	switch {
	case r.evicted:
		first := !r.listed
		r.ended, r.listed = e.At.At, true
		return first
	case ran && !r.stopped:
		if p.ran[e.ID] == nil {
			p.ran[e.ID] = map[int]engine.Time{}
		}
		p.ran[e.ID][e.Task] = e.At.At - since
	}
	return false
}

// changeWork makes of a workload what a change says.
func changeWork(w *engine.Workload, e engine.Change) {
	if e.Share != nil {
		w.Share = *e.Share
	}
	if e.Priority != nil {
		w.Priority = *e.Priority
	}
	if e.Queue != nil {
		w.Queue = *e.Queue
	}
}

// sameWork says that one workload may be another that came again.
func sameWork(a, b engine.Workload) bool {
	a.ID, b.ID = "", ""
	a.Priority, b.Priority = 0, 0
	return sameJSON(a, b)
}

// length is how long a task of a workload runs by the last of its runs that ended by itself, or by its time limit; Never: that is not known. Of an
// elastic one only the limit counts: how long it runs hangs on its replicas.
func (p *past) length(j *shadowJob, task int) engine.Time {
	long := engine.Never
	if j.work.TimeLimit > 0 {
		long = j.work.TimeLimit
	}
	if j.elastic() { // see expect
		return long
	}
	for id := p.last(j); id != ""; id = p.was[id] {
		if ran, ok := p.ran[id][task]; ok {
			return ran
		}
	}
	return long
}

// usedBy is what a task of a workload used in the last of its runs of which that is known; nil: of none.
func (p *past) usedBy(j *shadowJob, task int) *engine.Used {
	for id := p.last(j); id != ""; id = p.was[id] {
		if used, ok := p.used[id][task]; ok {
			return used
		}
	}
	if j.further(task) {
		return p.usedBy(j, 0)
	}
	return nil
}

// last is the name under which a workload came for the last time.
func (p *past) last(j *shadowJob) string {
	id := j.liveID
	for p.heir[id] != "" {
		id = p.heir[id]
	}
	return id
}
