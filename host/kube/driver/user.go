package driver

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// userOf is the user that the claim's pages are made for: whom the containers that have the claim run as. Nobody can tell from here
// whom an image runs as by itself, so where the pod does not say it is root.
func (d *Driver) userOf(ctx context.Context, claim *resourceapi.ResourceClaim) (uint32, error) {
	var user *int64
	for _, consumer := range claim.Status.ReservedFor {
		if consumer.APIGroup != "" || consumer.Resource != "pods" {
			continue
		}
		pod, err := d.config.Client.CoreV1().Pods(claim.Namespace).Get(ctx, consumer.Name, metav1.GetOptions{})
		if err != nil {
			return 0, fmt.Errorf("ask whom pod %s runs as: %w", consumer.Name, err)
		}
		if pod.UID != consumer.UID || pod.Spec.NodeName != d.config.Node {
			continue // it was, or is to be, elsewhere
		}
		for _, one := range usersIn(pod, claim.Name) {
			if user != nil && *user != one {
				return 0, fmt.Errorf("containers that share the claim run as users %d and %d, and its pages are one user's; give them the same runAsUser", *user, one)
			}
			user = &one
		}
	}
	if user == nil {
		return 0, nil
	}
	return uint32(*user), nil
}

// usersIn are the users of the containers of a pod that have the claim.
func usersIn(pod *corev1.Pod, claim string) []int64 {
	names := map[string]bool{}
	for _, c := range pod.Spec.ResourceClaims {
		names[c.Name] = c.ResourceClaimName != nil && *c.ResourceClaimName == claim
	}
	for _, c := range pod.Status.ResourceClaimStatuses {
		if c.ResourceClaimName != nil && *c.ResourceClaimName == claim {
			names[c.Name] = true
		}
	}
	whole := pod.Spec.SecurityContext
	var users []int64
	for _, containers := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for _, c := range containers {
			for _, used := range c.Resources.Claims {
				if !names[used.Name] {
					continue
				}
				var user int64
				switch {
				case c.SecurityContext != nil && c.SecurityContext.RunAsUser != nil:
					user = *c.SecurityContext.RunAsUser
				case whole != nil && whole.RunAsUser != nil:
					user = *whole.RunAsUser
				}
				users = append(users, user)
			}
		}
	}
	return users
}
