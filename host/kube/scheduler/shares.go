package scheduler

import (
	"cmp"
	"fmt"
	"slices"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/host/kube/api/v1alpha1"
	"github.com/aliquot-dev/aliquot/host/kube/driver"
)

// selectorsOf are the selectors that the devices of a request match beside that they are ours: CEL, sorted, each once.
func selectorsOf(class *resourceapi.DeviceClass, exactly *resourceapi.ExactDeviceRequest) (all []string) {
	for _, one := range slices.Concat(class.Spec.Selectors, exactly.Selectors) {
		if one.CEL != nil && one.CEL.Expression != onlyOurs {
			all = append(all, one.CEL.Expression)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// onlyOurs is the selector of our own device class. It holds for all devices that the engine is told of.
const onlyOurs = `device.driver == "` + driver.Name + `"`

// shareOf is the share that a request asks for: floors are the capacity that it requests, or all; ceilings those of the configuration.
func (s *Scheduler) shareOf(object *resourceapi.ResourceClaim, r *resourceapi.DeviceRequest) (share api.Share, class api.Class, err error) {
	config, err := driver.ConfigOf(s.configs(object), r.Name)
	if err != nil {
		return share, "", err
	}
	share.Compute.Floor, share.Memory.Floor = api.WholeDevice, api.Amount{Part: api.WholeDevice}
	if r.Exactly.Capacity != nil {
		for name, quantity := range r.Exactly.Capacity.Requests {
			switch name {
			case driver.Compute:
				if quantity.Cmp(*resource.NewQuantity(int64(api.WholeDevice), resource.DecimalSI)) > 0 {
					return share, "", fmt.Errorf("it wants %s thousandths of a device; a device has %d", quantity.String(), api.WholeDevice)
				}
				share.Compute.Floor = api.Milli(quantity.Value())
			case driver.Memory:
				// In the steps in which devices offer it, rounded up.
				share.Memory.Floor = api.Amount{Bytes: (api.Bytes(quantity.Value()) + api.Granule - 1) / api.Granule * api.Granule}
			default:
				return share, "", fmt.Errorf("it wants capacity %s, which devices do not have; they have %s and %s", name, driver.Compute, driver.Memory)
			}
		}
	}
	if r.Exactly.Capacity == nil && len(s.wholes) > 0 { // what it asked for was dropped: it has a whole device, and its ceilings say nothing
		config.Ceiling = v1alpha1.Ceiling{}
	}
	share.Compute.Ceiling, share.Memory.Ceiling = max(share.Compute.Floor, config.Ceiling.Compute), share.Memory.Floor
	if config.Ceiling.Compute != 0 && config.Ceiling.Compute < share.Compute.Floor {
		return share, "", fmt.Errorf("its compute ceiling %s is below its floor %s; give it at least the floor", config.Ceiling.Compute, share.Compute.Floor)
	}
	if !config.Ceiling.Memory.IsZero() {
		share.Memory.Ceiling = config.Ceiling.Memory
	}
	share.Weight = config.Weight
	return share, cmp.Or(config.Class, api.Batch), nil
}

// configs are the configurations that an allocation of a claim has: those of the classes of its requests, then its own.
func (s *Scheduler) configs(object *resourceapi.ResourceClaim) []resourceapi.DeviceAllocationConfiguration {
	var all []resourceapi.DeviceAllocationConfiguration
	requests := object.Spec.Devices.Requests
	for i := range requests {
		class := s.classOfRequest(&requests[i])
		if class == nil || slices.ContainsFunc(requests[:i], func(r resourceapi.DeviceRequest) bool {
			return r.Exactly != nil && r.Exactly.DeviceClassName == class.Name
		}) {
			continue
		}
		var names []string
		for _, r := range requests {
			if r.Exactly != nil && r.Exactly.DeviceClassName == class.Name {
				names = append(names, r.Name)
			}
		}
		for _, config := range class.Spec.Config {
			all = append(all, resourceapi.DeviceAllocationConfiguration{
				Source: resourceapi.AllocationConfigSourceClass, Requests: names, DeviceConfiguration: config.DeviceConfiguration,
			})
		}
	}
	for _, config := range object.Spec.Devices.Config {
		all = append(all, resourceapi.DeviceAllocationConfiguration{
			Source: resourceapi.AllocationConfigSourceClaim, Requests: config.Requests, DeviceConfiguration: config.DeviceConfiguration,
		})
	}
	return all
}
