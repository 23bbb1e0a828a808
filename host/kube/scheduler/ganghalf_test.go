package scheduler

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// writtenOn has a pod's claim be allocated as by a scheduler that has not bound the pod yet.
func writtenOn(node string) func(*corev1.Pod, *resourceapi.ResourceClaim) {
	return func(pod *corev1.Pod, claim *resourceapi.ResourceClaim) {
		claim.UID = pod.UID + "-claim"
		allocatedOn(node, claim, 500)
		claim.Status.ReservedFor = []resourceapi.ResourceClaimConsumerReference{reference(pod)}
	}
}

// A gang whose claims were written, and of which a node takes its pod no more, is given back whole: it is never half started.
func TestHalfGangWithoutANode(t *testing.T) {
	for _, other := range []string{"a", "b"} {
		t.Run(other, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t)
			closed := map[string]string{"a": "b", "b": "a"}[other]
			c.node(other, 1)
			_, end := c.run()
			c.pod("other", 500)
			c.runs("other")
			end()
			c.node(closed, 1, func(n *corev1.Node) { n.Spec.Unschedulable = true })
			c.member("two", 0, 2, 500, writtenOn("a"))
			c.member("two", 1, 2, 500, writtenOn("b"))
			s, _ := c.run()
			c.none(s, "two")
			c.node("c", 1)
			c.runs("two-0", "two-1")
			c.sound(s)
			c.leavesNothing(s, "two-0", "two-1", "other")
		})
	}
}

// A pod that is being deleted is none of those that start: without it the others of a gang whose claims were written do not.
func TestHalfGangOfWhichOneGoes(t *testing.T) {
	c := newCluster(t)
	c.node("a", 1)
	c.member("two", 0, 2, 500, writtenOn("a"))
	c.member("two", 1, 2, 500, writtenOn("a"), func(pod *corev1.Pod, _ *resourceapi.ResourceClaim) {
		now := metav1.Now()
		pod.DeletionTimestamp, pod.Finalizers = &now, []string{"example.com/waits"}
	})
	s, _ := c.run()
	c.idle(s, func() {})
	if on := c.on("two-0"); on != "" {
		t.Errorf("it runs on %s, and the other of its gang does not", on)
	}
	if claim := c.find("default/two-0-share"); claim.Status.Allocation != nil {
		t.Error("its claim is allocated, and it does not run")
	}
	c.remove("two-1")
	c.member("two", 1, 2, 500)
	c.runs("two-0", "two-1")
	c.sound(s)
}
