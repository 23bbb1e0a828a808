package e2e

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/aliquot-dev/aliquot/host/kube/testcluster"
	"github.com/aliquot-dev/aliquot/node/page"
)

// A pod with a limit of one device has all of it, whoever would have a thousandth of it waits until it is gone, and then has a thousandth.
func TestSizes(t *testing.T) {
	w := begin(t, "h200x1")
	w.submitWhole(work{name: "whole", command: []string{"/bin/trainer", "--seconds", "0", "--kernel-us", "5000", "--progress", "0"}})
	w.trains("whole")
	if has := w.limits("whole"); has.Floor != 1000 || has.Ceiling != 1000 || has.MemFloor != has.MemDevice || has.MemCeiling != has.MemDevice {
		t.Errorf("a pod with a limit of one device is held to %+v", has)
	}
	w.submit(work{name: "thousandth", compute: 1, memory: "1Gi", command: []string{"/bin/trainer", "--seconds", "0", "--kernel-us", "1000", "--progress", "0"}})
	w.waits("thousandth")
	if whole := w.used("whole")["whole"]; whole < 1000-tolerated {
		t.Errorf("it has the device for itself and used %d thousandths of it", whole)
	}
	w.waits("thousandth")
	w.remove("whole")

	w.trains("thousandth")
	if has := w.limits("thousandth"); has.Floor != 1 || has.Ceiling != 1 || has.MemFloor != 1<<30 || has.MemCeiling != 1<<30 {
		t.Errorf("a pod with a thousandth is held to %+v", has)
	}
	// It may run for the 4 ms of a lease whenever its ceiling has room for one, every 4 s: counted from the begin of one to that of the third after it.
	began, first := w.nextLease("thousandth")
	ended, last := began, first
	for range 3 {
		ended, last = w.nextLease("thousandth")
	}
	ran, over := last-first, ended-began
	t.Logf("a thousandth ran for %v of %v", ran, over)
	if off := ran - over/1000; off.Abs() > over/10_000 {
		t.Errorf("of %v it had %v of the device, want a thousandth", over, ran)
	}
	w.remove("thousandth")
	w.empty()
}

// nextLease is when a pod that had paused goes on, by the device's clock, and what it has used of the device until then.
func (w *world) nextLease(name string) (at, busy time.Duration) {
	w.Helper()
	look := func() time.Duration {
		now := w.read()
		at = now.at
		return w.busy(name, now)
	}
	w.eventually(name+" pauses", func() (bool, string) {
		before := busy
		busy = look()
		return busy > 0 && busy == before, fmt.Sprint(busy)
	})
	w.eventually(name+" goes on", func() (bool, string) {
		now := look()
		return now > busy, fmt.Sprint(now)
	})
	return at, busy
}

// waits checks that a pod waits because the scheduler has no device for it.
func (w *world) waits(name string) {
	w.Helper()
	_, err := testcluster.AwaitObject(w.ctx, w.client.CoreV1().Pods("default"), name, "a pod that no device is left for", func(pod *corev1.Pod) (bool, error) {
		if pod.Spec.NodeName != "" {
			return false, fmt.Errorf("it was placed on %s", pod.Spec.NodeName)
		}
		for _, c := range pod.Status.Conditions {
			if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
				return strings.Contains(c.Message, "cannot allocate all claims"), nil
			}
		}
		return false, nil
	})
	w.no(err)
}

// limits is what the page of a pod's task tells arbiter and shim of its only share.
func (w *world) limits(name string) page.Policy {
	w.Helper()
	return w.policy(string(w.claim(name).UID))
}

// policy is limits, of the task of that UID.
func (w *world) policy(uid string) (policy page.Policy) {
	w.Helper()
	ctl, err := page.Open[page.Ctl](filepath.Join(w.run, "tasks", uid, "ctl"), false)
	w.no(err)
	defer ctl.Close()
	w.eventually("the page can be read whole", func() (bool, string) {
		var whole bool
		w.no(ctl.View(func(c *page.Ctl) error {
			policy, whole = c.Grant[0].Policy()
			return nil
		}))
		return whole, "it is being written"
	})
	return policy
}
