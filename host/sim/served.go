package sim

import "github.com/aliquot-dev/aliquot/engine"

// levels is how many levels of service fit below a step of a job's own priority, and mostPriority the highest of these that is told apart.
const (
	levels       = 64
	mostPriority = 1 << 24
)

// priority is what the engine is told of a job's priority now: its own, and under Served what it had comes off.
func (r *jobRun) priority(m *member) int32 {
	own := m.job.PriorityAt(r.now)
	if r.order != Served {
		return own
	}
	return max(-mostPriority, min(mostPriority, own))*levels - int32(m.level)
}

// lower tells the engine of jobs that had so much since it last heard of them that others go before them.
func (r *jobRun) lower() error {
	for _, m := range r.raise() {
		if !r.engine.Known(m.id) {
			continue
		}
		if err := r.step(engine.Change{At: engine.At{At: r.now}, ID: m.id, Priority: new(r.priority(m))}); err != nil {
			return err
		}
	}
	return nil
}
