package sim

import (
	"slices"

	"github.com/aliquot-dev/aliquot/engine"
)

// PriorityAt is what a job's priority is at a time of the trace.
func (j *Job) PriorityAt(now engine.Time) int32 {
	if j.PriorityUntil > 0 && now >= j.PriorityUntil {
		return j.PriorityAfter
	}
	return j.Priority
}

// awaitDate has the priority of a job that comes be over when its date comes.
func (r *jobRun) awaitDate(m *member) {
	until := m.job.PriorityUntil
	if until <= r.now {
		return
	}
	i, _ := slices.BinarySearchFunc(r.dated, until+1, func(m *member, at engine.Time) int { return int(min(max(m.job.PriorityUntil-at, -1), 1)) })
	r.dated = slices.Insert(r.dated, i, m)
}

// endPriorities has priorities be over whose date has come, of what waits and of what runs; that of what is over by now is forgotten.
func (r *jobRun) endPriorities() error {
	for len(r.dated) > 0 && r.dated[0].job.PriorityUntil <= r.now {
		m := r.dated[0]
		r.dated = r.dated[1:]
		if r.byID[m.id] != m || !r.engine.Known(m.id) {
			continue
		}
		if err := r.step(engine.Change{At: engine.At{At: r.now}, ID: m.id, Priority: new(m.job.PriorityAt(r.now))}); err != nil {
			return err
		}
	}
	return nil
}
