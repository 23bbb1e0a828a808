package place

import "github.com/aliquot-dev/aliquot/engine/fleet"

// roomCount is the room of each node, and of each domain of a level or of all nodes, for one request. It is brought up to date at the cost of the nodes that changed,
// so what fits in no domain is found so again without a look at the others.
type roomCount struct {
	level   string // empty: all nodes are together
	fence   *Fence
	changes uint64   // of the fleet, plus 1; with others it is counted anew
	at      uint64   // Touches up to which it is up to date
	version []uint32 // by node, when it was counted
	nodes   []int32  // by node, in tasks
	domain  []int32  // by node: its place among the sums; None: it is in none
	sums    []fleet.Room
}

// counted is the room of the domains of a level for a request that avoids nothing, which is remembered. It is the count's own: the caller must not
// change it.
func (p *Placer) counted(r *Request, in **roomCount, level string) []fleet.Room {
	c := *in
	if c == nil || c.level != level || c.fence != r.Fence || c.changes != p.fleet.Changes()+1 {
		c = p.newCount(r, level)
		*in = c
		for n := range p.fleet.Nodes {
			c.recount(p, r, n)
		}
	} else if !p.fleet.TouchedSince(c.at, func(n fleet.NodeID) { c.recount(p, r, n) }) {
		for n := range p.fleet.Nodes {
			c.recount(p, r, n)
		}
	}
	c.at = p.fleet.Touches()
	return c.sums
}

// newCount knows the domains, and the room of no node yet.
func (p *Placer) newCount(r *Request, level string) *roomCount {
	slots := p.fleet.Slots()
	c := &roomCount{
		level: level, fence: r.Fence, changes: p.fleet.Changes() + 1,
		version: make([]uint32, slots), nodes: make([]int32, slots), domain: make([]int32, slots),
	}
	for i := range c.domain {
		c.domain[i] = fleet.None
	}
	at := map[string]int32{}
	for n := range p.fleet.Nodes {
		c.version[n] = p.fleet.Version(n) - 1
		if p.fleet.NodeGone(n) {
			continue
		}
		name := ""
		if level != "" {
			if name = p.fleet.DomainOf(n, level); name == "" {
				continue
			}
		}
		i, ok := at[name]
		if !ok {
			i = int32(len(c.sums))
			at[name] = i
			c.sums = append(c.sums, fleet.Room{Domain: name})
		}
		c.domain[n] = i
	}
	return c
}

// recount brings a node up to date.
func (c *roomCount) recount(p *Placer, r *Request, n fleet.NodeID) {
	if int(n) >= len(c.version) || c.domain[n] == fleet.None || c.version[n] == p.fleet.Version(n) {
		return
	}
	c.version[n] = p.fleet.Version(n)
	room := int32(p.roomOn(r, n)) //nolint:gosec // no more than MaxTasks
	c.sums[c.domain[n]].Tasks += int(room - c.nodes[n])
	c.nodes[n] = room
}
