package place

import (
	"cmp"
	"slices"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/engine/fleet"
)

// slots is how often a device could still hold the request's share, but no more than limit.
func (p *Placer) slots(r *Request, d fleet.DeviceID, limit int) int {
	compute, memory := p.fleet.Free(d)
	if compute < r.Compute || !p.fits(r, d) || !p.deviceOK(r, d) {
		return 0
	}
	if r.Compute > 0 {
		limit = min(limit, int(compute/r.Compute))
	}
	if m := r.Memory.Of(p.fleet.Memory(d)); m > 0 {
		limit = min(limit, int(min(memory/m, api.Bytes(limit))))
	}
	return limit
}

// enough says that the nodes, each by itself, have room for all tasks now. A task takes nothing of other nodes than its own, so
// where it is false nothing fits, whatever is chosen; that is known at the cost of one look at each node.
func (p *Placer) enough(r *Request) bool {
	if r.Avoid == nil && !r.once {
		if r.again {
			all := p.counted(r, &r.all, "")
			return len(all) > 0 && all[0].Tasks >= r.Tasks
		}
		r.again = true
	}
	left := r.Tasks
	for n := range p.fleet.Nodes {
		if !p.nodeOK(r, n) {
			continue
		}
		if left -= p.room(r, n, left); left <= 0 {
			return true
		}
	}
	return false
}

// room is how many tasks a node has room for now, but no more than limit.
func (p *Placer) room(r *Request, n fleet.NodeID, limit int) int {
	for _, a := range r.Resources {
		if a.Amount > 0 {
			limit = int(min(int64(limit), (p.fleet.Capacity(n, a.Resource)-p.fleet.Taken(n, a.Resource))/a.Amount))
		}
	}
	p.counts = p.counts[:0]
	devices := p.fleet.DevicesOf(n)
	for i, d := range devices {
		if k := p.slots(r, d, limit); k > 0 {
			p.counts = append(p.counts, k)
		} else if len(p.counts)+len(devices)-i-1 < r.Devices {
			return 0 // too few are left
		}
	}
	return TasksOn(p.counts, r.Devices, limit)
}

// TasksOn is how many tasks of so many devices each fit on devices with so many places each, but no more than limit: t tasks do when
// the devices offer t × devices places, none more than t, for a task takes a device once.
func TasksOn(places []int, devices, limit int) int {
	if len(places) < devices {
		return 0
	}
	for t := limit; t > 0; t-- {
		sum := 0
		for _, k := range places {
			sum += min(k, t)
		}
		if sum >= t*devices {
			return t
		}
		t = min(t, sum/devices+1)
	}
	return 0
}

// spread places tasks of several devices each where best fit, task by task, painted itself into a corner: two devices half free
// and one untouched hold two tasks of two halves each only if both take a half of the untouched one. Taking each time the
// devices on which most tasks still fit leaves a node able to hold as many tasks as can be held at all.
func (p *Placer) spread(r *Request) ([]Spot, bool) {
	var spots []Spot
	mark := p.fleet.Begin()
	for n := range p.fleet.Nodes {
		for len(spots) < r.Tasks && p.nodeOK(r, n) {
			left := r.Tasks - len(spots)
			devices := slices.Clone(p.fleet.DevicesOf(n))
			slices.SortStableFunc(devices, func(a, b fleet.DeviceID) int {
				return cmp.Compare(p.slots(r, b, left), p.slots(r, a, left))
			})
			if len(devices) < r.Devices || p.slots(r, devices[r.Devices-1], left) == 0 {
				break
			}
			spot := p.spot(n, devices[:r.Devices])
			p.take(r, spot, 1)
			spots = append(spots, spot)
		}
		if len(spots) == r.Tasks {
			p.fleet.Commit(mark)
			return spots, true
		}
	}
	p.fleet.Rollback(mark)
	return nil, false
}

// Serves says that a device could hold the share if nothing else were on it and its node may be used.
func (p *Placer) Serves(r *Request, d fleet.DeviceID) bool {
	return p.fleet.Placeable(d) && p.fleet.Open(r.Class, p.fleet.NodeOf(d)) && p.suits(r, d)
}

// suits says that a device is of the model and size wanted.
func (p *Placer) suits(r *Request, d fleet.DeviceID) bool {
	return r.Suits(p.fleet.Memory(d)) && p.fleet.Is(d, r.Model, r.Least) && !r.bars(d)
}

// NodeServes is how many tasks a node could hold if nothing else were on it, but no more than limit.
func (p *Placer) NodeServes(r *Request, n fleet.NodeID, limit int) int {
	return p.holds(r, n, limit, p.Serves)
}

// NodeHolds is NodeServes for any class and also with devices that are draining or down: as many as the node could hold at its
// best.
func (p *Placer) NodeHolds(r *Request, n fleet.NodeID, limit int) int {
	return p.holds(r, n, limit, func(r *Request, d fleet.DeviceID) bool {
		return !p.fleet.DeviceGone(d) && p.suits(r, d)
	})
}

// holds is how many tasks an empty node could hold on those of its devices that serve.
func (p *Placer) holds(r *Request, n fleet.NodeID, limit int, serves func(*Request, fleet.DeviceID) bool) int {
	if r.Same != "" && p.fleet.DomainOf(n, r.Same) == "" {
		return 0
	}
	for _, a := range r.Resources {
		if a.Amount > 0 {
			limit = int(min(int64(limit), p.fleet.Capacity(n, a.Resource)/a.Amount))
		}
	}
	var slots []int
	for _, d := range p.fleet.DevicesOf(n) {
		if !serves(r, d) {
			continue
		}
		k := limit
		if r.Compute > 0 {
			k = min(k, int(api.WholeDevice/r.Compute))
		}
		if m := r.Memory.Of(p.fleet.Memory(d)); m > 0 {
			k = int(min(api.Bytes(k), p.fleet.Memory(d)/m))
		}
		slots = append(slots, k)
	}
	return TasksOn(slots, r.Devices, limit)
}

// Possible says that the request would fit if nothing were taken: with nodes that may be used and devices that take work.
func (p *Placer) Possible(r *Request) bool {
	if len(r.Roles) > 0 {
		return p.possibleInRoles(r)
	}
	p.needs = p.fleet.Needs(p.needs[:0], r.Model, r.Least, r.Memory)
	if len(p.needs) == 0 {
		return false
	}
	if r.Same != "" {
		room, ok := p.Roomiest(r, Nothing)
		return ok && room.Tasks >= r.Tasks
	}
	left := r.Tasks
	for n := range p.fleet.Nodes {
		if p.fleet.NodeGone(n) || !p.fleet.Open(r.Class, n) {
			continue
		}
		if left -= p.NodeServes(r, n, left); left <= 0 {
			return true
		}
	}
	return false
}
