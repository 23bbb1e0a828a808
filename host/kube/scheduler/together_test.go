package scheduler

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/runtime"
	core "k8s.io/client-go/testing"

	"github.com/aliquot-dev/aliquot/host/kube/api/v1alpha1"
)

// choosing asks for one part of so much, or else for two of half of that: what the engine has no words for.
func choosing(compute int64) func(*corev1.Pod, *resourceapi.ResourceClaim) {
	return requests(choice("gpu", part("one", compute, 1), part("two", compute/2, 2)))
}

// none checks that none of a gang is placed, and nothing written for it, once a scheduler has done all it has to.
func (c *cluster) none(s *Scheduler, gang string) {
	c.Helper()
	c.sound(s)
	for _, pod := range c.called(gang) {
		if pod.Spec.NodeName != "" {
			c.Errorf("%s runs on %s", pod.Name, pod.Spec.NodeName)
		}
		if claim := c.find("default/" + pod.Name + "-share"); claim.Status.Allocation != nil || len(claim.Finalizers) > 0 {
			c.Errorf("of claim %s there is written %+v, with finalizers %q", claim.Name, claim.Status, claim.Finalizers)
		}
	}
}

// together are the workloads that a scheduler's engine knows, by how many tasks each has that hold something, the most first.
func (c *cluster) together(s *Scheduler) (tasks []int) {
	c.Helper()
	c.idle(s, func() {
		tasks = nil
		for _, w := range s.work {
			tasks = append(tasks, len(slices.DeleteFunc(slices.Clone(w.tasks), func(t *task) bool { return len(t.claims) == 0 })))
		}
	})
	slices.Sort(tasks)
	slices.Reverse(tasks)
	return tasks
}

// A gang whose pods have a choice of devices waits until all are there and there is something for each, beside what those before it were found, and starts whole,
// as one workload for this scheduler and the next; who comes later follows.
func TestGangBeside(t *testing.T) {
	c := newCluster(t)
	c.node("a", 1)
	first, end := c.run()
	for i := range 2 {
		c.member("three", i, 3, 1, choosing(500))
	}
	c.says("three-0", "of its gang 2 pods are there, and 3 start together")
	c.none(first, "three")
	c.member("three", 2, 3, 1, choosing(500)) // of two halves of a device two are had, not three
	c.says("three-2", "it has a choice of devices (firstAvailable), and so is placed beside those in line: no node that takes it has such devices free")
	for _, name := range []string{"three-0", "three-1"} {
		c.says(name, "it starts together with pod three-2 of its gang, which waits: it has a choice of devices")
	}
	c.none(first, "three")
	c.node("b", 1)
	c.runs("three-0", "three-1", "three-2")
	c.sound(first)
	before := c.together(first)
	end()
	s, _ := c.run()
	if after := c.together(s); !slices.Equal(before, []int{3}) || !slices.Equal(after, before) {
		t.Errorf("the engine knew of workloads with %v tasks, and the next one's of such with %v, want one with 3", before, after)
	}
	c.remove("three-1")
	c.member("three", 1, 3, 1, choosing(500))
	c.runs("three-1")
	c.sound(s)
	c.gang("two", 2, 1, choosing(500)) // a half is left
	c.says("two-0", "no node that takes it has such devices free")
	c.none(s, "two")
	c.removeAll("three")
	c.runs("two-0", "two-1")
	c.leavesNothing(s, "two-0", "two-1")
}

// asking changes what a pod and its claim are.
type asking = func(*corev1.Pod, *resourceapi.ResourceClaim)

// What one of a gang is found is not there for those after it, devices that are handed out whole neither; who needs what another could do without goes first.
func TestGangBesideBooks(t *testing.T) {
	for name, test := range map[string]struct {
		whole bool
		asks  []asking
		runs  bool
	}{
		"memory and compute are full":       {false, []asking{choosing(1000), choosing(1000)}, true},
		"a little more":                     {false, []asking{choosing(1000), choosing(1000), choosing(100)}, false},
		"all devices of a node, and beside": {false, []asking{requests(part("gpu", 600, 0, all)), choosing(300), choosing(400)}, true},
		"all devices of a node, twice":      {false, []asking{requests(part("gpu", 600, 0, all)), requests(part("gpu", 600, 0, all))}, false},
		"one has the other's only device": {false, []asking{
			choosing(600), requests(choice("gpu", part("one", 600, 1, numbered("== 0")))),
		}, true},
		"handed out whole":        {true, []asking{wholly(1), wholly(1)}, true},
		"handed out whole, twice": {true, []asking{wholly(2), wholly(1)}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t)
			if test.whole {
				c.device = func(_ string, _ int, d *resourceapi.Device) { d.AllowMultipleAllocations = nil }
			}
			c.node("a", 2)
			s, _ := c.run()
			var names []string
			for i, ask := range test.asks {
				c.member("some", i, len(test.asks), 1, ask)
				names = append(names, fmt.Sprint("some-", i))
			}
			if !test.runs {
				c.says(names[0], "no node that takes it has such devices free")
				c.none(s, "some")
				return
			}
			c.runs(names...)
			c.sound(s)
			c.leavesNothing(s, names...)
		})
	}
}

// wholly asks for so many whole devices, with a choice.
func wholly(count int64) func(*corev1.Pod, *resourceapi.ResourceClaim) {
	return requests(choice("gpu", part("some", 0, count, func(r *resourceapi.ExactDeviceRequest) { r.Capacity = nil })))
}

// A leader whose claim the engine has no words for starts with workers whose claims it has, and with one that has access as an administrator alone, each on a
// node that takes it; what they hold is one workload.
func TestGangBesideMixed(t *testing.T) {
	c := newCluster(t)
	c.node("a", 2, inPart("workers"))
	c.node("b", 1, inPart("leaders"))
	s, end := c.run()
	c.pod("before", 950, onPart("leaders"))
	c.runs("before")
	c.member("job", 0, 4, 1, onPart("leaders"), choosing(100))
	c.member("job", 1, 4, 1000, onPart("workers"))
	c.member("job", 2, 4, 1000, onPart("workers"))
	c.member("job", 3, 4, 0, onPart("workers"), requests(part("gpu", 0, 0, administers, all)))
	c.says("job-1", "it starts together with pod job-0 of its gang, which waits: it has a choice of devices")
	c.says("job-3", "it starts together with pod job-0 of its gang")
	c.none(s, "job")
	c.remove("before")
	c.runs("job-0", "job-1", "job-2", "job-3")
	c.sound(s)
	if c.on("job-0") != "b" || c.on("job-1") != "a" || c.on("job-2") != "a" || c.on("job-3") != "a" {
		t.Errorf("they run on %s, %s, %s and %s, and the leader is for b, the others for a", c.on("job-0"), c.on("job-1"), c.on("job-2"), c.on("job-3"))
	}
	before := c.together(s)
	end()
	s, _ = c.run()
	if after := c.together(s); !slices.Equal(before, []int{3}) || !slices.Equal(after, before) {
		t.Errorf("the engine knew of workloads with %v tasks, and the next one's of such with %v, want one with 3", before, after)
	}
	c.leavesNothing(s, "job-0", "job-1", "job-2", "job-3")
}

// A gang's queue must let it have the whole: of two that it would let have each one's part it lets none start, and says so to both.
func TestGangBesideInQueue(t *testing.T) {
	c := newQueueCluster(t, "team")
	c.set(v1alpha1.Queues, "team", `{"limit":{"compute":"1"}}`)
	c.node("a", 4)
	s, _ := c.run()
	c.gang("large", 2, 1, choosing(600))
	for i := range 2 {
		c.says(fmt.Sprint("large-", i), "its gang starts whole or not at all: it asks for 1.2 devices in queue team, which has a limit of 1")
	}
	c.none(s, "large")
	c.gang("small", 2, 1, choosing(400))
	c.runs("small-0", "small-1")
	c.none(s, "large")
	c.removeAll("small")
	c.set(v1alpha1.Queues, "team", `{"limit":{"compute":"1.2"}}`)
	c.runs("large-0", "large-1")
	c.sound(s)
}

// Nodes are asked about each of a gang as if those before it ran where they are to: who is refused goes to another node, and where none is left, nobody
// starts and nothing counts as running.
func TestGangBesideFilters(t *testing.T) {
	c := newCluster(t)
	for _, name := range []string{"a", "b"} {
		c.node(name, 4)
	}
	s, _ := c.run()
	c.gang("two", 2, 1, choosing(500), needing("5", 0))
	c.runs("two-0", "two-1")
	c.sound(s)
	if c.on("two-0") == c.on("two-1") {
		t.Errorf("both run on %s, which has CPU for one", c.on("two-0"))
	}
	c.removeAll("two")
	c.gang("three", 3, 1, choosing(500), needing("5", 0))
	c.says("three-0", "it has too little cpu left")
	c.none(s, "three")
	c.ordinary("all-a", "8", 0)
	c.ordinary("all-b", "8", 0)
	c.runs("all-a", "all-b")
	c.remove("all-a")
	c.remove("all-b")
	c.none(s, "three")
	c.node("c", 1)
	c.runs("three-0", "three-1", "three-2")
	c.sound(s)
}

// A gang of which one goes while it waits waits for as many as it needs again, and starts with the one that comes in its place: beside the line, or in line where
// none of its claims is beside any more.
func TestGangBesideChanges(t *testing.T) {
	c := newCluster(t)
	c.node("a", 1)
	s, _ := c.run()
	c.gang("two", 2, 1, choosing(600))
	c.says("two-0", "no node that takes it has such devices free")
	c.remove("two-1")
	c.says("two-0", "of its gang 1 pods are there, and 2 start together")
	c.none(s, "two")
	c.member("two", 1, 2, 400)
	c.runs("two-0", "two-1")
	c.sound(s)
	c.removeAll("two")
	c.member("three", 0, 3, 300)
	c.member("three", 1, 3, 300)
	c.member("three", 2, 3, 1, choosing(600))
	c.says("three-0", "it starts together with")
	c.none(s, "three")
	c.remove("three-2")
	c.member("three", 2, 3, 300)
	c.runs("three-0", "three-1", "three-2")
	c.sound(s)
	c.idle(s, func() {
		for _, w := range s.work {
			if w.action == 0 {
				t.Error("it was placed beside the line")
			}
		}
	})
	c.leavesNothing(s, "three-0", "three-1", "three-2")
}

// The pods of a gang that are to be in one rack start in one that has something for all or not at all, and who comes later follows them there; those that had
// better be are where one has.
func TestGangBesideTopology(t *testing.T) {
	c := newCluster(t)
	for name, rack := range map[string]string{"a": "r1", "b": "r1", "c": "r2", "d": "r2", "e": ""} {
		c.node(name, 1, func(n *corev1.Node) { n.Labels = map[string]string{"part": name, "example.com/rack": rack} })
	}
	within := func(names ...string) {
		t.Helper()
		racks := map[string]string{"a": "r1", "b": "r1", "c": "r2", "d": "r2"}
		for _, name := range names {
			if rack := racks[c.on(name)]; rack == "" || rack != racks[c.on(names[0])] {
				t.Errorf("%s runs on %s, and %s on %s", name, c.on(name), names[0], c.on(names[0]))
			}
		}
	}
	together := annotated("aliquot.dev/same-topology", "example.com/rack")
	s, _ := c.run()
	c.pod("first", 500, onPart("a"))
	c.pod("second", 500, onPart("c"))
	c.runs("first", "second")
	c.gang("one", 2, 1, choosing(1000), together)
	c.says("one-0", "no example.com/rack has what all need that start together")
	c.none(s, "one")
	c.gang("near", 2, 1, choosing(500), annotated("aliquot.dev/prefer-topology", "example.com/rack"))
	c.runs("near-0", "near-1")
	within("near-0", "near-1")
	c.removeAll("near")
	c.remove("second")
	c.runs("one-0", "one-1")
	within("one-0", "one-1")
	if rack := "cd"; !strings.Contains(rack, c.on("one-0")) {
		t.Errorf("it runs on %s, not on one of %s", c.on("one-0"), rack)
	}
	c.sound(s)
	free := c.on("one-1")
	c.remove("one-1")
	c.pod("between", 1000, onPart(free))
	c.runs("between")
	c.member("one", 1, 2, 1, choosing(1000), together) // elsewhere there is room
	c.says("one-1", "no node that takes it has such devices free")
	c.remove("between")
	c.runs("one-1")
	within("one-0", "one-1")
	c.sound(s)
}

// A scheduler that ends while it writes such a gang, at whichever write, leaves what the next one undoes or completes: it is never half started.
func TestHalfGangBeside(t *testing.T) {
	for _, test := range []struct {
		write string
		at    int32
	}{{"update resourceclaims", 2}, {"status resourceclaims", 1}, {"status resourceclaims", 3}, {"bind pods", 1}, {"bind pods", 2}} {
		t.Run(fmt.Sprint(test.write, " ", test.at), func(t *testing.T) {
			t.Parallel()
			c := newCluster(t)
			c.node("a", 2)
			var written atomic.Int32
			broken := c.breakAt(func(write string) bool { return write == test.write && written.Add(1) == test.at })
			first, end := c.run()
			c.gang("four", 4, 1, choosing(500))
			broken(first, end)
			s, _ := c.run()
			c.runs("four-0", "four-1", "four-2", "four-3")
			c.sound(s)
			c.leavesNothing(s, "four-0", "four-1", "four-2", "four-3")
		})
	}
}

// Where one of such a gang cannot be written, nothing of it is, it says why, and it starts when it can be. It is not tried again before it is told.
func TestGangBesideNotWritten(t *testing.T) {
	c := newCluster(t)
	c.node("a", 2)
	refused, bindings, told := true, 0, 0
	c.fails = func(write string) fault {
		if write == "bind pods" && refused {
			bindings++
			return before
		}
		return none
	}
	c.client.PrependReactor("patch", "pods", func(action core.Action) (bool, runtime.Object, error) {
		c.mu.Lock()
		defer c.mu.Unlock()
		if told == 0 && strings.Contains(string(action.(core.PatchAction).GetPatch()), "could not be bound to node a") {
			told = bindings
		}
		return false, nil, nil
	})
	s, _ := c.run()
	c.gang("two", 2, 1, choosing(500))
	c.says("two-1", "could not be bound to node a")
	c.says("two-0", "could not be bound to node a")
	c.mu.Lock()
	if told != tries+1 {
		t.Errorf("a pod of it was to be bound %d times until it was told, want %d", told, tries+1)
	}
	refused = false
	c.mu.Unlock()
	c.runs("two-0", "two-1")
	c.leavesNothing(s, "two-0", "two-1")
}

// What such a gang holds over its queue's quota comes back to the owner: it is evicted whole, the one with access as an administrator alone, too.
func TestGangBesideIsEvictedWhole(t *testing.T) {
	c := newLentCluster(t)
	s, _ := c.run()
	c.member("three", 0, 3, 1, choosing(300), guest)
	c.member("three", 1, 3, 300, guest)
	c.member("three", 2, 3, 0, requests(part("gpu", 0, 0, administers, all)), guest)
	c.runs("three-0", "three-1", "three-2")
	c.idle(s, func() {})
	c.pod("own", 900, owner)
	if names := c.ending(3); !slices.Equal(names, []string{"three-0", "three-1", "three-2"}) {
		t.Fatalf("%v were evicted", names)
	}
	c.removeAll("three")
	c.runs("own")
	c.member("three", 0, 3, 1, choosing(300), guest)
	c.member("three", 1, 3, 300, guest)
	c.member("three", 2, 3, 0, requests(part("gpu", 0, 0, administers, all)), guest)
	c.none(s, "three")
	c.remove("own")
	c.runs("three-0", "three-1", "three-2")
	c.sound(s)
}

// What keeps pods from being one gang beside the line is said to them.
func TestNoGangBeside(t *testing.T) {
	c := newCluster(t)
	c.node("a", 4)
	s, _ := c.run()
	c.member("firm", 0, 2, 1, choosing(100))
	c.member("firm", 1, 2, 1, choosing(100), annotated("aliquot.dev/preemptible", "false"))
	c.says("firm-1", "of it and of pod firm-0 of its gang one may be evicted for others and one may not")
	shared := claimFor("shared", 1)
	choosing(100)(nil, shared)
	c.add(claimsResource, shared)
	c.gang("sharing", 2, 1, using("shared"))
	c.says("sharing-1", "claim default/shared is that of pod sharing-0 of its gang, too; pods of a gang have claims of their own")
	c.none(s, "firm")
	c.sound(s)
}
