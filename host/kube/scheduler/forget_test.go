package scheduler

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/aliquot-dev/aliquot/engine"
)

// shuts has a node take no pods any more, or take them again.
func (c *cluster) shuts(name string, closed bool) {
	c.Helper()
	stored, err := c.client.Tracker().Get(nodesResource, "", name)
	if err != nil {
		c.Fatal(err)
	}
	node := stored.(*corev1.Node).DeepCopy()
	node.Spec.Unschedulable = closed
	if _, err := c.client.CoreV1().Nodes().Update(c.Context(), node, metav1.UpdateOptions{}); err != nil {
		c.Fatal(err)
	}
	c.toldNode(name, func(known *corev1.Node) bool { return known.Spec.Unschedulable == closed })
}

// knows is which class of those that a scheduler keeps has a word in its key; nil: none. It looks when the scheduler is idle.
func (c *cluster) knows(s *Scheduler, word string) (known *class) {
	c.Helper()
	c.idle(s, func() {
		for _, all := range []map[string]*class{s.classes, s.left} {
			for key, one := range all {
				if strings.Contains(key, word) {
					known = one
				}
			}
		}
	})
	return known
}

// churn has so many pods of the queue guest come and go, a few at once, each labelled and called otherwise, and holds the classes that are kept meanwhile
// against those in use.
func (c *cluster) churn(s *Scheduler, name string, pods int, changes ...func(*corev1.Pod, *resourceapi.ResourceClaim)) {
	c.Helper()
	const atOnce = 4
	for first := 0; first < pods; first += atOnce {
		var names []string
		for i := range atOnce {
			one := fmt.Sprintf("%s%d", name, first+i)
			names = append(names, one)
			c.pod(one, 250, append(changes, guest, func(p *corev1.Pod, _ *resourceapi.ResourceClaim) { p.Labels["sort"] = one })...)
		}
		c.runs(names...)
		for _, one := range names {
			c.remove(one)
		}
		if first%20 > 0 {
			continue
		}
		c.idle(s, func() {
			here, there, most := len(s.classes)+len(s.left), s.engine.Classes(), 2*atOnce+mostIdle
			if here > most || there > 1+(1+maxRanks)*most {
				c.Fatalf("after %d pods %d classes are kept, and %d by the engine; in use are %d", first+atOnce, here, there, atOnce)
			}
			if err := s.engine.CheckInvariants(); err != nil {
				c.Fatal(err)
			}
		})
	}
}

// labelledAs is of a class of its own, where pods are classed by their labels.
func labelledAs(word string) func(*corev1.Pod, *resourceapi.ResourceClaim) {
	return func(p *corev1.Pod, _ *resourceapi.ResourceClaim) { p.Labels = map[string]string{"sort": word} }
}

// Classes of pods that come and go are forgotten, and those of pods that run on. A pod of one that was forgotten is placed by what holds when it
// comes, and one that ran all the time and is evicted waits in its class again.
func TestForgetsClasses(t *testing.T) {
	c := newLentCluster(t)
	c.classed = true
	c.node("b", 1, disk("fast"))
	s, _ := c.run()
	c.shuts("b", true)
	c.pod("old", 1000, labelledAs("old"), guest)
	c.runs("old")
	c.shuts("b", false)
	prefer := func(p *corev1.Pod, _ *resourceapi.ResourceClaim) {
		p.Labels, p.Spec.Affinity = map[string]string{}, prefers(map[string]int32{"fast": 1})
	}
	c.churn(s, "p", 200, prefer)
	if c.knows(s, "sort:p0") != nil || c.knows(s, "sort:old") != nil || c.knows(s, "sort:p199") == nil {
		t.Error("the class of the first pod is kept, or that of one that runs, or one is not that was in use of late")
	}

	c.shuts("b", true)
	c.pod("again", 250, labelledAs("p0"), guest)
	c.pod("own", 1000, owner)
	if names := c.ending(1); names[0] != "old" {
		t.Fatalf("%s is evicted", names)
	}
	c.remove("old")
	c.runs("own")
	if on := c.on("own"); on != "a" {
		t.Errorf("it is on %s, which takes none", on)
	}
	c.pod("old", 500, labelledAs("old"), guest)
	c.stays(s, "old")
	c.stays(s, "again")
	c.shuts("b", false)
	c.runs("old", "again")
	c.remove("old")
	c.remove("again")
	c.remove("own")
	c.churn(s, "q", 80, prefer)
	if c.knows(s, "sort:old") != nil {
		t.Error("a class is kept that nobody uses any more")
	}
	c.sound(s)
}

// What is kept of a pod that runs is little on many nodes, also where each has a label of its own.
func TestRunningPodsKeepNoClass(t *testing.T) {
	c := newCluster(t)
	c.classed, c.open = true, true
	const first, more, atOnce, nodes = 80, 64, 16, 1000
	for i := range nodes {
		c.node(fmt.Sprint("n", i), 1)
	}
	s, _ := c.run()
	come := func(from, to int) (kept int64, classes int) {
		for ; from < to; from += atOnce {
			var names []string
			for i := range atOnce {
				names = append(names, fmt.Sprint("p", from+i))
				c.pod(names[i], 1000, labelledAs(names[i]))
			}
			c.runs(names...)
		}
		c.idle(s, func() {
			if here, there, most := len(s.classes)+len(s.left), s.engine.Classes(), 2*atOnce+mostIdle; here > most || there > 1+most {
				t.Errorf("%d classes are kept, and %d by the engine, where %d pods run and none waits", here, there, to)
			}
			var memory runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&memory)
			kept, classes = int64(memory.HeapAlloc), s.engine.Classes()
		})
		return kept, classes
	}
	before, had := come(0, first)
	after, have := come(first, first+more)
	t.Logf("on %d nodes %d bytes are kept for each of %d pods that run, and %d classes, after %d before", nodes, (after-before)/more, more, have, had)
}

// The class of a pod that is like no other goes when that runs, has ended or does not wait any more; where the pod waits again it is placed by what holds
// then.
func TestForgetsClassesOfOnePod(t *testing.T) {
	c := newLentCluster(t)
	c.node("b", 1)
	s, _ := c.run()
	c.pod("runs", 250, guest)
	c.runs("runs")
	c.pod("large", 1000, guest)
	c.runs("large")
	c.pod("later", 500, guest, func(p *corev1.Pod, _ *resourceapi.ResourceClaim) {
		p.Spec.NodeSelector = map[string]string{"disk": "fast"}
	})
	c.stays(s, "later")
	if one := c.knows(s, "pod-later"); one == nil || one.answer == nil {
		t.Fatalf("its nodes are not known: %+v", one)
	}
	claim := c.find("default/later-share").DeepCopy()
	if err := c.client.Tracker().Delete(claimsResource, "default", claim.Name); err != nil {
		t.Fatal(err)
	}
	c.stays(s, "later")
	c.remove("large")
	c.setDisk("b", "fast")
	c.churn(s, "p", 80, func(p *corev1.Pod, _ *resourceapi.ResourceClaim) { p.Labels = map[string]string{} })
	if c.knows(s, "pod-later") != nil || c.knows(s, "pod-runs") != nil || c.knows(s, "pod-p0") != nil {
		t.Error("a class is kept that nobody uses")
	}
	c.add(claimsResource, claim)
	c.runs("later")
	if on := c.on("later"); on != "b" {
		t.Errorf("it is on %s, whose disk is not fast", on)
	}
	c.sound(s)
}

// The class of a pod that was taken out of the line and waits again is asked for anew before the pod is placed.
func TestClassOfOnePodComesBack(t *testing.T) {
	c := newLentCluster(t)
	c.node("b", 1)
	s, _ := c.run()
	c.pod("large", 1000, guest)
	c.pod("large-too", 1000, guest)
	c.runs("large", "large-too")
	c.pod("later", 500, guest)
	c.stays(s, "later")
	claim := c.find("default/later-share").DeepCopy()
	if err := c.client.Tracker().Delete(claimsResource, "default", claim.Name); err != nil {
		t.Fatal(err)
	}
	c.stays(s, "later")
	one := c.knows(s, "pod-later")
	if one == nil || one.answer == nil || s.left[one.key] != one {
		t.Fatalf("its class is %+v", one)
	}
	full := c.on("large")
	c.shuts(full, true)
	c.remove("large")
	c.idle(s, func() {})
	c.add(claimsResource, claim)
	c.stays(s, "later") // the node that was full when it was asked for last, and is free, is shut
	c.idle(s, func() {
		if s.classes[one.key] != one || s.left[one.key] != nil {
			t.Error("its class is another now")
		}
	})
	c.shuts(full, false)
	c.runs("later")
	c.sound(s)
}

// What many used together and nobody uses any more is forgotten in a while, though no other class comes; but not what is used in any way.
func TestForgetsInTime(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	s := New(Config{Now: func() time.Time { return now }})
	const many = 200
	var all []*class
	for i := range many {
		c := &class{key: fmt.Sprint("class ", i), waiting: 1, alone: i >= many/2, last: now.Add(time.Duration(i))}
		s.classes[c.key] = c
		all = append(all, c)
		s.step(engine.Feasibility{At: s.at(), Class: c.key})
		s.step(engine.Feasibility{At: s.at(), Class: c.preferred(1, 1)})
	}
	s.forgetClasses()
	starting, asked := all[3], all[4]
	s.work["starts"] = &work{state: placing, roles: []*role{{class: starting}}}
	asked.asking = true
	waits := all[5]
	for _, c := range all {
		if c != waits {
			c.leave(s)
		}
	}
	s.forgetClasses()
	if known := len(s.classes) + len(s.left); known != many {
		t.Fatalf("%d classes are kept at once, of %d", known, many)
	}
	now = now.Add(forgetEvery)
	s.forgetClasses()
	for i, c := range all {
		recent := i >= many/2-recentIdle && i < many/2 // of those that are of more than one pod
		if want := recent || c == starting || c == asked || c == waits; (s.classes[c.key] == c) != want || s.left[c.key] != nil {
			t.Errorf("that class %d is kept is not %v", i, want)
		}
	}
	if got, want := s.engine.Classes(), 1+2*(recentIdle+3); got != want {
		t.Errorf("the engine has %d classes, want %d", got, want)
	}
}
