package engine

import (
	"cmp"
	"slices"

	"github.com/aliquot-dev/aliquot/engine/queue"
)

// candidates are all that may be taken back, in any order.
func (t *trial) candidates(owners []*queue.Node) []*workload {
	var all []*workload
	_, limited := t.w.queue.Over(t.w.demand())
	for _, v := range t.work {
		if t.eligible(v) && (limited || t.helps(v)) && (v.base != nil || t.preempts(t.w, v) || taker(v, owners) && borrows(v, t.w) || t.guest(v, t.w) || t.overdue(v)) {
			all = append(all, v)
		}
	}
	return all
}

// open are those of some candidates that are not guarded, and when the first of the others is no more; Never: there is none.
func (t *trial) open(candidates []*workload) (open []*workload, guarded Time) {
	guarded = Never
	isGuarded := func(v *workload) bool {
		until := v.guardedUntil()
		if until > t.now {
			guarded = min(guarded, until)
		}
		return until > t.now
	}
	if slices.ContainsFunc(candidates, isGuarded) {
		candidates = slices.DeleteFunc(slices.Clone(candidates), isGuarded)
	}
	return candidates, guarded
}

// inTurn are those that may be taken back when those before them are gone, in the order in which they go.
func (t *trial) inTurn(candidates []*workload) []*workload {
	turns := make([]turn, len(candidates))
	for i, v := range candidates {
		turns[i] = turn{v, t.tierOf(t.w, v), v.counted(), t.levelOf(v), t.loss(v)}
	}
	slices.SortFunc(turns, turn.compare)
	all := make([]*workload, len(turns))
	for i := range turns {
		all[i] = turns[i].v
	}
	keep := len(t.moved)
	t.moved = slices.Grow(t.moved, len(all))
	all = slices.DeleteFunc(all, func(v *workload) bool {
		if v.base == nil && !borrows(v, t.w) && !t.guest(v, t.w) && !t.overdue(v) {
			return true
		}
		t.book(v, v.staying(), -1)
		return false
	})
	t.putBack(keep)
	return all
}

// turn is what decides when something may go.
type turn struct {
	v        *workload
	tier     tier
	priority int32
	level    int8
	loss     int64
}

// tier is what goes before everything else in when something may go.
type tier int8

const (
	ofSurplus tier = iota // further replicas
	ofLate                // what was let in and is overdue
	ofOthers              // work of other queues, or of other classes
	ofOwn                 // work of the same queue
)

func (a turn) compare(b turn) int {
	switch {
	case a.tier != b.tier:
		return cmp.Compare(a.tier, b.tier)
	case a.tier == ofSurplus:
		return lastStarted(a.v, b.v)
	case a.priority != b.priority:
		return cmp.Compare(a.priority, b.priority)
	case a.level != b.level:
		return cmp.Compare(b.level, a.level)
	case a.loss != b.loss:
		return cmp.Compare(a.loss, b.loss)
	}
	return cmp.Compare(b.v.seq, a.v.seq)
}

// eligible says that a workload gives way, and that some of it runs and is not going anyway.
func (t *trial) eligible(v *workload) bool {
	return v.Preemptible && slices.ContainsFunc(v.tasks, (*task).stays) && v.placing == 0 && v.resize == nil && !v.isSpared() && !v.cancelled &&
		!slices.ContainsFunc(v.more(), func(x *workload) bool { return x.placing != 0 || x.isSpared() }) // it goes with these
}

// tierOf ranks what may be taken back for a workload.
func (t *trial) tierOf(w, v *workload) tier {
	switch {
	case v.base != nil:
		return ofSurplus
	case t.overdue(v):
		return ofLate
	case t.preempts(w, v):
		return ofOwn
	}
	return ofOthers
}

// taker says that the first queue on the owner's side of where the two meet may take back.
func taker(v *workload, owners []*queue.Node) bool {
	return slices.ContainsFunc(owners, func(o *queue.Node) bool {
		return !v.queue.Within(o) && (o.Parent() == nil || v.queue.Within(o.Parent()))
	})
}

// borrows says that every queue of a victim up to where it meets the owner's holds more than its quota.
func borrows(v, w *workload) bool {
	for q := v.queue; q != nil && !w.queue.Within(q); q = q.Parent() {
		if !v.anyModel(q.Borrows) {
			return false
		}
	}
	return true
}

// anyModel says that something is so of a model that a workload holds a device of, and stays there.
func (w *workload) anyModel(is func(string) bool) bool {
	last, none := "", true
	for _, t := range w.tasks {
		if !t.stays() {
			continue
		}
		for i := range t.grants {
			model := t.grants[i].model
			if !none && model == last {
				continue
			}
			if is(model) {
				return true
			}
			last, none = model, false
		}
	}
	return false
}

// helps says that a workload holds something on a node where the trial's could run, and stays there.
func (t *trial) helps(v *workload) bool {
	for _, task := range v.tasks {
		if !task.stays() {
			continue
		}
		for i := range task.grants {
			if t.servedBy(t.w.shape, task.grants[i].device) || t.w.shape.wants() {
				return true
			}
		}
	}
	return false
}

// loss is what is lost when a workload is ended, with its further replicas, in µs of running weighed by thousandths of a device: what it did since it was saved
// last, else since each task started, and what it takes to start again.
func (t *trial) loss(v *workload) int64 {
	const dear = 1 << 42 // 50 days are enough to be
	again := min(int64(v.Restart), dear)
	if again == 0 {
		again = restart
	}
	saved := v.rarely().saved
	var sum int64
	add := func(w *workload) {
		for _, task := range w.tasks {
			if task.stays() {
				from := task.since
				if saved != nil {
					from = max(from, *saved)
				}
				ran := min(max(0, int64(t.now-from)), dear)
				sum += (ran + again) / 1000 * max(1, int64(w.shareOf(task.index).Compute.Floor)*int64(len(task.grants)))
			}
		}
	}
	add(v)
	for _, x := range v.more() {
		add(x)
	}
	return sum
}
