package webhook

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/aliquot-dev/aliquot/host/kube/demand"
)

// held is a claim of a pod that is given devices of ours, whatever is found for it.
type held struct {
	name     string   // in the pod
	object   string   // what it is there: several names may be of one claim
	requests []string // those of ours
}

// heldOf is a pod's claim; without requests where it may be given another driver's devices instead.
func heldOf(claim corev1.PodResourceClaim, spec *resourceapi.ResourceClaimSpec, find func(class string) *resourceapi.DeviceClass) held {
	one := held{name: claim.Name, object: claim.Name}
	if claim.ResourceClaimName != nil {
		one.object = "/" + *claim.ResourceClaimName
	}
	for i := range spec.Devices.Requests {
		request := &spec.Devices.Requests[i]
		if ours := len(demand.Ours(request, find)); ours > 0 && ours == len(demand.Alternatives(request)) {
			one.requests = append(one.requests, request.Name)
		}
	}
	return one
}

// fit refuses a pod that would be given a node and never start there: its containers cannot be held to what it asks for. The node agent says the same, of those
// of which it cannot be known before.
func (d devices) fit(pod *corev1.Pod) error {
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		var has *held
		for i := range d.shares {
			one := &d.shares[i]
			var named []string
			for _, used := range c.Resources.Claims {
				if used.Name == one.name {
					named = append(named, used.Request)
				}
			}
			switch {
			case named == nil || one.requests == nil:
				continue
			case has != nil && has.object != one.object:
				return refuse(badClaims, "container %s has the claims %s and %s, and a container can be held to one; put the requests of both into one claim, or, where one is access as an administrator, let another container have it", c.Name, has.name, one.name)
			}
			has = one
			for _, request := range one.requests {
				if !slices.Contains(named, "") && !slices.Contains(named, request) {
					return refuse(badClaims, "container %s has the request %s of the claim %s and not %s, and a claim's requests go to a container together; let it have the whole claim, or make a claim for each container",
						c.Name, strings.Join(named, ", "), one.name, request)
				}
			}
		}
	}
	return nil
}
