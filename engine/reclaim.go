package engine

import (
	"cmp"
	"slices"

	"github.com/aliquot-dev/aliquot/engine/place"
	"github.com/aliquot-dev/aliquot/engine/queue"
)

// Codes of evictions for the sake of another workload.
const (
	EvictReclaim = "reclaim" // by which a queue takes back what it is guaranteed
	EvictPreempt = "preempt" // by which work of a higher priority in the same queue goes first
)

// restart is what starting again is taken to cost, in µs of running.
const restart = 60_000_000

// maxPruned is up to how many victims are tried one by one whether a plan works without them. Larger plans keep all that hold
// something where the owner would start.
const maxPruned = 64

// reclaim takes back for a workload that does not fit what its queue is guaranteed, from queues that hold more than their quota, and
// then what work of a lower priority holds in its own queue, and what work of other classes borrowed of a pool that is for it: preemptible work only, and only if it then starts. What is taken of each is,
// in this order, of low priority where that counts in its line, cheap to lose (what it ran for, weighed by its compute, and a minute for starting again), and young.
// Among all prefixes of that order the shortest that works is the plan, without those it works without.
//
// Plans that are under way count as carried out, and what they are for as started.
func (p *pass) reclaim(w *workload) {
	if p.plans[w.plan] != nil || w.noPlanAt == p.moves+1 {
		return
	}
	p.setPlan(w, 0) // one that was carried out, and was not enough
	if len(p.plans) == 0 && !p.hasGuest(w) && len(entitled(w)) == 0 && w.Priority <= p.lowest {
		return
	}
	t := trial{pass: p, w: w}
	mark := p.fleet.Begin()
	t.assumePlans()
	candidates := t.candidates(entitled(w)) // with what the plans are for
	var chosen []*workload
	switch {
	case t.fits(): // when the plans under way are carried out
	default:
		chosen = t.cheapest(t.inTurn(candidates))
		switch {
		case len(chosen) > 0:
		case t.fitsWithout(candidates):
			p.timely = true // the order of what goes changes with time
		default:
			w.noPlanAt = p.moves + 1
		}
	}
	t.putBack(0)
	p.fleet.Rollback(mark)
	if len(chosen) > 0 {
		p.carryOut(w, chosen)
	}
}

// entitled are the queues, from that of a workload up, that would be within a quota of their own with it, and under which no quota
// would be passed.
func entitled(w *workload) []*queue.Node {
	var owners []*queue.Node
	demand := w.demand()
	for q := w.queue; q != nil && q.Spares(demand); q = q.Parent() {
		if q.InQuota(demand) {
			owners = append(owners, q)
		}
	}
	return owners
}

// trial is the live state with some workloads taken out of it.
type trial struct {
	*pass
	w     *workload
	moved []movedUse // to take back in the queues; the fleet has its undo log
}

type movedUse struct {
	w     *workload
	uses  []use
	times int64
}

func (t *trial) book(w *workload, uses []use, times int64) {
	pretend(w.queue, uses, !w.Preemptible, times)
	t.moved = append(t.moved, movedUse{w, uses, times})
}

// putBack takes back all but the first so many changes in the queues.
func (t *trial) putBack(keep int) {
	for i := len(t.moved) - 1; i >= keep; i-- {
		m := t.moved[i]
		pretend(m.w.queue, m.uses, !m.w.Preemptible, -m.times)
	}
	t.moved = t.moved[:keep]
}

// remove takes a workload out of the books.
func (t *trial) remove(w *workload) {
	for _, task := range w.tasks {
		if task.live() {
			t.lift(task)
		}
	}
	t.book(w, w.uses(nil), -1)
}

// fits says whether the workload may start as things are.
func (t *trial) fits() bool {
	_, ok := t.try()
	return ok
}

// try places the workload and takes that back.
func (t *trial) try() ([]place.Spot, bool) {
	if _, no := t.w.queue.Over(t.w.demand()); no {
		return nil, false
	}
	mark := t.fleet.Begin()
	spots, ok := t.placer.Place(t.request(t.w))
	t.fleet.Rollback(mark)
	return spots, ok
}

// assumePlans carries out, for a look, the plans that are under way, oldest first.
func (t *trial) assumePlans() {
	for _, pl := range t.openPlans() {
		for _, task := range pl.tasks {
			t.lift(task)
			var uses []use
			for i := range task.grants {
				uses = addUse(uses, use{task.grants[i].model, task.grants[i].amounts()})
			}
			t.book(task.w, uses, -1)
		}
		if o := pl.w; o.plan == pl.id {
			t.assumeStart(o)
		}
	}
}

// assumeStart books a workload that waits for a plan where it would start.
func (t *trial) assumeStart(w *workload) {
	spots, ok := t.placer.Place(t.request(w))
	if !ok {
		return
	}
	var uses []use
	for _, spot := range spots {
		for _, d := range spot.Devices {
			dev := t.fleet.Device(d)
			amounts := queue.Amounts{int64(w.shape.Compute), int64(w.shape.Memory.Of(dev.Memory)), 1}
			uses = addUse(uses, use{dev.Model, amounts})
		}
	}
	t.book(w, uses, 1)
}

// openPlans are the plans under way, oldest first.
func (e *Engine) openPlans() []*plan {
	all := make([]*plan, 0, len(e.plans))
	for _, pl := range e.plans {
		all = append(all, pl)
	}
	slices.SortFunc(all, func(a, b *plan) int { return cmp.Compare(a.id, b.id) })
	return all
}

// candidates are all that may be taken back, in any order.
func (t *trial) candidates(owners []*queue.Node) []*workload {
	var all []*workload
	for _, v := range t.work {
		if t.eligible(v) && t.helps(v) && (preempts(t.w, v) || taker(v, owners) && borrows(v, t.w) || t.guest(v, t.w)) {
			all = append(all, v)
		}
	}
	return all
}

// inTurn are those that may be taken back when those before them are gone, in the order in which they go.
func (t *trial) inTurn(candidates []*workload) []*workload {
	all := slices.Clone(candidates)
	slices.SortFunc(all, func(a, b *workload) int {
		return cmp.Or(cmp.Compare(ownLast(t.w, a), ownLast(t.w, b)), cmp.Compare(a.counted(), b.counted()), cmp.Compare(t.loss(a), t.loss(b)), cmp.Compare(b.seq, a.seq))
	})
	keep := len(t.moved)
	all = slices.DeleteFunc(all, func(v *workload) bool {
		if !borrows(v, t.w) && !t.guest(v, t.w) {
			return true
		}
		t.book(v, v.uses(nil), -1)
		return false
	})
	t.putBack(keep)
	return all
}

// eligible says that a workload runs, gives way and is not going anyway.
func (t *trial) eligible(v *workload) bool {
	return v.Preemptible && !v.waiting() && v.placing == 0 && v.resize == nil && !v.spared && !v.cancelled &&
		!slices.ContainsFunc(v.tasks, func(task *task) bool { return task.live() && task.evicting })
}

// preempts says that a workload goes before one of its own queue that is of a lower priority.
func preempts(w, v *workload) bool {
	return v.queue == w.queue && v.Priority < w.Priority && ranked(w.queue)
}

// ownLast ranks what may be taken back for a workload: of other queues, then of its own.
func ownLast(w, v *workload) int {
	if preempts(w, v) {
		return 1
	}
	return 0
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
		if !slices.ContainsFunc(v.uses(nil), func(u use) bool { return q.Borrows(u.model) }) {
			return false
		}
	}
	return true
}

// helps says that a workload holds something on a node where the trial's could run, or stands in its way under a limit.
func (t *trial) helps(v *workload) bool {
	if _, limited := t.w.queue.Over(t.w.demand()); limited {
		return true
	}
	return slices.ContainsFunc(v.tasks, func(task *task) bool {
		return slices.ContainsFunc(task.grants, func(g grant) bool {
			return t.placer.Serves(&t.w.shape.Request, g.device) || len(t.w.shape.Resources) > 0
		})
	})
}

// loss is what is lost when a workload is ended, in µs of running weighed by thousandths of a device.
func (t *trial) loss(v *workload) int64 {
	var sum int64
	for _, task := range v.tasks {
		if task.live() {
			ran := min(max(0, int64(t.now-task.since)), 1<<42) // 50 days: enough to be dear
			sum += (ran + restart) / 1000 * max(1, int64(v.Share.Compute.Floor)*int64(len(task.grants)))
		}
	}
	return sum
}

// cheapest is the shortest prefix of victims without which the workload fits, less those that it fits beside.
func (t *trial) cheapest(victims []*workload) []*workload {
	mark, keep := t.fleet.Begin(), len(t.moved)
	high := t.fewest(victims)
	t.putBack(keep)
	t.fleet.Rollback(mark)
	if high == 0 {
		return nil
	}
	return t.prune(victims[:high])
}

// fewest is the length of the shortest beginning of victims without which the workload fits, 0 if there is none: by doubling, then
// halving. It leaves those taken out without which it does not fit yet, so that each step costs only what it adds.
func (t *trial) fewest(victims []*workload) int {
	low, high := 0, 1
	for !t.fitsWithoutMore(victims[low:min(high, len(victims))]) {
		if high >= len(victims) {
			return 0
		}
		low, high = high, 2*high
	}
	for high = min(high, len(victims)); high-low > 1; {
		if middle := (low + high) / 2; t.fitsWithoutMore(victims[low:middle]) {
			high = middle
		} else {
			low = middle
		}
	}
	return high
}

// fitsWithoutMore takes more workloads out, and puts them back if the workload then fits.
func (t *trial) fitsWithoutMore(more []*workload) bool {
	mark, keep := t.fleet.Begin(), len(t.moved)
	for _, v := range more {
		t.remove(v)
	}
	if !t.fits() {
		t.fleet.Commit(mark)
		return false
	}
	t.putBack(keep)
	t.fleet.Rollback(mark)
	return true
}

// without takes workloads out, calls look, and puts them back.
func (t *trial) without(victims []*workload, look func()) {
	mark, keep := t.fleet.Begin(), len(t.moved)
	for _, v := range victims {
		t.remove(v)
	}
	look()
	t.putBack(keep)
	t.fleet.Rollback(mark)
}

func (t *trial) fitsWithout(victims []*workload) (ok bool) {
	t.without(victims, func() { ok = t.fits() })
	return ok
}

// prune leaves out of a plan what it works without, dearest first.
func (t *trial) prune(victims []*workload) []*workload {
	var spots []place.Spot
	t.without(victims, func() { spots, _ = t.try() })
	needed := slices.DeleteFunc(slices.Clone(victims), func(v *workload) bool { return !t.meets(v, spots) })
	if !t.fitsWithout(needed) { // a limit needs others to go, too
		needed = slices.Clone(victims)
	}
	if len(needed) > maxPruned {
		return needed
	}
	for i := len(needed) - 1; i >= 0 && len(needed) > 1; i-- {
		if fewer := slices.Delete(slices.Clone(needed), i, i+1); t.fitsWithout(fewer) {
			needed = fewer
		}
	}
	return needed
}

// meets says that a workload holds something where another would start.
func (t *trial) meets(v *workload, spots []place.Spot) bool {
	return slices.ContainsFunc(v.tasks, func(task *task) bool {
		return slices.ContainsFunc(spots, func(s place.Spot) bool {
			return s.Node == task.node && (len(t.w.shape.Resources) > 0 || slices.ContainsFunc(task.grants, func(g grant) bool {
				return slices.Contains(s.Devices, g.device)
			}))
		})
	})
}
