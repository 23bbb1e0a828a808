package engine

import "slices"

// ahead is a look ahead on the live state: what is done inside it is what would be done, by the same code, and all of it is taken
// back. The books of the fleet have their undo log; queues and what came lately are remembered whole; of workloads, tasks and lists
// each change leaves here how to undo it. Nothing outside may change the nodes or the queues meanwhile.
type ahead struct {
	e        *Engine
	undo     []func()
	promises map[*workload]Promise // to the first in line, of what was tried behind it last
}

// lookAhead calls look with time gone on to at, and takes back what it did. Looks ahead nest.
func (e *Engine) lookAhead(at Time, look func(a *ahead)) {
	now, nextID, seq, out, settled, ungrown, guarded, due, rise, looked := e.now, e.nextID, e.seq, e.out, e.settled, e.ungrown, e.guarded, e.due, e.rise, e.looked
	queues, seen, names := e.queues.Save(), e.placer.SaveSeen(), e.fleet.Names()
	outer, mark := e.ahead, e.fleet.Begin()
	e.ahead = &ahead{e: e, promises: map[*workload]Promise{}}
	e.now = max(e.now, at)
	e.queues.Now = int64(e.now)
	look(e.ahead)
	undo := e.ahead.undo
	e.ahead = nil
	for i := len(undo) - 1; i >= 0; i-- {
		undo[i]()
	}
	e.ahead = outer
	e.fleet.Rollback(mark)
	queues()
	seen()
	e.fleet.ForgetSince(names)
	e.now, e.nextID, e.seq, e.out, e.settled, e.ungrown, e.guarded, e.due, e.rise, e.looked = now, nextID, seq, out, settled, ungrown, guarded, due, rise, looked
	e.doubt()
}

// doubt makes what was found impossible be tried again: that no place was found, and that there is no plan.
func (e *Engine) doubt() {
	e.fleet.Doubt()
	e.moves++
}

func (a *ahead) later(undo func()) { a.undo = append(a.undo, undo) }

// submitted has a workload that was taken in forgotten.
func (a *ahead) submitted(w *workload) {
	a.later(func() {
		a.e.dequeue(w)
		a.e.dropShape(w)
		delete(a.e.guests, w)
		delete(a.e.work, w.ID)
	})
}

// started puts a workload that was started back in line.
func (a *ahead) started(w *workload) {
	e := a.e
	a.later(func() {
		for _, t := range w.tasks {
			e.unlist(t)
		}
		delete(e.pending, w.placing)
		w.placing, w.tasks = 0, nil
		e.stops(w)
		e.line.Insert(w)
		e.regroup(w)
	})
}

// unparked has a workload wait for its time again.
func (a *ahead) unparked(w *workload, retryAt Time) {
	a.later(func() {
		if w.waiting() {
			a.e.ungroup(w)
		}
		w.retryAt = retryAt
		a.e.parked.Insert(w)
	})
}

// evicting has a task run on, outside of any plan, that is asked to end.
func (a *ahead) evicting(t *task) {
	was := *t
	a.later(func() {
		delete(a.e.pending, t.evict)
		a.e.reorderOut(t, func() { *t = was })
	})
}

// using has a grant hold again what it holds.
func (a *ahead) using(g *grant) {
	used := g.used
	a.later(func() {
		a.e.countAbove(g, -1)
		g.used = used
		a.e.countAbove(g, 1)
	})
}

// setPlan says which plan a waiting workload waits for; 0: none.
func (e *Engine) setPlan(w *workload, id ActionID) {
	if a := e.ahead; a != nil {
		before := w.plan
		a.later(func() { e.planFor(w, before) })
	}
	e.planFor(w, id)
}

// planFor is setPlan that stays.
func (e *Engine) planFor(w *workload, id ActionID) {
	if w.plan = id; id != 0 {
		e.planned[w] = true
	} else {
		delete(e.planned, w)
	}
}

// unlist takes a task, and what it holds, out of all lists but the fleet's books and the queues.
func (e *Engine) unlist(t *task) {
	e.outs.Delete(t)
	for i := range t.grants {
		g := &t.grants[i]
		delete(e.foreign, g.UID)
		e.countAbove(g, -1)
		e.held.remove(g.device, t)
	}
}

// list enters a task, and what it holds, in all lists that unlist takes it out of.
func (e *Engine) list(t *task) {
	for i := range t.grants {
		g := &t.grants[i]
		e.held.add(g.device, t)
		if !t.isNamedBy(g.UID, i) {
			e.foreign[g.UID] = grantAt{t, i}
		}
		e.countAbove(g, 1)
	}
	e.outs.Insert(t)
}

// end has a task end as if the host had said so.
func (a *ahead) end(t *task) {
	e, w := a.e, t.w
	was := *t
	pl, proposed := e.plans[t.plan], e.pending[t.evict]
	var planned []*task
	if pl != nil {
		planned = slices.Clone(pl.tasks)
	}
	delete(e.pending, t.evict)
	e.unlist(t)
	e.giveBack(t)
	a.left(w, !was.evicting)
	a.later(func() {
		*t = was
		if pl != nil {
			pl.tasks = planned
			e.plans[pl.id] = pl
		}
		if proposed != nil {
			e.pending[t.evict] = proposed
		}
		e.list(t)
	})
}

// begin has a workload that was placed run from now on.
func (a *ahead) begin(w *workload) {
	e := a.e
	placing, proposed := w.placing, e.pending[w.placing]
	delete(e.pending, placing)
	w.placing = 0
	a.later(func() {
		w.placing = placing
		e.pending[placing] = proposed
	})
	for _, t := range w.tasks {
		if !t.live() || t.started {
			continue
		}
		since := t.since
		a.restart(t, e.now, true)
		a.later(func() { a.restart(t, since, false) })
	}
}

// restart changes since when a task runs.
func (a *ahead) restart(t *task, since Time, started bool) {
	a.e.reorderOut(t, func() { t.since, t.started = since, started })
}
