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
	// What is free at that time on the devices and nodes of the head, beside it.
	devices []shadow
	nodes   []nodeShadow
}

type shadow struct {
	device  fleet.DeviceID
	compute api.Milli
	memory  api.Bytes
}

type nodeShadow struct {
	node fleet.NodeID
	free []int64 // by resource
}

// backfill finds where a workload behind the head may start without delaying it: it ends before the head starts, or it fits beside
// it, or is let in until then by a prediction. Where the head's start is not known, that is only on devices that could not serve the head, or that have room for all of it, too.
func (p *pass) backfill(w *workload, g *group) ([]place.Spot, bool) {
	if p.config.NoBackfill {
		return nil, false
	}
	if p.reserve == nil && p.ends.Len() == 0 && len(p.early) == 0 {
		p.reserve = &reservation{} // nothing that runs has a time limit
	}
	if p.reserve != nil && !p.reserve.known && !w.shape.nothing() {
		heldBack := g.behind == p.head && g.behindShape == p.head.shape && g.behindGains == p.fleet.Gains() && g.behindAt == p.fleet.Changes()
		if heldBack || w.shape.unfitAt == p.fleet.Gains()+1 {
			return nil, false
		}
		return p.besideHead(w, g) // whether there is room at all is found on the way
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
	if p.reserve.known && w.TimeLimit > 0 && after(p.now, w.TimeLimit) <= p.reserve.at {
		p.fleet.Commit(mark)
		p.promise(w, PromiseEnds)
		return spots, true
	}
	p.fleet.Rollback(mark)
	beside, ok := p.besideHead(w, g)
	if ok || !p.mayLetIn(w) {
		return beside, ok
	}
	p.takeAll(w.shape, spots)
	p.until = p.reserve.at
	p.promise(w, PromisePredicted)
	return spots, true
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

// besideHead places a workload so that quotas and devices have room for the head, too.
func (p *pass) besideHead(w *workload, g *group) ([]place.Spot, bool) {
	head := p.head.demand()
	p.head.queue.Pretend(head.Model, head.Amounts, p.head.kind(), 1)
	defer p.head.queue.Pretend(head.Model, head.Amounts, p.head.kind(), -1)
	if _, no := w.queue.Over(w.demand()); no {
		return nil, false
	}
	if p.reserve.known {
		p.promise(w, PromiseBeside)
		return p.beside(w)
	}
	p.promise(w, PromiseApart)
	request := p.request(w)
	spots, ok := p.apart(w, *request)
	if !ok && request.Avoid == nil {
		g.behind, g.behindShape, g.behindGains, g.behindAt = p.head, p.head.shape, p.fleet.Gains(), p.fleet.Changes()
	}
	return spots, ok
}

// apart places a workload on devices that could never serve the head, or have room for all of it, too. Where all could serve it and none can
// have so much room, that takes no look at what is free.
func (p *pass) apart(w *workload, request place.Request) ([]place.Spot, bool) {
	serves, leavesRoom, over := p.serves(p.head, w), p.leavesRoom(w), request.Avoid
	if leavesRoom == nil && p.allServe(p.head.shape) {
		return nil, false
	}
	request.Avoid = func(d fleet.DeviceID) bool {
		return (leavesRoom == nil || !leavesRoom(d)) && serves(d) || over != nil && over(d)
	}
	return p.placer.Place(&request)
}

// leavesRoom tells the devices that have room for all that the head could ever put there, beside one more share of a workload that wants no
// resource of the node that the head wants; nil: none can have.
func (p *pass) leavesRoom(w *workload) func(fleet.DeviceID) bool {
	if sharesResource(p.head, w) {
		return nil
	}
	var head, takes api.Milli
	for r := range p.head.shape.Each {
		head += api.Milli(r.Tasks) * r.Compute
	}
	for r := range w.shape.Each {
		takes = max(takes, r.Compute)
	}
	if head = min(head, api.WholeDevice); head+takes > api.WholeDevice {
		return nil
	}
	return func(d fleet.DeviceID) bool {
		compute, free := p.fleet.Free(d)
		if compute-takes < head {
			return false
		}
		total := p.fleet.Memory(d)
		var memory, takesMemory api.Bytes
		for r := range p.head.shape.Each {
			memory += api.Bytes(r.Tasks) * r.Memory.Of(total)
		}
		for r := range w.shape.Each {
			takesMemory = max(takesMemory, r.Memory.Of(total))
		}
		return free-takesMemory >= min(memory, total)
	}
}

// sharesResource says that both want a resource of the same name of a node.
func sharesResource(a, b *workload) bool {
	return a.shape.Any(func(ra *place.Request) bool {
		return b.shape.Any(func(rb *place.Request) bool {
			return slices.ContainsFunc(ra.Resources, func(x fleet.Amount) bool {
				return slices.ContainsFunc(rb.Resources, func(y fleet.Amount) bool { return x.Resource == y.Resource })
			})
		})
	})
}

func (p *pass) takeAll(s *shape, spots []place.Spot) {
	for i, spot := range spots {
		p.placer.Take(s.Of(i), spot)
	}
}

// beside places a workload so that the head still fits at its reserved time: on the head's devices only what is free both now and
// then is offered.
func (p *pass) beside(w *workload) ([]place.Spot, bool) {
	mark := p.fleet.Begin()
	for _, s := range p.reserve.devices {
		compute, memory := p.fleet.Free(s.device)
		compute, memory = max(0, compute-s.compute), max(0, memory-s.memory)
		if compute > 0 || memory > 0 {
			p.fleet.Adjust(s.device, compute, memory, 1)
		}
	}
	for _, s := range p.reserve.nodes {
		p.fleet.Take(s.node, p.excess(s))
	}
	spots, ok := p.placer.Place(p.request(w))
	p.fleet.Rollback(mark)
	if !ok {
		return nil, false
	}
	p.takeAll(w.shape, spots)
	for k, spot := range spots {
		r := w.shape.Of(k)
		for _, d := range spot.Devices {
			for i := range p.reserve.devices {
				if s := &p.reserve.devices[i]; s.device == d {
					s.compute -= r.Compute
					s.memory -= r.Memory.Of(p.fleet.Memory(d))
				}
			}
		}
		for i := range p.reserve.nodes {
			if s := &p.reserve.nodes[i]; s.node == spot.Node {
				for _, a := range r.Resources {
					s.free[a.Resource] -= a.Amount
				}
			}
		}
	}
	return spots, true
}

// excess is what a node of the head has free now beyond what it has then.
func (p *pass) excess(s nodeShadow) []fleet.Amount {
	var more []fleet.Amount
	for r, then := range s.free {
		id := fleet.ResourceID(r)
		if now := p.fleet.Capacity(s.node, id) - p.fleet.Taken(s.node, id); now > then {
			more = append(more, fleet.Amount{Resource: id, Amount: now - then})
		}
	}
	return more
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

// reserveFor finds the first time at which a time limit is over, or something that was let in is due (letin.go), from which on the head fits, by trying: the more has ended, the more fits, so steps
// double until it fits and then halve. The fleet is left as it was.
func (p *pass) reserveFor(head *workload) *reservation {
	e, request := p.Engine, p.request(head)
	outer := e.fleet.Begin()
	defer e.fleet.Rollback(outer)
	c := e.outs()
	// With roles it may be that less fits where more is free, for they are taken in turn: then one by one.
	for step, growing := 1, len(head.Roles) == 0; c.valid(); {
		mark, from, last := e.fleet.Begin(), c, Never
		for k := 0; k < step && c.valid(); k++ {
			var t *task
			t, last = c.next()
			e.lift(t)
		}
		spots, ok := e.placer.Place(request)
		if !ok {
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
		for _, d := range spot.Devices {
			if slices.ContainsFunc(r.devices, func(s shadow) bool { return s.device == d }) {
				continue
			}
			compute, memory := e.fleet.Free(d)
			r.devices = append(r.devices, shadow{d, compute, memory})
		}
		if slices.ContainsFunc(r.nodes, func(s nodeShadow) bool { return s.node == spot.Node }) {
			continue
		}
		free := make([]int64, e.fleet.Resources())
		for i := range free {
			id := fleet.ResourceID(i)
			free[i] = e.fleet.Capacity(spot.Node, id) - e.fleet.Taken(spot.Node, id)
		}
		r.nodes = append(r.nodes, nodeShadow{spot.Node, free})
	}
}
