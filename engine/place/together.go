package place

import (
	"slices"

	"github.com/aliquot-dev/aliquot/engine/fleet"
)

// together finds a spot for every task within one domain of a level: the one with the least room that has enough. Each node has its room by itself,
// so that is known at the cost of one look at each that changed, and where no domain has enough nothing fits, whatever is chosen.
func (p *Placer) together(r *Request, level string) ([]Spot, bool) {
	var rooms []fleet.Room
	if r.Avoid == nil {
		rooms = slices.Clone(p.counted(r, &r.rooms, level))
	} else {
		rooms = p.rooms(r, level, func(n fleet.NodeID) int { return p.roomOn(r, n) })
	}
	rooms = slices.DeleteFunc(rooms, func(o fleet.Room) bool { return o.Tasks < r.Tasks })
	slices.SortFunc(rooms, fleet.Room.Least)
	for _, o := range rooms {
		if spots, ok := p.place(p.inDomain(r, level, o.Domain)); ok {
			return spots, true
		}
	}
	return nil, false
}

// roomOn is the room of a node as things are, in tasks.
func (p *Placer) roomOn(r *Request, n fleet.NodeID) int {
	if !p.nodeOK(r, n) {
		return 0
	}
	return p.room(r, n, r.Tasks)
}

// inDomain is a request that is kept within a domain.
func (p *Placer) inDomain(r *Request, level, domain string) *Request {
	one, outer := *r, r.Fence
	one.Same, one.Prefer, one.once = "", "", true
	fence := &Fence{Name: level + "=" + domain + "|", Bars: func(d fleet.DeviceID) bool {
		return p.fleet.DomainOf(p.fleet.NodeOf(d), level) != domain || outer != nil && outer.Bars(d)
	}}
	if outer != nil {
		fence.Name += outer.Name
	}
	return one.Within(fence)
}

// rooms adds up room over the nodes of each domain of a level, in any order.
func (p *Placer) rooms(r *Request, level string, of func(fleet.NodeID) int) []fleet.Room {
	at := map[string]int{}
	var rooms []fleet.Room
	for n := range p.fleet.Nodes {
		domain := p.fleet.DomainOf(n, level)
		if domain == "" || p.fleet.NodeGone(n) {
			continue
		}
		i, ok := at[domain]
		if !ok {
			i = len(rooms)
			at[domain] = i
			rooms = append(rooms, fleet.Room{Domain: domain})
		}
		rooms[i].Tasks += of(n)
	}
	return rooms
}

// Taken is what is taken for taken where room is counted.
type Taken int8

// Room is counted as things are; if nothing were taken; and if nothing were, no node were closed and all devices took work.
const (
	AsItIs Taken = iota
	Nothing
	AtBest
)

// Roomiest is the domain of the level that all tasks of a request are to be in which has the most room; false: no node is in any.
func (p *Placer) Roomiest(r *Request, taken Taken) (fleet.Room, bool) {
	rooms := p.rooms(r, r.Same, func(n fleet.NodeID) int {
		switch {
		case taken == AtBest:
			return p.NodeHolds(r, n, r.Tasks)
		case taken == Nothing:
			return p.NodeServes(r, n, r.Tasks)
		}
		return p.roomOn(r, n)
	})
	if len(rooms) == 0 {
		return fleet.Room{}, false
	}
	return slices.MinFunc(rooms, func(a, b fleet.Room) int { // of those with the same, the first by name
		if a.Tasks != b.Tasks {
			return b.Tasks - a.Tasks
		}
		return a.Least(b)
	}), true
}
