package scheduler

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/aliquot-dev/aliquot/host/kube/annotation"
)

// drop deletes a claim.
func (c *cluster) drop(claim string) {
	c.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.client.Tracker().Delete(claimsResource, "default", claim); err != nil {
		c.Fatal(err)
	}
}

// at has a pod run on nodes with this label alone.
func at(label string) func(*corev1.Pod, *resourceapi.ResourceClaim) {
	return func(p *corev1.Pod, _ *resourceapi.ResourceClaim) { p.Spec.NodeSelector = map[string]string{"k": label} }
}

func nodeAt(label string) func(*corev1.Node) {
	return func(n *corev1.Node) { n.Labels = map[string]string{"k": label} }
}

// also has a pod name a claim beside its own.
func also(claim string) func(*corev1.Pod, *resourceapi.ResourceClaim) {
	return func(p *corev1.Pod, _ *resourceapi.ResourceClaim) {
		p.Spec.ResourceClaims = append(p.Spec.ResourceClaims, corev1.PodResourceClaim{Name: "shared", ResourceClaimName: &claim})
	}
}

// besideShared is a cluster of nodes a and b in which pod p waits for a device of node a, where another pod q runs with the claim s that p names, too.
func besideShared(t *testing.T) *cluster {
	c := newCluster(t)
	c.node("a", 1, nodeAt("a"))
	c.node("b", 1, nodeAt("b"))
	c.run()
	c.add(claimsResource, claimFor("s", 300))
	c.pod("q", 1, using("s"), at("a"))
	c.runs("q")
	c.pod("fill", 700, at("a"))
	c.runs("fill")
	c.pod("p", 500, also("s"))
	c.says("p", "It waits for")
	return c
}

// newFullCluster is a cluster of node a, whose only device pod big has.
func newFullCluster(t *testing.T, changes ...func(*cluster)) *cluster {
	c := newCluster(t)
	for _, change := range changes {
		change(c)
	}
	c.node("a", 1)
	c.run()
	c.pod("big", 1000)
	c.runs("big")
	return c
}

// follower has pod one of a gang be in line, and pod two of it follow.
func (c *cluster) follower() {
	c.Helper()
	in := func(p *corev1.Pod, _ *resourceapi.ResourceClaim) {
		p.Labels = map[string]string{annotation.Gang: "g", annotation.GangMin: "1"}
	}
	c.pod("one", 300, in)
	c.says("one", "It waits for")
	c.pod("two", 300, in)
	c.says("two", "follows")
}

// endless has a pod be deleted, and not end.
func (c *cluster) endless(name string) {
	c.Helper()
	c.rewrite(name, func(p *corev1.Pod) {
		now := metav1.Now()
		p.DeletionTimestamp, p.Finalizers = &now, []string{"test/x"}
	})
}

// A claim that a pod in line has already may go, come free, or be allocated on another node: the pod is looked at anew, and never runs but where all its claims are.
func TestSharedClaimChanges(t *testing.T) {
	t.Run("it goes", func(t *testing.T) {
		t.Parallel()
		c := besideShared(t)
		c.remove("q")
		c.drop("s")
		c.says("p", "there is no claim s")
		c.remove("fill")
		c.add(claimsResource, claimFor("s", 300))
		c.runs("p")
	})
	t.Run("it comes free", func(t *testing.T) {
		t.Parallel()
		c := besideShared(t)
		c.remove("q")
		c.remove("fill")
		c.runs("p")
	})
	t.Run("it is allocated elsewhere", func(t *testing.T) {
		t.Parallel()
		c := besideShared(t)
		c.remove("q")
		c.pod("q2", 1, using("s"), at("b"))
		c.runs("q2")
		c.runs("p")
		if on := c.find("default/s").Status.Allocation.Devices.Results[0].Pool; c.on("p") != on {
			t.Errorf("it is on %s, and its claim on %s", c.on("p"), on)
		}
	})
}

// Who waits for a pod or a claim, which another pod is in line for, is looked at when that one leaves the line.
func TestFollowersOfWhoLeaves(t *testing.T) {
	t.Run("of a claim", func(t *testing.T) {
		t.Parallel()
		c := newFullCluster(t)
		c.add(claimsResource, claimFor("s", 500))
		c.pod("one", 1, using("s"))
		c.says("one", "It waits for")
		c.pod("two", 1, using("s"))
		c.says("two", "it is being allocated for another pod")
		c.remove("one")
		c.says("two", "It waits for")
		c.remove("big")
		c.runs("two")
	})
	t.Run("of a gang", func(t *testing.T) {
		t.Parallel()
		c := newFullCluster(t)
		c.follower()
		c.drop("one-share")
		c.says("two", "It waits for")
		c.remove("big")
		c.runs("two")
	})
}

// Whose claim is made anew, or goes, keeps none of those like it from new nodes, nor itself.
func TestClaimMadeAnew(t *testing.T) {
	t.Run("under another name", func(t *testing.T) {
		t.Parallel()
		c := newFullCluster(t)
		c.pod("waits", 1000)
		c.says("waits", "It waits for")
		old := c.find("default/waits-share")
		c.drop("waits-share")
		anew := claimFor("waits-share-2", 1000)
		anew.OwnerReferences = old.OwnerReferences
		c.add(claimsResource, anew)
		c.rewrite("waits", func(p *corev1.Pod) { p.Status.ResourceClaimStatuses[0].ResourceClaimName = &anew.Name })
		c.says("waits", "It waits for")
		c.node("b", 1)
		c.runs("waits")
	})
	t.Run("of one beside the line", func(t *testing.T) {
		t.Parallel()
		c := newFullCluster(t, func(c *cluster) { c.classed = true })
		c.pod("line", 500)
		c.says("line", "It waits for")
		c.pod("special", 1, requests(part("one", 500, 1), part("two", 600, 1)))
		c.says("special", "no node")
		c.drop("special-share")
		c.says("special", "there is no claim special-share")
		c.node("b", 1)
		c.runs("line")
	})
	t.Run("between two looks", func(t *testing.T) {
		t.Parallel()
		c := newFullCluster(t)
		c.pod("p", 300)
		c.says("p", "first in line for 0.30")
		c.mu.Lock()
		anew := c.find("default/p-share").DeepCopy()
		anew.UID, anew.Spec = "another", claimFor("p-share", 900).Spec
		err := c.store(claimsResource, anew)
		c.mu.Unlock()
		if err != nil {
			t.Fatal(err)
		}
		c.says("p", "first in line for 0.90")
		c.remove("big")
		c.runs("p")
		if compute, _ := consumed(c.find("default/p-share").Status.Allocation.Devices.Results[0]); compute != 900 {
			t.Errorf("its claim asks for 900 thousandths and has %d", compute)
		}
	})
}

// A pod that was made anew under its name between two looks at the cluster is another: what the one before had is free.
func TestPodMadeAnew(t *testing.T) {
	c := newCluster(t)
	c.node("a", 1)
	c.run()
	c.ordinary("a", "8", 0)
	c.runs("a")
	c.rewrite("a", func(p *corev1.Pod) {
		p.UID, p.Spec.NodeName, p.Spec.SchedulerName = "pod-a-2", "", "other"
		p.Spec.Containers[0].Resources.Requests[corev1.ResourceCPU] = resource.MustParse("1")
	})
	c.pod("gpu", 500, func(p *corev1.Pod, _ *resourceapi.ResourceClaim) {
		p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4")}
	})
	c.runs("gpu")
}

// Nobody takes over a claim whose pods all end: what it holds is for who waits for that.
func TestNoTakeover(t *testing.T) {
	t.Run("as it is evicted", func(t *testing.T) {
		t.Parallel()
		c := newLentCluster(t)
		c.run()
		c.add(claimsResource, claimFor("s", 800))
		c.pod("one", 1, guest, using("s"))
		c.runs("one")
		c.pod("own", 400, owner)
		c.ending(1)
		c.pod("two", 1, guest, using("s"))
		c.says("two", "it is held by pods that end; this one follows")
		c.remove("one")
		c.runs("own")
	})
	t.Run("as it is deleted", func(t *testing.T) {
		t.Parallel()
		c := newLentCluster(t)
		c.run()
		c.add(claimsResource, claimFor("s", 800))
		c.pod("one", 1, guest, using("s"))
		c.runs("one")
		c.endless("one")
		c.pod("two", 1, guest, using("s"))
		c.says("two", "it is held by pods that end; this one follows")
		c.remove("one")
		c.runs("two")
	})
}

// A device class that goes has those looked at who were told that its devices are not placed by a limit.
func TestExtendedClassGoes(t *testing.T) {
	c := newCluster(t)
	extended := "v.com/gpu"
	c.add(classResource, &resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "x"}, Spec: resourceapi.DeviceClassSpec{
		ExtendedResourceName: &extended, Selectors: []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{Expression: onlyOurs}}},
	}})
	c.node("a", 0, func(n *corev1.Node) { n.Status.Allocatable["v.com/gpu"] = resource.MustParse("8") })
	c.run()
	c.ordinary("p", "1", 0, func(p *corev1.Pod) { p.Spec.Containers[0].Resources.Requests["v.com/gpu"] = resource.MustParse("1") })
	c.says("p", "it has a limit of")
	c.mu.Lock()
	err := c.client.Tracker().Delete(classResource, "", "x")
	c.mu.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	c.runs("p")
}

// A pod that has a claim which can be used on some nodes alone, and wants a share beside it, has that there.
func TestWithinReach(t *testing.T) {
	c := newCluster(t)
	c.node("a", 1, nodeAt("a"))
	c.node("b", 1, nodeAt("b"))
	c.add(classResource, &resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "any"}})
	far := claimFor("s", 1)
	far.Spec.Devices.Requests[0].Exactly.DeviceClassName = "any"
	far.Status.Allocation = &resourceapi.AllocationResult{
		Devices: resourceapi.DeviceAllocationResult{Results: []resourceapi.DeviceRequestAllocationResult{{Request: far.Spec.Devices.Requests[0].Name, Driver: "net.example", Pool: "far", Device: "card"}}},
		NodeSelector: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{
			{Key: "k", Operator: corev1.NodeSelectorOpIn, Values: []string{"b", "c"}},
		}}}},
	}
	c.add(claimsResource, far)
	s, _ := c.run()
	c.pod("alone", 1, using("s"))
	c.runs("alone")
	c.pod("p", 300, also("s"))
	c.runs("p")
	for _, name := range []string{"p", "alone"} {
		if on := c.on(name); on != "b" {
			t.Errorf("%s is on %s, where its claim cannot be used", name, on)
		}
	}
	c.sound(s)
}

// A pod in line that has a claim of one that is deleted meanwhile waits until that is free, and has it anew.
func TestNoTakeoverFromTheLine(t *testing.T) {
	c := besideShared(t)
	c.endless("q")
	c.says("p", "it is held by pods that end; this one follows")
	c.remove("fill")
	c.remove("q")
	c.runs("p")
}

// Who followed a pod of its gang is looked at when that one is of another gang.
func TestLeavesItsGang(t *testing.T) {
	c := newFullCluster(t)
	c.follower()
	c.rewrite("one", func(p *corev1.Pod) { p.Labels[annotation.Gang] = "h" })
	c.says("two", "It waits for")
	c.remove("big")
	c.runs("two")
}
