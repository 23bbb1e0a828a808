package scheduler

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/dynamic-resource-allocation/resourceclaim"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/host/kube/annotation"
	"github.com/aliquot-dev/aliquot/host/kube/demand"
	"github.com/aliquot-dev/aliquot/host/kube/driver"
)

// ask is what a pod asks for by its claims.
type ask struct {
	have      []*claim // of our devices, allocated already
	open      []*claim // to be allocated
	theirs    []*claim // of other drivers alone, to be allocated: the filters see to that
	node      string   // where those are that it has; empty: it has none
	devices   []wanted // of the open ones, in the order in which the engine's grants are handed out
	share     api.Share
	class     api.Class
	queue     string                 // whose quota it counts against; of the open ones
	selectors []string               // CEL; sorted, each once
	special   string                 // what of it the engine has no words for; empty: nothing. See special.go
	mixed     bool                   // it asks for devices of other drivers in the same claims
	untold    bool                   // devices of whichever driver would do for a part of it
	every     bool                   // of such a part it asks for all that a node has
	shut      error                  // why it is given none of ours, though of others'; nil: it may have some
	reach     []*corev1.NodeSelector // where claims can be used that it has

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
	if name := s.limitOf(p.object); name != "" {
		return nil, fmt.Errorf("it has a limit of %s, whole devices, which this scheduler does not place; ask for them by a claim, or have the webhook make one of it", name)
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
	if len(a.reach) > 0 && len(a.open) > 0 && a.special == "" {
		a.special = "it has a claim that can be used on some nodes alone"
	}
	switch {
	case a.special != "":
		a.selectors = nil // a device that does not match them is no reason against its node
	case len(a.devices) > 0 && len(s.wholes) > 0 && !a.whole():
		a.selectors = append(a.selectors, inParts)
	}
	a.class = cmp.Or(a.class, api.Batch)
	if len(a.open)+len(a.have) == 0 {
		return a, nil
	}
	var err error
	if a.preemptible, err = s.preemptible(p.object); err != nil {
		return nil, err
	}
	for _, c := range a.have {
		if !a.preemptible && c.task != nil && c.task.work.preemptible {
			return nil, fmt.Errorf("claim %s was allocated for work that is evicted when others want theirs, and this pod is not to be evicted; "+
				"leave out the annotation %s of it, or give it a claim of its own", c.object.Name, annotation.Preemptible)
		}
	}
	if !a.holds() {
		return a, nil // and so it is in no queue
	}
	if a.same, a.prefer, err = annotation.Topology(p.object.Annotations); err != nil {
		return nil, err
	}
	if a.restart, err = annotation.Restart(p.object.Annotations); err != nil {
		return nil, err
	}
	if a.queue, err = s.lineOf(p.object); err != nil && !s.needsOurs(a) {
		a.shut, err = err, nil
		a.special += ", and it is given none of ours: " + a.shut.Error()
	}
	return a, err
}

// needsOurs says whether a pod cannot have what it asks for without devices of ours.
func (s *Scheduler) needsOurs(a *ask) bool {
	return slices.ContainsFunc(a.open, func(c *claim) bool {
		return slices.ContainsFunc(c.object.Spec.Devices.Requests, func(r resourceapi.DeviceRequest) bool {
			return len(demand.Surely(&r, s.deviceClass)) == len(demand.Alternatives(&r))
		})
	})
}

// holds says whether any of what it asks for will be held.
func (a *ask) holds() bool { return slices.ContainsFunc(a.open, holds) }

// holds says whether a claim will hold anything that it is given, or has access as an administrator alone.
func holds(c *claim) bool { return !demand.AdministersAll(&c.object.Spec) }

// names says whether a claim that is to be allocated names a device class.
func (a *ask) names(class string) bool {
	return slices.ContainsFunc(slices.Concat(a.open, a.theirs), func(c *claim) bool {
		return c.object != nil && slices.ContainsFunc(c.object.Spec.Devices.Requests, func(r resourceapi.DeviceRequest) bool {
			return slices.ContainsFunc(demand.Alternatives(&r), func(one demand.Alternative) bool { return one.Class == class })
		})
	})
}

// whole says whether it asks for whole devices.
func (a *ask) whole() bool {
	return a.share.Compute.Floor == api.WholeDevice && a.share.Memory.Floor.Part == api.WholeDevice
}

// limitOf is a resource of a pod's containers by which it asks for devices of ours without a claim; empty: there is none. Those of other drivers are
// the filters'.
func (s *Scheduler) limitOf(object *corev1.Pod) string {
	for _, container := range slices.Concat(object.Spec.InitContainers, object.Spec.Containers) {
		for name := range container.Resources.Requests {
			if _, sure := demand.Extended(string(name), slices.Collect(maps.Values(s.deviceClasses))); sure {
				return string(name)
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
	whose := demand.Of(&c.object.Spec, s.deviceClass)
	switch {
	case !whose.Ours && !s.allocatedHere(c.object): // another driver's: the filters see to it
		if c.object.Status.Allocation != nil {
			return nil
		}
		if class := s.classLacking(c.object); class != "" {
			return fmt.Errorf("there is no device class %s; make it, or name another", class) // whose devices it gives is not known
		}
		a.theirs = append(a.theirs, c)
		return nil
	case c.object.DeletionTimestamp != nil:
		return fmt.Errorf("it is being deleted; wait until it is gone")
	case c.writing || c.asked != nil && c.asked.pod != p:
		return fmt.Errorf("it is being allocated for another pod; this one follows")
	case s.comesFree(c, p):
		return fmt.Errorf("it is held by pods that end; this one follows")
	case c.object.Status.Allocation != nil:
		return a.found(c)
	}
	a.open, a.mixed = append(a.open, c), a.mixed || whose.Others
	if constrained(&c.object.Spec.Devices) {
		a.special = "it has constraints between its devices"
	}
	for i := range c.object.Spec.Devices.Requests {
		if err := s.askRequest(a, c, &c.object.Spec.Devices.Requests[i]); err != nil {
			return fmt.Errorf("request %s: %w", c.object.Spec.Devices.Requests[i].Name, err)
		}
	}
	if whose.Others {
		a.special = "it asks for devices of other drivers in the same claim"
	}
	if untold, every := s.untold(&c.object.Spec); untold {
		a.untold, a.every, a.special = true, a.every || every, "devices of several drivers would do for it"
	}
	return nil
}

// comesFree says whether a claim is about to be free, so that a pod may not take it over: what it holds is counted on by those who wait.
func (s *Scheduler) comesFree(c *claim, p *pod) bool {
	if c.task == nil || slices.Contains(s.reservedFor(c), p) {
		return false
	}
	if has := slices.DeleteFunc(s.reservedFor(c), func(o *pod) bool { return over(o.object) }); len(has) > 0 {
		return !slices.ContainsFunc(has, func(o *pod) bool { return !o.leaves() })
	}
	return c.task.work.leaving
}

// untold says whether a claim asks for something of which it does not say whether it is a device of ours or one of another driver, for whichever there is would
// do, and whether that is all that a node has.
func (s *Scheduler) untold(spec *resourceapi.ResourceClaimSpec) (some, every bool) {
	for i := range spec.Devices.Requests {
		for _, one := range demand.Alternatives(&spec.Devices.Requests[i]) {
			if whose := one.Whose(s.deviceClass); whose.Ours && whose.Others {
				some, every = true, every || one.All
			}
		}
	}
	return some, every
}

// constrained says whether a claim's devices are to go together in other ways than any that a pod is given do: those are distinct, by their UUIDs.
func constrained(devices *resourceapi.DeviceClaim) bool {
	return slices.ContainsFunc(devices.Constraints, func(c resourceapi.DeviceConstraint) bool {
		return c.DistinctAttribute == nil || *c.DistinctAttribute != apart
	})
}

// apart is the attribute in which no two devices are alike.
const apart = resourceapi.FullyQualifiedName(driver.Name + "/uuid")

// found adds a claim that is allocated.
func (a *ask) found(c *claim) error {
	a.have = append(a.have, c)
	on := nodeOf(c.object.Status.Allocation)
	if at := c.object.Status.Allocation.NodeSelector; on == "" && at != nil {
		a.reach = append(a.reach, at)
	}
	if on != "" && a.node != "" && a.node != on {
		return fmt.Errorf("it is allocated on node %s, and another claim of the pod on node %s; delete one of them", on, a.node)
	}
	a.node = cmp.Or(on, a.node)
	return nil
}

// reaches says, where pods are placed beside the line, whether the claims that a pod has can be used on a node.
func (a *ask) reaches(node *corev1.Node) bool {
	return !slices.ContainsFunc(a.reach, func(of *corev1.NodeSelector) bool {
		selector, err := nodeaffinity.NewNodeSelector(of)
		return err != nil || !selector.Match(node)
	})
}

// nodeOf is the one node that an allocation is for; empty: it is for several, which reaches knows.
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

// deviceClass is one by its name; nil: there is none.
func (s *Scheduler) deviceClass(name string) *resourceapi.DeviceClass { return s.deviceClasses[name] }

func (s *Scheduler) classOfRequest(r *resourceapi.DeviceRequest) *resourceapi.DeviceClass {
	if r.Exactly == nil {
		return nil
	}
	return s.deviceClasses[r.Exactly.DeviceClassName]
}

// askRequest adds what a request of our devices wants.
func (s *Scheduler) askRequest(a *ask, c *claim, r *resourceapi.DeviceRequest) error {
	exactly := r.Exactly
	class := s.classOfRequest(r)
	if name := s.classLackingOf(r); name != "" {
		return fmt.Errorf("there is no device class %s; make it, or name another", name)
	}
	switch {
	case len(demand.Ours(r, s.deviceClass)) == 0:
		return nil
	case demand.Administers(r) && holds(c):
		return fmt.Errorf("it asks for access as an administrator, and other requests of the claim for devices to have; make a claim for each")
	case demand.Administers(r):
		a.special = "it asks for access as an administrator"
		return nil
	case exactly == nil || len(demand.Surely(r, s.deviceClass)) == 0:
		a.special = "it has a choice of devices (firstAvailable)"
		config, err := driver.ConfigOf(s.configs(c.object), r.Name)
		a.class = cmp.Or(a.class, config.Class)
		return err
	case exactly.AllocationMode == resourceapi.DeviceAllocationModeAll:
		a.special = "it asks for all devices of a node"
	case exactly.AllocationMode != resourceapi.DeviceAllocationModeExactCount && exactly.AllocationMode != "":
		return fmt.Errorf("allocation mode %s is not known to this scheduler; use ExactCount", exactly.AllocationMode)
	}
	selectors := selectorsOf(class, exactly)
	share, workClass, err := s.shareOf(c.object, r)
	if err != nil {
		return err
	}
	switch {
	case len(a.devices) == 0:
		a.share, a.selectors = share, selectors
	case share != a.share:
		a.special = "it asks for shares that differ"
	case !slices.Equal(selectors, a.selectors):
		a.special = "its requests select devices differently"
	}
	a.class = cmp.Or(a.class, workClass)
	for range max(1, exactly.Count) {
		a.devices = append(a.devices, wanted{claim: c, request: r.Name, exactly: exactly})
	}
	return nil
}

// classLacking is a device class that a claim names and that is not there; empty: all are.
func (s *Scheduler) classLacking(object *resourceapi.ResourceClaim) (name string) {
	for i := range object.Spec.Devices.Requests {
		name = cmp.Or(name, s.classLackingOf(&object.Spec.Devices.Requests[i]))
	}
	return name
}

// classLackingOf is classLacking of one request.
func (s *Scheduler) classLackingOf(r *resourceapi.DeviceRequest) string {
	for _, one := range demand.Alternatives(r) {
		if s.deviceClasses[one.Class] == nil {
			return one.Class
		}
	}
	return ""
}
