package engine

import (
	"fmt"
	"slices"
)

// shrunk has a task hold less. What it does not hold any more is free at once.
func (e *Engine) shrunk(ev Shrunk) bool {
	t := e.liveTask(ev.ID, ev.Task, "holds less")
	if t == nil {
		return false
	}
	w := t.w
	switch {
	case w.placing != 0:
		return e.reject(ev.ID, "conflict", "task %d of workload %s cannot hold less while it is being started: answer that first", ev.Task, ev.ID)
	case w.resize != nil:
		return e.reject(ev.ID, "conflict", "task %d of workload %s cannot hold less while it is being resized: answer that first", ev.Task, ev.ID)
	}
	kept, err := t.keeps(ev.Holds)
	if err != nil {
		return e.reject(ev.ID, "invalid", "task %d of workload %s cannot hold less: %v", ev.Task, ev.ID, err)
	}
	e.unlist(t)
	e.unbook(t)
	t.grants = kept
	for i := range t.grants {
		g := &t.grants[i]
		e.fleet.Adjust(g.device, g.compute, g.taken(), 1)
	}
	e.settle(t)
	e.fleet.Collect(t.node)
	return true
}

// keeps are the grants of a task that holds no more than this.
func (t *task) keeps(holds []Holding) (kept []grant, err error) {
	if len(holds) == 0 {
		return nil, fmt.Errorf("it would hold nothing: say that it has ended")
	}
	for _, g := range t.grants {
		at := slices.IndexFunc(holds, func(h Holding) bool { return h.Device == g.Device })
		if at < 0 {
			continue
		}
		h := holds[at]
		if h.Compute < 0 || h.Memory < 0 {
			return nil, fmt.Errorf("it cannot keep floors of %s and %s of device %s", h.Compute, h.Memory, g.Device)
		}
		g.compute, g.memory = min(g.compute, h.Compute), min(g.memory, h.Memory)
		g.Compute.Floor, g.Floor = g.compute, g.memory
		kept = append(kept, g)
	}
	if len(kept) != len(holds) {
		return nil, fmt.Errorf("it is said to keep shares of %d devices, and has %d of these: name devices of its own, each once", len(holds), len(kept))
	}
	return kept, nil
}
