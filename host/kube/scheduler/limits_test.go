package scheduler

import (
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The claim that was made for the limits of a pod is deleted where this cannot be bound to the node of its devices, before it is tried again; one for another node stays.
func TestLimitIsGivenBack(t *testing.T) {
	c := newCluster(t)
	c.node("a", 1)
	var refuses atomic.Bool
	refuses.Store(true)
	c.refuses = func(write string, _ metav1.Object) bool { return write == "bind pods" && refuses.Load() }
	s, _ := c.run()
	controls := true
	for _, on := range []string{"a", "elsewhere"} {
		claim := claimFor("made-on-"+on, 0)
		claim.Annotations = map[string]string{resourceapi.ExtendedResourceClaimAnnotation: "true"}
		claim.Finalizers = []string{resourceapi.Finalizer}
		claim.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "p", UID: "pod-p", Controller: &controls}}
		claim.Spec.Devices.Requests[0].Exactly = &resourceapi.ExactDeviceRequest{DeviceClassName: "card.example", Count: 1}
		claim.Status.Allocation = &resourceapi.AllocationResult{
			NodeSelector: onNode(on),
			Devices:      resourceapi.DeviceAllocationResult{Results: []resourceapi.DeviceRequestAllocationResult{{Request: "gpu", Driver: "card.example", Pool: on, Device: "card"}}},
		}
		claim.Status.ReservedFor = []resourceapi.ResourceClaimConsumerReference{reference(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", UID: "pod-p"}})}
		c.add(claimsResource, claim)
	}
	c.pod("p", 100)
	there := func(name string) bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.find("default/"+name) != nil
	}
	c.eventually("what was made for its node is deleted", func() bool { return !there("made-on-a") })
	if !there("made-on-elsewhere") {
		t.Error("a claim for devices of another node is deleted, too")
	}
	refuses.Store(false)
	c.runs("p")
	c.sound(s)
}
