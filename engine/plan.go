package engine

import (
	"fmt"
	"slices"
)

// plan is a set of evictions that together let one workload start: within the quota of its queue, or before work of a lower priority. It
// is over when none of its tasks holds anything any more; one whose end the host refused is no longer part of it.
type plan struct {
	id    ActionID // of its first action
	w     *workload
	tasks []*task // that still hold something
}

// carryOut asks for the evictions of a plan.
func (p *pass) carryOut(w *workload, victims []*workload) {
	pl := &plan{id: p.nextID, w: w}
	p.plans[pl.id] = pl
	p.setPlan(w, pl.id)
	p.moves++ // what is being ended no longer counts for its queue, which may take back what it could not
	for _, v := range victims {
		for _, x := range v.more() { // those of them that are no victims themselves
			p.take(pl, x)
		}
		p.take(pl, v)
	}
	if p.ahead != nil {
		p.ahead.later(func() { delete(p.plans, pl.id) })
	}
}

// take asks for the end of a workload, or a further replica, as a part of a plan.
func (p *pass) take(pl *plan, v *workload) {
	code, reason := p.whyTaken(pl, v)
	for _, t := range v.tasks {
		if t.live() && !t.evicting {
			p.evict(t, code, reason)
			t.plan = pl.id
			pl.tasks = append(pl.tasks, t)
		}
	}
}

// whyTaken is the code of the evictions of a workload for another, and the reason.
func (p *pass) whyTaken(pl *plan, v *workload) (code, reason string) {
	w := pl.w
	switch {
	case v.base != nil:
		return EvictShrink, shrinkReason(v, w, pl.id)
	case p.overdue(v):
		return EvictBackfill, fmt.Sprintf("it was started before the first in line as it was predicted to be over by now, and workload %s wants its devices (plan %d)", w.ID, pl.id)
	case p.guest(v, w):
		return EvictPool, fmt.Sprintf("it had borrowed devices of a pool that is for work of class %s, and workload %s wants them (plan %d)", w.Class, w.ID, pl.id)
	case p.preempts(w, v):
		return EvictPreempt, p.whyPreempted(pl, v)
	}
	return EvictReclaim, fmt.Sprintf("queue %s wants back what it is guaranteed, and queue %s had borrowed it (plan %d)", w.queue.Name, v.queue.Name, pl.id)
}

// leavePlan takes a task out of its plan: it holds nothing any more, or the host refused to end it.
func (e *Engine) leavePlan(t *task) {
	pl := e.plans[t.plan]
	t.plan = 0
	if pl == nil {
		return
	}
	pl.tasks = slices.DeleteFunc(pl.tasks, func(o *task) bool { return o == t })
	if len(pl.tasks) == 0 {
		delete(e.plans, pl.id) // what it was for goes first until it starts
	}
}

// joinPlan enters a task or the workload of a plan that is restored.
func (e *Engine) joinPlan(id ActionID) *plan {
	if e.plans[id] == nil {
		e.plans[id] = &plan{id: id, w: &workload{}}
	}
	return e.plans[id]
}

// checkPlans holds the plans under way against the tasks that they are about.
func (e *Engine) checkPlans() error {
	tasks, planned := map[ActionID]int{}, 0
	for _, w := range e.byID() {
		if w.plan != 0 && e.planned[w] {
			planned++
		}
		if pl := e.plans[w.plan]; w.plan != 0 && (!w.waiting() || pl != nil && pl.w != w) {
			return fmt.Errorf("workload %s waits for plan %d, which is not its own", w.ID, w.plan)
		}
		for _, t := range w.tasks {
			if t.plan == 0 {
				continue
			}
			if pl := e.plans[t.plan]; pl == nil || !t.live() || !t.evicting || !slices.Contains(pl.tasks, t) {
				return fmt.Errorf("task %d of workload %s is part of plan %d and not being evicted by it", t.number(), w.ID, t.plan)
			}
			tasks[t.plan]++
		}
	}
	if planned != len(e.planned) {
		return fmt.Errorf("%d workloads wait for plans, and %d are listed", planned, len(e.planned))
	}
	for id, pl := range e.plans {
		if tasks[id] == 0 || tasks[id] != len(pl.tasks) {
			return fmt.Errorf("plan %d has %d tasks and lists %d", id, tasks[id], len(pl.tasks))
		}
	}
	return nil
}
