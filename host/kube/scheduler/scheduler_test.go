package scheduler

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/aliquot-dev/aliquot/host/kube/driver"
)

// Two pods share a device, a third waits while there is no room for it, and has it when one of them goes. What is allocated stands in the claim
// as the node agent and the cluster want it.
func TestShares(t *testing.T) {
	c := newCluster(t)
	c.node("a", 1)
	s, _ := c.run()
	c.pod("half", 500)
	c.pod("quarter", 250, func(_ *corev1.Pod, claim *resourceapi.ResourceClaim) {
		claim.Spec.Devices.Config = []resourceapi.DeviceClaimConfiguration{{DeviceConfiguration: resourceapi.DeviceConfiguration{
			Opaque: &resourceapi.OpaqueDeviceConfiguration{Driver: driver.Name, Parameters: runtime.RawExtension{
				Raw: []byte(`{"apiVersion":"aliquot.dev/v1alpha1","kind":"ShareConfig","ceiling":{"compute":"0.80"}}`),
			}},
		}}}
	})
	c.runs("half", "quarter")
	c.pod("more", 300)
	c.sound(s)
	if on := c.on("more"); on != "" {
		t.Fatalf("it was placed on %s, where there is no room", on)
	}

	claim := c.find("default/quarter-share")
	if !slices.Contains(claim.Finalizers, resourceapi.Finalizer) || !reserved(claim, resourceapi.ResourceClaimConsumerReference{UID: "pod-quarter"}) {
		t.Errorf("its finalizers are %v, and it is reserved for %v", claim.Finalizers, claim.Status.ReservedFor)
	}
	allocation := claim.Status.Allocation
	if on := nodeOf(allocation); on != "a" || len(allocation.Devices.Results) != 1 || len(allocation.Devices.Config) != 1 {
		t.Fatalf("it is allocated as %+v", allocation)
	}
	r := allocation.Devices.Results[0]
	compute, memory := r.ConsumedCapacity[driver.Compute], r.ConsumedCapacity[driver.Memory]
	if r.Request != "gpu" || r.Driver != driver.Name || r.Pool != "a" || r.Device != "gpu-0" || r.ShareID == nil || compute.Value() != 250 || memory.Value() != 1<<30 {
		t.Errorf("it was given %+v", r)
	}
	if config := allocation.Devices.Config[0]; config.Source != resourceapi.AllocationConfigSourceClaim || config.Opaque == nil {
		t.Errorf("it has the configuration %+v", config)
	}

	c.remove("half")
	c.runs("more")
	c.sound(s)
}

// A scheduler that starts finds in the claims what the one before it granted, and grants nothing of it again.
func TestRestart(t *testing.T) {
	c := newCluster(t)
	c.node("a", 2)
	_, end := c.run()
	for i := range 4 {
		c.pod(fmt.Sprint("one-", i), 500)
	}
	c.runs("one-0", "one-1", "one-2", "one-3")
	end()
	c.pod("waits", 500)
	s, _ := c.run()
	c.sound(s)
	if on := c.on("waits"); on != "" {
		t.Errorf("it was placed on %s, where there is no room", on)
	}
	c.remove("one-2")
	c.runs("waits")
	c.sound(s)
}

// What a scheduler left half written the next one completes, or undoes where that cannot be.
func TestHalfWritten(t *testing.T) {
	for name, one := range map[string]struct {
		left func(c *cluster)
		on   string
	}{
		"finalizer alone": {func(c *cluster) {
			c.pod("p", 500, func(_ *corev1.Pod, claim *resourceapi.ResourceClaim) {
				claim.Finalizers = []string{resourceapi.Finalizer}
			})
		}, "a"},
		"not bound": {func(c *cluster) {
			c.pod("p", 500, func(pod *corev1.Pod, claim *resourceapi.ResourceClaim) {
				allocatedOn("b", claim, 500)
				claim.Status.ReservedFor = []resourceapi.ResourceClaimConsumerReference{reference(pod)}
			})
		}, "b"},
		"not bound, and its node takes it no more": {func(c *cluster) {
			c.pod("p", 500, func(pod *corev1.Pod, claim *resourceapi.ResourceClaim) {
				allocatedOn("b", claim, 500)
				claim.Status.ReservedFor = []resourceapi.ResourceClaimConsumerReference{reference(pod)}
				pod.Spec.NodeSelector = map[string]string{"only": "a"}
			})
		}, "a"},
		"one of two claims": {func(c *cluster) {
			other := claimFor("p-second", 500)
			c.add(claimsResource, other)
			c.pod("p", 500, func(pod *corev1.Pod, claim *resourceapi.ResourceClaim) {
				allocatedOn("b", claim, 500)
				claim.Status.ReservedFor = []resourceapi.ResourceClaimConsumerReference{reference(pod)}
				pod.Spec.ResourceClaims = append(pod.Spec.ResourceClaims, corev1.PodResourceClaim{Name: "second", ResourceClaimName: &other.Name})
				pod.Spec.NodeSelector = map[string]string{"only": "a"}
			})
		}, "a"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t)
			c.node("a", 2, func(n *corev1.Node) { n.Labels = map[string]string{"only": "a"} })
			c.node("b", 1)
			one.left(c)
			s, _ := c.run()
			c.runs("p")
			if on := c.on("p"); on != one.on && name != "finalizer alone" {
				t.Errorf("it is bound to node %s, want %s", on, one.on)
			}
			c.sound(s)
		})
	}
}

// allocatedOn allocates a claim as a scheduler does that has not bound its pod yet.
func allocatedOn(node string, claim *resourceapi.ResourceClaim, compute int64) {
	claim.Finalizers = []string{resourceapi.Finalizer}
	s := New(Config{})
	share := claim.UID
	claim.Status.Allocation = &resourceapi.AllocationResult{
		NodeSelector: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchFields: []corev1.NodeSelectorRequirement{
			{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{node}},
		}}}},
		Devices: resourceapi.DeviceAllocationResult{Config: s.configs(claim), Results: []resourceapi.DeviceRequestAllocationResult{{
			Request: "gpu", Driver: driver.Name, Pool: node, Device: "gpu-0", ShareID: &share,
			ConsumedCapacity: map[resourceapi.QualifiedName]resource.Quantity{
				driver.Compute: *resource.NewQuantity(compute, resource.DecimalSI), driver.Memory: resource.MustParse("1Gi"),
			},
		}}},
	}
}

// A pod that cannot be prepared for its node is not bound, what was written for it is undone, and it is tried again.
func TestPrepared(t *testing.T) {
	c := newCluster(t)
	c.unprepared = 1 << 30
	c.node("a", 1)
	s, _ := c.run()
	c.pod("p", 500)
	c.says("p", "the volume of pod p cannot be made")
	s.config.Filters.(*plain).failing.Store(0)
	c.runs("p")
	c.sound(s)
}

// Pods that name one claim run where it is, and it is free when the last of them has gone.
func TestSharedClaim(t *testing.T) {
	c := newCluster(t)
	c.node("a", 1)
	c.node("b", 1)
	claim := claimFor("shared", 600)
	c.add(claimsResource, claim)
	s, _ := c.run()
	names := []string{"one", "two", "three"}
	for _, name := range names {
		c.add(podsResource, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
			Spec: corev1.PodSpec{
				SchedulerName: Name, Containers: []corev1.Container{{Name: "main"}},
				ResourceClaims: []corev1.PodResourceClaim{{Name: "share", ResourceClaimName: &claim.Name}},
			},
		})
	}
	c.runs(names...)
	if c.on("one") != c.on("two") || c.on("two") != c.on("three") {
		t.Errorf("they run on %s, %s and %s", c.on("one"), c.on("two"), c.on("three"))
	}
	c.sound(s)
	c.leavesNothing(s, names...)
}

// with has a pod have a claim besides its own.
func with(claim string) func(*corev1.Pod, *resourceapi.ResourceClaim) {
	return func(pod *corev1.Pod, _ *resourceapi.ResourceClaim) {
		pod.Spec.ResourceClaims = append(pod.Spec.ResourceClaims, corev1.PodResourceClaim{Name: "with", ResourceClaimName: &claim})
	}
}

// What a pod holds by itself is free when it goes, devices and processors, though a claim that it had with another stays, which has that as long as it runs.
func TestOwnGoesBeforeShared(t *testing.T) {
	c := newCluster(t)
	c.node("a", 1)
	shared := "shared"
	c.add(claimsResource, claimFor(shared, 300))
	s, end := c.run()
	processors := func(number string) func(*corev1.Pod, *resourceapi.ResourceClaim) {
		return func(pod *corev1.Pod, _ *resourceapi.ResourceClaim) {
			pod.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(number)}
		}
	}
	second := func(name string) {
		c.add(podsResource, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Spec: corev1.PodSpec{
			SchedulerName: Name, Containers: []corev1.Container{{Name: "main"}}, ResourceClaims: []corev1.PodResourceClaim{{Name: "with", ResourceClaimName: &shared}},
		}})
	}
	c.pod("first", 600, processors("6"), with(shared))
	c.runs("first")
	second("second")
	c.runs("second")
	c.pod("waits", 700, processors("7"))
	c.says("waits", "0.70 of a device")
	c.remove("first")
	c.runs("waits")
	c.sound(s)

	c.remove("waits") // the same where the next scheduler has found both
	c.pod("third", 500, processors("6"), with(shared))
	c.runs("third")
	end()
	s, _ = c.run()
	c.sound(s)
	c.pod("last", 700, processors("7"))
	c.says("last", "0.70 of a device")
	c.remove("third")
	c.runs("last")
	c.sound(s)
	c.leavesNothing(s, "second", "last")
}

// Of a pod that goes while it is being placed, all claims may have gone before what was written of the first is taken in.
func TestAllClaimsGoAtOnce(t *testing.T) {
	c := newCluster(t)
	c.node("a", 1)
	c.add(claimsResource, claimFor("second", 300))
	s, _ := c.run()
	c.pod("both", 600, with("second"))
	c.runs("both")
	c.sound(s)                  // and what was written of it is taken in
	within := func(do func()) { // the scheduler
		done := make(chan struct{})
		s.inbox.put(func() {
			do()
			close(done)
		})
		<-done
	}
	var claims []*claim
	within(func() {
		for _, key := range []string{"default/both-share", "default/second"} {
			claims = append(claims, s.claims[key])
			s.claims[key].writing = true
		}
	})
	c.remove("both")
	if err := c.client.Tracker().Delete(claimsResource, "default", "second"); err != nil {
		t.Fatal(err)
	}
	c.eventually("the scheduler knows that both have gone", func() (gone bool) {
		within(func() { gone = claims[0].object == nil && claims[1].object == nil })
		return gone
	})
	within(func() {
		for _, one := range claims {
			one.writing = false
		}
		for _, one := range claims {
			s.claimSettled(one)
		}
	})
	c.sound(s)
	c.pod("after", 1000)
	c.runs("after")
}

// Pods run only where filters let them, and on devices that their selectors match; a pod without devices runs beside them.
func TestWhere(t *testing.T) {
	c := newCluster(t)
	c.node("a", 1)
	c.node("b", 1, func(n *corev1.Node) { n.Labels = map[string]string{"disk": "fast"} })
	c.node("c", 1, func(n *corev1.Node) {
		n.Spec.Taints = []corev1.Taint{{Key: "kept", Effect: corev1.TaintEffectNoSchedule}}
	})
	c.node("plain", 0)
	c.node("two", 2, func(n *corev1.Node) { n.Labels = map[string]string{"disk": "fast"} })
	s, _ := c.run()
	c.pod("fast", 1000, func(pod *corev1.Pod, claim *resourceapi.ResourceClaim) {
		pod.Spec.NodeSelector = map[string]string{"disk": "fast"}
		claim.Spec.Devices.Requests[0].Exactly.Selectors = []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{
			Expression: `device.attributes["` + driver.Name + `"].number == 0`, // not all on node two are
		}}}
	})
	c.runs("fast")
	if on := c.on("fast"); on != "b" {
		t.Errorf("it runs on %s, want b", on)
	}
	c.pod("tolerates", 1000, func(pod *corev1.Pod, _ *resourceapi.ResourceClaim) {
		pod.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
		pod.Spec.NodeName = ""
	})
	c.pod("large", 1, func(pod *corev1.Pod, _ *resourceapi.ResourceClaim) {
		pod.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("9")}
	})
	c.runs("tolerates")
	c.add(podsResource, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "ordinary"}, Spec: corev1.PodSpec{SchedulerName: Name, Containers: []corev1.Container{{Name: "main"}}},
	})
	c.runs("ordinary")
	if on := c.on("ordinary"); on != "plain" {
		t.Errorf("a pod without devices runs on %s, want the node that has none", on)
	}
	c.sound(s)
	if on := c.on("large"); on != "" {
		t.Errorf("it runs on %s, which has too little CPU", on)
	}
}

// What other pods take of a node the engine's pods do not get.
func TestOtherPods(t *testing.T) {
	c := newCluster(t)
	c.node("a", 1)
	c.node("b", 1)
	large := func(pod *corev1.Pod, _ *resourceapi.ResourceClaim) {
		pod.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("5")}
	}
	other := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "other"},
		Spec:       corev1.PodSpec{NodeName: "a", Containers: []corev1.Container{{Name: "main"}}},
	}
	large(other, nil)
	c.add(podsResource, other)
	s, _ := c.run()
	c.pod("one", 100, large)
	c.runs("one")
	if on := c.on("one"); on != "b" {
		t.Errorf("it runs on %s, where another pod has the CPU", on)
	}
	c.pod("two", 100, large)
	c.sound(s)
	if on := c.on("two"); on != "" {
		t.Errorf("it runs on %s, which is full", on)
	}
	c.remove("other")
	c.runs("two")
	c.sound(s)
}

// Why a pod waits that asks for what cannot be had is said in its user's words.
func TestRefusedAsks(t *testing.T) {
	for _, one := range []struct {
		change func(pod *corev1.Pod, claim *resourceapi.ResourceClaim)
		want   string
	}{
		{func(_ *corev1.Pod, claim *resourceapi.ResourceClaim) {
			foreign := claim.Spec.Devices.Requests[0].DeepCopy()
			foreign.Name, foreign.Exactly.DeviceClassName = "foreign", "another"
			claim.Spec.Devices.Requests = append(claim.Spec.Devices.Requests, *foreign)
		}, "there is no device class another; make it, or name another"},
		{func(_ *corev1.Pod, claim *resourceapi.ResourceClaim) {
			claim.Spec.Devices.Requests[0].Exactly.Capacity.Requests["colour"] = resource.MustParse("1")
		}, "capacity colour, which devices do not have"},
		{func(_ *corev1.Pod, claim *resourceapi.ResourceClaim) {
			claim.Spec.Devices.Requests[0].Exactly.Capacity.Requests[driver.Compute] = resource.MustParse("1001")
		}, "a device has 1000"},
		{func(_ *corev1.Pod, claim *resourceapi.ResourceClaim) {
			claim.Spec.Devices.Requests = append(claim.Spec.Devices.Requests, part("monitor", 100, 1, administers))
		}, "request monitor: it asks for access as an administrator, and other requests of the claim for devices to have; make a claim for each"},
		{func(_ *corev1.Pod, claim *resourceapi.ResourceClaim) { claim.OwnerReferences = nil }, "was not created for Pod"},
		{func(pod *corev1.Pod, _ *resourceapi.ResourceClaim) { pod.Status.ResourceClaimStatuses = nil }, "was not made yet"},
		{func(pod *corev1.Pod, _ *resourceapi.ResourceClaim) {
			pod.Spec.Containers[0].Resources.Requests = corev1.ResourceList{"deviceclass.resource.kubernetes.io/gpu.aliquot.dev": resource.MustParse("1")}
		}, "whole devices, which this scheduler does not place"},
		{func(pod *corev1.Pod, _ *resourceapi.ResourceClaim) {
			name := "missing"
			pod.Spec.ResourceClaims[0] = corev1.PodResourceClaim{Name: "share", ResourceClaimName: &name}
		}, "there is no claim missing"},
	} {
		t.Run(one.want, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t)
			c.node("a", 2)
			c.pod("p", 100, one.change)
			s, _ := c.run()
			c.idle(s, func() {
				if p := s.pods["pod-p"]; p == nil || !strings.Contains(p.reason, one.want) {
					t.Errorf("it says %+v, want %q in it", p, one.want)
				}
			})
			if on := c.on("p"); on != "" {
				t.Errorf("it runs on %s", on)
			}
		})
	}
}

// leavesNothing removes pods, after which nothing is left of them.
func (c *cluster) leavesNothing(s *Scheduler, names ...string) {
	c.Helper()
	for _, name := range names {
		c.remove(name)
	}
	c.sound(s)
	c.idle(s, func() {
		if len(s.work) != 0 {
			c.Errorf("%d workloads are left", len(s.work))
		}
	})
}
