package scheduler

import (
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// What ends already is not joined by another: also not for a scheduler that begins while it does.
func TestRestartWhileItEnds(t *testing.T) {
	c := newLentCluster(t)
	_, end := c.run()
	c.pod("first", 500, guest)
	c.runs("first")
	c.pod("second", 500, guest)
	c.runs("second")
	c.pod("own", 400, owner)
	evicted := c.ending(1)[0]
	end()
	s, _ := c.run()
	c.stays(s, "own")
	c.remove(evicted)
	c.runs("own")
	c.sound(s)
}

// A scheduler that ends while it evicts a gang leaves a part of it: the next one evicts the rest. Where it had evicted nothing yet, what it wrote of
// that is taken back, and the next one decides anew.
func TestRestartWhileGangIsEvicted(t *testing.T) {
	for name, test := range map[string]struct {
		at    int32
		write string
	}{"before the first": {1, "evict pods"}, "in the middle": {2, "evict pods"}, "while it is announced": {2, "patch pods"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newLentCluster(t)
			var written atomic.Int32
			first, end := c.run()
			c.gang("three", 3, 300, guest)
			c.runs("three-0", "three-1", "three-2")
			c.idle(first, func() {})
			broken := c.breakAt(func(write string) bool { return write == test.write && written.Add(1) == test.at })
			c.pod("own", 900, owner)
			broken(first, end)
			s, _ := c.run()
			c.ending(3)
			for i := range 3 {
				c.remove(fmt.Sprint("three-", i))
			}
			c.runs("own")
			c.sound(s)
		})
	}
}

// What was announced for a gang that runs on is taken back.
func TestAnnouncedAndSpared(t *testing.T) {
	c := newLentCluster(t)
	c.spare = time.Hour // so that it is not announced anew meanwhile
	first, _ := c.run()
	c.gang("three", 3, 300, guest)
	c.runs("three-0", "three-1", "three-2")
	c.idle(first, func() {})
	c.mu.Lock()
	c.fails = func(write string) fault {
		if write == "evict pods" {
			return before
		}
		return none
	}
	c.mu.Unlock()
	c.pod("own", 900, owner)
	c.hears("own", "NotEvicted", "the gang of pod default/three-0 was to be evicted", "the API server did not evict pod default/three-0")
	for i := range 3 {
		stored, err := c.client.Tracker().Get(podsResource, "default", fmt.Sprint("three-", i))
		if err != nil {
			t.Fatal(err)
		}
		at := slices.IndexFunc(stored.(*corev1.Pod).Status.Conditions, func(condition corev1.PodCondition) bool { return condition.Type == Evicting })
		if at < 0 || stored.(*corev1.Pod).Status.Conditions[at].Status != corev1.ConditionFalse {
			t.Errorf("pod %d has the conditions %+v", i, stored.(*corev1.Pod).Status.Conditions)
		}
	}
	c.stays(first, "own")
}

// using has a pod use a claim that is there, and not one of its own.
func using(claim string) func(*corev1.Pod, *resourceapi.ResourceClaim) {
	return func(pod *corev1.Pod, _ *resourceapi.ResourceClaim) {
		pod.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "shared", ResourceClaimName: &claim}}
		pod.Status.ResourceClaimStatuses = nil
	}
}

// Pods that share a claim go together, also where another scheduler placed one of them.
func TestSharersGoTogether(t *testing.T) {
	for name, other := range map[string]string{"ours": Name, "another scheduler's": "default-scheduler"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newLentCluster(t)
			s, _ := c.run()
			shared := claimFor("shared", 800)
			c.add(claimsResource, shared)
			both := func(pod *corev1.Pod, claim *resourceapi.ResourceClaim) {
				using(shared.Name)(pod, claim)
				pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
			}
			c.pod("one", 100, guest, both)
			c.runs("one")
			if other == Name {
				c.pod("two", 100, guest, both)
				c.runs("two")
			} else {
				c.pod("two", 100, guest, both, func(pod *corev1.Pod, _ *resourceapi.ResourceClaim) {
					pod.Spec.SchedulerName, pod.Spec.NodeName = other, "a"
				})
				c.reserve("shared", "two")
			}
			c.idle(s, func() {})
			c.pod("own", 400, owner)
			if names := c.ending(2); !slices.Equal(names, []string{"one", "two"}) {
				t.Fatalf("%v were evicted", names)
			}
			c.remove("one")
			c.stays(s, "own")
			c.remove("two")
			c.runs("own")
			c.sound(s)
		})
	}
}

// reserve adds a pod to those that an allocated claim is for.
func (c *cluster) reserve(claim, pod string) {
	c.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	stored, err := c.client.Tracker().Get(podsResource, "default", pod)
	if err != nil {
		c.Fatal(err)
	}
	changed := c.find("default/" + claim).DeepCopy()
	changed.Status.ReservedFor = append(changed.Status.ReservedFor, reference(stored.(*corev1.Pod)))
	if err := c.store(claimsResource, changed); err != nil {
		c.Fatal(err)
	}
}

// A pod that was evicted for a while by nobody's wish, as one that is deleted by its user, comes free: nothing is evicted beside it.
func TestDeletedComesFree(t *testing.T) {
	c := newLentCluster(t)
	s, _ := c.run()
	c.pod("first", 500, guest)
	c.pod("second", 500, guest)
	c.runs("first", "second")
	c.mu.Lock()
	stored, err := c.client.Tracker().Get(podsResource, "default", "first")
	if err != nil {
		t.Fatal(err)
	}
	pod, now := stored.(*corev1.Pod).DeepCopy(), metav1.Now()
	pod.DeletionTimestamp = &now
	if err := c.store(podsResource, pod); err != nil {
		t.Fatal(err)
	}
	c.mu.Unlock()
	c.idle(s, func() {})
	c.pod("own", 400, owner)
	c.stays(s, "own")
	c.remove("first")
	c.runs("own")
	c.sound(s)
}
