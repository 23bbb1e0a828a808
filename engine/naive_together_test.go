package engine

import (
	"cmp"
	"slices"
)

// rackOf is the rack that a node is in; empty: none.
func rackOf(ev NodeSet) string {
	for _, d := range ev.Domains {
		if d.Level == "rack" {
			return d.Name
		}
	}
	return ""
}

// outside rules out the nodes that are not in a rack, and what is to be avoided anyway.
func (n *naive) outside(rack string, avoid func(string, Device, left) bool) func(string, Device, left) bool {
	return func(node string, d Device, l left) bool {
		return n.nodes[node].rack != rack || avoid != nil && avoid(node, d, l)
	}
}

// together fits all tasks into one rack: that with the least room of those that have enough.
func (r room) together(w *Workload, avoid func(string, Device, left) bool) ([]naiveSpot, bool) {
	apart := *w
	apart.Same, apart.Prefer, apart.Roles = "", "", nil
	type rack struct {
		name string
		room int
	}
	var racks []rack
	for node, of := range r.n.nodes {
		if of.rack == "" || of.gone {
			continue
		}
		i := slices.IndexFunc(racks, func(o rack) bool { return o.name == of.rack })
		if i < 0 {
			i = len(racks)
			racks = append(racks, rack{name: of.rack})
		}
		for apart.Tasks = w.Tasks; apart.Tasks > 0; apart.Tasks-- {
			if _, ok := r.copy().fit(&apart, func(other string, d Device, l left) bool { return other != node || avoid != nil && avoid(other, d, l) }); ok {
				racks[i].room += apart.Tasks
				break
			}
		}
	}
	slices.SortFunc(racks, func(a, b rack) int { return cmp.Or(cmp.Compare(a.room, b.room), cmp.Compare(a.name, b.name)) })
	apart.Tasks, apart.Roles = w.Tasks, w.Roles
	for _, o := range racks {
		if o.room < w.Tasks {
			continue
		}
		if spots, ok := r.fit(&apart, r.n.outside(o.name, avoid)); ok {
			return spots, true
		}
	}
	return nil, false
}
