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
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/structured"

	"github.com/aliquot-dev/aliquot/host/kube/demand"
	"github.com/aliquot-dev/aliquot/host/kube/driver"
)

// searchWithin is for how long devices for one pod are looked for on one node: an adverse claim has exponentially many ways to be tried.
const searchWithin = 200 * time.Millisecond

// search is one for devices for a pod's open claims: a copy of what the loop knows, which it is done on beside it.
type search struct {
	claims  []*resourceapi.ResourceClaim
	classes map[string]*resourceapi.DeviceClass
	nodes   []offer // in the order in which they are tried
	others  Filters // say what other drivers offer; nil: nothing of theirs is asked for
}

// finding is what a search came to.
type finding struct {
	node        string // empty: there is none
	allocations []resourceapi.AllocationResult
	taken       structured.AllocatedState // of other drivers' devices, when it was looked for
	why         error                     // there is none
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
	features := structured.Features{AdminAccess: true, PrioritizedList: true, DeviceTaints: true, ConsumableCapacity: true, PartitionableDevices: true}
	programs := cel.NewCache(16, cel.Features{EnableConsumableCapacity: true})
	return func(yield func(finding) bool) {
		for _, o := range s.nodes {
			here := finding{node: o.node.Name}
			if here.why = s.beside(ctx, &o, &here.taken); here.why == nil {
				here.allocations, here.why = s.allocate(ctx, features, o, programs)
			}
			switch {
			case here.why != nil:
				here = finding{why: fmt.Errorf("node %s: %w", o.node.Name, here.why)}
			case len(here.allocations) != len(s.claims) || slices.ContainsFunc(here.allocations, twice):
				continue
			}
			if !yield(here) {
				return
			}
		}
	}
}

// beside adds what other drivers offer a node, where something of theirs is asked for.
func (s search) beside(ctx context.Context, o *offer, taken *structured.AllocatedState) error {
	if s.others == nil {
		return nil
	}
	theirs, had, err := s.others.Others(ctx, o.node.Name)
	if err != nil {
		return err
	}
	o.slices, *taken = append(o.slices, theirs...), had
	o.state.AllocatedDevices = o.state.AllocatedDevices.Union(had.AllocatedDevices)
	o.state.AllocatedSharedDeviceIDs = had.AllocatedSharedDeviceIDs
	maps.Copy(o.state.AggregatedCapacity, had.AggregatedCapacity)
	return nil
}

// allocate is what the claims would be given on one node; nothing: they cannot be had there.
//
// Those with access as an administrator are looked for by themselves, one by one, as if nobody had anything: of devices that are had in parts upstream's
// allocator (0.36) counts what such a claim would take, though nothing is taken, and finds none that is in use.
func (s search) allocate(ctx context.Context, features structured.Features, o offer, programs *cel.Cache) ([]resourceapi.AllocationResult, error) {
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
	all := make([]resourceapi.AllocationResult, 0, len(s.claims))
	given := map[*resourceapi.ResourceClaim]resourceapi.AllocationResult{}
	for _, claim := range s.claims {
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
	for _, claim := range s.claims {
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
