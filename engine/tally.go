package engine

import (
	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/engine/fleet"
)

// ruling is the first reason for which a device does not take a shape now.
type ruling int8

const (
	byModel ruling = iota
	byLeast
	bySize
	byPool
	byBar
	byRefusal
	byDrain
	byHealth
	byCompute
	byMemory
	byHeld
	byResource
	byNothing // it has room
	rulings
)

// maxTallies is how many shapes' tallies are kept.
const maxTallies = 512

// tally is how many devices are ruled out by what for one shape, in each node class and on each node. So it is brought up to date at
// the cost of the nodes that changed.
type tally struct {
	changes uint64            // of the fleet, plus 1; with others it is counted anew
	at      uint64            // Touches up to which it is up to date
	nodes   []tallied         // by node
	bounds  []bound           // by node
	sums    []sum             // by node class
	reasons map[ruling]string // of those that were asked for: what pass.reasons says
}

// bound is how far what is booked on a node decides what rules its devices out.
type bound uint8

const (
	partly bound = iota // with what else is true of each, or it is not known yet
	never               // other things rule them all out
	wholly              // alone, and all its devices have the same memory
)

// sum is the tally of a node class.
type sum [rulings]int

// tallied is the tally of a node.
type tallied struct {
	count   [rulings]uint16
	version uint32    // when it was counted
	most    api.Bytes // where its books decide wholly: of each device, that may be taken
}

// tallyOf counts the devices that do not take a shape now by the class of their nodes and what rules them out. What it returns is good
// until it is next called.
func (e *Engine) tallyOf(s *shape) []sum {
	if len(e.above) > 0 { // what is held above floors is known to no count of the fleet
		return e.tallyAll(s)
	}
	key := s.key()
	t, ok := e.tallies[key]
	if !ok {
		if len(e.tallies) >= maxTallies {
			clear(e.tallies)
		}
		t = &tally{}
		e.tallies[key] = t
	}
	if t.changes != e.fleet.Changes()+1 {
		*t = tally{changes: e.fleet.Changes() + 1, nodes: make([]tallied, e.fleet.Slots()), bounds: make([]bound, e.fleet.Slots()), sums: make([]sum, e.fleet.NodeClasses())}
		for n := range e.fleet.Nodes {
			t.nodes[n].version = e.fleet.Version(n) - 1
			t.recount(e, s, n)
			t.bounds[n], t.nodes[n].most = e.boundOf(s, n)
		}
	} else if !e.fleet.TouchedSince(t.at, func(n fleet.NodeID) { t.recount(e, s, n) }) {
		for n := range e.fleet.Nodes {
			t.recount(e, s, n)
		}
	}
	t.at = e.fleet.Touches()
	return t.sums
}

// tallyAll counts over the whole fleet.
func (e *Engine) tallyAll(s *shape) []sum {
	sums := make([]sum, e.fleet.NodeClasses())
	for n := range e.fleet.Nodes {
		of := &sums[e.fleet.NodeClass(n)]
		for r, devices := range e.ruleNode(s, n) {
			of[r] += int(devices)
		}
	}
	return sums
}

// recount brings a node up to date, while nobody holds memory above a floor.
func (t *tally) recount(e *Engine, s *shape, n fleet.NodeID) {
	if int(n) >= len(t.nodes) || t.bounds[n] == never { // of the former nobody told since, and it is entered as gone: it has no device that counts
		return
	}
	node, version := &t.nodes[n], e.fleet.Version(n)
	if node.version == version {
		return
	}
	var now [rulings]uint16
	if t.bounds[n] == wholly {
		now = e.ruleBooks(s, n, node.most)
	} else {
		now = e.ruleNode(s, n)
	}
	of := &t.sums[e.fleet.NodeClass(n)]
	for r := range now {
		of[r] += int(now[r]) - int(node.count[r])
	}
	node.count, node.version = now, version
}

// boundOf is how far the books of a node decide for a shape, until the fleet changes; where wholly, with how much memory of a device may be taken.
func (e *Engine) boundOf(s *shape, n fleet.NodeID) (bound, api.Bytes) {
	devices := e.fleet.DevicesOf(n)
	closed, ruledOut := e.closed(s, n), 0
	for _, d := range devices {
		if e.fleet.DeviceGone(d) || e.standing(s, d, closed) != byNothing {
			ruledOut++
		}
	}
	switch {
	case ruledOut == len(devices):
		return never, 0
	case ruledOut > 0:
		return partly, 0
	}
	size := e.fleet.Memory(devices[0])
	for _, d := range devices {
		if e.fleet.Memory(d) != size {
			return partly, 0
		}
	}
	return wholly, size - s.Memory.Of(size)
}

// ruleBooks is ruleNode where the books of the node decide wholly, and up to so much memory of a device may be taken.
func (e *Engine) ruleBooks(s *shape, n fleet.NodeID, most api.Bytes) (count [rulings]uint16) {
	free := e.fleet.HasFree(n, s.Resources)
	for _, d := range e.fleet.DevicesOf(n) {
		switch book := e.fleet.BookOf(d); {
		case e.fleet.DeviceGone(d): // adopted since, on a node that does not have it
		case api.WholeDevice-book.Compute < s.Compute:
			count[byCompute]++
		case book.Memory > most:
			count[byMemory]++
		case !free:
			count[byResource]++
		default:
			count[byNothing]++
		}
	}
	return count
}

// ruleNode counts the devices of a node by what rules them out.
func (e *Engine) ruleNode(s *shape, n fleet.NodeID) (count [rulings]uint16) {
	closed, free := e.closed(s, n), e.fleet.HasFree(n, s.Resources)
	for _, d := range e.fleet.DevicesOf(n) {
		if e.fleet.DeviceGone(d) {
			continue
		}
		count[e.rule(s, d, closed, free)]++
	}
	return count
}

// closed is what rules all devices of a node out for a shape; byNothing: nothing does.
func (e *Engine) closed(s *shape, n fleet.NodeID) ruling {
	_, refused, yes := e.fleet.Closed(s.Class, n)
	switch {
	case !yes:
		return byNothing
	case refused != "":
		return byRefusal
	}
	return byBar
}

// rule says what rules a device out, where its node is closed by so much, and has the resources free or not.
func (e *Engine) rule(s *shape, d fleet.DeviceID, closed ruling, free bool) ruling {
	if r := e.standing(s, d, closed); r != byNothing {
		return r
	}
	floor := s.Memory.Of(e.fleet.Memory(d))
	compute, memory := e.fleet.Free(d)
	switch {
	case compute < s.Compute:
		return byCompute
	case memory < floor && memory+e.sumAbove(d) >= floor:
		return byHeld
	case memory < floor:
		return byMemory
	case !free:
		return byResource
	}
	return byNothing
}

// standing says what rules a device out whatever is booked, where its node is closed by so much; byNothing: nothing does.
func (e *Engine) standing(s *shape, d fleet.DeviceID, closed ruling) ruling {
	health := e.fleet.Health(d)
	switch {
	case s.Model != "" && e.fleet.ModelOf(d) != s.Model:
		return byModel
	case !e.fleet.Meets(d, s.Least):
		return byLeast
	case !s.Suits(e.fleet.Memory(d)):
		return bySize
	case s.Fence != nil && s.Fence.Bars(d):
		return byPool
	case closed != byNothing:
		return closed
	case health == api.Draining:
		return byDrain
	case health == api.Down:
		return byHealth
	}
	return byNothing
}
