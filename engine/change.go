package engine

import (
	"fmt"
	"slices"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/engine/queue"
)

// resize is a change of a running workload's share: one Resize for each task, kept all together or taken back all together. Until
// it is over the books hold the larger of old and new.
type resize struct {
	share   api.Share // that the workload will have
	back    bool      // it takes an earlier one back
	open    int       // answers that are missing
	refused bool
	tasks   []resizing // by task
}

// resizing is one task's part of a resize.
type resizing struct {
	action ActionID // that waits for its answer; 0: none
	grants []Grant  // that it will have
	done   bool
}

func (e *Engine) change(ev Change) bool {
	w, ok := e.work[ev.ID]
	if !ok {
		return e.reject(ev.ID, "not_found", "there is no workload %s to change", ev.ID)
	}
	if ev.Share != nil {
		if err := validShare(*ev.Share); err != nil {
			return e.reject(ev.ID, "invalid", "workload %s: %v", ev.ID, err)
		}
		if len(w.Roles) > 0 {
			return e.reject(ev.ID, "conflict", "workload %s has roles, each with its own share, and they cannot be changed: submit another", ev.ID)
		}
	}
	q := w.queue
	if ev.Queue != nil {
		if q, ok = e.queues.Get(*ev.Queue); !ok {
			return e.reject(ev.ID, "not_found", "workload %s cannot move to queue %s, which is not there: make it first", ev.ID, *ev.Queue)
		}
	}
	if w.waiting() {
		e.changeWaiting(w, ev, q)
		return true
	}
	var plan *resize
	if ev.Share != nil && *ev.Share != w.Share {
		var err error
		if plan, err = e.planResize(w, *ev.Share); err != nil {
			return e.reject(w.ID, "conflict", "%v", err)
		}
	}
	if plan != nil || q != w.queue {
		if err := e.checkQuota(w, q, plan); err != nil {
			return e.reject(w.ID, "quota", "%v", err)
		}
	}
	if ev.Priority != nil {
		w.Priority = *ev.Priority
		e.noteLowest(w)
		for _, x := range w.more() {
			x.Priority = *ev.Priority
			e.noteLowest(x)
		}
	}
	if q != w.queue {
		w.queue.Holds--
		e.moveHeld(w, q)
		w.queue.Holds++
		for _, x := range w.more() {
			e.moveHeld(x, q)
		}
	}
	if plan != nil {
		e.shrinkAll(w, "the share of its workload changes: it grows again with the new one")
		e.propose(w, plan)
	}
	return true
}

func (e *Engine) changeWaiting(w *workload, ev Change, q *queue.Node) {
	retryAt := w.retryAt
	e.dequeue(w)
	w.retryAt = retryAt
	if ev.Share != nil {
		e.dropShape(w)
		w.Share = *ev.Share
		w.shape = e.shapeOf(&w.Workload)
	}
	if ev.Priority != nil {
		w.Priority = *ev.Priority
		e.noteLowest(w)
	}
	w.queue, w.Queue = q, q.Name
	e.enqueue(w)
}

// moveHeld has a workload, or a further replica, hold what it does in another queue.
func (e *Engine) moveHeld(w *workload, q *queue.Node) {
	held, kind := w.uses(nil), w.kind()
	for _, u := range held {
		w.queue.Hold(u.model, u.amounts, kind, -1)
	}
	w.queue, w.Queue = q, q.Name
	for _, u := range held {
		w.queue.Hold(u.model, u.amounts, kind, 1)
	}
}

// planResize is the new grants of a running workload, if their floors fit where it is.
func (e *Engine) planResize(w *workload, share api.Share) (*resize, error) {
	switch {
	case w.placing != 0:
		return nil, fmt.Errorf("workload %s is being started: change its share when it runs", w.ID)
	case w.resize != nil:
		return nil, fmt.Errorf("workload %s is being resized: change its share again when that is done", w.ID)
	}
	plan := &resize{share: share, tasks: make([]resizing, len(w.tasks))}
	for i, t := range w.tasks {
		if !t.live() {
			continue
		}
		if t.evicting {
			return nil, fmt.Errorf("workload %s is being ended: its share cannot change any more", w.ID)
		}
		for k := range t.grants {
			g := &t.grants[k]
			floor, ceiling := share.Memory.On(e.fleet.Memory(g.device))
			if e.fleet.DeviceGone(g.device) {
				return nil, fmt.Errorf("workload %s cannot change its share: its device %s is not there", w.ID, g.Device)
			}
			if !share.Memory.Bound().IsZero() && !share.Memory.Fits(e.fleet.Memory(g.device)) {
				return nil, fmt.Errorf("workload %s cannot have memory of %s: on its device %s the floor is %s, and the ceiling less; ask for a lower floor or a higher ceiling",
					w.ID, share.Memory, g.Device, floor)
			}
			next := g.Grant
			next.Compute, next.Floor, next.Ceiling, next.Weight = share.Compute, floor, ceiling, share.EffectiveWeight()
			plan.tasks[i].grants = append(plan.tasks[i].grants, next)
		}
	}
	return plan, e.roomFor(w, plan)
}

// roomFor says where a resize does not fit. Several tasks of the workload may be on one device: their new floors add up.
func (e *Engine) roomFor(w *workload, plan *resize) error {
	mark := e.fleet.Begin()
	defer e.fleet.Rollback(mark)
	for i, t := range w.tasks {
		for k := range plan.tasks[i].grants {
			g, next := &t.grants[k], &plan.tasks[i].grants[k]
			moreCompute, moreMemory := max(0, next.Compute.Floor-g.compute), max(0, next.Floor-g.taken())
			compute, memory := e.fleet.Free(g.device)
			if moreCompute > max(0, compute) {
				return fmt.Errorf("workload %s cannot have a compute floor of %s: device %s has %s free beside its own %s; ask for at most %s",
					w.ID, next.Compute.Floor, g.Device, max(0, compute), g.compute, g.compute+max(0, compute))
			}
			if moreMemory > max(0, memory) {
				return fmt.Errorf("workload %s cannot have a memory floor of %s: device %s has %s free beside its own %s; ask for at most %s",
					w.ID, next.Floor, g.Device, max(0, memory), g.taken(), g.taken()+max(0, memory))
			}
			e.fleet.Adjust(g.device, moreCompute, moreMemory, 0)
		}
	}
	return nil
}

// propose books the larger of old and new and tells the host.
func (e *Engine) propose(w *workload, plan *resize) {
	w.resize = plan
	for i, t := range w.tasks {
		r := &plan.tasks[i]
		if len(r.grants) == 0 {
			continue
		}
		for k := range t.grants {
			g := &t.grants[k]
			e.hold(w, g, max(g.compute, r.grants[k].Compute.Floor), max(g.memory, r.grants[k].Floor))
		}
		r.action = e.id()
		plan.open++
		e.pending[r.action] = &proposal{w: w, task: i, kind: resizeProposal}
		e.out = append(e.out, Resize{ID: r.action, Workload: w.ID, Task: i, Grants: slices.Clone(r.grants)})
	}
	e.closeResize(w)
}

// resizeAnswered takes the host's answer for one task.
func (e *Engine) resizeAnswered(w *workload, task int, done bool) bool {
	plan := w.resize
	r := &plan.tasks[task]
	r.action = 0
	plan.open--
	r.done = done
	plan.refused = plan.refused || !done
	return e.closeResize(w)
}

// endResize takes a task that is over out of its workload's resize.
func (e *Engine) endResize(t *task) {
	if t.w.resize == nil {
		return
	}
	r := &t.w.resize.tasks[t.index]
	if r.action != 0 {
		delete(e.pending, r.action)
		t.w.resize.open--
	}
	*r = resizing{}
	e.closeResize(t.w)
}

// closeResize ends a resize whose answers are all there. If a task was refused, those that took the change are asked to take it
// back; what they hold stays the larger until then. A refusal of that is final: such a task keeps the new share.
func (e *Engine) closeResize(w *workload) bool {
	plan := w.resize
	if plan.open > 0 {
		return false
	}
	w.resize = nil
	undo := &resize{share: w.Share, back: true, tasks: make([]resizing, len(w.tasks))}
	reverting := false
	for i, t := range w.tasks {
		r := &plan.tasks[i]
		if len(r.grants) == 0 || !t.live() {
			continue
		}
		if r.done && plan.refused && !plan.back {
			reverting = true
			undo.tasks[i].grants = make([]Grant, len(t.grants))
		}
		for k := range t.grants {
			g := &t.grants[k]
			if undo.tasks[i].grants != nil {
				undo.tasks[i].grants[k] = g.Grant
			}
			if r.done {
				g.Grant = r.grants[k]
			}
			if undo.tasks[i].grants == nil {
				e.hold(w, g, g.Compute.Floor, g.Floor)
			}
		}
	}
	if !plan.refused {
		e.dropShape(w)
		w.Share = plan.share
		w.shape = e.shapeOf(&w.Workload)
		e.noteRise(w)
	}
	if reverting {
		e.propose(w, undo)
	}
	return true
}
