package scheduler

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A device of another driver may be usable only some time after it is allocated, as one that a fabric attaches: it names conditions, which its driver
// sets in the claim's status (binding conditions, KEP-5007). A pod is bound when all of them hold. Where a claim is for such devices alone the filters
// wait for that, and give it back where it failed; here it is done for claims for devices of ours and such ones together.

const (
	// conditionsWithin is for how long conditions of devices are waited for, the stock scheduler's default.
	conditionsWithin = 10 * time.Minute
	conditionsPace   = time.Second // how often it is looked whether they hold
)

// conditioned says whether an allocation has devices that name conditions.
func conditioned(allocation *resourceapi.AllocationResult) bool {
	return allocation != nil && slices.ContainsFunc(allocation.Devices.Results, func(r resourceapi.DeviceRequestAllocationResult) bool { return len(r.BindingConditions) > 0 })
}

// unmet are the conditions of a claim's devices that do not hold yet, by device. The error is that one failed.
func unmet(claim *resourceapi.ResourceClaim) (waits []string, failed error) {
	for _, r := range claim.Status.Allocation.Devices.Results {
		if len(r.BindingConditions) == 0 {
			continue
		}
		var said []metav1.Condition
		for _, d := range claim.Status.Devices {
			if d.Driver == r.Driver && d.Pool == r.Pool && d.Device == r.Device {
				said = d.Conditions
			}
		}
		for _, name := range r.BindingFailureConditions {
			if c := meta.FindStatusCondition(said, name); c != nil && c.Status == metav1.ConditionTrue {
				return nil, fmt.Errorf("device %s of %s cannot be used: %s: %s", r.Device, r.Driver, name, c.Message)
			}
		}
		for _, name := range r.BindingConditions {
			if !meta.IsStatusConditionTrue(said, name) {
				waits = append(waits, fmt.Sprintf("device %s of %s: %s", r.Device, r.Driver, name))
			}
		}
	}
	return waits, nil
}

// unusable is why a device that claims were given cannot be used; nil: it can, or may be yet.
func unusable(claims []*claim) error {
	for _, c := range claims {
		if conditioned(c.object.Status.Allocation) {
			if _, failed := unmet(c.object); failed != nil {
				return failed
			}
		}
	}
	return nil
}

// usable waits until the conditions hold of all devices of a pod's claims, which are as they were written. An error is that they will not, or that a pod of the job ends.
func (w *writer) usable(ctx context.Context, j job, t jobTask, claims []*resourceapi.ResourceClaim) error {
	begun := time.Now()
	for told := false; ; told = true {
		var waits []string
		for _, claim := range claims {
			if !conditioned(claim.Status.Allocation) {
				continue
			}
			now, err := w.claims.ResourceClaims(claim.Namespace).Get(claim.Name)
			if err != nil || now.UID != claim.UID || !sameAllocation(now.Status.Allocation, claim.Status.Allocation) {
				if now, err = w.claim(ctx, claim); err != nil {
					return err
				}
				if !sameAllocation(now.Status.Allocation, claim.Status.Allocation) {
					return lost("claim %s/%s is allocated otherwise", claim.Namespace, claim.Name)
				}
			}
			more, failed := unmet(now)
			if failed != nil {
				return failed
			}
			since := begun
			if at := now.Status.Allocation.AllocationTimestamp; at != nil {
				since = at.Time
			}
			if len(more) > 0 && time.Since(since) >= conditionsWithin {
				return fmt.Errorf("what its devices need before they can be used did not come within %s: %s", conditionsWithin, strings.Join(more, ", "))
			}
			waits = append(waits, more...)
		}
		if len(waits) == 0 {
			return nil
		}
		if !told {
			w.says(t.pod, "BindingConditionsPending", "It is bound to node "+t.node+" once its devices can be used there: "+strings.Join(waits, ", "))
		}
		for _, one := range j {
			if now, err := w.pods.Pods(one.pod.Namespace).Get(one.pod.Name); err != nil || now.UID != one.pod.UID || now.DeletionTimestamp != nil {
				return lost("pod %s/%s is gone, or is being deleted", one.pod.Namespace, one.pod.Name)
			}
		}
		if !pause(ctx, conditionsPace) {
			return ctx.Err()
		}
	}
}
