package filter

import (
	"context"
	"fmt"
	"maps"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/dynamic-resource-allocation/structured"
)

// A claim may ask for devices of ours and of other drivers together, a GPU and the network card beside it, or for either. Ours are in the engine's books alone and the
// others in upstream's, so such a claim is allocated by the scheduler (see its special.go), which is told here what others offer and has what it takes of
// that held.

// Others is what other drivers than ours offer a node, and what of that is had by claims that are allocated or being so.
func (f *Filters) Others(ctx context.Context, node string) ([]*resourceapi.ResourceSlice, structured.AllocatedState, error) {
	slices, err := f.othersOf(node)
	if err != nil {
		return nil, structured.AllocatedState{}, err
	}
	taken, err := f.taken(ctx, slices)
	return slices, taken, err
}

// othersOf are the slices of other drivers that tell of a node's devices, or of such as several nodes reach.
func (f *Filters) othersOf(node string) (offered []*resourceapi.ResourceSlice, err error) {
	all, err := f.claims.manager.ResourceSlices().ListWithDeviceTaintRules() // without ours
	if err != nil {
		return nil, fmt.Errorf("list what other drivers offer node %s: %w", node, err)
	}
	for _, slice := range all {
		if slice.Spec.NodeName == nil || *slice.Spec.NodeName == node {
			offered = append(offered, slice)
		}
	}
	return offered, nil
}

// taken is what is had of the pools of these slices.
func (f *Filters) taken(ctx context.Context, slices []*resourceapi.ResourceSlice) (structured.AllocatedState, error) {
	var all *structured.AllocatedState
	// It fails only where a claim changed while it looked.
	err := wait.PollUntilContextTimeout(ctx, time.Millisecond, time.Second, true, func(context.Context) (bool, error) {
		var err error
		all, err = f.claims.manager.ResourceClaims().GatherAllocatedState()
		return err == nil, nil
	})
	if err != nil {
		return structured.AllocatedState{}, fmt.Errorf("find out what devices of other drivers are had, which is tried again: claims changed each time that it was looked: %w", err)
	}
	pools := sets.New[structured.DeviceID]()
	for _, slice := range slices {
		pools.Insert(structured.MakeDeviceID(slice.Spec.Driver, slice.Spec.Pool.Name, ""))
	}
	none := structured.MakeDeviceID("", "", "").Device
	elsewhere := func(id structured.DeviceID) bool {
		return !pools.Has(structured.DeviceID{Driver: id.Driver, Pool: id.Pool, Device: none})
	}
	maps.DeleteFunc(all.AllocatedDevices, func(id structured.DeviceID, _ sets.Empty) bool { return elsewhere(id) })
	maps.DeleteFunc(all.AllocatedSharedDeviceIDs, func(id structured.SharedDeviceID, _ sets.Empty) bool { return elsewhere(id.GetDeviceID()) })
	maps.DeleteFunc(all.AggregatedCapacity, func(id structured.DeviceID, _ structured.ConsumedCapacity) bool { return elsewhere(id) })
	return *all, nil
}

// Hold has what claims were given of other drivers' devices count as had, by allocations that are not written yet, until Settle. It is false, and nothing is
// held, where something else is had of what is offered to one of the nodes than Others said of it when it was looked for.
func (f *Filters) Hold(ctx context.Context, was map[string]structured.AllocatedState, claims []*resourceapi.ResourceClaim) (bool, error) {
	f.judge.mu.Lock() // nothing is reserved for another pod meanwhile
	defer f.judge.mu.Unlock()
	for node, before := range was {
		_, now, err := f.Others(ctx, node)
		if err != nil || !equality.Semantic.DeepEqual(now, before) {
			return false, err
		}
	}
	for _, claim := range claims {
		if err := f.claims.manager.ResourceClaims().SignalClaimPendingAllocation(claim.UID, claim); err != nil {
			f.Settle(claims, false)
			return false, fmt.Errorf("hold what claim %s/%s was given: %w", claim.Namespace, claim.Name, err)
		}
	}
	return true, nil
}

// Settle ends what Hold began. Claims are as they were written, or as they were given to Hold where that was not done.
func (f *Filters) Settle(claims []*resourceapi.ResourceClaim, written bool) {
	tracker := f.claims.manager.ResourceClaims()
	for _, claim := range claims {
		if written {
			// An error is that informers know better or will soon.
			_ = tracker.AssumeClaimAfterAPICall(claim)
		}
		tracker.MaybeRemoveClaimPendingAllocation(claim.UID, true)
	}
}
