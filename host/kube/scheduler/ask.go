package scheduler

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/dynamic-resource-allocation/resourceclaim"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/host/kube/annotation"
	"github.com/aliquot-dev/aliquot/host/kube/driver"
)

// ask is what a pod asks for by its claims.
type ask struct {
	have      []*claim // of our devices, allocated already
	open      []*claim // to be allocated
	node      string   // where those are that it has; empty: it has none
	devices   []wanted // of the open ones, in the order in which the engine's grants are handed out
	share     api.Share
	class     api.Class
	queue     string   // whose quota it counts against; of the open ones
	selectors []string // CEL; sorted, each once

	same, prefer string   // labels of nodes of which its gang is to have one value, or should; empty: none
	within       topology // where its gang runs, which it follows

	preemptible bool          // it may hold more than quotas, and is evicted when others want theirs
	restart     time.Duration // what it takes after a start until it goes on where it was; 0: not said
}

// wanted is one device that a claim wants.
type wanted struct {
	claim   *claim
	request string
	exactly *resourceapi.ExactDeviceRequest
}

// askOf is what a pod asks for, or why that cannot be said or had (yet), for its user.
func (s *Scheduler) askOf(p *pod) (*ask, error) {
	a := &ask{}
	if name := s.wholes(p.object); name != "" {
		return nil, fmt.Errorf("it has a limit of %s, whole devices, which this scheduler does not place; ask for them by a claim, or leave the pod to the cluster's own scheduler", name)
	}
	for i := range p.object.Spec.ResourceClaims {
		c, err := s.claimOf(p.object, &p.object.Spec.ResourceClaims[i])
		if c == nil {
			if err != nil {
				return nil, err
			}
			continue
		}
		if err := s.askClaim(a, p, c); err != nil {
			return nil, fmt.Errorf("claim %s: %w", c.object.Name, err)
		}
	}
	slices.Sort(a.selectors)
	a.selectors = slices.Compact(a.selectors)
	a.class = cmp.Or(a.class, api.Batch)
	if len(a.open) == 0 {
		return a, nil
	}
	var err error
	if a.preemptible, err = s.preemptible(p.object); err != nil {
		return nil, err
	}
	if a.same, a.prefer, err = annotation.Topology(p.object.Annotations); err != nil {
		return nil, err
	}
	if a.restart, err = annotation.Restart(p.object.Annotations); err != nil {
		return nil, err
	}
	a.queue, err = s.lineOf(p.object)
	return a, err
}

// wholes is a resource of a pod's containers by which it asks for devices without a claim; empty: there is none.
func (s *Scheduler) wholes(object *corev1.Pod) string {
	for _, container := range slices.Concat(object.Spec.InitContainers, object.Spec.Containers) {
		for name := range container.Resources.Requests {
			if strings.HasPrefix(string(name), resourceapi.ResourceDeviceClassPrefix) {
				return string(name)
			}
			for _, class := range s.deviceClasses {
				if class.Spec.ExtendedResourceName != nil && *class.Spec.ExtendedResourceName == string(name) {
					return string(name)
				}
			}
		}
	}
	return ""
}

// claimOf is the claim that one of a pod's entries stands for; nil where it needs none.
func (s *Scheduler) claimOf(pod *corev1.Pod, entry *corev1.PodResourceClaim) (*claim, error) {
	name, made, err := resourceclaim.Name(pod, entry)
	if err != nil {
		return nil, fmt.Errorf("the claim of its entry %s was not made yet: %w", entry.Name, err)
	}
	if name == nil {
		return nil, nil
	}
	c := s.claims[pod.Namespace+"/"+*name]
	if c == nil || c.object == nil {
		return nil, fmt.Errorf("there is no claim %s, which its entry %s names; make it", *name, entry.Name)
	}
	if made {
		if err := resourceclaim.IsForPod(pod, c.object, false); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// askClaim adds what a claim wants.
func (s *Scheduler) askClaim(a *ask, p *pod, c *claim) error {
	ours := 0
	requests := c.object.Spec.Devices.Requests
	for i := range requests {
		if class := s.classOfRequest(&requests[i]); class != nil && isOurs(class) {
			ours++
		}
	}
	switch {
	case ours == 0 && !s.allocatedHere(c.object):
		return nil // another driver's: the filters see to it
	case c.object.DeletionTimestamp != nil:
		return fmt.Errorf("it is being deleted; wait until it is gone")
	case c.writing || c.asked != nil && c.asked.pod != p:
		return fmt.Errorf("it is being allocated for another pod; this one follows")
	case c.object.Status.Allocation != nil:
		return a.found(c)
	case ours < len(requests):
		return fmt.Errorf("it asks for devices of %s and of another driver, or of a class that is not there; ask for them in claims apart", driver.Name)
	case len(c.object.Spec.Devices.Constraints) > 0 && (ours > 1 || requests[0].Exactly.Count > 1):
		return fmt.Errorf("it has constraints between its devices, which this scheduler does not know; leave them out, or leave the pod to the cluster's own scheduler")
	}
	a.open = append(a.open, c)
	for i := range c.object.Spec.Devices.Requests {
		if err := s.askRequest(a, c, &c.object.Spec.Devices.Requests[i]); err != nil {
			return fmt.Errorf("request %s: %w", c.object.Spec.Devices.Requests[i].Name, err)
		}
	}
	return nil
}

// found adds a claim that is allocated.
func (a *ask) found(c *claim) error {
	a.have = append(a.have, c)
	on := nodeOf(c.object.Status.Allocation)
	if on != "" && a.node != "" && a.node != on {
		return fmt.Errorf("it is allocated on node %s, and another claim of the pod on node %s; delete one of them", on, a.node)
	}
	a.node = cmp.Or(on, a.node)
	return nil
}

// nodeOf is the one node that an allocation is for; empty: it is for several, which the filters know.
func nodeOf(allocation *resourceapi.AllocationResult) string {
	if allocation.NodeSelector == nil || len(allocation.NodeSelector.NodeSelectorTerms) != 1 {
		return ""
	}
	for _, field := range allocation.NodeSelector.NodeSelectorTerms[0].MatchFields {
		if field.Key == "metadata.name" && field.Operator == corev1.NodeSelectorOpIn && len(field.Values) == 1 {
			return field.Values[0]
		}
	}
	return ""
}

func (s *Scheduler) classOfRequest(r *resourceapi.DeviceRequest) *resourceapi.DeviceClass {
	if r.Exactly == nil {
		return nil
	}
	return s.deviceClasses[r.Exactly.DeviceClassName]
}

// isOurs says whether a device class is of our driver's devices: one of its selectors names it.
func isOurs(class *resourceapi.DeviceClass) bool {
	return slices.ContainsFunc(class.Spec.Selectors, func(one resourceapi.DeviceSelector) bool {
		return one.CEL != nil && strings.Contains(one.CEL.Expression, `"`+driver.Name+`"`)
	})
}

// askRequest adds what a request of our devices wants.
func (s *Scheduler) askRequest(a *ask, c *claim, r *resourceapi.DeviceRequest) error {
	exactly := r.Exactly
	class := s.classOfRequest(r)
	switch {
	case exactly.AllocationMode != resourceapi.DeviceAllocationModeExactCount && exactly.AllocationMode != "":
		return fmt.Errorf("allocation mode %s is not known to this scheduler; use ExactCount", exactly.AllocationMode)
	case exactly.AdminAccess != nil && *exactly.AdminAccess:
		return fmt.Errorf("access as an administrator gives no share; ask without adminAccess")
	}
	for _, one := range slices.Concat(class.Spec.Selectors, exactly.Selectors) {
		if one.CEL != nil && one.CEL.Expression != onlyOurs {
			a.selectors = append(a.selectors, one.CEL.Expression)
		}
	}
	share, workClass, err := s.shareOf(c.object, r)
	if err != nil {
		return err
	}
	if len(a.devices) > 0 && (share != a.share || workClass != a.class) {
		return fmt.Errorf("it asks for another share than the request before it, and this scheduler gives a pod shares that are all the same; ask for the larger of them in both")
	}
	a.share, a.class = share, workClass
	for range max(1, exactly.Count) {
		a.devices = append(a.devices, wanted{claim: c, request: r.Name, exactly: exactly})
	}
	return nil
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
