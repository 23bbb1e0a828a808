// Package demand says whose devices a claim asks for: those of this project's driver, or others. What comes in is a claim's text and the device
// classes that there are. Scheduler, filters and webhook all go by it, so that what one of them leaves to another is never left to nobody.
package demand

import (
	"slices"
	"strconv"
	"strings"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/aliquot-dev/aliquot/host/kube/annotation"
)

// Class says whether a device class selects this project's devices: one of its selectors names the driver, in either of CEL's quotes.
func Class(class *resourceapi.DeviceClass) bool { return class != nil && named(class.Spec.Selectors) }

func named(selectors []resourceapi.DeviceSelector) bool {
	return slices.ContainsFunc(selectors, func(s resourceapi.DeviceSelector) bool {
		return s.CEL != nil && (strings.Contains(s.CEL.Expression, strconv.Quote(annotation.Driver)) || strings.Contains(s.CEL.Expression, "'"+annotation.Driver+"'"))
	})
}

// Of says whether a claim asks for devices of ours, and of others. A request is for ours if its class or its own selectors name the driver; each
// alternative of a request counts. A class that is not known (nil) is another's, as is one by which any driver's devices would do: of those none of
// ours are handed out.
func Of(spec *resourceapi.ResourceClaimSpec, find func(class string) *resourceapi.DeviceClass) (ours, others bool) {
	for i := range spec.Devices.Requests {
		all := len(Alternatives(&spec.Devices.Requests[i]))
		mine := len(Ours(&spec.Devices.Requests[i], find))
		ours, others = ours || mine > 0, others || mine < all
	}
	return ours, others
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
	selectors []resourceapi.DeviceSelector
}

// Alternatives are what a request asks for.
func Alternatives(request *resourceapi.DeviceRequest) (all []Alternative) {
	if request.Exactly != nil {
		all = append(all, Alternative{request.Name, request.Exactly.DeviceClassName, request.Exactly.Selectors})
	}
	for _, sub := range request.FirstAvailable {
		all = append(all, Alternative{request.Name + "/" + sub.Name, sub.DeviceClassName, sub.Selectors})
	}
	return all
}

// Ours are those alternatives of a request that are for devices of ours.
func Ours(request *resourceapi.DeviceRequest, find func(class string) *resourceapi.DeviceClass) []Alternative {
	return slices.DeleteFunc(Alternatives(request), func(a Alternative) bool {
		found := find(a.Class)
		return found == nil || !Class(found) && !named(a.selectors)
	})
}

// Tainted says whether a device takes nothing new but what tolerates that.
func Tainted(d resourceapi.Device) bool {
	return slices.ContainsFunc(d.Taints, func(t resourceapi.DeviceTaint) bool {
		return t.Effect == resourceapi.DeviceTaintEffectNoSchedule || t.Effect == resourceapi.DeviceTaintEffectNoExecute
	})
}

// Extended is the device class of ours that a resource of a container stands for, by one of Kubernetes' own names or by that which a class gives
// itself; nil: it stands for none.
func Extended(resource string, classes []*resourceapi.DeviceClass) *resourceapi.DeviceClass {
	name, implicit := strings.CutPrefix(resource, resourceapi.ResourceDeviceClassPrefix)
	for _, class := range classes {
		explicit := class.Spec.ExtendedResourceName != nil && *class.Spec.ExtendedResourceName == resource
		if (explicit || implicit && class.Name == name) && Class(class) {
			return class
		}
	}
	return nil
}
