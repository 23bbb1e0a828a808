package filter

import (
	"context"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var background = context.Background()

// nodesOf are the nodes on which a pod may run.
func nodesOf(t *testing.T, f *Filters, p *v1.Pod) []string {
	t.Helper()
	found, err := f.Nodes(background, p)
	if err != nil {
		t.Fatal(err)
	}
	return found.Nodes
}

func is(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

func TestAssumedPodsCount(t *testing.T) {
	f, _ := over(t, scene()...)
	big := pod("big", asks("cpu", "3"))
	small := pod("small", asks("cpu", "2"))
	if err := f.Assume(big, "a"); err != nil {
		t.Fatal(err)
	}
	is(t, "beside the assumed one", nodesOf(t, f, small), "b")
	if why, err := f.Check(background, small, "a"); err != nil || !strings.Contains(why, "Insufficient cpu") {
		t.Errorf("Check beside the assumed one: %q, %v", why, err)
	}
	if err := f.Assume(small, "a"); err == nil || !strings.Contains(err.Error(), "Insufficient cpu") {
		t.Errorf("Assume where it does not fit: %v", err)
	}
	if err := f.Assume(big, "b"); err == nil || !strings.Contains(err.Error(), "forget it first") {
		t.Errorf("Assume twice: %v", err)
	}
	f.Forget(big)
	f.Forget(big) // nothing is left to forget
	is(t, "after the other was forgotten", nodesOf(t, f, small), "a", "b")
}

// What Check found is not used for Assume when something changed in between.
func TestAssumeJudgesAnew(t *testing.T) {
	f, _ := over(t, scene()...)
	first, second := pod("first", asks("cpu", "3")), pod("second", asks("cpu", "3"))
	for _, p := range []*v1.Pod{first, second} {
		if why, err := f.Check(background, p, "a"); why != "" || err != nil {
			t.Fatalf("%q, %v", why, err)
		}
	}
	if err := f.Assume(first, "a"); err != nil {
		t.Fatal(err)
	}
	if err := f.Assume(second, "a"); err == nil {
		t.Error("two pods of 3 CPUs are assumed on a node of 4")
	}
	if why, err := f.Check(background, second, "b"); why != "" || err != nil {
		t.Fatalf("%q, %v", why, err)
	}
	f.podAdded(pod("third", asks("cpu", "3"), on("b"))) // by another scheduler
	if err := f.Assume(second, "b"); err == nil {
		t.Error("a pod of 3 CPUs is assumed on a node of 4 where another runs that was bound since it was judged")
	}
}

// An assumed pod that is seen bound stays counted, once; Forget leaves it. When it ends or is deleted, it counts no more.
func TestAssumedPodIsBoundAndEnds(t *testing.T) {
	f, client := over(t, scene()...)
	pods := client.CoreV1().Pods("default")
	big, other := pod("big", asks("cpu", "3")), pod("other", asks("cpu", "2"))
	if _, err := pods.Create(background, big, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := f.Assume(big, "a"); err != nil {
		t.Fatal(err)
	}
	big = pod("big", asks("cpu", "3"), on("a"))
	if _, err := pods.Update(background, big, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	until(t, "the pod is seen bound", func() bool { return !f.isAssumed(big) })
	f.Forget(big)
	is(t, "beside the bound one", nodesOf(t, f, other), "b")
	big.Status.Phase = v1.PodFailed
	if _, err := pods.Update(background, big, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	until(t, "the end of the pod is seen", func() bool { return len(nodesOf(t, f, other)) == 2 })
	if err := pods.Delete(background, "big", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	is(t, "after it was deleted", nodesOf(t, f, other), "a", "b")
}

// A pod that is assumed on one node and bound to another by someone else counts where it is.
func TestAssumedPodIsBoundElsewhere(t *testing.T) {
	f, client := over(t, scene(pod("big", asks("cpu", "3")))...)
	if err := f.Assume(pod("big", asks("cpu", "3")), "a"); err != nil {
		t.Fatal(err)
	}
	if _, err := client.CoreV1().Pods("default").Update(background, pod("big", asks("cpu", "3"), on("b")), metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	until(t, "the pod is seen bound", func() bool { return !f.isAssumed(pod("big")) })
	is(t, "beside it", nodesOf(t, f, pod("other", asks("cpu", "2"))), "a")
}

// A deleted pod frees what it was assumed to hold at once, whatever its scheduler still does for it.
func TestAssumedPodIsDeleted(t *testing.T) {
	f, client := over(t, scene(pod("big", asks("cpu", "3")))...)
	if err := f.Assume(pod("big", asks("cpu", "3")), "a"); err != nil {
		t.Fatal(err)
	}
	if err := client.CoreV1().Pods("default").Delete(background, "big", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	until(t, "its deletion is seen", func() bool { return !f.isAssumed(pod("big")) })
	is(t, "after it was deleted", nodesOf(t, f, pod("other", asks("cpu", "2"))), "a", "b")
}

func TestNodesComeChangeAndGo(t *testing.T) {
	f, client := over(t, scene()...)
	nodes := client.CoreV1().Nodes()
	p := pod("p")
	if _, err := nodes.Create(background, node("e", "north"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	until(t, "node e is there", func() bool { return len(nodesOf(t, f, p)) == 3 })
	if _, err := nodes.Update(background, node("b", "west", func(n *v1.Node) { n.Spec.Unschedulable = true }), metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	until(t, "node b is cordoned", func() bool { return len(nodesOf(t, f, p)) == 2 })
	if err := nodes.Delete(background, "e", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	until(t, "node e is gone", func() bool { return len(nodesOf(t, f, p)) == 1 })
	is(t, "what is left", nodesOf(t, f, p), "a")
}

// A volume that waits for a node is reserved for the pod that is assumed, bound before the pod is, and free again when it is forgotten.
func TestVolumesAreReserved(t *testing.T) {
	first, second := pod("first", mounts("one")), pod("second", mounts("two"))
	f, client := over(t, scene(first, second, waiting("one"), waiting("two"), freeVolume("disk", "east"))...)
	if err := f.Assume(first, "a"); err != nil {
		t.Fatal(err)
	}
	if why, err := f.Check(background, second, "a"); err != nil || !strings.Contains(why, "persistent volumes to bind") {
		t.Errorf("Check for the volume that another reserved: %q, %v", why, err)
	}
	f.Forget(first)
	if err := f.Assume(second, "a"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(background)
	done := make(chan error, 1)
	go func() { done <- f.PreBind(ctx, second) }()
	until(t, "the volume is written to be the claim's", func() bool {
		pv, err := client.CoreV1().PersistentVolumes().Get(background, "disk", metav1.GetOptions{})
		return err == nil && pv.Spec.ClaimRef != nil && pv.Spec.ClaimRef.Name == "two"
	})
	cancel() // the controller that would complete it is not here
	if err := <-done; err == nil || !strings.Contains(err.Error(), "before it is bound") {
		t.Errorf("PreBind that was given up: %v", err)
	}
	if err := f.PreBind(background, first); err == nil || !strings.Contains(err.Error(), "assume it first") {
		t.Errorf("PreBind of a pod that is not assumed: %v", err)
	}
}

// Devices of another driver are reserved and allocated by upstream's plugin; ours are not touched.
func TestForeignClaimIsAllocated(t *testing.T) {
	first, second := pod("first", uses("nic"), uses("mine")), pod("second", uses("other"))
	cluster := devices(deviceClaim("nic", "net.example"), deviceClaim("other", "net.example"), deviceClaim("mine", "gpu.aliquot.dev"), first, second)
	f, client := over(t, scene(cluster...)...)
	if err := f.Assume(first, "b"); err != nil {
		t.Fatal(err)
	}
	is(t, "for another claim of the one device", nodesOf(t, f, second))
	if err := f.PreBind(background, first); err != nil {
		t.Fatal(err)
	}
	claims := client.ResourceV1().ResourceClaims("default")
	nic, err := claims.Get(background, "nic", metav1.GetOptions{})
	if err != nil || nic.Status.Allocation == nil || len(nic.Status.ReservedFor) != 1 {
		t.Errorf("the claim of another driver: %+v, %v", nic.Status, err)
	}
	mine, err := claims.Get(background, "mine", metav1.GetOptions{})
	if err != nil || mine.Status.Allocation != nil {
		t.Errorf("our claim: %+v, %v", mine.Status, err)
	}
	if err := f.Assume(pod("plain"), "a"); err != nil {
		t.Fatal(err)
	}
	if err := f.PreBind(background, pod("plain")); err != nil {
		t.Errorf("PreBind with nothing to do: %v", err)
	}
}

// What was reserved on the node that a pod was assumed on is free once the pod is bound elsewhere.
func TestReservedVolumeIsFreeWhenBoundElsewhere(t *testing.T) {
	first, second := pod("first", mounts("one")), pod("second", mounts("two"))
	f, _ := over(t, scene(waiting("one"), waiting("two"), freeVolume("disk", "east"))...)
	if err := f.Assume(first, "a"); err != nil {
		t.Fatal(err)
	}
	is(t, "while the volume is reserved", nodesOf(t, f, second))
	f.podChanged(first, pod("first", mounts("one"), on("b")))
	is(t, "when it is not", nodesOf(t, f, second), "a")
}

// A pod for which room was made counts where it is assumed, and where room was made again when it is forgotten.
func TestForgottenPodIsNominatedAgain(t *testing.T) {
	big := pod("big", asks("cpu", "4"), priority(9), func(p *v1.Pod) { p.Status.NominatedNodeName = "a" })
	f, _ := over(t, scene(big)...)
	small := pod("small", asks("cpu", "1"))
	is(t, "beside the nominated one", nodesOf(t, f, small), "b")
	if err := f.Assume(big, "b"); err != nil {
		t.Fatal(err)
	}
	is(t, "beside the assumed one", nodesOf(t, f, small), "a")
	f.Forget(big)
	is(t, "beside the one that is nominated again", nodesOf(t, f, small), "b")
}
