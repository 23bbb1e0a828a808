package scheduler

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/host/kube/api/v1alpha1"
)

// clocked has the schedulers of a cluster read a clock that began on Monday 23 November 2026 at 10:00 UTC, and returns what sets it ahead.
func (c *cluster) clocked() (now func() time.Time, ahead func(time.Duration)) {
	began, set := time.Now(), &atomic.Int64{}
	c.now = func() time.Time {
		return time.Date(2026, 11, 23, 10, 0, 0, 0, time.UTC).Add(time.Since(began) + time.Duration(set.Load()))
	}
	return c.now, func(d time.Duration) { set.Store(int64(d)) }
}

// used waits until it is said of a queue that it used so many thousandths of device-hours, or some more: of the test's own time.
func (c *cluster) used(queue string, want api.Quota) {
	c.Helper()
	last := "nothing"
	c.Cleanup(func() {
		if c.Failed() {
			c.Logf("last it was said of the device-hours of %s: %s", queue, last)
		}
	})
	c.eventually(fmt.Sprintf("%s has used %s device-hours", queue, want), func() bool {
		u := c.status(queue).Uses
		if u == nil || u.Hours == nil {
			return false
		}
		last = fmt.Sprintf("%s of this %s from %s to %s", u.Hours.Used, u.Hours.Per, u.Hours.Begin, u.Hours.End)
		return u.Hours.Used >= want && u.Hours.Used < want+100
	})
}

// What a queue and those under it hold is counted, also by a scheduler that comes after another and while there is none; once it is used up, nothing more is
// started until the next period.
func TestHours(t *testing.T) {
	c := newQueueCluster(t, "team")
	_, ahead := c.clocked()
	c.node("a", 2)
	c.set(v1alpha1.Queues, "org", `{"hours":"4/day"}`)
	c.set(v1alpha1.Queues, "team", `{"parent":"org"}`)
	_, end := c.run()
	c.used("org", 0)
	c.pod("first", 1000)
	c.runs("first")
	ahead(3 * time.Hour)
	c.used("org", 3000)
	end()
	ahead(3*time.Hour + 30*time.Minute)
	s, end := c.run()
	c.used("org", 3500)
	ahead(4 * time.Hour)
	c.used("org", 4000)
	c.idle(s, func() {}) // the engine is told, too
	c.pod("second", 500)
	c.says("second", "queue org has used 4", "of its 4 device-hours of this day: what runs goes on, and nothing with a compute floor is started before Tue 24 Nov 2026 00:00 UTC",
		"It waits for: Tue 24 Nov 2026 00:00 UTC, more device-hours for queue org, or another queue")
	end()
	ahead(5 * time.Hour)
	s, end = c.run()
	c.used("org", 5000)
	c.sound(s)
	if on := c.on("second"); on != "" {
		t.Fatalf("it was placed on %s by a scheduler that began anew, with no device-hours left", on)
	}
	end()
	ahead(14 * time.Hour) // midnight
	s, _ = c.run()
	c.runs("second")
	if used := c.status("org").Uses.Hours; used.Used >= 4000 && used.Begin.Day() == 24 {
		t.Errorf("of the next day it has used %+v at once", used)
	}
	ahead(16 * time.Hour)
	c.used("org", 3000)
	c.set(v1alpha1.Queues, "org", `{}`)
	c.eventually("nothing is said of device-hours that are no bound", func() bool {
		u := c.status("org").Uses
		return u != nil && u.Hours == nil
	})
	c.set(v1alpha1.Queues, "org", `{"hours":"4/day"}`)
	c.used("org", 3000) // which was not forgotten
	c.sound(s)
}

// Work that got its node after it was last said what was used counts from then on.
func TestHoursOfLateWork(t *testing.T) {
	c := newQueueCluster(t, "team")
	now, ahead := c.clocked()
	c.node("a", 1)
	c.set(v1alpha1.Queues, "team", `{"hours":"100/week"}`)
	_, end := c.run()
	c.pod("late", 500)
	c.runs("late")
	c.used("team", 0)
	end()
	ahead(2 * time.Hour)
	c.mu.Lock()
	stored, err := c.client.Tracker().Get(podsResource, "default", "late")
	if err != nil {
		t.Fatal(err)
	}
	pod := stored.(*corev1.Pod).DeepCopy()
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(now())}}
	if err := c.store(podsResource, pod); err != nil {
		t.Fatal(err)
	}
	c.mu.Unlock()
	ahead(5 * time.Hour)
	s, _ := c.run()
	c.used("team", 1500)
	c.sound(s)
}
