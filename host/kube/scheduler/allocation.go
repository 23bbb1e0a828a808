package scheduler

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/engine"
	"github.com/aliquot-dev/aliquot/host/kube/driver"
)

// allocate hands a task's grants out to what its pod wants: an allocation for each of its open claims.
func (s *Scheduler) allocate(a *ask, placing engine.Placing) (map[*claim]*resourceapi.AllocationResult, error) {
	if len(a.devices) != len(placing.Grants) {
		return nil, fmt.Errorf("the engine gave %d devices and %d are wanted", len(placing.Grants), len(a.devices))
	}
	all := map[*claim]*resourceapi.AllocationResult{}
	for _, c := range a.open {
		all[c] = &resourceapi.AllocationResult{
			Devices:      resourceapi.DeviceAllocationResult{Config: s.configs(c.object)},
			NodeSelector: onNode(placing.Node),
		}
	}
	for i, want := range a.devices {
		grant := placing.Grants[i]
		pool, device, ok := strings.Cut(grant.Device, "/")
		if !ok || pool != placing.Node {
			return nil, fmt.Errorf("the engine gave device %s on node %s", grant.Device, placing.Node)
		}
		to := &all[want.claim].Devices
		result := resourceapi.DeviceRequestAllocationResult{Request: want.request, Driver: driver.Name, Pool: pool, Device: device, Tolerations: want.exactly.Tolerations}
		switch offered := s.offered(pool, device); {
		case offered == nil:
			return nil, fmt.Errorf("device %s is not offered any more", grant.Device)
		case shareable(*offered):
			share := uuid.NewUUID()
			result.ShareID, result.ConsumedCapacity = &share, map[resourceapi.QualifiedName]resource.Quantity{
				driver.Compute: *resource.NewQuantity(int64(grant.Compute.Floor), resource.DecimalSI),
				driver.Memory:  *resource.NewQuantity(int64(grant.Floor), resource.BinarySI),
			}
		case !a.whole():
			return nil, fmt.Errorf("device %s is handed out whole alone", grant.Device)
		}
		to.Results = append(to.Results, result)
	}
	return all, nil
}

// onNode is the node selector of an allocation that is for one node.
func onNode(name string) *corev1.NodeSelector {
	return &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchFields: []corev1.NodeSelectorRequirement{
		{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{name}},
	}}}}
}

// sameAllocation says whether two allocations are one and the same: shares have IDs that are used once. Whole devices have none where the API server
// knows of no shares, and are had by one claim at a time.
func sameAllocation(a, b *resourceapi.AllocationResult) bool {
	if a == nil || b == nil || len(a.Devices.Results) == 0 || len(a.Devices.Results) != len(b.Devices.Results) {
		return false
	}
	for i := range a.Devices.Results {
		one, other := a.Devices.Results[i], b.Devices.Results[i]
		x, y := one.ShareID, other.ShareID
		switch {
		case x != nil && y != nil && *x == *y:
		case x == nil && y == nil && one.Request == other.Request && one.Driver == other.Driver && one.Pool == other.Pool && one.Device == other.Device:
		default:
			return false
		}
	}
	return true
}

// grantsOf are what a claim holds of our devices by its allocation, as the engine has it: nothing where it has gone (nil).
func (s *Scheduler) grantsOf(object *resourceapi.ResourceClaim) (node string, grants []engine.Grant) {
	if object == nil || object.Status.Allocation == nil {
		return "", nil
	}
	for i, r := range object.Status.Allocation.Devices.Results {
		if r.Driver != driver.Name || r.AdminAccess != nil && *r.AdminAccess {
			continue
		}
		grant := engine.Grant{
			UID: fmt.Sprintf("%s.%d", object.UID, i), Device: deviceID(r.Pool, r.Device), Weight: 1,
			Compute: api.Compute{Floor: api.WholeDevice, Ceiling: api.WholeDevice}, Floor: s.memoryOf(r.Pool, r.Device),
		}
		if len(r.ConsumedCapacity) > 0 {
			compute, memory := r.ConsumedCapacity[driver.Compute], r.ConsumedCapacity[driver.Memory]
			grant.Compute.Floor, grant.Floor = api.Milli(min(max(0, compute.Value()), int64(api.WholeDevice))), api.Bytes(max(0, memory.Value()))
		}
		grant.Ceiling = grant.Floor
		node = r.Pool
		grants = merge(grants, []engine.Grant{grant})
	}
	return node, grants
}

// merge adds grants to others: who was given a device twice holds both.
func merge(grants, more []engine.Grant) []engine.Grant {
	for _, grant := range more {
		at := slices.IndexFunc(grants, func(g engine.Grant) bool { return g.Device == grant.Device })
		if at < 0 {
			grants = append(grants, grant)
			continue
		}
		g := &grants[at]
		g.Compute.Floor, g.Floor = min(g.Compute.Floor+grant.Compute.Floor, api.WholeDevice), g.Floor+grant.Floor
		g.Ceiling = g.Floor
	}
	return grants
}

// memoryOf is a device's memory; 0: it is not known.
func (s *Scheduler) memoryOf(pool, device string) api.Bytes {
	if d := s.offered(pool, device); d != nil {
		memory := d.Capacity[driver.Memory]
		return api.Bytes(memory.Value.Value())
	}
	return 0
}

// offered is a device as its node offers it; nil: it does not.
func (s *Scheduler) offered(pool, device string) *resourceapi.Device {
	if n := s.nodes[pool]; n != nil {
		for i := range n.offered {
			if n.offered[i].Name == device {
				return &n.offered[i]
			}
		}
	}
	return nil
}
