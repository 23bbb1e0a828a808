package engine

import (
	"cmp"
	"slices"

	"github.com/aliquot-dev/aliquot/engine/fleet"
	"github.com/aliquot-dev/aliquot/engine/place"
	"github.com/aliquot-dev/aliquot/engine/queue"
)

// Codes of evictions for the sake of another workload.
const (
	EvictReclaim = "reclaim" // by which a queue takes back what it is guaranteed
	EvictPreempt = "preempt" // by which work of a higher priority in the same queue, or that was served less, goes first
)

// restart is what starting again is taken to cost where nothing is said of that, in µs of running.
const restart = 60_000_000

// maxPruned is up to how many victims are tried one by one whether a plan works without them. Larger plans keep all that hold
// something where the owner would start.
const maxPruned = 64

// reclaim takes back for a workload that does not fit what its queue is guaranteed, from queues that hold more than their quota, and
// then what work of a lower priority, or that was served more, holds in its own queue, and what work of other classes borrowed of a pool that is for it: preemptible work only, and only if it then starts. Before
// anything else go the replicas above those that elastic workloads are sure of, whosever they are, the last started first, and then what was let in and is overdue (letin.go). What is taken of the others is,
// in this order, of low priority where that counts in its line, of much service where that does, cheap to lose (what it did since its last checkpoint, or its start, weighed by its compute, and what starting again takes), and young.
// Among all prefixes of that order the shortest that works is the plan, without those it works without. What is guarded (guard.go)
// stays; where there is no plan for that, the next look is when the first of it is no more.
//
// Where the policy moves work, and moves alone make the room, work is moved instead (moves.go), but not where further replicas and what is overdue make it.
//
// Plans that are under way count as carried out, what they are for as started, and what is being ended anyway as ended.
func (p *pass) reclaim(w *workload) {
	if w.Patient || p.plans[w.plan] != nil || w.noPlanAt == p.moves+1 {
		return
	}
	if len(p.plans) == 0 && p.surplus == 0 && !p.hasGuest(w) && len(entitled(w)) == 0 && w.Priority <= p.lowest && w.firstLevel() == 0 && !p.someEnd() && !p.someOverdue() {
		p.setPlan(w, 0)
		return
	}
	t := trial{pass: p, w: w}
	mark := p.fleet.Begin()
	t.assumePlans()
	candidates := t.candidates(entitled(w)) // with what the plans are for
	var chosen, moved []*workload
	var to map[*workload][]string
	switch {
	case t.fits(): // when the plans under way are carried out, and what is being ended is over; a plan of its own that was carried out keeps its turn until then
		p.wants(w, true) // until then nobody grows into its room, who would only be ended again
	default:
		p.setPlan(w, 0) // one that was carried out was not enough
		open, guarded := t.open(candidates)
		chosen = t.cheapest(t.inTurn(open))
		switch {
		case slices.ContainsFunc(chosen, func(v *workload) bool { return v.base == nil && !p.overdue(v) }): // not only further replicas, and what is overdue
			moved, to = t.moves()
		case len(chosen) > 0:
		case t.fitsWithout(open):
			p.timely = true // the order of what goes changes with time
		default:
			w.noPlanAt = p.moves + 1
		}
		if len(chosen) == 0 && guarded < p.guarded && t.fitsWithout(candidates) {
			p.guarded = guarded
		}
	}
	t.putBack(0)
	p.fleet.Rollback(mark)
	switch {
	case len(moved) > 0:
		p.move(w, moved, to, "workload "+w.ID+" fits where it is and nothing is evicted for that")
	case len(chosen) > 0:
		p.carryOut(w, chosen)
	}
}

// fewEnding is up to how many tasks are kept of those that were being ended, whether they are or not.
const fewEnding = 64

// noteEnding keeps a task that is being ended from now on. All that are kept are looked through once they are twice as many as were left the last
// time.
func (e *Engine) noteEnding(t *task) {
	if len(e.ending) >= max(fewEnding, 2*e.endings) {
		e.someEnd()
		e.endings = len(e.ending)
	}
	e.ending[t] = true
}

// someEnd says that a task is being ended for no plan: once it is over, its queue may be entitled to what it is not now. It forgets those that are over,
// but while it is looked ahead, after which they are not.
func (e *Engine) someEnd() bool {
	some := false
	for t := range e.ending {
		switch is := t.live() && t.evicting; {
		case is && t.plan == 0:
			some = true
		case !is && e.ahead == nil:
			delete(e.ending, t)
		}
	}
	return some
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
	began bool       // a plan is under way for the first in line, which was taken for started
}

type movedUse struct {
	w     *workload
	uses  []use
	times int64
	out   bool // it was taken out of the books of the fleet, too
}

func (t *trial) book(w *workload, uses []use, times int64) {
	pretend(w.queue, uses, w.kind(), times)
	t.moved = append(t.moved, movedUse{w: w, uses: uses, times: times})
}

// putBack takes back all but the first so many changes in the queues.
func (t *trial) putBack(keep int) {
	for i := len(t.moved) - 1; i >= keep; i-- {
		m := t.moved[i]
		pretend(m.w.queue, m.uses, m.w.kind(), -m.times)
		if m.out {
			m.w.lifted = false
		}
	}
	t.moved = t.moved[:keep]
}

// remove takes what stays of a workload out of the books, with its further replicas.
func (t *trial) remove(w *workload) {
	if w.lifted {
		return
	}
	for _, x := range w.more() {
		t.remove(x)
	}
	for _, task := range w.tasks {
		if task.stays() {
			t.lift(task)
		}
	}
	t.book(w, w.staying(), -1)
	w.lifted, t.moved[len(t.moved)-1].out = true, true
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
	if ok && t.head != nil && t.head != t.w && !t.began && !t.w.shape.nothing() {
		return t.tryBehind(spots)
	}
	return spots, ok
}

// tryBehind is try of one that waits for a limit of its queue behind a first in line that waits for room, and for which no plan is enough: if that one has
// room as things are, it goes first; else the workload may start as backfill may, on these spots or on others. What would not start then takes nobody's
// place, who would only come back to it.
func (t *trial) tryBehind(spots []place.Spot) ([]place.Spot, bool) {
	mark, keep := t.fleet.Begin(), len(t.moved)
	defer func() {
		t.putBack(keep)
		t.fleet.Rollback(mark)
	}()
	if first, ok := t.placer.Place(t.request(t.head)); ok {
		t.bookAt(t.head, first)
		if _, no := t.w.queue.Over(t.w.demand()); no {
			return nil, false
		}
		return t.placer.Place(t.request(t.w))
	}
	behind := pass{Engine: t.Engine, head: t.head}
	behind.reserve = behind.reserveByTrying(t.head, func(task *task) bool { return task.evicting || task.w.lifted }) // which are out of the books
	if behind.reserve.known && behind.endsInTime(t.w) {
		return spots, true
	}
	return behind.besideHead(t.w, &group{}, spots)
}

// assumePlans carries out, for a look, the plans that are under way, oldest first, after what is being ended anyway.
func (t *trial) assumePlans() {
	for task := range t.ending {
		if task.live() && task.evicting && task.plan == 0 {
			t.assumeEnd(task)
		}
	}
	for _, pl := range t.openPlans() {
		for _, task := range pl.tasks {
			t.assumeEnd(task)
		}
		if o := pl.w; o.plan == pl.id {
			t.assumeStart(o)
		}
	}
}

// assumeEnd takes a task that is being ended out of the books.
func (t *trial) assumeEnd(task *task) {
	t.lift(task)
	t.book(task.w, task.addUses(nil), -1)
}

// assumeStart books a workload that waits for a plan where it would start.
func (t *trial) assumeStart(w *workload) {
	if spots, ok := t.placer.Place(t.request(w)); ok {
		t.bookAt(w, spots)
		t.began = t.began || w == t.head
	}
}

// bookAt books in the queues what a workload holds at places which the fleet's books hold already.
func (t *trial) bookAt(w *workload, spots []place.Spot) {
	var uses []use
	for i, spot := range spots {
		r := w.shape.Of(i)
		for _, d := range spot.Devices {
			dev := t.fleet.Device(d)
			amounts := queue.Amounts{int64(r.Compute), int64(r.Memory.Of(dev.Memory)), 1}
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
	meets := t.meets(spots)
	needed := slices.DeleteFunc(slices.Clone(victims), func(v *workload) bool { return !meets(v) })
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

// meets tells the workloads that hold something where the trial's would start.
func (t *trial) meets(spots []place.Spot) func(*workload) bool {
	nodes, devices := map[fleet.NodeID]bool{}, map[fleet.DeviceID]bool{}
	for _, s := range spots {
		nodes[s.Node] = true
		for _, d := range s.Devices {
			devices[d] = true
		}
	}
	wants := t.w.shape.wants()
	return func(v *workload) bool {
		return slices.ContainsFunc(v.tasks, func(task *task) bool {
			return task.stays() && (wants && nodes[task.node] || slices.ContainsFunc(task.grants, func(g grant) bool { return devices[g.device] }))
		})
	}
}
