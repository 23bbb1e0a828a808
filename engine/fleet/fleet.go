// Package fleet holds the nodes, their devices and what is taken of them: exact integer books, indices that follow the books
// when they are read, and an undo log, so that a plan can be tried on the live state and taken back at the cost of what it
// touched. What comes in are nodes, classes and amounts; what goes out are devices in the order in which they should be tried.
// It never decides what goes where, and knows nothing of workloads and queues.
//
// Names are interned: outside their own package nodes, devices, classes and resources are small integers, good as long as
// what they name is there. No order ever depends on these integers, only on names.
package fleet

import (
	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/engine/ordered"
)

// NodeID is a node.
type NodeID int32

// DeviceID is a device.
type DeviceID int32

// ClassID is a feasibility class, until it is forgotten. The empty class is 0.
type ClassID int32

// ResourceID is a named resource.
type ResourceID int32

// None is no node or device.
const None = -1

// Device is one accelerator of a node.
type Device struct {
	UUID   string
	Index  int
	Model  string
	Memory api.Bytes // that may be granted
	Health api.DeviceHealth
	Reason string // why it is not healthy
	Traits Traits
	Link   string // devices of a node with the same are linked with each other; empty: with none
	NUMA   string // the memory node that it is at; empty: not known
}

// Resource is an amount of a named resource.
type Resource struct {
	Name   string
	Amount int64
}

// Amount is an amount of a resource.
type Amount struct {
	Resource ResourceID
	Amount   int64
}

// Book is what is taken of a device: floors, and the number of grants. Busy is what they are predicted to use, which takes nothing.
type Book struct {
	Compute api.Milli
	Busy    api.Milli
	Memory  api.Bytes
	Grants  int32
}

// device is a slot for one. What every look at a device reads is in it, in a cache line: they are many and far apart.
type device struct {
	book    Book
	size    api.Bytes // its memory
	node    NodeID
	group   int32
	gone    bool // no longer on its node, and still held
	used    bool // this slot names a device
	takes   bool // it takes grants
	indexed bool
	stale   bool // in the list of those whose books changed since they were indexed
	*rest
	_ [8]byte
}

// rest is what few looks at a device read.
type rest struct {
	Device
	at   Book  // by which it is indexed
	link int32 // by labelOf
	numa int32
}

type node struct {
	name      string
	label     int64 // rises with the name: compares two nodes without their names
	gone      bool  // removed, and still held
	losing    bool  // some of its devices may be gone
	used      bool
	devices   []DeviceID // by index, then UUID; with those that are gone
	domains   []Domain   // by level
	class     NodeClassID
	untouched int  // devices that are indexed as without a grant
	listed    bool // in byUntouched
}

// stock is how much of a resource a node has in all, and how much of that is taken.
type stock struct{ capacity, taken int64 }

// Fleet is all nodes and devices. The zero Fleet is not usable.
type Fleet struct {
	nodes    []node
	byName   map[string]NodeID
	order    []NodeID // by name
	idle     []NodeID // slots to use again
	devices  []device
	byUUID   map[string]DeviceID
	idleDevs []DeviceID
	labels   map[string]int32 // of links and memory nodes

	resources  []string
	byResource map[string]ResourceID
	stocks     []stock  // by node, then by resource
	kinds      int      // of resources that each node has room for in stocks
	classes    []*class // by ClassID; nil: nobody has the number
	byClass    map[string]ClassID

	idleClasses []ClassID // numbers to use again

	nodeClasses []string // their names
	byNodeClass map[string]NodeClassID

	groups      []*group
	byGroup     map[groupKey]int32
	byUntouched []*ordered.List[NodeID] // by the number of untouched devices
	stale       []DeviceID              // whose books changed since they were indexed
	walk        []ordered.Cursor[DeviceID]

	undo  []image
	depth int
	gave  bool // something was given back inside the open marks

	versions []uint32 // by NodeID: rises when what is taken changes
	journal  Journal

	gains   uint64
	changes uint64
}

// New returns an empty fleet.
func New() *Fleet {
	f := &Fleet{
		byName:      map[string]NodeID{},
		byUUID:      map[string]DeviceID{},
		labels:      map[string]int32{},
		byResource:  map[string]ResourceID{},
		byClass:     map[string]ClassID{},
		byNodeClass: map[string]NodeClassID{"": 0},
		nodeClasses: []string{""},
		byGroup:     map[groupKey]int32{},
	}
	f.Class("")
	return f
}

// Gains counts the moments at which something may have come to fit that did not before: capacity given back or added, a node
// allowed. While it stands still, what did not fit does not fit.
func (f *Fleet) Gains() uint64 { return f.gains }

// Changes counts changes of what the fleet is, apart from what is taken of it: nodes, devices, health, classes.
func (f *Fleet) Changes() uint64 { return f.changes }

func (f *Fleet) changed() {
	f.gains++
	f.changes++
}

// Node finds a node that is known, gone or not.
func (f *Fleet) Node(name string) (NodeID, bool) {
	id, ok := f.byName[name]
	return id, ok
}

// DeviceOf finds a device that is known, gone or not.
func (f *Fleet) DeviceOf(uuid string) (DeviceID, bool) {
	id, ok := f.byUUID[uuid]
	return id, ok
}

// Nodes calls yield for each node by name, gone or not.
func (f *Fleet) Nodes(yield func(NodeID) bool) {
	for _, id := range f.order {
		if !yield(id) {
			return
		}
	}
}

// NodeName is a node's name.
func (f *Fleet) NodeName(n NodeID) string { return f.nodes[n].name }

// NodeGone says that a node was removed and is still held.
func (f *Fleet) NodeGone(n NodeID) bool { return f.nodes[n].gone }

// DevicesOf are the devices of a node by index, gone or not. The caller must not change the slice.
func (f *Fleet) DevicesOf(n NodeID) []DeviceID { return f.nodes[n].devices }

// Device is what is known of a device.
func (f *Fleet) Device(d DeviceID) Device { return f.devices[d].Device }

// UUIDOf is a device's UUID.
func (f *Fleet) UUIDOf(d DeviceID) string { return f.devices[d].UUID }

// Memory is a device's memory.
func (f *Fleet) Memory(d DeviceID) api.Bytes { return f.devices[d].size }

// ModelOf is a device's model.
func (f *Fleet) ModelOf(d DeviceID) string { return f.devices[d].Model }

// Is says that a device is of a model (empty: any) and can do so much.
func (f *Fleet) Is(d DeviceID, model string, least Least) bool {
	dev := &f.devices[d]
	return (model == "" || dev.Model == model) && f.Meets(d, least)
}

// Meets says that a device can do so much.
func (f *Fleet) Meets(d DeviceID, least Least) bool {
	return least == Least{} || least.Met(f.devices[d].Traits)
}

// TraitsOf is what a device can do, costs and draws.
func (f *Fleet) TraitsOf(d DeviceID) Traits { return f.devices[d].Traits }

// GroupOf numbers a device's model, memory and traits: devices have the same number exactly if all are the same.
func (f *Fleet) GroupOf(d DeviceID) int32 { return f.devices[d].group }

// Health is a device's health, as last told.
func (f *Fleet) Health(d DeviceID) api.DeviceHealth { return f.devices[d].Health }

// DeviceGone says that a device was removed and is still held.
func (f *Fleet) DeviceGone(d DeviceID) bool { return f.devices[d].gone }

// NodeOf is a device's node.
func (f *Fleet) NodeOf(d DeviceID) NodeID { return f.devices[d].node }

// BookOf is what is taken of a device.
func (f *Fleet) BookOf(d DeviceID) Book { return f.devices[d].book }

// Free is what no floor holds: less than nothing where more was adopted than there is.
func (f *Fleet) Free(d DeviceID) (api.Milli, api.Bytes) {
	dev := &f.devices[d]
	return api.WholeDevice - dev.book.Compute, dev.size - dev.book.Memory
}

// Before orders two nodes by name.
func (f *Fleet) Before(a, b NodeID) bool { return f.nodes[a].label < f.nodes[b].label }

// Placeable says that a device takes new grants, apart from whether there is room.
func (f *Fleet) Placeable(d DeviceID) bool {
	dev := &f.devices[d]
	return !dev.gone && dev.Health == api.Healthy && !f.nodes[dev.node].gone
}

// Resource interns a resource's name.
func (f *Fleet) Resource(name string) ResourceID {
	id, ok := f.byResource[name]
	if !ok {
		id = ResourceID(len(f.resources))
		f.resources = append(f.resources, name)
		f.byResource[name] = id
		f.makeRoom()
	}
	return id
}

// makeRoom has each node have room for its stock of each resource.
func (f *Fleet) makeRoom() {
	if kinds := f.kinds; len(f.resources) > kinds {
		f.kinds = max(4, 2*kinds)
		stocks := make([]stock, len(f.nodes)*f.kinds)
		for n := range f.nodes {
			copy(stocks[n*f.kinds:], f.stocks[n*kinds:(n+1)*kinds])
		}
		f.stocks = stocks
	}
	if missing := len(f.nodes)*f.kinds - len(f.stocks); missing > 0 {
		f.stocks = append(f.stocks, make([]stock, missing)...)
	}
}

// stockOf are a node's stocks by resource, those without a name included.
func (f *Fleet) stockOf(n NodeID) []stock { return f.stocks[int(n)*f.kinds : (int(n)+1)*f.kinds] }

// LookupResource finds a resource's ID without making one.
func (f *Fleet) LookupResource(name string) (ResourceID, bool) {
	id, ok := f.byResource[name]
	return id, ok
}

// Resources is the number of resources that have names: their IDs go from 0.
func (f *Fleet) Resources() int { return len(f.resources) }

// ResourceName is a resource's name.
func (f *Fleet) ResourceName(r ResourceID) string { return f.resources[r] }

// Capacity is how much of a resource a node has in all.
func (f *Fleet) Capacity(n NodeID, r ResourceID) int64 { return f.stockOf(n)[r].capacity }

// Taken is how much of a node's resource is taken.
func (f *Fleet) Taken(n NodeID, r ResourceID) int64 { return f.stockOf(n)[r].taken }

// HasFree says that a node has all these amounts free.
func (f *Fleet) HasFree(n NodeID, want []Amount) bool {
	stocks := f.stockOf(n)
	for _, a := range want {
		if s := &stocks[a.Resource]; s.capacity-s.taken < a.Amount {
			return false
		}
	}
	return true
}
