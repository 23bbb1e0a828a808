// Package demand says whose devices a claim asks for: those of this project's driver, others', or whichever there are. What comes in is a claim's text and the
// device classes that there are. Scheduler, filters and webhook all go by it, so that what one of them leaves to another is never left to nobody.
package demand

import (
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/aliquot-dev/aliquot/host/kube/annotation"
)

// Find is a device class by its name; nil: it is not known.
type Find func(class string) *resourceapi.DeviceClass

// Of says whether a claim may be given devices of ours, and of others. Each alternative of a request counts.
func Of(spec *resourceapi.ResourceClaimSpec, find Find) (all Whose) {
	for i := range spec.Devices.Requests {
		for _, one := range Alternatives(&spec.Devices.Requests[i]) {
			its := one.Whose(find)
			all.Ours, all.Others = all.Ours || its.Ours, all.Others || its.Others
		}
	}
	return all
}

// Elsewhere says whether a claim is allocated, and was given no device of ours: so it asks for none any more.
func Elsewhere(claim *resourceapi.ResourceClaim) bool {
	return claim.Status.Allocation != nil && !slices.ContainsFunc(claim.Status.Allocation.Devices.Results, func(r resourceapi.DeviceRequestAllocationResult) bool {
		return r.Driver == annotation.Driver
	})
}

// Administers says whether a request asks for access as an administrator: to devices that others have, of which it takes nothing.
func Administers(request *resourceapi.DeviceRequest) bool {
	return request.Exactly != nil && request.Exactly.AdminAccess != nil && *request.Exactly.AdminAccess
}

// AdministersAll says whether all that a claim asks for is such access, so that it holds nothing.
func AdministersAll(spec *resourceapi.ResourceClaimSpec) bool {
	for i := range spec.Devices.Requests {
		if !Administers(&spec.Devices.Requests[i]) {
			return false
		}
	}
	return len(spec.Devices.Requests) > 0
}

// Alternative is what a request asks for, or one of several things of which it takes the first that can be had.
type Alternative struct {
	Name      string // REQUEST or REQUEST/ALTERNATIVE, as constraints and results name it
	Class     string // of devices
	All       bool   // that a node has
	selectors []resourceapi.DeviceSelector
	capacity  *resourceapi.CapacityRequirements
}

// Alternatives are what a request asks for.
func Alternatives(request *resourceapi.DeviceRequest) (all []Alternative) {
	if r := request.Exactly; r != nil {
		all = append(all, Alternative{request.Name, r.DeviceClassName, r.AllocationMode == resourceapi.DeviceAllocationModeAll, r.Selectors, r.Capacity})
	}
	for _, r := range request.FirstAvailable {
		all = append(all, Alternative{request.Name + "/" + r.Name, r.DeviceClassName, r.AllocationMode == resourceapi.DeviceAllocationModeAll, r.Selectors, r.Capacity})
	}
	return all
}

// Whose says whose devices would do, by the selectors of the class and, where these leave it open, its own. A class that is not known is another's, and so is
// what no driver's devices seem to match. Of whoever would do, it is not ours where it wants capacity that our devices do not have.
func (a Alternative) Whose(find Find) Whose {
	class := find(a.Class)
	if class == nil {
		return Whose{Others: true}
	}
	all := whoseMatch(class.Spec.Selectors, nil)
	if all == anyones && len(a.selectors) > 0 {
		all = whoseMatch(class.Spec.Selectors, a.selectors)
	}
	if all.Others && a.capacity != nil {
		for name := range a.capacity.Requests {
			all.Ours = all.Ours && (name == annotation.DeviceCompute || name == annotation.DeviceMemory)
		}
	}
	all.Others = all.Others || !all.Ours
	return all
}

// Ours are those alternatives of a request that may be given devices of ours.
func Ours(request *resourceapi.DeviceRequest, find Find) []Alternative {
	return slices.DeleteFunc(Alternatives(request), func(a Alternative) bool { return !a.Whose(find).Ours })
}

// Surely are those alternatives of a request that are given devices of ours or none.
func Surely(request *resourceapi.DeviceRequest, find Find) []Alternative {
	return slices.DeleteFunc(Alternatives(request), func(a Alternative) bool { return a.Whose(find).Others })
}

// Tainted says whether a device takes nothing new but what tolerates that.
func Tainted(d resourceapi.Device) bool {
	return slices.ContainsFunc(d.Taints, func(t resourceapi.DeviceTaint) bool {
		return t.Effect == resourceapi.DeviceTaintEffectNoSchedule || t.Effect == resourceapi.DeviceTaintEffectNoExecute
	})
}

// Extended is the device class that a resource of a container stands for, by one of Kubernetes' own names or by that which a class gives itself, if its
// devices may be ours; nil: it stands for none such. Sure says that they are no others.
func Extended(resource string, classes []*resourceapi.DeviceClass) (class *resourceapi.DeviceClass, sure bool) {
	name, implicit := strings.CutPrefix(resource, resourceapi.ResourceDeviceClassPrefix)
	for _, class := range classes {
		if explicit := class.Spec.ExtendedResourceName; (explicit == nil || *explicit != resource) && (!implicit || class.Name != name) {
			continue
		}
		if whose := whoseMatch(class.Spec.Selectors, nil); whose.Ours {
			return class, !whose.Others
		}
	}
	return nil, false
}
