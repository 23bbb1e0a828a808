package engine

import (
	"slices"
)

// backoff is how long a workload waits after the host refused it without naming a node: a second, doubled each time, up to
// about a minute. A named node is barred instead, and the next try goes elsewhere at once.
func backoff(refusals int) Time {
	return 1_000_000 << min(refusals-1, 6)
}

// liveTask finds a task that holds grants, or rejects the event that speaks of it.
func (e *Engine) liveTask(id string, index int, what string) *task {
	w, ok := e.work[id]
	switch {
	case !ok:
		e.reject(id, "not_found", "task %d of workload %s %s, but there is no such workload", index, id, what)
	case w.waiting():
		e.reject(id, "conflict", "task %d of workload %s %s, but it was not placed", index, id, what)
	case index < 0 || index >= len(w.tasks):
		e.reject(id, "not_found", "task %d of workload %s %s, but it has only %d", index, id, what, len(w.tasks))
	case !w.tasks[index].live():
		e.reject(id, "conflict", "task %d of workload %s %s, but it is over", index, id, what)
	default:
		return w.tasks[index]
	}
	return nil
}

func (e *Engine) started(ev Started) bool {
	t := e.liveTask(ev.ID, ev.Task, "started")
	switch {
	case t == nil:
		return false
	case t.started:
		return e.reject(ev.ID, "duplicate", "task %d of workload %s started already", ev.Task, ev.ID)
	}
	if t.w.TimeLimit > 0 {
		e.ends.Delete(t)
		t.since = e.now
		e.ends.Insert(t)
	}
	t.since, t.started = e.now, true
	return true
}

func (e *Engine) ended(ev Ended) bool {
	t := e.liveTask(ev.ID, ev.Task, "ended")
	if t == nil {
		return false
	}
	w := t.w
	e.fleet.ForgetRefusal(0, t.node)
	delete(e.pending, t.evict)
	e.endResize(t)
	e.release(t)
	if !slices.ContainsFunc(w.tasks, (*task).live) {
		e.learn(w)
		w.queue.Holds--
		e.forget(w)
	}
	return true
}

func (e *Engine) done(ev Done) bool {
	p, ok := e.pending[ev.ID]
	if !ok {
		return e.reject("", "not_found", "action %d waits for no answer", ev.ID)
	}
	delete(e.pending, ev.ID)
	switch p.kind {
	case placeProposal:
		p.w.placing, p.w.refused = 0, nil
	case evictProposal:
		p.w.tasks[p.task].evict = 0
	case resizeProposal:
		return e.resizeAnswered(p.w, p.task, true)
	}
	return false
}

func (e *Engine) refused(ev Refused) bool {
	p, ok := e.pending[ev.ID]
	if !ok {
		return e.reject("", "not_found", "action %d waits for no answer", ev.ID)
	}
	w := p.w
	if p.kind == placeProposal {
		for _, t := range w.tasks {
			if t.started || !t.live() {
				return e.reject(w.ID, "conflict", "the start of workload %s cannot be refused: its task %d started; say Ended when it is over", w.ID, t.index)
			}
		}
	}
	delete(e.pending, ev.ID)
	switch p.kind {
	case evictProposal:
		w.tasks[p.task].evict, w.tasks[p.task].evicting = 0, false
		if w.tasks[p.task].plan != 0 {
			w.spared = true
			e.leavePlan(w.tasks[p.task])
			return true // another plan may do
		}
		w.cancelled = false
		return false
	case resizeProposal:
		return e.resizeAnswered(w, p.task, false)
	case placeProposal:
		e.unplace(w, ev)
	}
	return true
}

// unplace undoes a start that the host refused: the workload takes its old place in line again, unless it was cancelled meanwhile. One
// that the engine wanted evicted before it started does not wait first: that says nothing of where it can start.
func (e *Engine) unplace(w *workload, ev Refused) {
	refused := refusal{why: ev.Reason}
	if w.refused != nil {
		refused.times = w.refused.times
	}
	evicted := slices.ContainsFunc(w.tasks, func(t *task) bool { return t.evicting })
	// Before the grants are released: a node that is gone may be forgotten with them.
	if n, ok := e.fleet.Node(ev.Node); evicted {
		refused.why = ""
	} else if ok {
		e.fleet.Refuse(w.shape.Class, n, ev.Reason)
	} else {
		refused.times++
		w.retryAt = after(e.now, backoff(refused.times))
	}
	for _, t := range w.tasks {
		delete(e.pending, t.evict)
		e.release(t)
	}
	w.queue.Holds--
	w.placing, w.tasks, w.refused = 0, nil, nil
	if refused != (refusal{}) {
		w.refused = &refused
	}
	if w.cancelled {
		e.forget(w)
		return
	}
	e.enqueue(w)
}
