package engine

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/engine/fleet"
	"github.com/aliquot-dev/aliquot/engine/place"
	"github.com/aliquot-dev/aliquot/engine/queue"
)

// EvictPool is the code of evictions by which work of the classes that a pool is for takes back what other work borrowed of it.
const EvictPool = "pool"

// Pool is devices for work of some classes. A device is in the first pool that it matches; one that is in none is for all.
type Pool struct {
	Name string `json:"name"`
	// A device matches by its node, model and index on its node; what is empty, or nil, says nothing. Something must be said.
	Nodes  []string `json:"nodes,omitempty"`
	Models []string `json:"models,omitempty"`
	First  *int     `json:"first,omitempty"` // the first index, and the last one
	Last   *int     `json:"last,omitempty"`
	// Classes is whom it is for.
	Classes []api.Class `json:"classes"`
	// Lends lets preemptible work of other classes that waits have what is free while nobody waits for room whom the pool is for and whom one of
	// its devices would suit. It gives way
	// to the first of those as soon as it stands in the way.
	Lends bool `json:"lends,omitempty"`
}

// Validate says what is wrong with a pool by itself.
func (p *Pool) Validate() error {
	switch {
	case p.Name == "":
		return fmt.Errorf("a pool without a name cannot be set: give it one")
	case len(p.Nodes) == 0 && len(p.Models) == 0 && p.First == nil && p.Last == nil:
		return fmt.Errorf("pool %s names no devices: say which by node, model or index", p.Name)
	case len(p.Classes) == 0:
		return fmt.Errorf("pool %s is for no class: name one at least", p.Name)
	case p.First != nil && p.Last != nil && *p.Last < *p.First:
		return fmt.Errorf("pool %s is of the devices from %d to %d, which are none: let the last be no less than the first", p.Name, *p.First, *p.Last)
	}
	return nil
}

// Matches says whether a device matches, by its node, its model and its index there.
func (p *Pool) Matches(node, model string, index int) bool {
	return (len(p.Nodes) == 0 || slices.Contains(p.Nodes, node)) && (len(p.Models) == 0 || slices.Contains(p.Models, model)) &&
		(p.First == nil || index >= *p.First) && (p.Last == nil || index <= *p.Last)
}

// side is what pools make of a workload: zero where there are none.
type side struct {
	some  bool // there are pools
	class api.Class
}

// sideOf is the side of a workload.
func (e *Engine) sideOf(w *Workload) side {
	if len(e.policy.Pools) == 0 {
		return side{}
	}
	return side{true, w.Class}
}

// pooling is which pool each device is in, by DeviceID. It is found anew when the pools or what the fleet is change.
type pooling struct {
	at uint64 // Changes of the fleet, plus 1
	of []int32
}

// poolAt is the place among the pools of that which a device is in; of one that is in none, the number of pools.
func (e *Engine) poolAt(d fleet.DeviceID) int {
	if e.fleet.DeviceGone(d) { // such a one may come while the fleet stays what it is
		return e.findPool(d)
	}
	if at := e.fleet.Changes() + 1; e.pooled.at != at {
		e.pooled = pooling{at: at}
		for n := range e.fleet.Nodes {
			for _, o := range e.fleet.DevicesOf(n) {
				if more := int(o) + 1 - len(e.pooled.of); more > 0 {
					e.pooled.of = append(e.pooled.of, make([]int32, more)...)
				}
				e.pooled.of[o] = int32(e.findPool(o))
			}
		}
	}
	return int(e.pooled.of[d])
}

func (e *Engine) findPool(d fleet.DeviceID) int {
	dev, node := e.fleet.Device(d), e.fleet.NodeName(e.fleet.NodeOf(d))
	for i := range e.policy.Pools {
		if e.policy.Pools[i].Matches(node, dev.Model, dev.Index) {
			return i
		}
	}
	return len(e.policy.Pools)
}

// poolOf is the pool that a device is in; nil: it is in none.
func (e *Engine) poolOf(d fleet.DeviceID) *Pool {
	if at := e.poolAt(d); at < len(e.policy.Pools) {
		return &e.policy.Pools[at]
	}
	return nil
}

// fence rules out the devices that are not for a side; nil: it rules out none.
func (e *Engine) fence(s side) *place.Fence {
	if !s.some {
		return nil
	}
	return e.fenceOf(true, func(i int) bool { return slices.Contains(e.policy.Pools[i].Classes, s.class) })
}

// fenceOf rules out the devices of the pools that are not open, and where outside is not set those that are in none.
func (e *Engine) fenceOf(outside bool, isOpen func(pool int) bool) *place.Fence {
	open, name := make([]bool, len(e.policy.Pools)+1), ""
	for i := range open {
		if open[i] = outside; i < len(e.policy.Pools) {
			open[i] = isOpen(i)
		}
		if open[i] {
			name += strconv.Itoa(i) + ","
		}
	}
	return &place.Fence{Name: name, Bars: func(d fleet.DeviceID) bool { return !open[e.poolAt(d)] }}
}

// part is which of the parts of the line work of a class is in: those of classes that have a pool in common are in one. Each has a first in
// line of its own, for what comes free in its pools is of no use to the others. Work that no pool is for is in the last.
func (e *Engine) part(class api.Class) int {
	pools := e.policy.Pools
	first := slices.IndexFunc(pools, func(p Pool) bool { return slices.Contains(p.Classes, class) })
	if first < 0 {
		return len(pools)
	}
	common := slices.Clone(pools[first].Classes)
	for grown := true; grown; {
		grown = false
		for i := range pools {
			if !slices.ContainsFunc(pools[i].Classes, func(c api.Class) bool { return slices.Contains(common, c) }) {
				continue
			}
			first = min(first, i)
			for _, c := range pools[i].Classes {
				if !slices.Contains(common, c) {
					common, grown = append(common, c), true
				}
			}
		}
	}
	return first
}

// parts are the groups of the line by the part that they are in, the parts in order; without pools there is one.
func (e *Engine) parts() [][]*group {
	all := e.lineGroups()
	if len(e.policy.Pools) == 0 {
		return [][]*group{all}
	}
	parts := make([][]*group, len(e.policy.Pools)+1)
	for _, g := range all {
		at := e.part(g.shape.side.class)
		parts[at] = append(parts[at], g)
	}
	return slices.DeleteFunc(parts, func(part []*group) bool { return len(part) == 0 })
}

// lend starts preemptible work, in the order of the line, on what is free of pools that are not for it, lend, and have nobody waiting for room that
// they are for and that one of their devices suits. It takes nothing that the first in any line could have.
// It says whether anything started.
func (p *pass) lend() (started bool) {
	if p.config.NoBackfill || !slices.ContainsFunc(p.policy.Pools, func(pool Pool) bool { return pool.Lends }) {
		return false
	}
	for p.lendOne() {
		started = true
	}
	return started
}

func (p *pass) lendOne() bool {
	type kind struct {
		shape *shape
		queue *queue.Node
	}
	tried := map[kind]bool{}
	for w := range p.inOrder {
		k := kind{w.shape, w.queue}
		if !w.Preemptible || w.retryAt > p.now || tried[k] || p.plans[w.plan] != nil || p.holds(w) {
			continue
		}
		if tried[k] = true; p.bounded(w) {
			continue
		}
		lends := p.lentTo(w)
		lent := p.fenceOf(false, func(i int) bool { return lends(i) && (p.wanted == nil || !p.wanted[i]) })
		request := p.request(w).Within(lent)
		if over, crowds := request.Avoid, p.crowds(w); crowds != nil {
			request.Avoid = func(d fleet.DeviceID) bool { return crowds(d) || over != nil && over(d) }
		}
		if spots, ok := p.placer.Place(request); ok {
			p.start(w, spots)
			return true
		}
	}
	return false
}

// crowds rules out the nodes on which a first in line could run that waits for a resource of the node which a workload would take some of; nil:
// there are none.
func (p *pass) crowds(w *workload) func(fleet.DeviceID) bool {
	var heads []*workload
	for _, h := range p.heads {
		if h != w && h.waiting() && sharesResource(h, w) {
			heads = append(heads, h)
		}
	}
	if len(heads) == 0 {
		return nil
	}
	return func(d fleet.DeviceID) bool {
		return slices.ContainsFunc(heads, func(h *workload) bool { return p.nodeServes(h.shape, p.fleet.NodeOf(d)) })
	}
}

// wants notes a workload that waits for room, and which pools a workload that waits for room keeps from lending: those that are for it, with a device that suits it.
func (p *pass) wants(w *workload, waits bool) {
	if !waits {
		return
	}
	if p.short = append(p.short, w); len(p.policy.Pools) == 0 {
		return
	}
	if p.wanted == nil {
		p.wanted = make([]bool, len(p.policy.Pools)+1)
	}
	for i, suits := range p.suits(w.shape) {
		p.wanted[i] = p.wanted[i] || suits
	}
}

// suits says of each pool, and last of the devices in none, whether one of them is for a shape and could hold its share if it were empty.
func (e *Engine) suits(s *shape) []bool {
	if at := e.fleet.Changes() + 1; s.suitsAt != at {
		s.suitsAt, s.suits = at, make([]bool, len(e.policy.Pools)+1)
		for n := range e.fleet.Nodes {
			for _, d := range e.fleet.DevicesOf(n) {
				if at := e.poolAt(d); !s.suits[at] {
					s.suits[at] = e.servedBy(s, d)
				}
			}
		}
	}
	return s.suits
}

// bounded says that a quota or limit, or somebody in front who waits for one, keeps a workload from starting.
func (p *pass) bounded(w *workload) bool {
	demand := w.demand()
	if _, no := w.queue.Over(demand); no {
		return true
	}
	return slices.ContainsFunc(p.closed, func(c closure) bool { return c.Concerns(w.queue, demand) })
}

// guest says that a workload has something of a pool that is for another, and not for it.
func (e *Engine) guest(v, w *workload) bool {
	if len(e.policy.Pools) == 0 || !v.Preemptible {
		return false
	}
	return slices.ContainsFunc(v.tasks, func(t *task) bool {
		return t.stays() && slices.ContainsFunc(t.grants, func(g grant) bool {
			p := e.poolOf(g.device)
			return p != nil && slices.Contains(p.Classes, w.Class) && !slices.Contains(p.Classes, v.Class)
		})
	})
}

// isGuest says that a task of preemptible work holds something of a pool that is not for it.
func (e *Engine) isGuest(t *task) bool {
	return len(e.policy.Pools) > 0 && t.w.Preemptible && slices.ContainsFunc(t.grants, func(g grant) bool {
		p := e.poolOf(g.device)
		return p != nil && !slices.Contains(p.Classes, t.w.Class)
	})
}

// noteGuests enters workloads whose tasks hold something of a pool that is not for them. Whatever makes one a guest comes here.
func (e *Engine) noteGuests(tasks ...*task) {
	for _, t := range tasks {
		if e.isGuest(t) {
			e.guests[t.w] = true
		}
	}
}

// hasGuest says that somebody has something of a pool that is for a workload, and not for that one.
func (e *Engine) hasGuest(w *workload) bool {
	for v := range e.guests {
		if e.guest(v, w) {
			return true
		}
	}
	return false
}

// reshape finds the shapes of all workloads anew, after the pools changed. What was found out about the old ones is forgotten.
func (e *Engine) reshape() {
	clear(e.tallies)
	clear(e.soonest)
	clear(e.gathers)
	e.pooled = pooling{}
	e.placer.Refence()
	e.fleet.Doubt()
	for _, s := range e.shapes {
		s.Fence = e.fence(s.side)
		for i := range s.Roles {
			s.Roles[i].Fence = s.Fence
		}
		s.using = nil
		s.possibleAt, s.servesAt, s.servedAt, s.allAt, s.suitsAt = 0, 0, 0, 0, 0
	}
	for _, w := range e.byID() {
		grouped := w.waiting() && w.retryAt == 0
		if grouped {
			e.ungroup(w)
		}
		e.dropShape(w)
		w.shape = e.shapeOf(&w.Workload)
		e.noteGuests(w.tasks...)
		if grouped {
			e.regroup(w)
		}
	}
}

func clonePools(all []Pool) []Pool {
	all = slices.Clone(all)
	for i := range all {
		p := &all[i]
		p.Nodes, p.Models, p.Classes = slices.Clone(p.Nodes), slices.Clone(p.Models), slices.Clone(p.Classes)
	}
	return all
}
