package scheduler

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/aliquot-dev/aliquot/host/kube/api/v1alpha1"
)

// administers has a request ask for access as an administrator, and for no capacity.
func administers(r *resourceapi.ExactDeviceRequest) { r.AdminAccess, r.Capacity = new(true), nil }

// onNodeNamed has a pod be for one node, as a DaemonSet's is.
func onNodeNamed(name string) func(*corev1.Pod, *resourceapi.ResourceClaim) {
	return func(pod *corev1.Pod, _ *resourceapi.ResourceClaim) {
		pod.Spec.NodeSelector = map[string]string{"kubernetes.io/hostname": name}
	}
}

// Access as an administrator is had to devices that are full, to all of a node's, and by several pods; nothing of it is in the engine's books, nor after another
// scheduler came; it comes back, and what is free is had by others meanwhile.
func TestAdministers(t *testing.T) {
	c := newCluster(t)
	for _, name := range []string{"a", "b"} {
		c.node(name, 2, func(n *corev1.Node) { n.Labels = map[string]string{"kubernetes.io/hostname": name} })
	}
	s, end := c.run()
	for _, name := range []string{"one", "two", "three"} {
		c.pod(name, 1000)
	}
	c.runs("one", "two", "three")
	c.pod("monitor-a", 0, onNodeNamed("a"), requests(part("gpu", 0, 0, administers, all)))
	c.pod("monitor-b", 0, onNodeNamed("b"), requests(part("gpu", 0, 0, administers, all)))
	c.pod("another", 0, onNodeNamed("a"), requests(part("first", 0, 1, administers), part("second", 0, 1, administers)))
	c.runs("monitor-a", "monitor-b", "another")
	for name, want := range map[string][]string{
		"monitor-a": {"gpu:a/gpu-0 0", "gpu:a/gpu-1 0"}, "monitor-b": {"gpu:b/gpu-0 0", "gpu:b/gpu-1 0"}, "another": {"first:a/gpu-0 0", "second:a/gpu-1 0"},
	} {
		if got := c.devicesOf(name); !slices.Equal(got, want) || c.on(name) != want[0][len(want[0])-9:len(want[0])-8] {
			t.Errorf("%s has %q on %s, want %q", name, got, c.on(name), want)
		}
	}
	work := func(s *Scheduler) (count int) {
		c.idle(s, func() { count = len(s.work) })
		return count
	}
	c.sound(s)
	if n := work(s); n != 3 {
		t.Errorf("the engine knows of %d workloads, want 3", n)
	}
	c.pod("four", 1000)
	c.runs("four")
	end()
	s, _ = c.run()
	c.sound(s)
	if n := work(s); n != 4 {
		t.Errorf("the next scheduler's engine knows of %d workloads, want 4", n)
	}
	for _, name := range []string{"monitor-a", "monitor-b", "another", "one", "two", "three", "four"} {
		c.remove(name)
	}
	c.pod("after", 1000, requests(part("gpu", 1000, 2)))
	c.runs("after")
	c.sound(s)
}

// A scheduler that ends between the allocation and the binding of an administrator's pod leaves it to the next, which binds it.
func TestAdministersAfterAnother(t *testing.T) {
	c := newCluster(t)
	c.node("a", 1)
	broken := c.breakAt(func(write string) bool { return write == "bind pods" })
	first, end := c.run()
	c.pod("monitor", 0, requests(part("gpu", 0, 0, administers, all)))
	broken(first, end)
	s, _ := c.run()
	c.runs("monitor")
	c.sound(s)
	if got := c.devicesOf("monitor"); !slices.Equal(got, []string{"gpu:a/gpu-0 0"}) {
		t.Errorf("it has %q", got)
	}
}

// A pod has a share by one claim and access by another; the share is in its queue, and bounded by that, the access is not.
func TestAdministersBesideAShare(t *testing.T) {
	c := newQueueCluster(t, "team")
	c.set(v1alpha1.Queues, "team", `{"limit":{"compute":"0.5"},"longestRun":"1h"}`)
	c.node("a", 2)
	s, _ := c.run()
	with := func(name string, seconds *int64) {
		access := claimFor(name+"-access", 0)
		access.Spec.Devices.Requests = []resourceapi.DeviceRequest{part("all", 0, 0, administers, all)}
		access.Namespace = "default"
		c.add(claimsResource, access)
		c.pod(name, 400, func(pod *corev1.Pod, _ *resourceapi.ResourceClaim) {
			pod.Spec.ActiveDeadlineSeconds = seconds
			pod.Spec.ResourceClaims = append(pod.Spec.ResourceClaims, corev1.PodResourceClaim{Name: "access", ResourceClaimName: &access.Name})
		})
	}
	with("both", new(int64(60)))
	c.runs("both")
	with("more", new(int64(60)))
	c.says("more", "in queue team, which has a limit of 0.5")
	c.pod("monitor", 0, requests(part("gpu", 0, 0, administers, all)))
	c.runs("monitor")
	with("endless", nil)
	c.says("endless", "the pod has no time limit")
	c.sound(s)
	c.idle(s, func() {
		if len(s.work) != 1 {
			t.Errorf("the engine knows of %d workloads, want 1", len(s.work))
		}
	})
	claim := c.find("default/both-access")
	for _, r := range claim.Status.Allocation.Devices.Results {
		if r.AdminAccess == nil || !*r.AdminAccess || r.ConsumedCapacity != nil {
			t.Errorf("it has %+v", r)
		}
	}
}
