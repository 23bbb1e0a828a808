package engine

import (
	"slices"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/engine/fleet"
	"github.com/aliquot-dev/aliquot/engine/place"
)

// reservation is when and where the head starts at the latest, if every running workload ends by its time limit and those
// without one never end.
//
// A reservation is a promise made again in each pass: what starts behind the head leaves it true, so it moves back only where what
// runs comes to hold more memory above its floors. It counts only for the head; those behind it have none.
type reservation struct {
	known bool // false: without the end of something that has no time limit the head never starts
	at    Time
	holds []*hold // by node
	// gathers is the shape of which several tasks are to start then, as long as holds are not worked out.
	gathers *shape
}

// hold is what is free on a node of the head at that time, beside it: of the devices that the head has there, and of the node.
type hold struct {
	node    fleet.NodeID
	devices []shadow
	free    []int64 // by resource
}

type shadow struct {
	device  fleet.DeviceID
	compute api.Milli
	memory  api.Bytes
}

// backfill finds where a workload behind the head may start without delaying it: it ends before the head starts, or it fits beside
// it, or is let in until then by a prediction. Where the head's start is not known, that is only on devices that could not serve the head, or that have room for all of it, too.
func (p *pass) backfill(w *workload, g *group) ([]place.Spot, bool) {
	if p.config.NoBackfill {
		return nil, false
	}
	if p.reserve == nil && p.outs.Len() == 0 {
		p.reserve = p.reserveFor(p.head)
	}
	if p.reserve != nil && !p.reserve.known && !w.shape.nothing() {
		heldBack := g.behind == p.head && g.behindShape == p.head.shape && g.behindGains == p.fleet.Gains() && g.behindAt == p.fleet.Changes()
		if heldBack || w.shape.unfitAt == p.fleet.Gains()+1 {
			return nil, false
		}
		return p.besideHead(w, g, nil) // whether there is room at all is found on the way
	}
	mark := p.fleet.Begin()
	spots, ok := p.fit(w)
	if !ok || w.shape.nothing() {
		p.fleet.Commit(mark)
		p.promise(w, PromiseNothing)
		return spots, ok
	}
	if p.reserve == nil {
		// The reservation is of the fleet without this workload.
		p.fleet.Rollback(mark)
		p.reserve = p.reserveFor(p.head)
		mark = p.fleet.Begin()
		p.takeAll(w.shape, spots)
	}
	if p.reserve.known && p.endsInTime(w) {
		p.fleet.Commit(mark)
		p.promise(w, PromiseEnds)
		return spots, true
	}
	p.fleet.Rollback(mark)
	beside, ok := p.besideHead(w, g, spots)
	if ok || !p.mayLetIn(w) {
		return beside, ok
	}
	p.takeAll(w.shape, spots)
	p.until = p.reserve.at
	p.promise(w, PromisePredicted)
	return spots, true
}

// endsInTime says that a workload that starts now has ended by its time limit when the head starts at the latest.
func (p *pass) endsInTime(w *workload) bool {
	return w.TimeLimit > 0 && after(p.now, w.TimeLimit) <= p.reserve.at
}

// promise notes, in a look ahead, what the head is promised of a workload should it start behind it.
func (p *pass) promise(w *workload, code string) {
	if p.ahead == nil {
		return
	}
	at := Never
	if p.reserve != nil && p.reserve.known {
		at = p.reserve.at
	}
	p.ahead.promises[w] = Promise{code, p.head.ID, at}
}

// serves tells the devices that could serve the head one day; for a workload that wants the same resources of a node as the head,
// all devices of the nodes that could.
func (p *pass) serves(head, w *workload) func(fleet.DeviceID) bool {
	shared := sharesResource(head, w)
	return func(d fleet.DeviceID) bool {
		return p.nodeServes(head.shape, p.fleet.NodeOf(d)) && (shared || p.servedBy(head.shape, d))
	}
}

// nodeServes says that a node could hold a task of a shape if it were empty, and remembers it until the fleet changes.
func (e *Engine) nodeServes(s *shape, n fleet.NodeID) bool {
	if s.servesAt != e.fleet.Changes()+1 || int(n) >= len(s.serves) {
		s.serves, s.servesAt = make([]bool, e.fleet.Slots()), e.fleet.Changes()+1
		for o := range e.fleet.Nodes {
			apart := s.Same != "" && e.fleet.DomainOf(o, s.Same) == ""
			s.serves[o] = !apart && s.Any(func(r *place.Request) bool { return e.placer.NodeServes(r, o, 1) > 0 })
		}
	}
	return s.serves[n]
}

// allServe says that every device that takes work could serve a shape one day, and its node hold a task of it. It is remembered until the fleet
// changes.
func (e *Engine) allServe(s *shape) bool {
	if at := e.fleet.Changes() + 1; s.allAt != at {
		s.allAt, s.all = at, true
		for n := range e.fleet.Nodes {
			s.all = s.all && !slices.ContainsFunc(e.fleet.DevicesOf(n), func(d fleet.DeviceID) bool {
				return e.fleet.Placeable(d) && !(e.nodeServes(s, n) && e.servedBy(s, d))
			})
		}
	}
	return s.all
}

// reserveFor finds the first time at which a time limit is over, or something that was let in is due (letin.go), from which on the head fits. The fleet
// is left as it was.
func (p *pass) reserveFor(head *workload) *reservation {
	if p.outs.Len() == 0 {
		return &reservation{} // nothing that runs is ever over
	}
	if request := p.request(head); request.Avoid == nil {
		find := p.reserveSoonest
		switch {
		case gathers(request):
			find = p.reserveGathering
		case len(request.Roles) > 0:
			return p.reserveByTrying(head, nil)
		}
		if r, ok := find(head); ok {
			return r
		}
	}
	return p.reserveByTrying(head, nil)
}

// reserveByTrying is reserveFor of anything: the more has ended, the more fits, so steps double until it fits and then halve. Over tells tasks that are out of the
// books already; nil: none is.
func (p *pass) reserveByTrying(head *workload, over func(*task) bool) *reservation {
	e, request := p.Engine, p.request(head)
	outer := e.fleet.Begin()
	defer e.fleet.Rollback(outer)
	c := e.outs.Begin()
	// With roles it may be that less fits where more is free, for they are taken in turn: then one by one.
	for step, growing := 1, len(head.Roles) == 0; c.Valid(); {
		mark, from, last := e.fleet.Begin(), c, Never
		for k := 0; k < step && c.Valid(); c.Next() {
			if t := c.Value(); over == nil || !over(t) {
				e.lift(t)
				last = t.out()
				k++
			}
		}
		spots, ok := e.placer.Place(request)
		if !ok || last == Never { // it does not fit, or nothing more ends
			e.fleet.Commit(mark)
			if growing {
				step *= 2
			}
			continue
		}
		if step == 1 {
			r := &reservation{known: true, at: max(e.now, last)}
			r.record(e, spots)
			e.fleet.Commit(mark)
			return r
		}
		e.fleet.Rollback(mark)
		c, step, growing = from, step/2, false
	}
	return &reservation{}
}

// lift takes a task out of the fleet's books for a look ahead.
func (e *Engine) lift(t *task) {
	for i := range t.grants {
		e.fleet.Adjust(t.grants[i].device, -t.grants[i].compute, -t.grants[i].taken(), -1)
		e.addBusy(&t.grants[i], -1)
	}
	e.fleet.Give(t.node, t.request().Resources)
}

func (r *reservation) record(e *Engine, spots []place.Spot) {
	for _, spot := range spots {
		h, at := r.hold(spot.Node)
		if h == nil {
			h = &hold{node: spot.Node, free: e.freeOf(spot.Node)}
			r.holds = slices.Insert(r.holds, at, h)
		}
		for _, d := range spot.Devices {
			if !slices.ContainsFunc(h.devices, func(s shadow) bool { return s.device == d }) {
				compute, memory := e.fleet.Free(d)
				h.devices = append(h.devices, shadow{d, compute, memory})
			}
		}
	}
}

// freeOf is what a node has free, by resource.
func (e *Engine) freeOf(n fleet.NodeID) []int64 {
	free := make([]int64, e.fleet.Resources())
	for i := range free {
		id := fleet.ResourceID(i)
		free[i] = e.fleet.Capacity(n, id) - e.fleet.Taken(n, id)
	}
	return free
}
