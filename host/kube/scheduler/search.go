package scheduler

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/structured"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/host/kube/demand"
	"github.com/aliquot-dev/aliquot/host/kube/driver"
)

// searchWithin is for how long devices for one pod are looked for on one node: an adverse claim has exponentially many ways to be tried.
const searchWithin = 200 * time.Millisecond

// search is one for devices for a pod's open claims: a copy of what the loop knows, which it is done on beside it.
type search struct {
	claims  []*resourceapi.ResourceClaim
	untold  bool                         // devices of whichever driver would do for a part of them
	theirs  []*resourceapi.ResourceClaim // that the filters allocate: what is found leaves devices for these
	classes map[string]*resourceapi.DeviceClass
	nodes   []offer                        // in the order in which they are tried
	others  Filters                        // say what other drivers offer; nil: nothing of theirs is asked for
	heard   map[string]heard               // from them, by node
	given   []resourceapi.AllocationResult // what is others' by then who start with it, though nobody has it yet
}

// heard is what other drivers offer a node, and what of it is had.
type heard struct {
	slices []*resourceapi.ResourceSlice
	taken  structured.AllocatedState
}

// finding is what a search came to.
type finding struct {
	node        string // empty: there is none
	allocations []resourceapi.AllocationResult
	theirs      []resourceapi.AllocationResult // what could be had beside that by claims that the filters allocate
	taken       structured.AllocatedState      // of other drivers' devices, when it was looked for
	why         error                          // there is none
}

// offer is what a node offers.
type offer struct {
	node   *corev1.Node
	slices []*resourceapi.ResourceSlice
	state  structured.AllocatedState
}

// Get is a device class, for upstream's allocator.
func (s search) Get(name string) (*resourceapi.DeviceClass, error) {
	if class := s.classes[name]; class != nil {
		return class, nil
	}
	return nil, fmt.Errorf("there is no device class %s", name)
}

// List are all device classes.
func (s search) List() ([]*resourceapi.DeviceClass, error) {
	return slices.Collect(maps.Values(s.classes)), nil
}

// run is the first node on which the claims can be had together, and their allocations, or why there is none.
func (s search) run(ctx context.Context) (last finding) {
	for here := range s.each(ctx) {
		if here.node != "" {
			return here
		}
		last = here
	}
	return last
}

// each are the nodes on which the claims can be had together, with their allocations, and why others were not looked at.
func (s search) each(ctx context.Context) iter.Seq[finding] {
	features := structured.Features{AdminAccess: true, PrioritizedList: true, DeviceTaints: true, ConsumableCapacity: true, PartitionableDevices: true, DeviceBindingAndStatus: true}
	programs := cel.NewCache(16, cel.Features{EnableConsumableCapacity: true})
	return func(yield func(finding) bool) {
		for _, o := range s.nodes {
			here := finding{node: o.node.Name}
			if here.why = s.beside(ctx, &o, &here.taken); here.why == nil {
				here.allocations, here.why = s.allocate(ctx, features, o, programs, s.claims)
			}
			claims := s.claims
			for try := 0; s.untold && try < apartMost && slices.ContainsFunc(here.allocations, twice); try++ {
				claims = further(claims, here.allocations)
				here.allocations, here.why = s.allocate(ctx, features, o, programs, claims)
			}
			switch {
			case here.why != nil:
				here = finding{why: fmt.Errorf("node %s: %w", o.node.Name, here.why)}
			case len(here.allocations) != len(s.claims)+len(s.theirs) || slices.ContainsFunc(here.allocations, twice):
				continue
			}
			if here.node != "" {
				here.allocations, here.theirs = here.allocations[:len(s.claims)], here.allocations[len(s.claims):]
			}
			if !yield(here) {
				return
			}
		}
	}
}

// apartMost is how often devices are looked for again on a node where a request for those of whichever driver was given another part of a device of ours.
const apartMost = 4

// further are claims of which requests that were given parts of one device of ours are given different ones. It cannot be asked of all for which devices of
// ours would do: those of others have no such attribute.
func further(claims []*resourceapi.ResourceClaim, found []resourceapi.AllocationResult) []*resourceapi.ResourceClaim {
	claims = slices.Clone(claims)
	for i := range claims {
		var requests []string
		for _, r := range found[i].Devices.Results {
			times := 0
			for _, other := range found[i].Devices.Results {
				if other.Driver == driver.Name && other.Device == r.Device {
					times++
				}
			}
			if r.Driver == driver.Name && times > 1 {
				requests = append(requests, r.Request)
			}
		}
		if len(requests) > 0 {
			slices.Sort(requests)
			claims[i] = different(claims[i], slices.Compact(requests))
		}
	}
	return claims
}

// different is a claim of which these requests are given different devices of ours, and no others.
func different(object *resourceapi.ResourceClaim, requests []string) *resourceapi.ResourceClaim {
	attribute := apart
	object = object.DeepCopy()
	object.Spec.Devices.Constraints = append(object.Spec.Devices.Constraints, resourceapi.DeviceConstraint{DistinctAttribute: &attribute, Requests: requests})
	return object
}

// in is the search on those of its nodes that have these values of labels.
func (s search) in(place []topology) search {
	s.nodes = slices.DeleteFunc(slices.Clone(s.nodes), func(o offer) bool {
		return slices.ContainsFunc(place, func(t topology) bool { return o.node.Labels[t.label] != t.value })
	})
	return s
}

// beside adds what other drivers offer a node, where something of theirs is asked for, and what is given to others.
func (s search) beside(ctx context.Context, o *offer, taken *structured.AllocatedState) error {
	state := noneTaken()
	state.AllocatedDevices, state.AggregatedCapacity = o.state.AllocatedDevices.Clone(), o.state.AggregatedCapacity.Clone()
	if s.others != nil {
		theirs, known := s.heard[o.node.Name]
		if !known {
			var err error
			if theirs.slices, theirs.taken, err = s.others.Others(ctx, o.node.Name); err != nil {
				return err
			}
			s.heard[o.node.Name] = theirs
		}
		*taken, o.slices = theirs.taken, slices.Concat(o.slices, theirs.slices)
		state.AllocatedDevices = state.AllocatedDevices.Union(taken.AllocatedDevices)
		state.AllocatedSharedDeviceIDs = taken.AllocatedSharedDeviceIDs.Clone()
		maps.Copy(state.AggregatedCapacity, taken.AggregatedCapacity.Clone())
	}
	for _, one := range s.given {
		take(&state, one)
	}
	o.state = state
	return nil
}

// take has what an allocation is given be taken.
func take(state *structured.AllocatedState, one resourceapi.AllocationResult) {
	for _, r := range one.Devices.Results {
		id := structured.MakeDeviceID(r.Driver, r.Pool, r.Device)
		switch {
		case r.AdminAccess != nil && *r.AdminAccess:
		case r.ShareID == nil:
			state.AllocatedDevices.Insert(id)
		default:
			state.AllocatedSharedDeviceIDs.Insert(structured.MakeSharedDeviceID(id, r.ShareID))
			state.AggregatedCapacity.Insert(structured.NewDeviceConsumedCapacity(id, r.ConsumedCapacity))
		}
	}
}

// allocate is what claims would be given on one node, and then those that the filters allocate; nothing: they cannot be had there together.
//
// Those with access as an administrator are looked for by themselves, one by one, as if nobody had anything: of devices that are had in parts upstream's
// allocator (0.36) counts what such a claim would take, though nothing is taken, and finds none that is in use.
func (s search) allocate(ctx context.Context, features structured.Features, o offer, programs *cel.Cache, claims []*resourceapi.ResourceClaim) ([]resourceapi.AllocationResult, error) {
	ctx, cancel := context.WithTimeout(ctx, searchWithin)
	defer cancel()
	some := func(state structured.AllocatedState, claims ...*resourceapi.ResourceClaim) ([]resourceapi.AllocationResult, error) {
		allocator, err := structured.NewAllocator(ctx, features, state, s, o.slices, programs)
		if err != nil {
			return nil, err
		}
		return allocator.Allocate(ctx, o.node, claims)
	}
	var hold []*resourceapi.ResourceClaim
	claims = slices.Concat(claims, s.theirs)
	all := make([]resourceapi.AllocationResult, 0, len(claims))
	given := map[*resourceapi.ResourceClaim]resourceapi.AllocationResult{}
	for _, claim := range claims {
		if !demand.AdministersAll(&claim.Spec) {
			hold = append(hold, claim)
			continue
		}
		found, err := some(noneTaken(), claim)
		if err != nil || len(found) == 0 {
			return nil, err
		}
		for i := range found[0].Devices.Results {
			found[0].Devices.Results[i].ConsumedCapacity = nil
		}
		given[claim] = found[0]
	}
	if len(hold) > 0 {
		found, err := some(o.state, hold...)
		if err != nil || len(found) == 0 {
			return nil, err
		}
		for i, claim := range hold {
			given[claim] = found[i]
		}
	}
	for _, claim := range claims {
		all = append(all, given[claim])
	}
	return all, nil
}

// noneTaken is the state of devices of which nobody has anything.
func noneTaken() structured.AllocatedState {
	return structured.AllocatedState{
		AllocatedDevices: sets.New[structured.DeviceID](), AllocatedSharedDeviceIDs: sets.New[structured.SharedDeviceID](), AggregatedCapacity: structured.NewConsumedCapacityCollection(),
	}
}

// twice says whether an allocation has two parts of one device of ours: upstream's constraint compares a request's last device alone.
func twice(one resourceapi.AllocationResult) bool {
	seen := map[string]bool{}
	return slices.ContainsFunc(one.Devices.Results, func(r resourceapi.DeviceRequestAllocationResult) bool {
		if r.Driver != driver.Name {
			return false
		}
		before := seen[r.Device]
		seen[r.Device] = true
		return before
	})
}

// searchOn is one for devices on some nodes.
func (s *Scheduler) searchOn(a *ask, nodes []*node) search {
	return s.searchAmong(a, nodes, map[*node]offer{}, map[string]heard{})
}

// searchAmong is searchOn that adds to, and goes by, what is known of what nodes and other drivers offer.
func (s *Scheduler) searchAmong(a *ask, nodes []*node, offers map[*node]offer, others map[string]heard) search {
	looked := search{classes: maps.Clone(s.deviceClasses), heard: others, untold: a.untold}
	for _, open := range a.open {
		looked.claims = append(looked.claims, s.distinct(open.object))
	}
	if a.mixed {
		looked.others = s.config.Filters
		for _, c := range a.theirs {
			looked.theirs = append(looked.theirs, c.object)
		}
	}
	for _, n := range nodes {
		if (len(n.offered) > 0 || a.mixed) && a.reaches(n.object) { // what another driver's is an alternative to need not be there
			if _, known := offers[n]; !known {
				offers[n] = s.offerOf(n)
			}
			looked.nodes = append(looked.nodes, offers[n])
		}
	}
	if a.shut != nil || a.untold && !a.every && !s.needsOurs(a) { // ours are for whom no others would do
		theirs := slices.Clone(looked.nodes)
		for i := range theirs {
			theirs[i].slices = nil
		}
		if a.shut != nil {
			looked.nodes = nil
		}
		looked.nodes = append(theirs, looked.nodes...)
	}
	return looked
}

// distinct is a claim that is given no two parts of one device of ours, for the node agent prepares no such.
func (s *Scheduler) distinct(object *resourceapi.ResourceClaim) *resourceapi.ResourceClaim {
	var ours []string
	for i := range object.Spec.Devices.Requests {
		for _, one := range demand.Surely(&object.Spec.Devices.Requests[i], s.deviceClass) {
			ours = append(ours, one.Name)
		}
	}
	if len(ours) == 0 { // else the constraint would be for all
		return object.DeepCopy()
	}
	return different(object, ours)
}

// offerOf is what a node offers by the engine's books.
func (s *Scheduler) offerOf(n *node) offer {
	o := offer{node: n.object, slices: slices.Collect(maps.Values(n.slices)), state: noneTaken()}
	for _, d := range n.offered {
		id := structured.MakeDeviceID(driver.Name, n.name, d.Name)
		compute, memory, known := s.engine.Free(deviceID(n.name, d.Name))
		has := d.Capacity[driver.Memory]
		switch taken := has.Value.Value() - int64(memory); {
		case !known, !shareable(d) && (compute < api.WholeDevice || taken > 0):
			o.state.AllocatedDevices.Insert(id)
		case shareable(d):
			o.state.AggregatedCapacity.Insert(structured.NewDeviceConsumedCapacity(id, map[resourceapi.QualifiedName]resource.Quantity{
				driver.Compute: *resource.NewQuantity(int64(api.WholeDevice-compute), resource.DecimalSI), driver.Memory: *resource.NewQuantity(taken, resource.BinarySI),
			}))
		}
	}
	return o
}
