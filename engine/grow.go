package engine

import (
	"fmt"
	"slices"

	"github.com/aliquot-dev/aliquot/engine/fleet"
	"github.com/aliquot-dev/aliquot/engine/place"
)

// mayGrow says that nothing of an elastic workload itself speaks against one more replica.
func (w *workload) mayGrow() bool { return w.growth() == grows }

// growth is what of a running elastic workload speaks against one more replica.
type growth int8

const (
	grows     growth = iota
	grown            // it has all that it may have
	isFinal          // a task of it is over
	isPaused         // it is being started, resized or ended, or a replica of it is
	isRefused        // the host refused one more, and it is not time yet to try again
)

func (w *workload) growth() growth {
	r := w.replicas
	switch {
	case r.final:
		return isFinal
	case w.placing != 0 || w.cancelled || w.resize != nil || w.ending() || slices.ContainsFunc(r.more, (*workload).ending):
		return isPaused
	case w.Tasks+len(r.more) >= w.Max:
		return grown
	case w.retryAt > 0:
		return isRefused
	}
	return grows
}

// nextReplica is one more replica of a workload, with the lowest number that is free. It is known nowhere; its shape is in use.
func (e *Engine) nextReplica(w *workload) *workload {
	x := &workload{Workload: w.Workload, base: w, first: int32(w.Tasks), queue: w.queue, came: w.came, turn: w.turn, seq: w.seq}
	for _, o := range w.more() {
		if o.first == x.first {
			x.first++
		}
	}
	x.Tasks, x.Max, x.Preemptible = 1, 0, true
	x.shape = e.shapeOf(&x.Workload)
	x.setRank()
	return x
}

// grow starts further replicas of elastic workloads on what is idle, one by one in the order of the line, after all has started that waits and
// may. It takes nothing of a device that could serve somebody who waits for room, and nothing of a quota; a limit, and who waits for one, bounds
// it as it bounds what waits.
func (p *pass) grow() {
	for len(p.elastics) > 0 && p.growOne() {
	}
}

func (p *pass) growOne() (grown bool) {
	var groups []*group
	for w := range p.elastics { // in any order: the order that is made of them is total
		if w.mayGrow() {
			x := p.nextReplica(w)
			groups = append(groups, &group{groupKey: groupKey{queue: x.queue}, members: []*workload{x}})
		}
	}
	if len(groups) == 0 {
		return false
	}
	p.wish(groups, 1)
	order := p.newOrder(groups)
	p.wish(groups, -1)
	for ; order.first != nil; order.next(true) {
		x := order.first
		if !grown {
			if spots, ok := p.roomToGrow(x); ok {
				p.startReplica(x, spots)
				grown = true
				continue
			}
		}
		p.dropShape(x)
	}
	return grown
}

// wish has the queues want all that their workloads may still grow by, so that what is idle is due to them by their weights.
func (p *pass) wish(groups []*group, times int64) {
	for _, g := range groups {
		x := g.members[0]
		missing := x.base.Max - x.base.Tasks - len(x.base.more())
		x.queue.Want(x.demand(), times*int64(missing))
	}
}

// roomToGrow finds where one more replica may start. The books hold what it found.
func (p *pass) roomToGrow(x *workload) ([]place.Spot, bool) {
	if p.bounded(x) {
		return nil, false
	}
	kept, apart := p.keptFrom(x), p.apartFrom(x)
	if kept == nil && apart == nil {
		return p.fit(x)
	}
	request := *p.request(x)
	over := request.Avoid
	request.Avoid = func(d fleet.DeviceID) bool {
		return over != nil && over(d) || apart != nil && apart(d) || kept != nil && kept(d)
	}
	return p.placer.Place(&request)
}

// keptFrom tells the devices that could serve somebody who waits for room, or for whom something is being taken back; nil: there is nobody.
func (p *pass) keptFrom(x *workload) func(fleet.DeviceID) bool {
	var serve []func(fleet.DeviceID) bool
	for _, w := range p.short {
		if w.waiting() {
			serve = append(serve, p.serves(w, x))
		}
	}
	for id, pl := range p.plans {
		if w := pl.w; w.plan == id && w.waiting() {
			serve = append(serve, p.serves(w, x))
		}
	}
	if len(serve) == 0 {
		return nil
	}
	return func(d fleet.DeviceID) bool {
		return slices.ContainsFunc(serve, func(serves func(fleet.DeviceID) bool) bool { return serves(d) })
	}
}

// roomBeside finds where one more replica fits, whoever waits.
func (p *pass) roomBeside(x *workload) ([]place.Spot, bool) {
	alone := pass{Engine: p.Engine}
	kept := alone.plans
	alone.plans = nil
	defer func() { alone.plans = kept }()
	return alone.roomToGrow(x)
}

// startReplica proposes one more replica at its spot, which the fleet's books hold already.
func (e *Engine) startReplica(x *workload, spots []place.Spot) {
	x.seq = e.seq
	e.seq++
	e.moves++
	e.enterReplica(x)
	e.proposeStart(x, spots)
	if e.ahead != nil {
		e.ahead.grew(x)
	}
}

// unplaceReplica undoes the start of a further replica that the host refused. If no node is to blame its workload tries again later.
func (e *Engine) unplaceReplica(x *workload, ev Refused) {
	base := x.base
	if n, ok := e.fleet.Node(ev.Node); x.ending() || base.cancelled {
	} else if ok {
		e.fleet.Refuse(x.shape.Class, n, ev.Reason)
	} else {
		one := refusal{times: 1, why: ev.Reason}
		if base.refused != nil {
			one.times += base.refused.times
		}
		base.refused = &one
		if base.retryAt > 0 {
			e.parked.Delete(base)
		}
		base.retryAt = after(e.now, backoff(one.times))
		e.parked.Insert(base)
	}
	for _, t := range x.tasks {
		delete(e.pending, t.evict)
		e.release(t)
	}
	e.taskEnded(x, false)
}

// whyGrown says how many replicas a running elastic workload has, and why not more.
func (e *Engine) whyGrown(w *workload, why *Why) {
	now, _, _ := e.Replicas(w.ID)
	why.Message += fmt.Sprintf(" with %d of %d..%d replicas", now, w.Tasks, w.Max)
	switch w.growth() {
	case isFinal:
		why.Message += ", and gets no more since a task of it is over"
	case isPaused:
		why.Message += ", and one more may come when what is being started or ended of it is done with"
	case isRefused:
		why.Message += ", and one more is tried again later: the last was refused: " + w.whyRefused()
		why.NextTry = w.retryAt
	case grows:
		e.whyNoMore(w, why)
	}
}

// whyNoMore says why a workload that may grow does not.
func (e *Engine) whyNoMore(w *workload, why *Why) {
	p := pass{Engine: e}
	p.lookUpTo(nil)
	x := e.nextReplica(w)
	defer e.dropShape(x)
	demand := x.demand()
	if r, no := x.queue.Over(demand); no {
		why.Message += fmt.Sprintf("; one more is over the limit of queue %s", r.Queue.Name)
		why.Unblock = "work of queue " + r.Queue.Name + " ending, or a larger limit"
		return
	}
	mark := e.fleet.Begin()
	_, fits := p.roomBeside(x)
	e.fleet.Rollback(mark)
	if fits {
		why.Message += "; what is free is kept for those that wait"
		why.Unblock = "those that wait starting, or being stopped"
		return
	}
	why.Message += "; not enough is free for one more"
	why.Unblock = "running work ending or getting smaller"
	p.counts(x, false, why)
}

// Shrink says why a replica is ended; both sentences name no other workload but the one that it is for.
func shrinkReason(x, forWhom *workload, plan ActionID) string {
	return fmt.Sprintf("workload %s in queue %s waits and wants what this replica holds above the %d that its workload is sure of (plan %d)", forWhom.ID, forWhom.queue.Name, x.base.Tasks, plan)
}

// shed ends replicas above those that their workloads are sure of while a limit is passed that counts them, the one that was started last first.
func (e *Engine) shed() {
	tight := e.tight
	e.tight = false
	if !tight || e.surplus == 0 {
		return
	}
	var all, gone []*workload
	for w := range e.elastics {
		for _, x := range w.more() {
			if x.ending() {
				gone = append(gone, x)
			} else {
				all = append(all, x)
			}
		}
	}
	slices.SortFunc(all, lastStarted)
	for _, x := range gone {
		pretend(x.queue, x.uses(nil), x.kind(), -1)
	}
	for _, x := range all {
		r, over := x.exceeded()
		if !over {
			continue
		}
		reason := fmt.Sprintf("queue %s may hold no more than %s now, and this replica is above the %d that its workload is sure of", r.Queue.Name, plain(&r, r.Bound()), x.base.Tasks)
		if r.Spent() {
			reason = fmt.Sprintf("queue %s has used its device-hours up, and this replica is above the %d that its workload is sure of", r.Queue.Name, x.base.Tasks)
		}
		e.evict(x.tasks[0], EvictShrink, reason)
		gone = append(gone, x)
		pretend(x.queue, x.uses(nil), x.kind(), -1)
	}
	for _, x := range gone {
		pretend(x.queue, x.uses(nil), x.kind(), 1)
	}
}

// lastStarted puts the replica first that was started last: the least is lost with it.
func lastStarted(a, b *workload) int {
	x, y := a.tasks[0], b.tasks[0]
	switch {
	case x.since != y.since:
		if x.since > y.since {
			return -1
		}
		return 1
	case a.seq > b.seq:
		return -1
	case a.seq < b.seq:
		return 1
	}
	return 0
}

// shrinkAll ends all replicas of a workload above those that it is sure of.
func (e *Engine) shrinkAll(w *workload, reason string) {
	for _, x := range w.more() {
		e.evict(x.tasks[0], EvictShrink, reason)
	}
}
