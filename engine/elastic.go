package engine

import (
	"cmp"
	"slices"
	"strconv"

	"github.com/aliquot-dev/aliquot/engine/queue"
)

// An elastic workload starts with its Tasks, all or none, and may have up to Max replicas. Each one above the first ones is a workload of one
// task inside the engine, that of its base: preemptible, burst in its queue's books (limits count it, quotas do not), in no line, and not what
// queries list. So what takes workloads back takes single replicas, too.

// EvictShrink is the code of evictions of replicas above those that their workload is sure of.
const EvictShrink = "shrink"

// elastic says that a workload may have more replicas than it starts with.
func (w *Workload) elastic() bool { return w.Max > w.Tasks }

// replicas is what there is of a running elastic workload beyond the tasks that it started with.
type replicas struct {
	more  []*workload // by number
	final bool        // one of its tasks is over: it grows no more
}

// key is by which a workload is known in the engine: a further replica has its base's ID.
func (w *workload) key() string {
	if w.base == nil {
		return w.ID
	}
	return w.ID + "\x00" + strconv.Itoa(int(w.first))
}

// number is the task as hosts know it: those of further replicas come after those that their workload started with.
func (t *task) number() int { return int(t.w.first) + t.index }

// more are the further replicas of a workload, by number.
func (w *workload) more() []*workload {
	if w.replicas == nil {
		return nil
	}
	return w.replicas.more
}

// replica is the further replica with this number; nil: there is none.
func (w *workload) replica(number int) *workload {
	for _, x := range w.more() {
		if int(x.first) == number {
			return x
		}
	}
	return nil
}

// allTasks are the tasks of a workload and of its further replicas, by number.
func (w *workload) allTasks() []*task {
	all := slices.Clip(w.tasks)
	for _, x := range w.more() {
		all = append(all, x.tasks...)
	}
	return all
}

// live says that a workload holds something itself.
func (w *workload) live() bool { return slices.ContainsFunc(w.tasks, (*task).live) }

// ending says that a task of it is being ended.
func (w *workload) ending() bool {
	return slices.ContainsFunc(w.tasks, func(t *task) bool { return t.live() && t.evicting })
}

// runs enters a workload that was placed among those that may grow.
func (e *Engine) runs(w *workload) {
	if w.elastic() {
		w.replicas = &replicas{}
		e.elastics[w] = true
	}
}

// stops takes out what runs enters.
func (e *Engine) stops(w *workload) {
	delete(e.elastics, w)
	w.replicas = nil
}

// enterReplica makes a further replica known.
func (e *Engine) enterReplica(x *workload) {
	e.work[x.key()] = x
	r := x.base.replicas
	i, _ := slices.BinarySearchFunc(r.more, x.first, func(o *workload, first int32) int { return cmp.Compare(o.first, first) })
	r.more = slices.Insert(r.more, i, x)
	e.surplus++
	e.noteLowest(x)
}

// leaveReplica takes one out again that holds nothing any more.
func (e *Engine) leaveReplica(x *workload) {
	delete(e.work, x.key())
	r := x.base.replicas
	r.more = slices.DeleteFunc(slices.Clone(r.more), func(o *workload) bool { return o == x })
	e.surplus--
}

// taskEnded says of a workload, or further replica, one task of which is over, what of it is over with that. Willing: the host did not
// end it for the engine.
func (e *Engine) taskEnded(w *workload, willing bool) {
	base := w
	if w.base != nil {
		base = w.base
		e.forget(w)
	}
	if base.replicas != nil && (willing || w == base) {
		base.replicas.final = true
	}
	if base.live() || len(base.more()) > 0 {
		return
	}
	e.learn(base)
	e.learnUse(base)
	base.queue.Holds--
	e.forget(base)
}

// Replicas is how many replicas a workload has and may have: those that hold grants, its Tasks, and the most.
func (e *Engine) Replicas(id string) (now, sure, most int) {
	w, ok := e.work[id]
	if !ok {
		return 0, 0, 0
	}
	for _, t := range w.allTasks() {
		if t.live() {
			now++
		}
	}
	return now, w.AllTasks(), max(w.AllTasks(), w.Max)
}

// grew has a further replica that was started never have been.
func (a *ahead) grew(x *workload) {
	e := a.e
	a.later(func() {
		for _, t := range x.tasks {
			e.unlist(t)
		}
		delete(e.pending, x.placing)
		delete(e.guests, x)
		e.leaveReplica(x)
		e.dropShape(x)
	})
}

// left is taskEnded in a look ahead.
func (a *ahead) left(w *workload, willing bool) {
	e, base := a.e, w
	if w.base != nil {
		base = w.base
		e.leaveReplica(w)
		a.later(func() { e.enterReplica(w) })
	}
	if r := base.replicas; r != nil {
		was := r.final
		r.final = r.final || willing || w == base
		a.later(func() { r.final = was })
	}
	if base.live() || len(base.more()) > 0 {
		return
	}
	base.queue.Holds--
	delete(e.work, base.ID)
	grows := e.elastics[base]
	delete(e.elastics, base)
	a.later(func() {
		e.work[base.ID] = base
		if grows {
			e.elastics[base] = true
		}
	})
}

// exceeded is the limit that a further replica is over, together with all else that is held there; false: there is none.
func (x *workload) exceeded() (queue.Refusal, bool) {
	for _, u := range x.uses(nil) {
		if r, over := x.queue.Exceeds(u.model, u.amounts); over {
			return r, true
		}
	}
	return queue.Refusal{}, false
}

// task is the task of a workload that has this number; nil: there is none.
func (e *Engine) task(id string, number int) *task {
	w, ok := e.work[id]
	if !ok {
		return nil
	}
	return w.task(number)
}

// task is the workload's task, or that of one of its replicas, that has this number; nil: there is none.
func (w *workload) task(number int) *task {
	if x := w.replica(number); x != nil {
		return x.tasks[0]
	}
	if number < 0 || number >= len(w.tasks) {
		return nil
	}
	return w.tasks[number]
}
