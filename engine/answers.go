package engine

import (
	"slices"
)

// backoff is how long a workload waits after the host refused it without naming a node: a second, doubled each time, up to
// about a minute. A named node is barred instead, and the next try goes elsewhere at once.
func backoff(refusals int) Time {
	return 1_000_000 << min(refusals-1, 6)
}

// refusal is how often the host refused a start for what no node is to blame for, and why it refused it last; empty: not for a
// reason that says where it can start.
type refusal struct {
	times int
	why   string
}

// whyRefused is why the host refused its start last; empty: it did not.
func (w *workload) whyRefused() string {
	if w.refused == nil {
		return ""
	}
	return w.refused.why
}

// liveTask finds a task that holds grants, or rejects the event that speaks of it.
func (e *Engine) liveTask(id string, index int, what string) *task {
	w, ok := e.work[id]
	switch {
	case !ok:
		e.reject(id, "not_found", "task %d of workload %s %s, but there is no such workload", index, id, what)
	case w.waiting():
		e.reject(id, "conflict", "task %d of workload %s %s, but it was not placed", index, id, what)
	default:
		t := w.task(index)
		switch {
		case t == nil:
			e.reject(id, "not_found", "task %d of workload %s %s, but it has only %d", index, id, what, len(w.tasks))
		case !t.live():
			e.reject(id, "conflict", "task %d of workload %s %s, but it is over", index, id, what)
		default:
			return t
		}
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
	e.reorderOut(t, func() { t.since, t.started = e.now, true })
	e.noteRise(t.w) // of what took long to start it was noted for the levels that it has left again
	e.begins(t.w)
	return true
}

// checkpoint notes until when a workload's work is saved. That makes what it would lose less, and no plan possible that was not.
func (e *Engine) checkpoint(ev Checkpoint) bool {
	w, ok := e.work[ev.ID]
	switch {
	case !ok:
		return e.reject(ev.ID, "not_found", "workload %s saved its work, but there is no such workload", ev.ID)
	case w.waiting():
		return e.reject(ev.ID, "conflict", "workload %s saved its work, but it waits: say so while it runs", ev.ID)
	case ev.Ago < 0 || ev.Ago > maxPast:
		return e.reject(ev.ID, "invalid", "workload %s cannot have saved its work %d µs ago: give 0 to %d", ev.ID, ev.Ago, maxPast)
	}
	if at := e.now - ev.Ago; w.rarely().saved == nil || at > *w.rarely().saved {
		w.setRarely(func(r *rare) { r.saved = &at })
	}
	return false
}

func (e *Engine) ended(ev Ended) bool {
	t := e.liveTask(ev.ID, ev.Task, "ended")
	if t == nil {
		return false
	}
	if err := validUsed(ev.Used); err != nil {
		return e.reject(ev.ID, "invalid", "task %d of workload %s: %v", ev.Task, ev.ID, err)
	}
	w := t.w
	w.addUsed(t, ev.Used)
	e.fleet.ForgetRefusal(0, t.node)
	delete(e.pending, t.evict)
	e.endResize(t)
	e.release(t)
	e.taskEnded(w, !t.evicting)
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
		if p.w.base != nil {
			p.w.base.refused = nil
		}
		return p.w.elastic() // it may grow from now on
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
				return e.reject(w.ID, "conflict", "the start of workload %s cannot be refused: its task %d started; say Ended when it is over", w.ID, t.number())
			}
		}
	}
	if ev.Retry < 0 || ev.Retry > maxPast {
		return e.reject(w.ID, "invalid", "what was refused of workload %s cannot be tried again after %d µs: give 1 to %d, or 0 for never", w.ID, ev.Retry, maxPast)
	}
	delete(e.pending, ev.ID)
	switch p.kind {
	case evictProposal:
		t := w.tasks[p.task]
		e.reorderOut(t, func() { t.evict, t.evicting = 0, false })
		if t.plan != 0 {
			e.spare(w, ev.Retry)
			delete(e.moving.gone, w.ID)
			e.leavePlan(t)
		} else {
			w.cancelled = false
		}
		return true // another plan may do, and it may grow
	case resizeProposal:
		return e.resizeAnswered(w, p.task, false)
	case placeProposal:
		e.unplace(w, ev)
	}
	return true
}

// spare has nobody take a workload back that the host could not end: for a time, or for good where that is 0.
func (e *Engine) spare(w *workload, retry Time) {
	e.reorderOuts(w, func() {
		if retry == 0 {
			w.spared = true
			return
		}
		w.setRarely(func(r *rare) { r.sparedUntil = max(r.sparedUntil, after(e.now, retry)) })
		e.sparing[w] = true
	})
}

// reorderOuts changes something on which hangs when a workload's tasks are counted on to be over, and puts them in their places by it.
func (e *Engine) reorderOuts(w *workload, change func()) {
	for _, t := range w.tasks {
		if t.live() {
			e.outs.Delete(t)
		}
	}
	change()
	for _, t := range w.tasks {
		if t.live() {
			e.outs.Insert(t)
		}
	}
}

// reorderOut is the same of one task that holds something.
func (e *Engine) reorderOut(t *task, change func()) {
	e.outs.Delete(t)
	change()
	e.outs.Insert(t)
}

// unspare lets those be taken back again whose time has come.
func (e *Engine) unspare() {
	for w := range e.sparing {
		until := w.rarely().sparedUntil
		if until > e.now {
			continue
		}
		delete(e.sparing, w)
		e.reorderOuts(w, func() { w.setRarely(func(r *rare) { r.sparedUntil = 0 }) })
		e.moves++
		if e.ahead != nil {
			e.ahead.later(func() {
				e.reorderOuts(w, func() { w.setRarely(func(r *rare) { r.sparedUntil = until }) })
				e.sparing[w] = true
			})
		}
	}
}

// isSpared says that nobody takes a workload back now.
func (w *workload) isSpared() bool { return w.spared || w.rarely().sparedUntil != 0 }

// unplace undoes a start that the host refused: the workload takes its old place in line again, unless it was cancelled meanwhile. One
// that the engine wanted evicted before it started does not wait first: that says nothing of where it can start.
func (e *Engine) unplace(w *workload, ev Refused) {
	if w.base != nil {
		e.unplaceReplica(w, ev)
		return
	}
	refused := refusal{why: ev.Reason}
	if w.refused != nil {
		refused.times = w.refused.times
	}
	evicted := slices.ContainsFunc(w.tasks, func(t *task) bool { return t.evicting })
	// Before the grants are released: a node that is gone may be forgotten with them.
	if n, ok := e.fleet.Node(ev.Node); evicted {
		refused.why = ""
	} else if ok {
		e.barWhere(w, n, ev.Reason)
	} else {
		refused.times++
		w.retryAt = after(e.now, backoff(refused.times))
	}
	for _, t := range w.tasks {
		delete(e.pending, t.evict)
		e.release(t)
	}
	w.queue.Holds--
	e.stops(w)
	e.notEarly(w)
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
