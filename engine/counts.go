package engine

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/engine/fleet"
)

// counts are the devices by the first reason for which each does not take the workload now.
func (p *pass) counts(w *workload, behind bool, why *Why) {
	fits := api.WhyCount{Code: CountApart, Message: "room for the share, but not enough of them together"}
	if behind && p.fitsNow(w) {
		fits = api.WhyCount{Code: CountKept, Message: "room for the share, but kept for the one first in line"}
	}
	of, asks := w.shape, &w.Workload
	if len(w.Roles) > 0 { // of the role that lacks room
		var role int
		if of, role = p.lacking(w); role > 0 {
			asks, why.Role = new(w.as(&w.Roles[role-1])), role
		}
	}
	tally := p.tallyOf(of)
	if slices.ContainsFunc(tally, func(class sum) bool { return class[byHeld] > 0 }) {
		p.heldBack(of, why)
	}
	for r := range rulings {
		count := api.WhyCount{Code: ruledBy[r], Nodes: p.nodesOf(tally, r)}
		for _, n := range count.Nodes {
			count.Devices += n.Devices
		}
		switch {
		case count.Devices == 0:
			continue
		case r == byNothing:
			count.Code, count.Message = fits.Code, fits.Message
		default:
			count.Message = ruledOut(r, asks, why.Above) + p.reasons(of, r)
		}
		why.Counts = append(why.Counts, count)
	}
}

// ruledBy is what each reason is called; byNothing has no such name.
var ruledBy = [rulings]string{
	byModel: CountModel, byLeast: CountLeast, bySize: CountSmall, byPool: CountPool, byBar: CountBarred, byRefusal: CountRefused, byDrain: CountDraining,
	byHealth: CountDown, byCompute: CountCompute, byMemory: CountMemory, byHeld: CountHeld, byResource: CountResource,
}

// ruledOut says what rules devices out for a workload: byNothing does not.
func ruledOut(r ruling, asks *Workload, above []Above) string {
	switch r {
	case byModel:
		return "another model than " + asks.Model
	case byLeast:
		return "not known to have " + asks.Least.String()
	case bySize:
		return unsuited(asks.Share.Memory)
	case byPool:
		return "of a pool that is not for class " + string(asks.Class)
	case byBar:
		return "on a node that is not for this workload"
	case byRefusal:
		return "on a node that refused it"
	case byDrain:
		return "draining"
	case byHealth:
		return "down"
	case byCompute:
		return "less compute free than the floor of " + asks.Share.Compute.Floor.String()
	case byMemory:
		return "less memory free than the floor of " + asks.Share.Memory.Floor.String()
	case byHeld:
		return "less memory free than the floor of " + asks.Share.Memory.Floor.String() + ": held above their floors by " + names(above)
	}
	return "on a node with too little CPU, memory or the like free"
}

// maxReasons is how many reasons are told of those for which devices are ruled out; the devices of all others are counted together.
const maxReasons = 3

// unsaid is told of devices of which nobody said why, beside others of which somebody did.
const unsaid = "without a reason"

// reasons says why devices are draining or down, or their nodes refused a shape, as those said who know: ": it has the taint repair=due",
// and with how many devices each where there are several; and of those that are too small how large the largest is. It is empty of what else rules devices out.
func (p *pass) reasons(s *shape, r ruling) string {
	if r != byDrain && r != byHealth && r != byRefusal && (r != bySize || s.Memory.Part != 0) {
		return ""
	}
	t := p.tallies[s.key()]
	if t == nil || t.changes != p.fleet.Changes()+1 {
		return p.reasonsAll(s, r)
	}
	if _, ok := t.reasons[r]; !ok {
		if t.reasons == nil {
			t.reasons = map[ruling]string{}
		}
		t.reasons[r] = p.reasonsAll(s, r)
	}
	return t.reasons[r]
}

// reasonsAll is reasons, from all devices.
func (p *pass) reasonsAll(s *shape, r ruling) string {
	if r == bySize {
		largest := api.Bytes(0)
		p.ruled(s, r, func(_ fleet.NodeID, d fleet.DeviceID) { largest = max(largest, p.fleet.Memory(d)) })
		return ": the largest has " + largest.Short()
	}
	said := map[string]int{} // how many devices by reason
	p.ruled(s, r, func(n fleet.NodeID, d fleet.DeviceID) {
		why := p.fleet.Device(d).Reason
		if r == byRefusal {
			_, why, _ = p.fleet.Closed(s.Class, n)
		}
		said[cmp.Or(why, unsaid)]++
	})
	all := slices.SortedFunc(maps.Keys(said), func(a, b string) int { return cmp.Or(said[b]-said[a], strings.Compare(a, b)) })
	switch {
	case len(all) == 1 && all[0] == unsaid:
		return ""
	case len(all) == 1:
		return ": " + all[0]
	}
	var text []string
	rest := 0
	for i, why := range all {
		if i < maxReasons {
			text = append(text, fmt.Sprintf("%s (%d)", why, said[why]))
		} else {
			rest += said[why]
		}
	}
	if rest > 0 {
		text = append(text, fmt.Sprintf("others (%d)", rest))
	}
	return ": " + strings.Join(text, ", ")
}

// ruled calls do with each device that is ruled out for a shape by this first.
func (p *pass) ruled(s *shape, r ruling, do func(n fleet.NodeID, d fleet.DeviceID)) {
	for n := range p.fleet.Nodes {
		closed := p.Engine.closed(s, n)
		for _, d := range p.fleet.DevicesOf(n) {
			if !p.fleet.DeviceGone(d) && p.standing(s, d, closed) == r {
				do(n, d)
			}
		}
	}
}

// nodesOf are the devices that are ruled out for one reason by node class, most first.
func (p *pass) nodesOf(tally []sum, r ruling) (nodes []api.WhyNodes) {
	for c := range tally {
		if n := tally[c][r]; n > 0 {
			nodes = append(nodes, api.WhyNodes{Class: p.fleet.NodeClassName(fleet.NodeClassID(c)), Devices: n})
		}
	}
	slices.SortFunc(nodes, func(a, b api.WhyNodes) int {
		return cmp.Or(cmp.Compare(b.Devices, a.Devices), strings.Compare(a.Class, b.Class))
	})
	return nodes
}

// unsuited is what is to be said of devices that could never have a share's memory.
func unsuited(m api.Memory) string {
	text := "less memory in all than the floor of " + m.Floor.String()
	if bound := m.Bound(); !bound.IsZero() {
		text += ", or a ceiling of " + bound.String() + " below that floor"
	}
	return text
}

// heldBack enters who holds the memory above their floors that a shape lacks on devices.
func (p *pass) heldBack(s *shape, why *Why) {
	for n := range p.fleet.Nodes {
		if p.ruleNode(s, n)[byHeld] == 0 {
			continue
		}
		for _, d := range p.fleet.DevicesOf(n) {
			// What rules its node out altogether would have been counted before.
			if !p.fleet.DeviceGone(d) && p.rule(s, d, byNothing, true) == byHeld {
				why.Above = p.aboveOn(d, why.Above)
			}
		}
	}
	sortAbove(why.Above)
}
