package fleet

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/aliquot-dev/aliquot/api"
)

// SetNode adds a node or replaces what is known of it. Books stay. It returns the devices that are gone from the node and still
// held; they stay known until Collect finds them free. It refuses, and changes nothing, when a device is described wrongly or
// belongs to another node.
func (f *Fleet) SetNode(name string, devices []Device, capacity []Resource) (lost []DeviceID, err error) {
	if err := f.checkNode(name, devices, capacity); err != nil {
		return nil, err
	}
	n := f.ensureNode(name)
	f.nodes[n].gone = false
	var stay []DeviceID
	for _, d := range devices {
		stay = append(stay, f.setDevice(n, d))
	}
	for _, d := range slices.Clone(f.nodes[n].devices) {
		if slices.Contains(stay, d) {
			continue
		}
		f.unindex(d)
		f.devices[d].gone = true
		f.nodes[n].losing = true
		if f.devices[d].book.Grants > 0 {
			lost = append(lost, d)
		}
	}
	for i := range f.stockOf(n) {
		f.stockOf(n)[i].capacity = 0
	}
	for _, r := range capacity {
		id := f.Resource(r.Name)
		f.stockOf(n)[id].capacity = r.Amount
	}
	f.sortDevices(n)
	f.classNode(n)
	f.clearRefusals(n)
	f.changed()
	f.Collect(n)
	return lost, nil
}

func (f *Fleet) checkNode(name string, devices []Device, capacity []Resource) error {
	if name == "" {
		return fmt.Errorf("a node without a name cannot be added: give it one")
	}
	seen := map[string]bool{}
	for _, d := range devices {
		switch {
		case d.UUID == "":
			return fmt.Errorf("node %s: device %d has no UUID: give every device its own", name, d.Index)
		case seen[d.UUID]:
			return fmt.Errorf("node %s: device %s is listed twice: give every device its own UUID", name, d.UUID)
		case d.Memory < 0:
			return fmt.Errorf("node %s: device %s has less than no memory (%d bytes)", name, d.UUID, int64(d.Memory))
		case d.Health != api.Healthy && d.Health != api.Draining && d.Health != api.Down:
			return fmt.Errorf("node %s: device %s has health %q: it is one of healthy, draining, down", name, d.UUID, d.Health)
		}
		if err := d.Traits.check(); err != nil {
			return fmt.Errorf("node %s: device %s %w", name, d.UUID, err)
		}
		seen[d.UUID] = true
		if id, ok := f.byUUID[d.UUID]; ok && f.nodes[f.devices[id].node].name != name {
			return fmt.Errorf("node %s: device %s is on node %s: remove it there first", name, d.UUID, f.nodes[f.devices[id].node].name)
		}
	}
	for i, r := range capacity {
		if r.Amount < 0 {
			return fmt.Errorf("node %s: less than nothing of resource %s (%d)", name, r.Name, r.Amount)
		}
		for _, other := range capacity[:i] {
			if other.Name == r.Name {
				return fmt.Errorf("node %s: resource %s is listed twice", name, r.Name)
			}
		}
	}
	return nil
}

// AdoptDevice makes sure that a device is known, so that what runs there can be booked. A device or node nobody told of is
// entered as gone until SetNode brings it.
func (f *Fleet) AdoptDevice(nodeName, uuid string) (DeviceID, error) {
	if id, ok := f.byUUID[uuid]; ok {
		if at := f.nodes[f.devices[id].node].name; at != nodeName {
			return None, fmt.Errorf("device %s is on node %s, not on %s", uuid, at, nodeName)
		}
		return id, nil
	}
	if _, ok := f.byName[nodeName]; !ok {
		f.nodes[f.ensureNode(nodeName)].gone = true
	}
	n := f.byName[nodeName]
	id := f.setDevice(n, Device{UUID: uuid, Index: math.MaxInt32, Health: api.Down, Reason: "not reported by its node"})
	f.unindex(id)
	f.devices[id].gone = true
	f.nodes[n].losing = true
	f.sortDevices(n)
	return id, nil
}

// RemoveNode removes a node and returns its devices that are still held.
func (f *Fleet) RemoveNode(name string) (lost []DeviceID, ok bool) {
	n, ok := f.byName[name]
	if !ok {
		return nil, false
	}
	f.nodes[n].gone = true
	for _, d := range f.nodes[n].devices {
		f.unindex(d)
		if f.devices[d].book.Grants > 0 {
			lost = append(lost, d)
		}
		f.devices[d].gone = true
	}
	f.classNode(n)
	f.clearRefusals(n)
	f.changed()
	f.Collect(n)
	return lost, true
}

// SetHealth changes a device's health.
func (f *Fleet) SetHealth(nodeName, uuid string, health api.DeviceHealth, reason string) (DeviceID, error) {
	d, ok := f.byUUID[uuid]
	switch {
	case !ok || f.devices[d].gone || f.nodes[f.devices[d].node].name != nodeName:
		return None, fmt.Errorf("node %s has no device %s", nodeName, uuid)
	case health != api.Healthy && health != api.Draining && health != api.Down:
		return None, fmt.Errorf("device %s cannot have health %q: it is one of healthy, draining, down", uuid, health)
	}
	f.unindex(d)
	f.devices[d].Health, f.devices[d].Reason = health, reason
	f.index(d)
	f.clearRefusals(f.devices[d].node)
	f.changed()
	return d, nil
}

// Collect forgets what is gone from a node and no longer held, and the node itself when it is gone and holds nothing.
func (f *Fleet) Collect(n NodeID) {
	nd := &f.nodes[n]
	if !nd.gone && !nd.losing {
		return
	}
	nd.losing = false
	nd.devices = slices.DeleteFunc(nd.devices, func(d DeviceID) bool {
		dev := &f.devices[d]
		if !dev.gone || dev.book.Grants > 0 {
			nd.losing = nd.losing || dev.gone
			return false
		}
		delete(f.byUUID, dev.UUID)
		*dev = device{}
		f.idleDevs = append(f.idleDevs, d)
		return true
	})
	if !nd.gone || len(nd.devices) > 0 {
		return
	}
	f.unlist(n)
	f.order = slices.DeleteFunc(f.order, func(o NodeID) bool { return o == n })
	for id := range f.KnownClasses {
		f.classes[id].forget(f, n)
	}
	delete(f.byName, nd.name)
	*nd = node{}
	clear(f.stockOf(n))
	f.idle = append(f.idle, n)
}

func (f *Fleet) ensureNode(name string) NodeID {
	if n, ok := f.byName[name]; ok {
		return n
	}
	var n NodeID
	if k := len(f.idle); k > 0 {
		n, f.idle = f.idle[k-1], f.idle[:k-1]
	} else {
		n = NodeID(len(f.nodes))
		f.nodes = append(f.nodes, node{})
		f.versions = append(f.versions, 0)
		f.makeRoom()
	}
	f.nodes[n] = node{name: name, used: true}
	f.byName[name] = n
	i, _ := slices.BinarySearchFunc(f.order, name, func(o NodeID, name string) int { return cmp.Compare(f.nodes[o].name, name) })
	f.order = slices.Insert(f.order, i, n)
	f.label(i)
	f.list(n)
	for id := range f.KnownClasses {
		f.classes[id].reopen(f, n)
	}
	return n
}

// label gives the node at place i of the order a number between its neighbours', and all nodes new numbers, evenly spread, when
// there is none left. Their order stays, so lists in that order stay sorted.
func (f *Fleet) label(i int) {
	low, high := int64(0), int64(math.MaxInt64)
	if i > 0 {
		low = f.nodes[f.order[i-1]].label
	}
	if i+1 < len(f.order) {
		high = f.nodes[f.order[i+1]].label
	} else {
		high = min(high, low+1<<40) // nodes often come in order of name: leave room for many
	}
	if high-low >= 2 && low < math.MaxInt64-1<<41 {
		f.nodes[f.order[i]].label = low + (high-low)/2
		return
	}
	step := int64(1) << 61 / int64(len(f.order)+1)
	for k, n := range f.order {
		f.nodes[n].label = step * int64(k+1)
	}
}

func (f *Fleet) setDevice(n NodeID, d Device) DeviceID {
	id, ok := f.byUUID[d.UUID]
	if ok {
		f.unindex(id)
	} else {
		if k := len(f.idleDevs); k > 0 {
			id, f.idleDevs = f.idleDevs[k-1], f.idleDevs[:k-1]
		} else {
			id = DeviceID(len(f.devices))
			f.devices = append(f.devices, device{})
		}
		f.devices[id] = device{node: n, used: true, rest: &rest{}}
		f.byUUID[d.UUID] = id
		f.nodes[n].devices = append(f.nodes[n].devices, id)
	}
	dev := &f.devices[id]
	dev.Device, dev.size, dev.gone = d, d.Memory, false
	dev.group, dev.link, dev.numa = f.groupOf(&d), f.labelOf(d.Link), f.labelOf(d.NUMA)
	f.index(id)
	return id
}

// sortDevices puts a node's devices in order.
func (f *Fleet) sortDevices(n NodeID) {
	slices.SortFunc(f.nodes[n].devices, func(a, b DeviceID) int {
		x, y := &f.devices[a], &f.devices[b]
		return cmp.Or(cmp.Compare(x.Index, y.Index), cmp.Compare(x.UUID, y.UUID))
	})
}
