package driver

import (
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/dynamic-resource-allocation/resourceslice"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/host/models"
	"github.com/aliquot-dev/aliquot/node"
)

// sliceMost is how many devices a slice has at most: any of them may come to have a taint, with which the API server takes no more.
const sliceMost = resourceapi.ResourceSliceMaxDevicesWithAdvancedFeatures

// offered tells of a node's devices: one pool, named as the node is. A device that fails stays in it with a taint, because what runs there
// still holds it.
func offered(pool string, devices []node.Device, declared api.LatencyClasses) resourceslice.DriverResources {
	all := make([]resourceapi.Device, len(devices))
	for i, d := range devices {
		all[i] = Published(d)
		if class := int64(models.Latency(declared, d.UUID, d.Model)); class > 0 {
			all[i].Attributes["latencyClass"] = resourceapi.DeviceAttribute{IntValue: &class}
		}
	}
	parts := []resourceslice.Slice{{}} // one without devices, where there are none
	for i, part := range slices.Collect(slices.Chunk(all, sliceMost)) {
		parts = append(parts[:i], resourceslice.Slice{Devices: part})
	}
	return resourceslice.DriverResources{Pools: map[string]resourceslice.Pool{pool: {Slices: parts}}}
}

// Published is a device as the cluster sees it.
func Published(d node.Device) resourceapi.Device {
	shared := true
	return resourceapi.Device{
		Name:       deviceName(d.UUID),
		Attributes: attributes(d),
		Capacity: map[resourceapi.QualifiedName]resourceapi.DeviceCapacity{
			Compute: capacity(int64(api.WholeDevice), 1, resource.DecimalSI),
			Memory:  capacity(int64(d.Memory), int64(api.Granule), resource.BinarySI),
		},
		AllowMultipleAllocations: &shared,
		Taints:                   taints(d),
	}
}

// capacity is one that is requested in steps; a request that does not name it takes all of it.
func capacity(whole, step int64, format resource.Format) resourceapi.DeviceCapacity {
	all, one, none := resource.NewQuantity(whole, format), resource.NewQuantity(step, format), resource.NewQuantity(0, format)
	return resourceapi.DeviceCapacity{Value: *all, RequestPolicy: &resourceapi.CapacityRequestPolicy{
		Default: all, ValidRange: &resourceapi.CapacityRequestPolicyRange{Min: none, Max: all, Step: one},
	}}
}

// healthTaint is the key of the taint of a device that takes no new work.
const healthTaint = Name + "/health"

// taints say that nothing new is to come to a device, and of one that is down that what is there is to go.
func taints(d node.Device) []resourceapi.DeviceTaint {
	switch d.Health {
	case api.Draining:
		return []resourceapi.DeviceTaint{{Key: healthTaint, Value: string(d.Health), Effect: resourceapi.DeviceTaintEffectNoSchedule}}
	case api.Down:
		return []resourceapi.DeviceTaint{{Key: healthTaint, Value: string(d.Health), Effect: resourceapi.DeviceTaintEffectNoExecute}}
	}
	return nil
}

// deviceName is a device's name in its pool: its UUID, for an index may become another's.
func deviceName(uuid string) string { return strings.ToLower(uuid) }
