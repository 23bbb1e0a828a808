package scheduler

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/utils/ptr"

	"github.com/aliquot-dev/aliquot/host/kube/annotation"
)

// A gang of four waits until all four are there and all four fit, and starts whole; one that comes later follows alone.
func TestGang(t *testing.T) {
	c := newCluster(t)
	c.node("a", 2)
	s, _ := c.run()
	c.pod("before", 500)
	c.runs("before")
	for i := range 3 {
		c.member("four", i, 4, 500)
	}
	c.sound(s)
	c.says("four-0", "of its gang 3 pods are there, and 4 start together")
	c.member("four", 3, 4, 500)
	c.says("four-0", "4 tasks at once, each of 0.50 of a device")
	c.sound(s)
	for i := range 4 {
		if on := c.on(fmt.Sprint("four-", i)); on != "" {
			t.Fatalf("one of them runs on %s, and there is room for three", on)
		}
	}
	c.remove("before")
	c.runs("four-0", "four-1", "four-2", "four-3")
	c.sound(s)
	c.remove("four-2")
	c.member("four", 2, 4, 500)
	c.runs("four-2")
	c.sound(s)
}

// An indexed Job that runs all its pods at once is a gang by itself, and another one is where its pods are labelled; one whose pods come one by one, or know
// nothing of each other, is none, nor one whose label says that each starts alone.
func TestJobGang(t *testing.T) {
	for name, one := range map[string]struct {
		mode  *batchv1.CompletionMode
		pods  int32  // of three, that there are at once
		least string // of the gang that they are labelled for; empty: of none
		whole bool
	}{
		"indexed":               {ptr.To(batchv1.IndexedCompletion), 3, "", true},
		"indexed, one by one":   {ptr.To(batchv1.IndexedCompletion), 2, "", false},
		"indexed, each alone":   {ptr.To(batchv1.IndexedCompletion), 3, "1", false},
		"without indexes":       {ptr.To(batchv1.NonIndexedCompletion), 3, "", false},
		"without, but labelled": {ptr.To(batchv1.NonIndexedCompletion), 3, "3", true},
		"said nothing":          {nil, 3, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t)
			c.node("a", 1) // there is room for two
			s, _ := c.run()
			of := c.job("three", 3, func(job *batchv1.Job) { job.Spec.Parallelism, job.Spec.CompletionMode = &one.pods, one.mode })
			running := func() (count int) {
				for i := range one.pods {
					if c.on(fmt.Sprint("three-", i)) != "" {
						count++
					}
				}
				return count
			}
			for i := range one.pods {
				c.pod(fmt.Sprint("three-", i), 400, of, func(pod *corev1.Pod, _ *resourceapi.ResourceClaim) {
					if one.least != "" {
						pod.Labels = map[string]string{annotation.Gang: "one", annotation.GangMin: one.least}
					}
				})
			}
			if !one.whole {
				c.eventually("two run", func() bool { return running() == 2 })
				return
			}
			c.says("three-0", "3 tasks at once")
			c.sound(s)
			if count := running(); count != 0 {
				t.Errorf("%d of 3 run", count)
			}
		})
	}
}

// A scheduler that ends while it writes a gang's claims leaves a part of them allocated: the next one undoes that, and the gang starts when it fits.
func TestHalfGang(t *testing.T) {
	c := newCluster(t)
	c.node("a", 2)
	var written atomic.Int32
	broken := c.breakAt(func(write string) bool { return write == "status resourceclaims" && written.Add(1) == 3 })
	first, end := c.run()
	c.gang("four", 4, 500)
	broken(first, end)
	allocated := 0
	for _, claim := range c.stored() {
		if claim.Status.Allocation != nil {
			allocated++
		}
	}
	if allocated != 2 {
		t.Fatalf("%d of 4 claims were left allocated, and the test wants two", allocated)
	}
	s, _ := c.run()
	c.runs("four-0", "four-1", "four-2", "four-3")
	c.sound(s)
}

// Pods of a gang that ask for different shares start together or not at all, each on a node that takes it, and a scheduler that comes after finds them as they are.
func TestGangRoles(t *testing.T) {
	c := newCluster(t)
	c.node("a", 2, inPart("workers"))
	c.node("b", 1, inPart("leaders"))
	first, end := c.run()
	c.pod("before", 950, onPart("leaders"))
	c.runs("before")
	c.member("three", 0, 3, 100, onPart("leaders"))
	c.member("three", 1, 3, 1000, onPart("workers"))
	c.says("three-0", "of its gang 2 pods are there, and 3 start together")
	c.member("three", 2, 3, 1000, onPart("workers"))
	c.says("three-0", "2 tasks at once, each of 1.00 of a device", "and with them for role three-0 0.10 of a device", "none for its role three-0",
		"2 devices: on a node that is not for this workload (2 on H100 x2) (1 node: it does not have the labels")
	c.sound(first)
	c.remove("before")
	c.runs("three-0", "three-1", "three-2")
	if c.on("three-0") != "b" || c.on("three-1") != "a" || c.on("three-2") != "a" {
		t.Errorf("they run on %s, %s and %s, and the leader is for b, the workers for a", c.on("three-0"), c.on("three-1"), c.on("three-2"))
	}
	c.sound(first)
	end()
	s, _ := c.run()
	c.sound(s)
	c.idle(s, func() {
		for id := range s.work {
			if known, _ := s.engine.Workload(id); known.Tasks != 2 || len(known.Roles) != 1 || known.Roles[0].Share.Compute.Floor != 100 {
				t.Errorf("it was adopted as %+v", known)
			}
		}
	})
	c.remove("three-1")
	c.member("three", 1, 3, 1000, onPart("workers"))
	c.runs("three-1")
	c.sound(s)
}

// Pods of a gang that differ by their labels alone, as those that an owner counts do, are of one role.
func TestGangOfNumbers(t *testing.T) {
	c := newCluster(t)
	c.classed = true
	c.node("a", 1)
	s, _ := c.run()
	c.pod("before", 500)
	c.runs("before")
	for i := range 4 {
		c.member("four", i, 4, 200)
	}
	c.says("four-3", "4 tasks at once, each of 0.20 of a device")
	c.remove("before")
	c.runs("four-0", "four-1", "four-2", "four-3")
	c.sound(s)
}

// What keeps pods from being one gang is said to them.
func TestNoGang(t *testing.T) {
	c := newCluster(t)
	c.node("a", 8)
	s, _ := c.run()
	for i := range 5 {
		c.member("many", i, 5, int64(100*(i+1)))
	}
	c.says("many-0", "the pods of its gang ask for 5 different shares, and those of one gang may ask for 4")
	c.member("firm", 0, 2, 100)
	c.member("firm", 1, 2, 100, annotated("aliquot.dev/preemptible", "false"))
	c.says("firm-1", "of it and of pod firm-0 of its gang one may be evicted for others and one may not")
	c.sound(s)
}

func inPart(part string) func(*corev1.Node) {
	return func(n *corev1.Node) { n.Labels = map[string]string{"part": part} }
}

func onPart(part string) func(*corev1.Pod, *resourceapi.ResourceClaim) {
	return func(pod *corev1.Pod, _ *resourceapi.ResourceClaim) {
		pod.Spec.NodeSelector = map[string]string{"part": part}
	}
}

// The pods of a gang that are to be in one rack start in one that has room for all or not at all, and who comes later follows them there.
func TestGangTopology(t *testing.T) {
	c := newCluster(t)
	for name, rack := range map[string]string{"a": "r1", "b": "r1", "c": "r2", "d": "r2", "e": ""} {
		c.node(name, 1, func(n *corev1.Node) { n.Labels = map[string]string{"part": name, "example.com/rack": rack} })
	}
	together := annotated("aliquot.dev/same-topology", "example.com/rack")
	s, end := c.run()
	c.pod("before", 500, onPart("a"))
	c.runs("before")
	c.gang("one", 2, 1000, together)
	c.runs("one-0", "one-1")
	c.gang("two", 2, 1000, together)
	c.says("two-0", "no example.com/rack has 2 devices free")
	c.sound(s)
	c.remove("before")
	c.runs("two-0", "two-1")
	for pod, rack := range map[string]string{"one-0": "cd", "one-1": "cd", "two-0": "ab", "two-1": "ab"} {
		if !strings.Contains(rack, c.on(pod)) {
			t.Errorf("%s runs on %s, not on one of %s", pod, c.on(pod), rack)
		}
	}
	c.sound(s)
	end()
	s, _ = c.run()
	free := c.on("two-1")
	c.remove("two-1")
	c.pod("between", 1000, onPart(free))
	c.runs("between")
	c.remove("one-0")
	c.remove("one-1")
	c.member("two", 1, 2, 1000, together) // elsewhere there is room
	c.says("two-1", "1.00 of a device with 1Gi of memory, and not enough is free", "3 nodes: its example.com/rack is not r1, where the gang runs")
	c.remove("between")
	c.runs("two-1")
	if c.on("two-1") != free {
		t.Errorf("it runs on %s, and there was room in its rack on %s", c.on("two-1"), free)
	}
	c.sound(s)
}

// A gang whose pods are replaced one after the other while its rack takes nothing new starts together again where there is room, once none of it runs.
func TestGangMoves(t *testing.T) {
	c := newCluster(t)
	for name, rack := range map[string]string{"a": "r1", "b": "r1", "c": "r2", "d": "r2"} {
		c.node(name, 1, func(n *corev1.Node) { n.Labels = map[string]string{"part": name, "example.com/rack": rack} })
	}
	together := annotated("aliquot.dev/same-topology", "example.com/rack")
	s, _ := c.run()
	c.gang("two", 2, 1000, together)
	c.runs("two-0", "two-1")
	gone := map[string]string{"two-0": c.on("two-0"), "two-1": c.on("two-1")}
	c.remove("two-0")
	c.pod("drain-0", 1000, onPart(gone["two-0"]))
	c.runs("drain-0")
	c.pod("drain-1", 1000, onPart(gone["two-1"])) // in line before two-0, which would take that place if it heard first of the claim's end, and then of the pod's
	c.member("two", 0, 2, 1000, together)
	c.says("two-0", "where the gang runs")
	c.remove("two-1")
	c.runs("drain-1")
	c.member("two", 1, 2, 1000, together)
	c.runs("two-0", "two-1")
	c.sound(s)
}

// A pod that keeps its gang from starting and goes, goes: the others start without it.
func TestGangWithoutStray(t *testing.T) {
	c := newCluster(t)
	c.node("a", 2)
	s, _ := c.run()
	c.member("three", 0, 3, 100)
	c.member("three", 1, 3, 100)
	c.member("three", 9, 3, 100, annotated("aliquot.dev/preemptible", "false"))
	c.says("three-9", "one may be evicted for others and one may not")
	c.member("three", 2, 3, 100)
	c.says("three-2", "one may be evicted for others and one may not")
	c.remove("three-9")
	c.runs("three-0", "three-1", "three-2")
	c.sound(s)
}
