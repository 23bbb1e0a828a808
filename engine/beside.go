package engine

import (
	"cmp"
	"slices"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/engine/fleet"
	"github.com/aliquot-dev/aliquot/engine/place"
)

// besideHead places a workload so that quotas and devices have room for the head, too; on these spots, which it would have else, if they do.
func (p *pass) besideHead(w *workload, g *group, spots []place.Spot) ([]place.Spot, bool) {
	head := p.head.demand()
	p.head.queue.Pretend(head.Model, head.Amounts, p.head.kind(), 1)
	defer p.head.queue.Pretend(head.Model, head.Amounts, p.head.kind(), -1)
	if _, no := w.queue.Over(w.demand()); no {
		return nil, false
	}
	if avoid := p.request(w).Avoid; avoid != nil && slices.ContainsFunc(spots, func(s place.Spot) bool { return slices.ContainsFunc(s.Devices, avoid) }) {
		spots = nil // a quota that counts on some devices only has no room there for the head, too
	}
	if p.reserve.known {
		p.promise(w, PromiseBeside)
		return p.beside(w, spots)
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

// beside places a workload so that the head still fits at its reserved time: on these spots if it does, else on the head's devices only on what is
// free both now and then.
func (p *pass) beside(w *workload, spots []place.Spot) ([]place.Spot, bool) {
	if p.reserve.gathers != nil {
		p.reserve.gather(p.Engine)
	}
	if !p.reserve.spares(p.Engine, w, spots) {
		var ok bool
		if w.shape.Tasks == 1 && len(w.shape.Roles) == 0 {
			spots, ok = p.oneBeside(w)
		} else {
			spots, ok = p.severalBeside(w)
		}
		if !ok || !p.reserve.spares(p.Engine, w, spots) {
			return nil, false
		}
	}
	p.takeAll(w.shape, spots)
	return spots, true
}

// oneBeside finds a spot for the one task of a workload where the head leaves room for it.
func (p *pass) oneBeside(w *workload) ([]place.Spot, bool) {
	request := *p.request(w)
	over := request.Avoid
	request.Avoid = func(d fleet.DeviceID) bool {
		return p.reserve.keeps(p.Engine, &w.shape.Request, d) || over != nil && over(d)
	}
	mark := p.fleet.Begin()
	defer p.fleet.Rollback(mark)
	return p.placer.Place(&request)
}

// severalBeside finds spots for the tasks of a workload, of which several may go to one device, where all that the head leaves is taken for what is free.
func (p *pass) severalBeside(w *workload) ([]place.Spot, bool) {
	mark := p.fleet.Begin()
	defer p.fleet.Rollback(mark)
	for _, h := range p.reserve.holds {
		for _, s := range h.devices {
			compute, memory := p.fleet.Free(s.device)
			compute, memory = max(0, compute-s.compute), max(0, memory-s.memory)
			if compute > 0 || memory > 0 {
				p.fleet.Adjust(s.device, compute, memory, 1)
			}
		}
		p.fleet.Take(h.node, p.excess(h))
	}
	return p.placer.Place(p.request(w))
}

// hold is what the reservation leaves of a node; nil: it is not on it. At is its place among the holds.
func (r *reservation) hold(n fleet.NodeID) (h *hold, at int) {
	at, ok := slices.BinarySearchFunc(r.holds, n, func(h *hold, n fleet.NodeID) int { return cmp.Compare(h.node, n) })
	if !ok {
		return nil, at
	}
	return r.holds[at], at
}

// keeps says that a device has no room for a task beside the head.
func (r *reservation) keeps(e *Engine, task *place.Request, d fleet.DeviceID) bool {
	h, _ := r.hold(e.fleet.NodeOf(d))
	if h == nil {
		return false
	}
	return slices.ContainsFunc(task.Resources, func(a fleet.Amount) bool { return a.Amount > 0 && h.free[a.Resource] < a.Amount }) ||
		slices.ContainsFunc(h.devices, func(s shadow) bool {
			return s.device == d && (s.compute < task.Compute || s.memory < task.Memory.Of(e.fleet.Memory(d)))
		})
}

// spares takes what a workload has on its spots off what the reservation leaves; false, and nothing is taken: that is not so much.
func (r *reservation) spares(e *Engine, w *workload, spots []place.Spot) bool {
	if spots == nil {
		return false
	}
	holds, own := r.holds, false
	for k, spot := range spots {
		h, at := r.hold(spot.Node)
		if h == nil {
			continue
		}
		if !own { // holds that a gathering remembers are its own
			holds, own = slices.Clone(holds), true
		}
		if holds[at] == h {
			holds[at] = &hold{h.node, slices.Clone(h.devices), slices.Clone(h.free)}
		}
		if !holds[at].spares(e, w.shape.Of(k), spot) {
			return false
		}
	}
	r.holds = holds
	return true
}

// spares takes what a task has on its spot off.
func (h *hold) spares(e *Engine, task *place.Request, spot place.Spot) bool {
	for i := range h.devices {
		if s := &h.devices[i]; slices.Contains(spot.Devices, s.device) {
			s.compute -= task.Compute
			s.memory -= task.Memory.Of(e.fleet.Memory(s.device))
			if s.compute < 0 || s.memory < 0 {
				return false
			}
		}
	}
	for _, a := range task.Resources {
		if h.free[a.Resource] -= a.Amount; a.Amount > 0 && h.free[a.Resource] < 0 {
			return false
		}
	}
	return true
}

// excess is what a node of the head has free now beyond what it has then.
func (p *pass) excess(h *hold) []fleet.Amount {
	var more []fleet.Amount
	for r, then := range h.free {
		id := fleet.ResourceID(r)
		if now := p.fleet.Capacity(h.node, id) - p.fleet.Taken(h.node, id); now > then {
			more = append(more, fleet.Amount{Resource: id, Amount: now - then})
		}
	}
	return more
}
