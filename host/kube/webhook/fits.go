package webhook

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/aliquot-dev/aliquot/host/kube/annotation"
	"github.com/aliquot-dev/aliquot/host/kube/demand"
)

// held is a claim of a pod that is given devices of ours, whatever is found for it.
type held struct {
	name     string   // in the pod
	object   string   // what it is there: several names may be of one claim
	requests []string // those of ours; none: it may be given another driver's devices instead
	sees     bool     // all are for access as an administrator, which has no pages
}

// heldOf is a pod's claim.
func heldOf(claim corev1.PodResourceClaim, spec *resourceapi.ResourceClaimSpec, find demand.Find) held {
	one := held{name: claim.Name, object: claim.Name, sees: demand.AdministersAll(spec)}
	if claim.ResourceClaimName != nil {
		one.object = "/" + *claim.ResourceClaimName
	}
	for i := range spec.Devices.Requests {
		request := &spec.Devices.Requests[i]
		if surely := len(demand.Surely(request, find)); surely > 0 && surely == len(demand.Alternatives(request)) {
			one.requests = append(one.requests, request.Name)
		}
	}
	return one
}

// fit refuses a pod that would be given a node and never start there: its containers cannot be held to what it asks for, by annotations or by claims. The node
// agent says the same, of those of which it cannot be known before.
func (d devices) fit(pod *corev1.Pod, annotated []int) error {
	shares := slices.DeleteFunc(slices.Clone(d.shares), func(one held) bool { return one.sees || one.requests == nil })
	if len(annotated) > 0 {
		shares = append(shares, held{name: annotation.ClaimName})
	}
	if len(shares) > 0 && pod.Spec.HostUsers != nil && !*pod.Spec.HostUsers {
		return refuse(badClaims, "the pod asks for devices of Aliquot and has users of its own (hostUsers: false), who cannot open pages that belong to users of the node; leave hostUsers out")
	}
	for _, one := range shares {
		err := oneUser(pod, func(c *corev1.Container) bool {
			has := slices.ContainsFunc(c.Resources.Claims, func(used corev1.ResourceClaim) bool { return used.Name == one.name })
			return has || one.name == annotation.ClaimName && slices.ContainsFunc(annotated, func(i int) bool { return pod.Spec.Containers[i].Name == c.Name })
		})
		if err != nil {
			return err
		}
	}
	if err := d.notBoth(pod, shares, annotated); err != nil {
		return err
	}
	return d.apart(pod)
}

// notBoth refuses a pod of which a container has a share beside a claim that may be given devices of ours, too.
func (d devices) notBoth(pod *corev1.Pod, shares []held, annotated []int) error {
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		uses := func(claim string) bool {
			return slices.ContainsFunc(c.Resources.Claims, func(used corev1.ResourceClaim) bool { return used.Name == claim })
		}
		has := slices.ContainsFunc(annotated, func(i int) bool { return pod.Spec.Containers[i].Name == c.Name }) ||
			slices.ContainsFunc(shares, func(one held) bool { return uses(one.name) })
		if at := slices.IndexFunc(d.maybe, uses); has && at >= 0 {
			return refuse(badClaims, "container %s has a share, and the claim %s, which may be given a device of Aliquot, too, for by its device class others' would do as well; a container can be held to one: have the claim's selectors name the driver of the devices that are meant", c.Name, d.maybe[at])
		}
	}
	return nil
}

// apart refuses a pod of which a container has two claims, or a part of one.
func (d devices) apart(pod *corev1.Pod) error {
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

// oneUser refuses a pod of which containers that have a claim say that they run as different users: its pages are one user's.
func oneUser(pod *corev1.Pod, has func(c *corev1.Container) bool) error {
	var first *corev1.Container
	var user int64
	all := slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers)
	for i := range all {
		c, said := &all[i], (*int64)(nil)
		if pod.Spec.SecurityContext != nil {
			said = pod.Spec.SecurityContext.RunAsUser
		}
		if c.SecurityContext != nil && c.SecurityContext.RunAsUser != nil {
			said = c.SecurityContext.RunAsUser
		}
		switch {
		case said == nil || !has(c):
		case first == nil:
			first, user = c, *said
		case *said != user:
			return refuse(badClaims, "the containers %s and %s, which share what the pod asks for, run as users %d and %d, and its pages are one user's; give them the same runAsUser", first.Name, c.Name, user, *said)
		}
	}
	return nil
}
