package place

import (
	"slices"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/engine/fleet"
)

// unit is what scores look at of a device.
type unit struct {
	memory  api.Bytes // free
	device  fleet.DeviceID
	group   int32  // of its model and memory
	state   *state // that it was in when that was last looked up; nil: it was not yet
	compute int16  // free, in milli
	free    int16  // the lesser of compute and memory free, in milli
	busy    int16  // what is on it is predicted to use so much, in milli, or more than mostBusy; 0 where the policy does not weigh that; unused
	rank    uint8  // of free in the node's profile
	twin    twin
}

// twin says whether a device before it on its node is like it.
type twin uint8

const (
	noTwin twin = iota
	alike       // in what it has free, in compute and in use: it scores the same for what wants no memory
	twins       // in memory and group, too: it scores the same, and where neither is fenced off, both or none serve
)

// view is what scores look at of a node, kept close together.
type view struct {
	version     uint32
	node        fleet.NodeID
	most        int16 // compute free of the device that has most
	had         int16 // the most it had since its scores were last made anew for all kinds; no less than now
	profile     int32
	table       int32            // where the table of its profile with so much free is
	whole       int              // devices wholly free
	cpu, memory int64            // free
	total       int64            // of their free
	asleep      bool             // nothing is on any of its devices, where that counts
	units       []unit           // that take grants, by index
	frag        int64            // fragmentation, in milli times one
	ranked      [maxRanked]int64 // free of the ranked resources
	spare       [maxRanked]int64 // how much of that may be taken without another table

	totalIn, cpuIn, memoryIn, fedIn ratio // what is free, in the units of features; fedIn: what the CPU could feed, in milli of devices
	heldIn                          ratio // the same of the memory, where that counts
}

// keeps says that the table of a node stays the same when a request comes on it.
func (v *view) keeps(w *want) bool {
	return w.ranked[0] <= v.spare[0] && w.ranked[1] <= v.spare[1] && w.ranked[2] <= v.spare[2]
}

// lay makes the views of all nodes in order, with nothing in them yet.
func (s *scored) lay() {
	s.views = s.views[:0]
	s.units = s.units[:0]
	for _, n := range s.order {
		from := len(s.units)
		for _, d := range s.fleet.DevicesOf(n) {
			if s.fleet.Placeable(d) {
				s.units = append(s.units, unit{device: d, group: s.fleet.GroupOf(d)})
			}
		}
		s.views = append(s.views, view{node: n, profile: s.terrain.profile[n], whole: len(s.units) - from})
	}
	at := 0
	for i := range s.views {
		v := &s.views[i]
		v.units = s.units[at : at+v.whole : at+v.whole]
		at += v.whole
		s.renew(v)
	}
}

// renew brings a view up to date.
func (s *scored) renew(v *view) {
	f, t, n := s.fleet, s.terrain, v.node
	rank := &t.profiles[v.profile].rank
	v.version = f.Version(n)
	v.total, v.whole, v.most = 0, 0, -1
	weighs := s.policy.Weights[Interference] != 0
	for i := range v.units {
		u := &v.units[i]
		compute, memory := f.Free(u.device)
		u.memory = memory
		if u.compute = int16(max(-1, compute)); memory < 0 {
			u.compute = -1 // more is held than there is: nothing goes there, not even what wants no memory
		}
		u.free = int16(min(max(0, int64(compute)), thousandths(memory, f.Memory(u.device), false)))
		u.rank = rank[u.free]
		switch u.busy = 0; {
		case t.prices != nil && f.BookOf(u.device).Grants == 0:
			u.busy = unused
		case weighs:
			u.busy = int16(min(mostBusy, f.BookOf(u.device).Busy))
		}
		u.twin = noTwin
		for k := 0; k < i && u.twin != twins; k++ {
			if o := &v.units[k]; !s.alike(u, o) {
				continue
			} else if u.twin = alike; sameMemory(u, o) {
				u.twin = twins
			}
		}
		v.most = max(v.most, u.compute)
		v.total += int64(u.free)
		if int64(u.free) == whole {
			v.whole++
		}
	}
	v.had = max(v.had, v.most)
	v.asleep = s.policy.Weights[Wake] != 0 && !slices.ContainsFunc(f.DevicesOf(n), func(d fleet.DeviceID) bool { return f.BookOf(d).Grants > 0 })
	for i, r := range t.ranked {
		v.ranked[i] = f.Capacity(n, r) - f.Taken(n, r)
	}
	v.cpu = f.Capacity(n, t.cpu) - f.Taken(n, t.cpu)
	v.memory = f.Capacity(n, t.memory) - f.Taken(n, t.memory)
	v.totalIn, v.cpuIn, v.memoryIn, v.fedIn = t.ratios(v.total, v.cpu, v.memory)
	if s.policy.Weights[StrandedMemory] != 0 {
		v.heldIn = t.feedsOf(v.memory)
	}
	v.table, v.spare = t.situation(v.profile, &v.ranked)
	v.frag = v.total*one - kept(v.units, t.tableAt(v.profile, v.table), v.whole)
}

const (
	mostBusy = 32_000 // the most predicted use that is told apart, in milli
	unused   = -1     // nothing is on a device, where that counts
)

// alike says that two devices of a node score the same for what wants no memory: they have as much free and compute, as much is predicted to be used of
// them and, where what they are counts, they are the same.
func (s *scored) alike(u, o *unit) bool {
	return u.free == o.free && u.compute == o.compute && u.busy == o.busy && (s.terrain.prices == nil || u.group == o.group)
}

// sameMemory says that two devices have as much memory free, and are of one model and size.
func sameMemory(u, o *unit) bool { return u.memory == o.memory && u.group == o.group }

// kept is what of a node's free devices popular kinds could use, weighed by their shares: its fragmentation is all that is free
// less this.
//
// Fragmentation of a node for a kind is all its free devices where the kind cannot run or wants none, else what is free on those
// devices that have less than the kind needs (Weng et al., USENIX ATC'23, section 4).
func kept(units []unit, tab table, wholes int) int64 {
	return partly(units, tab) + tab.served(wholes)
}

// partly is that part of kept which rests on kinds that want a part of a device.
func partly(units []unit, tab table) int64 {
	gain := tab.gain()
	var sum int64
	for i := range units {
		sum += int64(units[i].free) * gain[units[i].rank]
	}
	return sum
}
