package scheduler

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/runtime"
	core "k8s.io/client-go/testing"
)

// seeks has a scheduler look for room for a pod in line at once, or for a gang by its first, and waits until it has.
func (c *cluster) seeks(s *Scheduler, name string) {
	c.Helper()
	c.idle(s, func() {
		for _, p := range s.pods {
			if p.object.Name == name {
				p.seeking.due = time.Time{}
				s.seekInLine(p)
			}
		}
	})
	c.idle(s, func() {})
}

// named has a pod run on a node alone.
func named(node string) func(*corev1.Pod, *resourceapi.ResourceClaim) {
	return func(pod *corev1.Pod, _ *resourceapi.ResourceClaim) {
		pod.Spec.NodeSelector = map[string]string{"name": node}
	}
}

// big adds a pod, of which this is so, or a gang: both need that others go from where they are to run.
func (c *cluster) big(size int, of ...func(*corev1.Pod, *resourceapi.ResourceClaim)) {
	c.Helper()
	if size == 1 {
		c.pod("big-0", 300, append(of, needing("5", 9))...)
	} else {
		c.gang("big", size, 300, needing("5", 9))
	}
}

// roomOnTwo has others go from nodes a and b for a gang of two, each of which is nominated for one.
func (c *cluster) roomOnTwo(gang func()) {
	c.Helper()
	c.fill(1, "a", "b")
	gang()
	c.ending(2)
	for _, pod := range c.called("big") {
		if !strings.Contains(pod.Name, "later") {
			c.eventually("it is nominated", func() bool { return c.nominated(pod.Name) != "" })
		}
	}
}

// A gang one of whose nodes has lost its devices to others has room made where all of it has some, and is not nominated for the old nodes any more.
func TestRoomForAGangWhereItsDevicesAre(t *testing.T) {
	c := newCluster(t)
	c.node("a", 1, called("a"))
	c.node("b", 2, called("b"))
	s, _ := c.run()
	c.pod("holder", 1000, firm, needing("0", 10), named("b"))
	c.runs("holder")
	c.roomOnTwo(func() { c.gang("big", 2, 1000, needing("4", 9)) })
	c.remove("holder")
	c.pod("above", 1000, needing("0", 10), named("a"))
	c.runs("above")
	c.seeks(s, "big-0")
	for i := range 2 {
		c.eventually("it is nominated for the other node", func() bool { return c.nominated(fmt.Sprint("big-", i)) == "b" })
	}
	c.stays(s, "big-0")
	c.remove("low-a")
	c.remove("low-b")
	c.runs("big-0", "big-1")
	c.sound(s)
}

// What was made for a pod or a gang stays its own while it rests after it could not be bound.
func TestKeepsRoomWhileItRests(t *testing.T) {
	for name, size := range map[string]int{"a pod": 1, "a gang": 2} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t)
			c.node("a", 1, called("a"))
			c.node("b", 1, called("b"))
			var refused atomic.Bool
			s, _ := c.run()
			c.fill(1, "a", "b")
			refused.Store(true)
			c.mu.Lock()
			c.fails = func(write string) fault {
				if write == "bind pods" && refused.Load() {
					return before
				}
				return none
			}
			c.mu.Unlock()
			c.big(size)
			for _, low := range c.ending(size) {
				c.eventually("it is nominated", func() bool { return c.nominated("big-0") != "" })
				c.remove(low)
			}
			on := c.nominated("big-0")
			c.says("big-0", "could not be bound")
			for range 3 {
				c.seeks(s, "big-0")
				if now := c.nominated("big-0"); now != on {
					t.Errorf("it is nominated for node %q, and was for %s", now, on)
				}
			}
			refused.Store(false)
			c.runs("big-0")
			c.sound(s)
		})
	}
}

// Nobody is evicted for a gang of which a pod has gone by then.
func TestNobodyGoesForAGangThatHasGone(t *testing.T) {
	c := newCluster(t)
	c.node("a", 1, called("a"))
	c.node("b", 1, called("b"))
	var gone atomic.Bool
	c.client.PrependReactor("patch", "pods", func(action core.Action) (bool, runtime.Object, error) {
		patch := action.(core.PatchAction)
		if patch.GetName() == "big-0" && strings.Contains(string(patch.GetPatch()), `"nominatedNodeName":"`) && gone.CompareAndSwap(false, true) {
			c.remove("big-1")
		}
		return false, nil, nil
	})
	s, _ := c.run()
	c.fill(1, "a", "b")
	c.gang("big", 2, 300, needing("5", 9))
	c.eventually("room was looked for", gone.Load)
	c.says("big-0", "of its gang 1 pods are there, and 2 start together")
	c.eventually("it is not nominated any more", func() bool { return c.nominated("big-0") == "" })
	c.stays(s, "big-0")
	c.member("big", 1, 2, 300, needing("5", 9))
	c.ending(2)
	c.remove("low-a")
	c.remove("low-b")
	c.runs("big-0", "big-1")
	c.sound(s)
}

// Who does not start with its gang any more, or with a gang that is placed beside the line now, keeps nobody off the node that it was nominated for.
func TestGangGivesItsRoomUp(t *testing.T) {
	for name, beside := range map[string]bool{"beside the line": true, "another starts in its place": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t)
			c.node("a", 1, called("a"))
			c.node("b", 1, called("b"))
			s, _ := c.run()
			c.roomOnTwo(func() {
				c.member("big", 1, 2, 300, needing("5", 9))
				c.member("big", 2, 2, 300, needing("5", 9))
			})
			if beside {
				c.member("big", 3, 2, 1, needing("5", 9), choosing(300))
				c.says("big-3", "its gang is in line")
				c.remove("big-2")
			} else {
				c.member("big", 0, 2, 300, needing("5", 9))
				c.says("big-0", "its gang is in line")
				c.rewrite("big-1", func(pod *corev1.Pod) { pod.Generation++ })
			}
			left := map[bool]string{true: "big-1", false: "big-2"}[beside]
			c.eventually("it is not nominated any more", func() bool { return c.nominated(left) == "" })
			c.remove("low-a")
			c.remove("low-b")
			if beside {
				c.runs("big-1", "big-3")
			} else {
				c.runs("big-0", "big-1")
			}
			c.idle(s, func() {})
		})
	}
}

// A pod or a gang that a disruption budget keeps from what it was nominated for gives that up: others have the room meanwhile.
func TestGivesUpWhatABudgetKeepsFromIt(t *testing.T) {
	for name, size := range map[string]int{"a pod": 1, "a gang": 2} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t)
			c.node("a", 1, called("a"))
			c.node("b", 1, called("b"))
			s, _ := c.run()
			c.budget("guarded", 0)
			c.fill(1, "a", "b")
			c.big(size, named("b"))
			evicted := c.ending(size)
			for _, pod := range append(c.called("big"), c.called("big-0")...) {
				c.eventually("it is nominated", func() bool { return c.nominated(pod.Name) != "" })
			}
			c.ordinary("guarded", "6", 1, func(pod *corev1.Pod) { // which another scheduler has put there
				pod.Spec.SchedulerName, pod.Spec.NodeName, pod.Labels = "another", "b", map[string]string{"app": "guarded"}
				pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
			})
			for _, low := range evicted {
				c.remove(low)
			}
			c.seeks(s, "big-0")
			c.hears("big-0", "NotEvicted", "disruption budget default/guarded allows 0 disruptions now")
			c.eventually("it is not nominated any more", func() bool { return c.nominated("big-0") == "" })
			c.stays(s, "big-0")
			if size == 2 {
				c.ordinary("late", "6", 0, func(pod *corev1.Pod) { pod.Spec.NodeSelector = map[string]string{"name": "a"} })
				c.runs("late")
			}
		})
	}
}
