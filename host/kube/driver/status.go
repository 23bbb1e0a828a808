package driver

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/util/retry"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/host/kube/api/v1alpha1"
	"github.com/aliquot-dev/aliquot/node"
)

// tellWithin is how long the API server has to take in what a claim's limits are.
const tellWithin = 30 * time.Second

// tell has tellNow do it, and waits for nothing.
func (d *Driver) tell(ctx context.Context, claim *resourceapi.ResourceClaim, one checkpoint) {
	claim = claim.DeepCopy()
	d.telling.Go(func() { d.tellNow(context.WithoutCancel(ctx), claim, one) })
}

// tellNow writes into the claim's status.devices which shares its containers are held to, and what is wrong with them. That is for people and
// programs to read, nothing goes by it: when it cannot be written the containers start all the same, the log says so, and it is tried again.
func (d *Driver) tellNow(ctx context.Context, claim *resourceapi.ResourceClaim, one checkpoint) {
	ctx, cancel := context.WithTimeout(ctx, tellWithin)
	defer cancel()
	if err := d.write(ctx, claim, one); err != nil {
		d.log.Warn("the limits of a claim could not be written into its status, which is tried again; they hold all the same", "claim", claim.Namespace+"/"+claim.Name, "error", err)
		d.troubles.claims.AddRateLimited(one.Task.UID)
	}
}

// write does it, first to the claim as it was seen.
//
// It is an update of the whole status and no patch or apply: the API server would merge these by parsing the claim's opaque configurations,
// write their keys in another order, and refuse that as a change of the allocation (seen with 1.36.3).
func (d *Driver) write(ctx context.Context, claim *resourceapi.ResourceClaim, one checkpoint) error {
	claims := d.config.Client.ResourceV1().ResourceClaims(claim.Namespace)
	current := claim.DeepCopy()
	return retry.RetryOnConflict(retry.DefaultRetry, func() error {
		if current == nil {
			var err error
			if current, err = claims.Get(ctx, claim.Name, metav1.GetOptions{}); err != nil {
				return err
			}
		}
		// Its ceilings may have been changed since. As what is wrong, they are asked after the claim was read: who writes something older meets a
		// conflict, and asks again.
		if now, found, err := d.checkpoints.read(one.Task.UID); err == nil && found {
			one = now
		}
		if !isOf(current, one) {
			return nil // another claim of the same name, or allocated anew: what it is held to then is told when it is prepared
		}
		changed, err := d.setDevices(current, one)
		if err == nil && changed {
			_, err = claims.UpdateStatus(ctx, current, metav1.UpdateOptions{})
		}
		current = nil // what is tried again is tried with the claim as it is then
		return err
	})
}

// isOf says whether what is prepared is what a claim was given.
func isOf(claim *resourceapi.ResourceClaim, one checkpoint) bool {
	if string(claim.UID) != one.Task.UID {
		return false
	}
	if len(one.Access) > 0 {
		return slices.EqualFunc(ours(claim), one.Access, func(result resourceapi.DeviceRequestAllocationResult, device string) bool {
			return access(result) && result.Device == deviceName(device)
		})
	}
	return slices.EqualFunc(ours(claim), one.Task.Grants, func(result resourceapi.DeviceRequestAllocationResult, grant node.Grant) bool {
		return !access(result) && claimShare(result) == grant.UID && result.Device == deviceName(grant.Device)
	})
}

// setDevices sets this driver's part of a claim's status.devices; changed is whether it was another.
func (d *Driver) setDevices(claim *resourceapi.ResourceClaim, told checkpoint) (changed bool, err error) {
	var before, others, now []resourceapi.AllocatedDeviceStatus
	for _, one := range claim.Status.Devices {
		if one.Driver == Name {
			before = append(before, one)
		} else {
			others = append(others, one)
		}
	}
	for i, result := range ours(claim) {
		one, err := d.deviceStatus(result, told, i)
		if err != nil {
			return false, err
		}
		ready := one.Conditions[0]
		ready.Message, ready.ObservedGeneration = named(claim, ready.Message), claim.Generation
		one.Conditions = nil
		if at := slices.IndexFunc(before, func(was resourceapi.AllocatedDeviceStatus) bool {
			return was.Pool == one.Pool && was.Device == one.Device && equality.Semantic.DeepEqual(was.ShareID, one.ShareID)
		}); at >= 0 {
			one.Conditions = slices.Clone(before[at].Conditions)
		}
		meta.SetStatusCondition(&one.Conditions, ready) // since when it is so stays
		now = append(now, one)
	}
	claim.Status.Devices = slices.Concat(others, now)
	return !equality.Semantic.DeepEqual(before, now), nil
}

// deviceStatus is what the claim's status tells of one of its results by their order: a share, or access as an administrator.
func (d *Driver) deviceStatus(result resourceapi.DeviceRequestAllocationResult, told checkpoint, index int) (resourceapi.AllocatedDeviceStatus, error) {
	of := resourceapi.AllocatedDeviceStatus{Driver: result.Driver, Pool: result.Pool, Device: result.Device, ShareID: (*string)(result.ShareID)}
	ready := metav1.Condition{Type: "Ready", Status: metav1.ConditionTrue, Reason: "Prepared"}
	var device string
	if len(told.Access) > 0 {
		device = told.Access[index]
		ready.Message = "Containers have access as an administrator: they see the device and all that runs there, and are held to no share."
	} else {
		grant := told.Task.Grants[index]
		said := shareStatus(grant)
		raw, err := json.Marshal(said)
		if err != nil {
			return of, err
		}
		device, of.Data = grant.Device, &runtime.RawExtension{Raw: raw}
		ready.Message = fmt.Sprintf("Containers are held to %s of compute and %s of memory.", said.Compute, said.Memory)
	}
	if wrong := d.troubles.worst(told.Task.UID, d.deviceNow(device)); wrong != nil {
		ready.Status, ready.Reason, ready.Message = metav1.ConditionFalse, wrong.reason, wrong.message
	}
	of.Conditions = []metav1.Condition{ready}
	return of, nil
}

// shareStatus is a share as the claim's status tells it.
func shareStatus(grant node.Grant) v1alpha1.ShareStatus {
	return v1alpha1.ShareStatus{
		APIVersion: v1alpha1.APIVersion, Kind: v1alpha1.ShareStatusKind, UUID: grant.Device, Weight: grant.Weight,
		Compute: api.Compute{Floor: grant.Floor, Ceiling: grant.Ceiling},
		Memory:  api.Memory{Floor: api.Amount{Bytes: grant.MemFloor}, Ceiling: api.Amount{Bytes: grant.MemCeiling}},
	}
}
