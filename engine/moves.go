package engine

import (
	"cmp"
	"slices"

	"github.com/aliquot-dev/aliquot/engine/fleet"
	"github.com/aliquot-dev/aliquot/engine/place"
)

const (
	maxSources = 64  // devices that one look tries to empty, those that cost least first
	maxMovable = 512 // tasks of workloads that one look considers to make room for another, the cheapest first
)

// look is one search for moves. The fleet and the queues are as they were when it is over.
type look struct {
	trial
	rule  *Defragment
	left  int                    // moves that may be made now
	again Time                   // when what stands in the way now does no more, by the time alone; Never: nothing does
	to    map[*workload][]string // the devices that each has room on, task by task, by the last question that was answered with yes
}

// wait notes that more may be possible from a time on.
func (l *look) wait(until Time) { l.again = min(l.again, until) }

// movableFrom is when a workload may be moved by the time: all its tasks run, and it may have no more, gives way and comes again. From then on each has run
// for long enough, and it was not moved lately. Never: not as things are.
func (l *look) movableFrom(v *workload) Time {
	if v.elastic() || v.base != nil || !v.Requeue || !l.eligible(v) {
		return Never
	}
	from := max(v.rarely().stays, v.guardedUntil())
	for _, t := range v.tasks {
		if !t.started || !t.stays() {
			return Never
		}
		from = max(from, after(t.since, l.rule.MinRun))
	}
	return from
}

// reached says that a time is no later than now. If it is, more may be possible then.
func (l *look) reached(from Time) bool {
	if from > l.now {
		l.wait(from)
	}
	return from <= l.now
}

// affordable says that so many moves at such a loss may be made now.
func (l *look) affordable(moves int, loss int64) bool {
	if l.rule.MaxLoss > 0 && loss > int64(l.rule.MaxLoss) {
		return false
	}
	if moves > l.left && moves <= int(l.rule.MovesPerHour) {
		l.wait(after(l.moving.recent[moves-l.left-1].At, movesOver))
	}
	return moves <= l.left
}

// source is a device that may be emptied.
type source struct {
	device fleet.DeviceID
	work   []*workload
	loss   int64
}

// emptyOne moves all that is on one device into others that hold something already, the one that costs least first. It says whether it did.
func (l *look) emptyOne() bool {
	if l.rule.Free > 0 && l.freeDevices() >= l.rule.Free {
		return false
	}
	var sources []source
	for n := range l.fleet.Nodes {
		for _, d := range l.fleet.DevicesOf(n) {
			if s, ok := l.sourceOf(d); ok {
				sources = append(sources, s)
			}
		}
	}
	slices.SortStableFunc(sources, func(a, b source) int {
		return cmp.Or(cmp.Compare(a.loss, b.loss), cmp.Compare(len(a.work), len(b.work)))
	})
	for i := range sources[:min(len(sources), maxSources)] {
		s := &sources[i]
		held := devicesOf(s.work)
		if l.allElsewhere(nil, s.work, func(_ *workload, d fleet.DeviceID) bool {
			return d == s.device || l.fleet.BookOf(d).Grants == 0 && !held[d]
		}) {
			l.move(nil, s.work, l.to, l.deviceName(s.device)+" is free as a whole")
			return true
		}
	}
	return false
}

// devicesOf are the devices that workloads hold.
func devicesOf(all []*workload) map[fleet.DeviceID]bool {
	held := map[fleet.DeviceID]bool{}
	for _, v := range all {
		for _, t := range v.tasks {
			for i := range t.grants {
				held[t.grants[i].device] = true
			}
		}
	}
	return held
}

// sourceOf is a device with all that would have to go from it, if that may be.
func (l *look) sourceOf(d fleet.DeviceID) (source, bool) {
	s := source{device: d}
	if !l.fleet.Placeable(d) || len(l.held.on(d)) == 0 {
		return s, false
	}
	from := Time(0)
	for _, t := range l.held.on(d) { // in no order: what is told of them must be the same in any
		if from = max(from, l.movableFrom(t.w)); len(t.grants) != 1 {
			from = Never
		}
		if !slices.Contains(s.work, t.w) {
			s.work = append(s.work, t.w)
		}
	}
	if !l.reached(from) {
		return s, false
	}
	for _, v := range s.work {
		s.loss += l.loss(v)
	}
	slices.SortFunc(s.work, func(a, b *workload) int { return cmp.Compare(a.seq, b.seq) })
	return s, l.affordable(len(s.work), s.loss)
}

// makeRoom moves the cheapest work without which the first in line fits. It says whether it did.
func (l *look) makeRoom(first *workload) bool {
	l.w = first
	chosen := l.inTheWay()
	if len(chosen) > 0 {
		l.move(first, chosen, l.to, "workload "+first.ID+", which waits first, fits where it is")
	}
	return len(chosen) > 0
}

// inTheWay is the cheapest work that may be moved now and without which the look's workload fits, all of which has room elsewhere once that has started; nil: there is
// none.
func (l *look) inTheWay() []*workload {
	var all []*workload
	for _, v := range l.work {
		if l.reached(l.movableFrom(v)) && l.helps(v) {
			all = append(all, v)
		}
	}
	slices.SortFunc(all, func(a, b *workload) int { return cmp.Or(cmp.Compare(l.loss(a), l.loss(b)), cmp.Compare(b.seq, a.seq)) })
	all = firstTasks(all, maxMovable)
	all = slices.DeleteFunc(all, func(v *workload) bool { return !l.hasElsewhere(v) })
	chosen := l.cheapest(all)
	loss := int64(0)
	for _, v := range chosen {
		loss += l.loss(v)
	}
	if len(chosen) == 0 || !l.affordable(len(chosen), loss) || !l.offOwn(l.w, chosen) {
		return nil
	}
	return chosen
}

// firstTasks is the beginning of some workloads that has so many tasks at the most, and one workload at least.
func firstTasks(all []*workload, tasks int) []*workload {
	for i, v := range all {
		if tasks -= len(v.tasks); tasks < 0 {
			return all[:max(i, min(1, len(all)))]
		}
	}
	return all
}

// offOwn is allElsewhere where none of the workloads comes back to a device that one of them holds; but tasks of a gang may come back to its own, as long as not
// all of them do.
func (l *look) offOwn(first *workload, all []*workload) bool {
	held, own := devicesOf(all), map[*workload]map[fleet.DeviceID]bool{}
	for _, v := range all {
		if len(v.tasks) > 1 {
			own[v] = devicesOf([]*workload{v})
		}
	}
	if !l.allElsewhere(first, all, func(v *workload, d fleet.DeviceID) bool { return held[d] && !own[v][d] }) {
		return false
	}
	return !slices.ContainsFunc(all, func(v *workload) bool {
		return len(v.tasks) > 1 && slices.Equal(slices.Sorted(slices.Values(l.to[v])), slices.Sorted(slices.Values(l.namesOf(v))))
	})
}

// namesOf are the devices of a workload, task by task.
func (l *look) namesOf(v *workload) (names []string) {
	for _, t := range v.tasks {
		for i := range t.grants {
			names = append(names, l.fleet.UUIDOf(t.grants[i].device))
		}
	}
	return names
}

// hasElsewhere says that there is room for a workload, or for a task of a gang, off the devices that it holds.
func (l *look) hasElsewhere(v *workload) (ok bool) {
	held := devicesOf([]*workload{v})
	one := *l.request(v)
	over := one.Avoid
	one.Avoid = func(d fleet.DeviceID) bool { return held[d] || over != nil && over(d) }
	l.without([]*workload{v}, func() {
		for task := range one.Each {
			single := *task
			single.Tasks, single.Same, single.Prefer, single.Avoid, single.Fence = 1, "", "", one.Avoid, one.Fence
			_, ok = l.placer.Place(&single)
			if ok {
				break
			}
		}
	})
	return ok
}

// moves is what makes room for a trial's workload without that anybody is evicted who has none elsewhere: work to be moved, and the devices that each has room on. It is
// asked where a plan of evictions there is; nil: the policy moves nothing, or no more in this hour, or moves would not do.
func (t *trial) moves() ([]*workload, map[*workload][]string) {
	rule := t.policy.Defragment
	if rule == nil {
		return nil, nil
	}
	l := look{trial: *t, rule: rule, left: int(rule.MovesPerHour) - len(t.Moved()), again: Never}
	return l.inTheWay(), l.to
}

// allElsewhere says whether workloads have room all together, each off what it is to avoid, once the first in line, if one is named, has started.
func (l *look) allElsewhere(first *workload, all []*workload, avoid func(*workload, fleet.DeviceID) bool) (ok bool) {
	all = slices.Clone(all)
	slices.SortFunc(all, func(a, b *workload) int {
		return cmp.Or(cmp.Compare(b.shape.Compute, a.shape.Compute), cmp.Compare(b.Devices, a.Devices), cmp.Compare(a.seq, b.seq))
	})
	l.to = map[*workload][]string{}
	l.without(all, func() {
		if first != nil {
			_, ok = l.bookElsewhere(first, nil)
		} else {
			ok = true
		}
		for i := 0; ok && i < len(all); i++ {
			var spots []place.Spot
			spots, ok = l.bookElsewhere(all[i], func(d fleet.DeviceID) bool { return avoid(all[i], d) })
			for _, spot := range spots {
				for _, d := range spot.Devices {
					l.to[all[i]] = append(l.to[all[i]], l.fleet.UUIDOf(d))
				}
			}
		}
	})
	return ok
}

// bookElsewhere books a workload where it would start, if it may.
func (t *trial) bookElsewhere(w *workload, avoid func(fleet.DeviceID) bool) ([]place.Spot, bool) {
	if _, no := w.queue.Over(w.demand()); no {
		return nil, false
	}
	request := *t.request(w)
	if over := request.Avoid; avoid != nil {
		request.Avoid = func(d fleet.DeviceID) bool { return avoid(d) || over != nil && over(d) }
	}
	spots, ok := t.placer.Place(&request)
	if ok {
		t.bookAt(w, spots)
	}
	return spots, ok
}
