package place

import (
	"slices"

	"github.com/aliquot-dev/aliquot/engine/fleet"
)

// nearer is a spot of several devices with others in their place that are as good, but nearer to each other: where all of them are of one kind and hold the
// same, those on their node that are and do too count alike by every feature but where they are. Where the policy weighs that, it has decided.
func (p *Placer) nearer(r *Request, s Spot) Spot {
	if r.Devices < 2 || p.scored != nil && p.scored.near.counts(&p.scored.policy.Weights) {
		return s
	}
	var alike []fleet.DeviceID
	for _, d := range p.fleet.DevicesOf(s.Node) {
		if p.alike(d, s.Devices[0]) && p.fits(r, d) && p.deviceOK(r, d) {
			alike = append(alike, d)
		}
	}
	if len(alike) <= r.Devices || slices.ContainsFunc(s.Devices, func(d fleet.DeviceID) bool { return !p.alike(d, s.Devices[0]) }) {
		return s
	}
	return p.spot(s.Node, closest(alike, r.Devices, p.fleet.LinkOf, p.fleet.NUMAOf))
}

// alike says that two devices of a node are of one kind, and that as much is held of them.
func (p *Placer) alike(a, b fleet.DeviceID) bool {
	x, y := p.fleet.BookOf(a), p.fleet.BookOf(b)
	return p.fleet.GroupOf(a) == p.fleet.GroupOf(b) && x.Compute == y.Compute && x.Memory == y.Memory && x.Busy == y.Busy && (x.Grants == 0) == (y.Grants == 0)
}

// closest takes so many of some devices, by the first of these relations, which gives what is near each other the same number, 0 to what is near nothing: the
// smallest group that suffices, else the largest one and what is still wanted of the others; and of one of which only a part is wanted, by the next. What is
// equal goes by index.
func closest(of []fleet.DeviceID, wanted int, by ...func(fleet.DeviceID) int32) (taken []fleet.DeviceID) {
	if wanted >= len(of) || len(by) == 0 {
		return of[:min(wanted, len(of))]
	}
	groups := grouped(of, by[0])
	if len(groups) == len(of) { // nothing is near another
		return closest(of, wanted, by[1:]...)
	}
	for wanted > 0 {
		best := 0
		for i, g := range groups {
			if b := groups[best]; len(g) >= wanted && (len(b) < wanted || len(g) < len(b)) || len(b) < wanted && len(g) > len(b) {
				best = i
			}
		}
		taken = append(taken, closest(groups[best], wanted, by[1:]...)...)
		wanted -= min(wanted, len(groups[best]))
		groups = slices.Delete(groups, best, best+1)
	}
	return taken
}

// grouped are devices in groups of one number, those of number 0 each by itself, in the order of the first of each.
func grouped(of []fleet.DeviceID, by func(fleet.DeviceID) int32) (groups [][]fleet.DeviceID) {
	for _, d := range of {
		i := slices.IndexFunc(groups, func(g []fleet.DeviceID) bool { return by(d) != 0 && by(g[0]) == by(d) })
		if i < 0 {
			i, groups = len(groups), append(groups, nil)
		}
		groups[i] = append(groups[i], d)
	}
	return groups
}
