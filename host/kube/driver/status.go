package driver

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
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
func (d *Driver) tell(ctx context.Context, claim *resourceapi.ResourceClaim, task node.Task) {
	claim = claim.DeepCopy()
	d.telling.Go(func() { d.tellNow(context.WithoutCancel(ctx), claim, task) })
}

// tellNow writes into the claim's status.devices which shares its containers are held to. That is for people and programs to read, nothing goes
// by it: when it cannot be written the containers start all the same, and the log says so.
//
// It is an update of the whole status and no patch or apply: the API server would merge these by parsing the claim's opaque configurations,
// write their keys in another order, and refuse that as a change of the allocation (seen with 1.36.3).
func (d *Driver) tellNow(ctx context.Context, claim *resourceapi.ResourceClaim, task node.Task) {
	ctx, cancel := context.WithTimeout(ctx, tellWithin)
	defer cancel()
	claims := d.config.Client.ResourceV1().ResourceClaims(claim.Namespace)
	current := claim.DeepCopy()
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		if current == nil {
			var err error
			if current, err = claims.Get(ctx, claim.Name, metav1.GetOptions{}); err != nil {
				return err
			}
		}
		if current.UID != claim.UID || !equality.Semantic.DeepEqual(ours(current), ours(claim)) {
			return nil // another claim of the same name, or allocated anew: what it is held to then is told when it is prepared
		}
		changed, err := setDevices(current, task)
		if err == nil && changed {
			_, err = claims.UpdateStatus(ctx, current, metav1.UpdateOptions{})
		}
		current = nil // what is tried again is tried with the claim as it is then
		return err
	})
	if err != nil {
		d.log.Warn("the limits of a claim could not be written into its status; they hold all the same", "claim", claim.Namespace+"/"+claim.Name, "error", err)
	}
}

// setDevices sets this driver's part of a claim's status.devices; changed is whether it was another.
func setDevices(claim *resourceapi.ResourceClaim, task node.Task) (changed bool, err error) {
	var before, others, now []resourceapi.AllocatedDeviceStatus
	for _, d := range claim.Status.Devices {
		if d.Driver == Name {
			before = append(before, d)
		} else {
			others = append(others, d)
		}
	}
	for i, result := range ours(claim) {
		one, err := deviceStatus(result, task.Grants[i], claim.Generation)
		if err != nil {
			return false, err
		}
		now = append(now, one)
	}
	claim.Status.Devices = slices.Concat(others, now)
	return !slices.EqualFunc(before, now, sameLimits), nil
}

// sameLimits says whether two tell the same, whenever they did.
func sameLimits(a, b resourceapi.AllocatedDeviceStatus) bool {
	a, b = *a.DeepCopy(), *b.DeepCopy()
	for _, conditions := range [][]metav1.Condition{a.Conditions, b.Conditions} {
		for i := range conditions {
			conditions[i].LastTransitionTime = metav1.Time{}
		}
	}
	return equality.Semantic.DeepEqual(a, b)
}

// deviceStatus is one share as the claim's status tells it.
func deviceStatus(result resourceapi.DeviceRequestAllocationResult, grant node.Grant, generation int64) (resourceapi.AllocatedDeviceStatus, error) {
	said := v1alpha1.ShareStatus{
		APIVersion: v1alpha1.APIVersion, Kind: v1alpha1.ShareStatusKind, UUID: grant.Device, Weight: grant.Weight,
		Compute: api.Compute{Floor: grant.Floor, Ceiling: grant.Ceiling},
		Memory:  api.Memory{Floor: api.Amount{Bytes: grant.MemFloor}, Ceiling: api.Amount{Bytes: grant.MemCeiling}},
	}
	raw, err := json.Marshal(said)
	if err != nil {
		return resourceapi.AllocatedDeviceStatus{}, err
	}
	status := resourceapi.AllocatedDeviceStatus{
		Driver: result.Driver, Pool: result.Pool, Device: result.Device, ShareID: (*string)(result.ShareID), Data: &runtime.RawExtension{Raw: raw},
		Conditions: []metav1.Condition{{
			Type: "Ready", Status: metav1.ConditionTrue, Reason: "Prepared", LastTransitionTime: metav1.Now(), ObservedGeneration: generation,
			Message: fmt.Sprintf("Containers are held to %s of compute and %s of memory.", said.Compute, said.Memory),
		}},
	}
	return status, nil
}
