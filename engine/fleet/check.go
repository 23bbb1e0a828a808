package fleet

import (
	"fmt"
	"maps"
	"slices"

	"github.com/aliquot-dev/aliquot/api"
)

func sortedKeys(m map[string]ClassID) []string { return slices.Sorted(maps.Keys(m)) }

func sorted(names []string) []string { return slices.Sorted(slices.Values(names)) }

// CheckIndex compares every index with what a walk over all devices finds. It costs the whole fleet and is for tests.
func (f *Fleet) CheckIndex() error {
	if f.depth != 0 || len(f.undo) != 0 || f.gave {
		return fmt.Errorf("a mark is open: depth %d, %d images, gave %v", f.depth, len(f.undo), f.gave)
	}
	for id := range f.devices {
		if dev := &f.devices[id]; dev.indexed && !dev.stale && dev.at != dev.book {
			return fmt.Errorf("device %s is indexed by %+v, holds %+v and is not to be moved", dev.UUID, dev.at, dev.book)
		}
	}
	f.freshen()
	entries := 0
	for _, g := range f.groups {
		entries += g.untouched.Len()
		for left, list := range g.touched {
			n := 0
			if list != nil {
				n = list.Len()
			}
			if filled := g.filled[left/64]>>(left%64)&1 == 1; filled != (n > 0) {
				return fmt.Errorf("group %s: filled says %v of %d devices with %d left", g.model, filled, n, left)
			}
			entries += n
		}
	}
	indexed := 0
	for id := range f.devices {
		d := DeviceID(id)
		dev := &f.devices[d]
		if !dev.used {
			continue
		}
		book := dev.book
		if book.Compute < 0 || book.Busy < 0 || book.Memory < 0 || book.Grants < 0 {
			return fmt.Errorf("device %s: less than nothing is taken: %+v", dev.UUID, book)
		}
		want := f.Placeable(d) && book.Compute <= api.WholeDevice && book.Memory <= dev.Memory
		if want != dev.indexed {
			return fmt.Errorf("device %s: indexed is %v, want %v", dev.UUID, dev.indexed, want)
		}
		if dev.takes != f.Placeable(d) {
			return fmt.Errorf("device %s: that it takes grants is %v, want %v", dev.UUID, dev.takes, !dev.takes)
		}
		if !want {
			continue
		}
		indexed++
		list := f.groups[dev.group].untouched
		if book.Grants > 0 {
			list = f.groups[dev.group].touched[api.WholeDevice-book.Compute]
		}
		if c := list.Seek(func(o DeviceID) bool { return f.deviceBefore(o, d) }); !c.Valid() || c.Value() != d {
			return fmt.Errorf("device %s is not where the index should have it", dev.UUID)
		}
	}
	if entries != indexed {
		return fmt.Errorf("the index has %d entries for %d devices", entries, indexed)
	}
	if err := f.checkClasses(); err != nil {
		return err
	}
	return f.checkNodeIndex()
}

// checkClasses: each number is of a class that has a name, or is free, and no class prefers one that is forgotten.
func (f *Fleet) checkClasses() error {
	free := map[ClassID]bool{}
	for _, id := range f.idleClasses {
		free[id] = true
	}
	for i, c := range f.classes {
		id := ClassID(i)
		switch {
		case free[id] != (c == nil):
			return fmt.Errorf("that number %d of a class is free is %v, and that it is of none %v", id, free[id], c == nil)
		case c == nil:
		case f.byClass[c.name] != id:
			return fmt.Errorf("class %q has number %d and is entered with %d", c.name, id, f.byClass[c.name])
		case c.prefer != Alike && !f.HasClass(c.prefer):
			return fmt.Errorf("class %q prefers number %d, which is free", c.name, c.prefer)
		}
	}
	if len(free) != len(f.idleClasses) || len(f.byClass)+len(free) != len(f.classes) {
		return fmt.Errorf("of %d numbers of classes %d have names and %d are free, which are %d", len(f.classes), len(f.byClass), len(f.idleClasses), len(free))
	}
	return nil
}

func (f *Fleet) checkNodeIndex() error {
	for _, n := range f.order {
		if got, want := f.nodeClasses[f.nodes[n].class], f.classNameOf(n); got != want {
			return fmt.Errorf("node %s is of class %s, and has %s", f.nodes[n].name, got, want)
		}
	}
	listed := 0
	for k, list := range f.byUntouched {
		for c := list.Begin(); c.Valid(); c.Next() {
			listed++
			if got := f.countUntouched(c.Value()); got != k {
				return fmt.Errorf("node %s has %d untouched devices and is listed with %d", f.NodeName(c.Value()), got, k)
			}
		}
	}
	for i, n := range f.order {
		if i > 0 && (f.nodes[f.order[i-1]].name >= f.nodes[n].name || !f.Before(f.order[i-1], n)) {
			return fmt.Errorf("node %s is out of order", f.nodes[n].name)
		}
		if f.countUntouched(n) > 0 {
			listed--
		}
	}
	if listed != 0 {
		return fmt.Errorf("the list of nodes with untouched devices is off by %d", listed)
	}
	return nil
}

func (f *Fleet) countUntouched(n NodeID) int {
	count := 0
	for _, d := range f.nodes[n].devices {
		if f.devices[d].indexed && f.devices[d].book.Grants == 0 {
			count++
		}
	}
	return count
}
