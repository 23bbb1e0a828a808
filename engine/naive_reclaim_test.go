package engine

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/aliquot-dev/aliquot/api"
)

// naivePlan is a set of evictions that lets a workload start.
type naivePlan struct {
	w     *naiveWork
	tasks []*naiveTask // that still hold something
}

func (n *naive) leavePlan(t *naiveTask) {
	pl := t.plan
	if pl == nil {
		return
	}
	t.plan = nil
	pl.tasks = slices.DeleteFunc(pl.tasks, func(o *naiveTask) bool { return o == t })
	if len(pl.tasks) == 0 {
		n.plans = slices.DeleteFunc(n.plans, func(o *naivePlan) bool { return o == pl })
	}
}

// reclaim takes back for a workload what its queue is guaranteed.
func (n *naive) reclaim(out *strings.Builder, w *naiveWork) {
	if w.Patient || w.plan != nil && len(w.plan.tasks) > 0 {
		return
	}
	var chosen []*naiveWork
	n.assumingPlans(func() { chosen = n.chooseVictims(w) })
	if len(chosen) == 0 {
		return
	}
	w.plan = &naivePlan{w: w}
	n.plans = append(n.plans, w.plan)
	for _, v := range chosen {
		for _, x := range append(n.more(v), v) {
			for i, t := range x.tasks {
				if !t.over && !t.evicting {
					t.plan, t.evicting = w.plan, true
					w.plan.tasks = append(w.plan.tasks, t)
					fmt.Fprintf(out, "evict %s %d\n", x.ID, x.first+i)
				}
			}
		}
	}
}

// assumingPlans calls look as if what is being ended had ended, the plans under way were carried out and what they are for had started.
func (n *naive) assumingPlans(look func()) {
	var gone []*naiveTask
	var started []*naiveWork
	for _, w := range n.work {
		for _, t := range w.tasks {
			if !t.over && t.evicting && t.plan == nil {
				t.over = true
				gone = append(gone, t)
			}
		}
	}
	for _, pl := range n.plans {
		for _, t := range pl.tasks {
			t.over = true
			gone = append(gone, t)
		}
		if pl.w.plan != pl || pl.w.tasks != nil || !slices.Contains(n.work, pl.w) {
			continue
		}
		if spots, ok := n.full().fit(&pl.w.Workload, n.kept(pl.w, nil)); ok {
			for _, s := range spots {
				pl.w.tasks = append(pl.w.tasks, &naiveTask{node: s.node, devices: s.devices, used: map[string]api.Bytes{}})
			}
			started = append(started, pl.w)
		}
	}
	look()
	for _, t := range gone {
		t.over = false
	}
	for _, w := range started {
		w.tasks = nil
	}
}

// without calls look as if these held nothing.
func (n *naive) without(victims []*naiveWork, look func()) {
	var gone []*naiveTask
	for _, v := range victims {
		for _, x := range append(n.more(v), v) {
			for _, t := range x.tasks {
				if !t.over && (x == v || !t.evicting) {
					t.over = true
					gone = append(gone, t)
				}
			}
		}
	}
	look()
	for _, t := range gone {
		t.over = false
	}
}

func (n *naive) fitsWithout(w *naiveWork, victims []*naiveWork) (spots []naiveSpot, ok bool) {
	n.without(victims, func() {
		if n.refusal(w, "", 0, nil, false) == nil {
			spots, ok = n.full().fit(&w.Workload, n.kept(w, nil))
		}
		if ok && n.first != nil && n.first.tasks == nil && !w.takesNothing() {
			spots, ok = n.behindFirst(w, spots)
		}
	})
	return spots, ok
}

// behindFirst is where a workload starts behind the first in line, as things are then: that one takes what it can at once.
func (n *naive) behindFirst(w *naiveWork, spots []naiveSpot) ([]naiveSpot, bool) {
	first := n.first
	if at, ok := n.full().fit(&first.Workload, n.kept(first, nil)); ok {
		for _, s := range at {
			first.tasks = append(first.tasks, &naiveTask{node: s.node, devices: s.devices, used: map[string]api.Bytes{}})
		}
		spots, ok = nil, n.refusal(w, "", 0, nil, false) == nil
		if ok {
			spots, ok = n.full().fit(&w.Workload, n.kept(w, nil))
		}
		first.tasks = nil
		return spots, ok
	}
	r := n.reserve(first)
	if r.known && w.TimeLimit > 0 && n.now+w.TimeLimit <= r.at {
		return spots, true
	}
	spots = n.besideHead(w, first, r, spots)
	return spots, spots != nil
}

func (n *naive) chooseVictims(w *naiveWork) []*naiveWork {
	if _, ok := n.fitsWithout(w, nil); ok {
		n.wanting = append(n.wanting, w) // soon
		return nil
	}
	w.plan = nil
	limited := n.refusal(w, "", 0, nil, false) != nil
	var all, some []*naiveWork
	first := Never
	for _, v := range n.work {
		if !n.mayTake(w, v, limited) {
			continue
		}
		all = append(all, v)
		if until := n.guardedUntil(v); until > n.now {
			first = min(first, until)
		} else {
			some = append(some, v)
		}
	}
	if chosen := n.cheapest(w, some); len(chosen) > 0 {
		return chosen
	}
	if _, ok := n.fitsWithout(w, all); ok && first < Never && (n.guarded == 0 || first < n.guarded) {
		n.guarded = first
	}
	return nil
}

// before are times so long ago.
func (n *naive) before(ago []Time) (all []Time) {
	for _, one := range ago {
		all = append(all, n.now-one)
	}
	return all
}

// guardedUntil is until when a workload is not evicted for others: it has not run for as long as its queue, or one above it, says, or was evicted as often as one says.
func (n *naive) guardedUntil(v *naiveWork) (until Time) {
	for _, q := range n.above(v.Queue) {
		for _, t := range v.tasks {
			if least := Time(n.queues[q].MinRun / 1000); least > 0 && v.base == nil && !t.over && !t.evicting {
				until = max(until, t.since+least)
			}
		}
		budget := n.queues[q].Disruptions
		for _, first := range v.disrupted { // the budget is used up for as long after it as the time from it on has seen so many
			since := 0
			for _, at := range v.disrupted {
				since += count(at >= first)
			}
			if budget.Most > 0 && v.base == nil && since >= int(budget.Most) {
				until = max(until, first+Time(budget.Per/1000))
			}
		}
	}
	return until
}

// cheapest is the plan that takes from these, if there is one.
func (n *naive) cheapest(w *naiveWork, all []*naiveWork) []*naiveWork {
	slices.SortFunc(all, func(a, b *naiveWork) int {
		if a.base != nil && b.base != nil {
			return lastStartedFirst(a, b)
		}
		return cmp.Or(count(b.base != nil)-count(a.base != nil), count(n.overdue(b))-count(n.overdue(a)), count(n.outranks(w, a) && !n.overdue(a))-count(n.outranks(w, b) && !n.overdue(b)), cmp.Compare(n.counted(a), n.counted(b)), cmp.Compare(n.level(b), n.level(a)), cmp.Compare(n.loss(a), n.loss(b)), cmp.Compare(b.coming, a.coming))
	})
	var chosen []*naiveWork
	for _, v := range all {
		n.without(chosen, func() {
			if v.base != nil || n.borrows(v, w) || n.guest(v, w) || n.overdue(v) {
				chosen = append(chosen, v)
			}
		})
	}
	for k := range len(chosen) + 1 {
		if spots, ok := n.fitsWithout(w, chosen[:k]); ok {
			return n.prune(w, chosen[:k], spots)
		}
	}
	return nil
}

// prune leaves out what stands nowhere in the way, and then what the plan works without.
func (n *naive) prune(w *naiveWork, chosen []*naiveWork, spots []naiveSpot) []*naiveWork {
	var needed []*naiveWork
	for _, v := range chosen {
		if slices.ContainsFunc(v.tasks, func(t *naiveTask) bool {
			return !t.over && slices.ContainsFunc(spots, func(s naiveSpot) bool {
				return s.node == t.node && (w.cpu() || slices.ContainsFunc(t.devices, func(d string) bool { return slices.Contains(s.devices, d) }))
			})
		}) {
			needed = append(needed, v)
		}
	}
	if _, ok := n.fitsWithout(w, needed); !ok {
		needed = slices.Clone(chosen)
	}
	for i := len(needed) - 1; i >= 0 && len(needed) > 1; i-- {
		fewer := slices.Delete(slices.Clone(needed), i, i+1)
		if _, ok := n.fitsWithout(w, fewer); ok {
			needed = fewer
		}
	}
	return needed
}

// mayTake says that a workload gives way to another, if its queue borrows and the other's wants what is its own.
func (n *naive) mayTake(w, v *naiveWork, limited bool) bool {
	live, evicting, stands := false, false, limited
	for _, t := range v.tasks {
		live, evicting = live || !t.over, evicting || !t.over && t.evicting
		for _, uuid := range t.devices {
			stands = stands || !t.over && (w.anyPart(func(one *Workload) bool { return n.serves(one, t.node, n.device(t.node, uuid)) }) || w.cpu())
		}
	}
	if v.plan != nil { // it only waits, and is taken for started
		return false
	}
	if !live || evicting || !stands || !v.Preemptible || v.placing != 0 || v.cancelled {
		return false
	}
	for _, x := range n.more(v) {
		if x.placing != 0 {
			return false
		}
	}
	if v.base != nil || n.guest(v, w) || n.overdue(v) {
		return true
	}
	if !n.borrows(v, w) {
		return false
	}
	if n.outranks(w, v) {
		return true
	}
	// The queue right under where the two meet must be within a quota with w, and none under it over one.
	for _, q := range n.above(w.Queue) {
		if n.passes(q, w) {
			return false
		}
		parent := n.queues[q].Parent
		if meets := !slices.Contains(n.above(v.Queue), q) && (parent == "" || slices.Contains(n.above(v.Queue), parent)); meets {
			return !n.over(q, w)
		}
	}
	return false
}

// guest says that one is on a device of a pool that is for the other, and not for itself.
func (n *naive) guest(v, w *naiveWork) bool {
	for _, t := range v.tasks {
		for _, uuid := range t.devices {
			d := n.device(t.node, uuid)
			if p := n.poolOf(t.node, d); !t.over && p != nil && n.isHome(&w.Workload, t.node, d) && !n.isHome(&v.Workload, t.node, d) {
				return true
			}
		}
	}
	return false
}

// outranks says that a workload goes before another of the same queue.
func (n *naive) outranks(w, v *naiveWork) bool {
	if n.rank(v) == n.rank(w) {
		return v.Queue == w.Queue && n.level(w) < n.level(v)
	}
	return v.Queue == w.Queue && n.rank(v) < n.rank(w)
}

// counted is a priority that counts for something in its line.
func (n *naive) counted(w *naiveWork) int32 {
	if n.ruler(w.Queue).Order.NoPriority {
		return 0
	}
	return w.Priority
}

// passes says that a quota of the queue itself would be passed.
func (n *naive) passes(queue string, w *naiveWork) bool {
	return n.over(queue, w) && slices.ContainsFunc(n.bounds(queue, w.onModel()), func(b naiveBound) bool { return b.queue == queue && !b.limit })
}

// borrows says that each queue of v below where it meets w's holds more than its quota on a model that v is on.
func (n *naive) borrows(v, w *naiveWork) bool {
	for _, q := range n.above(v.Queue) {
		if slices.Contains(n.above(w.Queue), q) {
			return true
		}
		some := false
		for _, t := range v.tasks {
			for _, uuid := range t.devices {
				some = some || !t.over && n.holdsMore(q, n.device(t.node, uuid).Model)
			}
		}
		if !some {
			return false
		}
	}
	return true
}

func (n *naive) holdsMore(queue, model string) bool {
	var quotas []naiveBound
	for _, b := range n.bounds(queue, model) {
		if b.queue == queue && !b.limit {
			quotas = append(quotas, b)
		}
	}
	if i := slices.IndexFunc(quotas, func(b naiveBound) bool { return b.model == model }); i >= 0 {
		quotas = slices.DeleteFunc(quotas, func(b naiveBound) bool { return b.model == "" })
	}
	return len(quotas) == 0 || slices.ContainsFunc(quotas, func(b naiveBound) bool {
		return n.held(queue, b.model, false, true)[b.resource]-n.burst(queue, b.model)[b.resource] > b.amount
	})
}

// loss is what is lost when a workload is ended with its further replicas.
func (n *naive) loss(v *naiveWork) (sum int64) {
	restart := v.Restart
	if restart == 0 {
		restart = 60 * second
	}
	for _, x := range append(n.more(v), v) {
		for _, t := range x.tasks {
			if !t.over && (x == v || !t.evicting) {
				since := t.since
				if v.saved != nil && *v.saved > since {
					since = *v.saved
				}
				sum += int64(n.now-since+restart) / 1000 * max(1, int64(x.asks(t).Share.Compute.Floor)*int64(len(t.devices)))
			}
		}
	}
	return sum
}
