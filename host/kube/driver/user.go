package driver

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// podsOf are the pods on this node that a claim is reserved for, or why they are not known.
type podsOf struct {
	pods []*corev1.Pod
	err  error
}

// podsOf asks for the claim's pods, one by one: to list them the agent would need to read those of others, too.
func (d *Driver) podsOf(ctx context.Context, claim *resourceapi.ResourceClaim) podsOf {
	var found []*corev1.Pod
	for _, consumer := range claim.Status.ReservedFor {
		if consumer.APIGroup != "" || consumer.Resource != "pods" {
			continue
		}
		pod, err := d.config.Client.CoreV1().Pods(claim.Namespace).Get(ctx, consumer.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			continue // it is gone, and the cluster is about to say so
		}
		if err != nil {
			return podsOf{err: fmt.Errorf("ask whom pod %s runs as: %w", consumer.Name, err)}
		}
		if pod.UID != consumer.UID || pod.Spec.NodeName != d.config.Node {
			continue // it was, or is to be, elsewhere
		}
		found = append(found, pod)
	}
	return podsOf{pods: found}
}

// userOf is the user that the claim's pages are made for: whom the containers that have the claim run as, as far as they say it; known: one of them does. Nobody can tell
// from here whom an image runs as by itself: what gives a container its pages sees that, before its program begins (package cover), and refuses those that run as another
// user than the one who has the pages. A container with another of the claims beside is refused:
// its programs would find one share, and the other would lie idle. So is one with a part of the claim alone, which is one task, and
// a pod whose users are others on the node than in it.
func userOf(claim *resourceapi.ResourceClaim, of podsOf, beside []string) (user uint32, known bool, err error) {
	if of.err != nil {
		return 0, false, of.err
	}
	for _, pod := range of.pods {
		with := containersWith(pod, claim.Name)
		if len(with) > 0 && pod.Spec.HostUsers != nil && !*pod.Spec.HostUsers {
			return 0, false, fmt.Errorf("pod %s has users of its own (hostUsers: false), who cannot open pages that belong to users of the node; leave hostUsers out", pod.Name)
		}
		for _, c := range with {
			if err := c.fits(claim, pod.Name, beside); err != nil {
				return 0, false, err
			}
			if c.user == nil {
				continue
			}
			said := uint32(*c.user)
			if known && user != said {
				return 0, false, fmt.Errorf("containers that share the claim run as users %d and %d, and its pages are one user's; give them the same runAsUser", user, said)
			}
			user, known = said, true
		}
	}
	return user, known, nil
}

// accessible says why the containers of a claim's pods cannot have access as an administrator by it. Whom they run as does not matter: no page is theirs.
func accessible(claim *resourceapi.ResourceClaim, of podsOf, beside []string) error {
	if of.err != nil {
		return of.err
	}
	for _, pod := range of.pods {
		for _, c := range containersWith(pod, claim.Name) {
			if err := c.fits(claim, pod.Name, beside); err != nil {
				return err
			}
		}
	}
	return nil
}

// holder is a container as far as its claims go.
type holder struct {
	name   string
	user   *int64              // nil: it says none
	claims map[string][]string // by the names of their objects, the requests of each that it names; of one all: ""
}

// fits says why a container cannot be held to the share that is the claim, or have the access that it gives.
func (c holder) fits(claim *resourceapi.ResourceClaim, pod string, beside []string) error {
	for _, other := range beside {
		if other != claim.Name && c.claims[other] != nil {
			return fmt.Errorf("container %s of pod %s has the claim %s too, and a container can be held to one; put the requests of both into one claim, or, where one is access as an administrator, let another container have it", c.name, pod, other)
		}
	}
	for _, result := range ours(claim) {
		request, _, _ := strings.Cut(result.Request, "/") // the other half names one of several alternatives
		if named := c.claims[claim.Name]; !slices.Contains(named, "") && !slices.Contains(named, request) {
			return fmt.Errorf("container %s of pod %s has the request %s of the claim and not %s, and a claim's requests go to a container together; let it have the whole claim, or make a claim for each container",
				c.name, pod, strings.Join(named, ", "), request)
		}
	}
	return nil
}

// containersWith are the containers of a pod that have the claim, or a part of it.
func containersWith(pod *corev1.Pod, claim string) []holder {
	objects := map[string]string{} // by their names in the pod
	for _, c := range pod.Spec.ResourceClaims {
		if c.ResourceClaimName != nil {
			objects[c.Name] = *c.ResourceClaimName
		}
	}
	for _, c := range pod.Status.ResourceClaimStatuses { // those made from templates
		if c.ResourceClaimName != nil {
			objects[c.Name] = *c.ResourceClaimName
		}
	}
	var with []holder
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		one := holder{name: c.Name, claims: map[string][]string{}}
		for _, used := range c.Resources.Claims {
			name := objects[used.Name]
			one.claims[name] = append(one.claims[name], used.Request)
		}
		if whole := pod.Status.ExtendedResourceClaimStatus; whole != nil { // made from limits of whole devices
			for _, used := range whole.RequestMappings {
				if used.ContainerName == c.Name {
					one.claims[whole.ResourceClaimName] = append(one.claims[whole.ResourceClaimName], used.RequestName)
				}
			}
		}
		if one.claims[claim] == nil {
			continue
		}
		whole := pod.Spec.SecurityContext
		switch {
		case c.SecurityContext != nil && c.SecurityContext.RunAsUser != nil:
			one.user = c.SecurityContext.RunAsUser
		case whole != nil && whole.RunAsUser != nil:
			one.user = whole.RunAsUser
		}
		with = append(with, one)
	}
	return with
}
