package fleet

import (
	"fmt"

	"github.com/aliquot-dev/aliquot/api"
)

// State is what the fleet is, without what is taken of it: the books are what grants say, so they are booked again after Import.
type State struct {
	Nodes   []NodeState  `json:"nodes"`
	Classes []ClassState `json:"classes"`
}

// NodeState is one node of a State.
type NodeState struct {
	Name      string          `json:"name"`
	Gone      bool            `json:"gone,omitempty"`
	Devices   []DeviceState   `json:"devices"`
	Resources []ResourceState `json:"resources,omitempty"`
	Domains   []Domain        `json:"domains,omitempty"`
}

// DeviceState is one device of a State.
type DeviceState struct {
	UUID   string           `json:"uuid"`
	Index  int              `json:"index"`
	Model  string           `json:"model"`
	Memory api.Bytes        `json:"memory"`
	Health api.DeviceHealth `json:"health"`
	Reason string           `json:"reason,omitempty"`
	Gone   bool             `json:"gone,omitempty"`
	Traits Traits           `json:"traits,omitzero"`
	Link   string           `json:"link,omitempty"`
	NUMA   string           `json:"numa,omitempty"`
}

// ResourceState is a node's capacity of one resource.
type ResourceState struct {
	Name   string `json:"name"`
	Amount int64  `json:"amount"`
}

// ClassState is one feasibility class of a State.
type ClassState struct {
	Name    string        `json:"name"`
	Said    []SaidState   `json:"said,omitempty"`
	Refused []RefuseState `json:"refused,omitempty"`
	Prefer  string        `json:"prefer,omitempty"` // the class whose nodes it would rather use
}

// SaidState is what the host said of a node for a class.
type SaidState struct {
	Node    string `json:"node"`
	Allowed bool   `json:"allowed,omitempty"`
	Code    string `json:"code,omitempty"`
}

// RefuseState is a node that refused a class.
type RefuseState struct {
	Node   string `json:"node"`
	Reason string `json:"reason"`
}

// Export is the fleet's state, the same for the same fleet however it came about.
func (f *Fleet) Export() State {
	state := State{Nodes: []NodeState{}, Classes: []ClassState{}}
	for _, n := range f.order {
		nd := &f.nodes[n]
		ns := NodeState{Name: nd.name, Gone: nd.gone, Devices: []DeviceState{}, Domains: nd.domains}
		for _, d := range nd.devices {
			dev := &f.devices[d]
			ns.Devices = append(ns.Devices, DeviceState{dev.UUID, dev.Index, dev.Model, dev.Memory, dev.Health, dev.Reason, dev.gone, dev.Traits, dev.Link, dev.NUMA})
		}
		for _, name := range sorted(f.resources) {
			if amount := f.Capacity(n, f.byResource[name]); amount != 0 {
				ns.Resources = append(ns.Resources, ResourceState{name, amount})
			}
		}
		state.Nodes = append(state.Nodes, ns)
	}
	for _, name := range sortedKeys(f.byClass) {
		c := f.classes[f.byClass[name]]
		cs := ClassState{Name: name}
		if c.prefer != Alike {
			cs.Prefer = f.classes[c.prefer].name
		}
		for _, nodeName := range c.sayings() {
			cs.Said = append(cs.Said, SaidState{nodeName, c.said[nodeName].allowed, c.said[nodeName].code})
		}
		for _, n := range f.order {
			if reason, ok := c.refused[n]; ok {
				cs.Refused = append(cs.Refused, RefuseState{f.nodes[n].name, reason})
			}
		}
		state.Classes = append(state.Classes, cs)
	}
	return state
}

// Import makes a fleet of an exported state, with nothing taken of it.
func Import(state State) (*Fleet, error) {
	f := New()
	for _, ns := range state.Nodes {
		if _, ok := f.byName[ns.Name]; ok {
			return nil, fmt.Errorf("node %s is listed twice", ns.Name)
		}
		var devices []Device
		var capacity []Resource
		for _, d := range ns.Devices {
			devices = append(devices, Device{d.UUID, d.Index, d.Model, d.Memory, d.Health, d.Reason, d.Traits, d.Link, d.NUMA})
		}
		for _, r := range ns.Resources {
			capacity = append(capacity, Resource(r))
		}
		if _, err := f.SetNode(ns.Name, devices, capacity); err != nil {
			return nil, err
		}
		if err := CheckDomains(ns.Name, ns.Domains); err != nil {
			return nil, err
		}
		f.SetDomains(ns.Name, ns.Domains)
		n := f.byName[ns.Name]
		for _, d := range ns.Devices {
			if d.Gone || ns.Gone {
				id := f.byUUID[d.UUID]
				f.unindex(id)
				f.devices[id].gone = d.Gone
				f.nodes[n].losing = f.nodes[n].losing || d.Gone
			}
		}
		f.nodes[n].gone = ns.Gone
		f.classNode(n)
	}
	for _, cs := range state.Classes {
		id := f.Class(cs.Name)
		if cs.Prefer != "" && !f.Prefer(id, f.Class(cs.Prefer)) {
			return nil, fmt.Errorf("class %q prefers class %q, which prefers it in turn", cs.Name, cs.Prefer)
		}
		for _, s := range cs.Said {
			f.say(id, s.Node, saying{s.Allowed, s.Code})
		}
		for _, r := range cs.Refused {
			n, ok := f.byName[r.Node]
			if !ok {
				return nil, fmt.Errorf("class %q was refused by node %s, which is not there", cs.Name, r.Node)
			}
			f.refuse(id, n, r.Reason)
		}
	}
	return f, nil
}
