package driver

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// userOf is the user that the claim's pages are made for: whom the containers that have the claim run as. Nobody can tell from here
// whom an image runs as by itself, so where the pod does not say it is root. A container with another of the claims beside is refused:
// its programs would find one share, and the other would lie idle.
func (d *Driver) userOf(ctx context.Context, claim *resourceapi.ResourceClaim, beside []*resourceapi.ResourceClaim) (uint32, error) {
	var user *int64
	for _, consumer := range claim.Status.ReservedFor {
		if consumer.APIGroup != "" || consumer.Resource != "pods" {
			continue
		}
		pod, err := d.config.Client.CoreV1().Pods(claim.Namespace).Get(ctx, consumer.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			continue // it is gone, and the cluster is about to say so
		}
		if err != nil {
			return 0, fmt.Errorf("ask whom pod %s runs as: %w", consumer.Name, err)
		}
		if pod.UID != consumer.UID || pod.Spec.NodeName != d.config.Node {
			continue // it was, or is to be, elsewhere
		}
		for _, c := range containersWith(pod, claim.Name) {
			for _, other := range beside {
				if other.UID != claim.UID && c.claims[other.Name] {
					return 0, fmt.Errorf("container %s of pod %s has the claim %s too, and a container can be held to one; put the requests of both into one claim", c.name, pod.Name, other.Name)
				}
			}
			if user != nil && *user != c.user {
				return 0, fmt.Errorf("containers that share the claim run as users %d and %d, and its pages are one user's; give them the same runAsUser", *user, c.user)
			}
			user = &c.user
		}
	}
	if user == nil {
		return 0, nil
	}
	return uint32(*user), nil
}

// holder is a container as far as its claims go.
type holder struct {
	name   string
	user   int64
	claims map[string]bool // by the names of their objects
}

// containersWith are the containers of a pod that have the claim.
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
		one := holder{name: c.Name, claims: map[string]bool{}}
		for _, used := range c.Resources.Claims {
			one.claims[objects[used.Name]] = true
		}
		if !one.claims[claim] {
			continue
		}
		whole := pod.Spec.SecurityContext
		switch {
		case c.SecurityContext != nil && c.SecurityContext.RunAsUser != nil:
			one.user = *c.SecurityContext.RunAsUser
		case whole != nil && whole.RunAsUser != nil:
			one.user = *whole.RunAsUser
		}
		with = append(with, one)
	}
	return with
}
