package scheduler

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// resize has a pod request other CPU, as its user may while it runs; its node has given it so much yet.
func (c *cluster) resize(name, wants, has string) {
	c.Helper()
	c.rewrite(name, func(pod *corev1.Pod) {
		pod.Generation++
		given := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(has)}
		pod.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(wants)}
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{{
			Name: "main", AllocatedResources: given, Resources: &corev1.ResourceRequirements{Requests: given},
		}}
	})
}

// What a pod that runs gives up by a resize others have, once its node has taken it; a scheduler that begins then knows it, too.
func TestResize(t *testing.T) {
	for name, make := range map[string]func(c *cluster){
		"without devices": func(c *cluster) { c.ordinary("big", "6", 0) },
		"with a share":    func(c *cluster) { c.pod("big", 100, needing("6", 0)) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t)
			c.node("a", 1)
			s, end := c.run()
			make(c)
			c.runs("big")
			c.pod("next", 100, needing("4", 0))
			c.stays(s, "next")
			c.resize("big", "2", "6")
			c.stays(s, "next")
			c.resize("big", "2", "2")
			c.runs("next")
			c.sound(s)
			c.pod("last", 100, needing("3", 0))
			c.stays(s, "last")
			end()
			s, _ = c.run()
			c.stays(s, "last")
			c.resize("next", "3", "3")
			c.runs("last")
			c.sound(s)
			c.remove("big")
			c.remove("next")
			c.pod("largest", 100, needing("5", 0)) // all that the other leaves, and no more
			c.runs("largest")
			c.ordinary("more", "1", 0)
			c.stays(s, "more")
		})
	}
}

// A pod that waits is placed by what it requests when it is resized.
func TestResizedWhileItWaits(t *testing.T) {
	c := newCluster(t)
	c.node("a", 1)
	s, _ := c.run()
	c.pod("big", 100, needing("9", 0))
	c.stays(s, "big")
	c.rewrite("big", func(pod *corev1.Pod) {
		pod.Generation++
		pod.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("8")}
	})
	c.runs("big")
	c.sound(s)
}
