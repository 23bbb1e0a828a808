package e2e

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/aliquot-dev/aliquot/host/kube/scheduler"
	"github.com/aliquot-dev/aliquot/node/page"
)

// A pod with a limit of one device has all of it, whoever would have a thousandth of it waits until it is gone, whichever scheduler places him, and then has a
// thousandth: the stock scheduler places the first one, ours the other, which knows of it all the same.
func TestSizes(t *testing.T) {
	w := beginWith(t, "h200x1", map[string]any{"scheduler": map[string]any{"enabled": true, "replicas": 0}})
	w.startScheduler()
	w.submitWhole(work{name: "whole", command: []string{"/bin/trainer", "--seconds", "0", "--kernel-us", "5000", "--progress", "0"}})
	w.trains("whole")
	if has := w.limits("whole"); has.Floor != 1000 || has.Ceiling != 1000 || has.MemFloor != has.MemDevice || has.MemCeiling != has.MemDevice {
		t.Errorf("a pod with a limit of one device is held to %+v", has)
	}
	// It asks for a processor: for as long as it waits for one it cannot say that it has done what it was let do, and is charged for that.
	small := work{name: "thousandth", compute: 1, memory: "1Gi", cpu: "1", scheduler: scheduler.Name, command: []string{"/bin/trainer", "--seconds", "0", "--kernel-us", "1000", "--progress", "0"}}
	w.submit(small)
	w.unplaced("thousandth", "0.001 of a device")
	w.submit(work{name: "stock", compute: 1, memory: "1Gi", command: []string{"/bin/pod"}})
	w.unplaced("stock", "cannot allocate all claims")
	w.shares("with the device for itself", map[string]part{"whole": {1000, 1000}})
	for _, name := range []string{"thousandth", "stock"} {
		if pod, err := w.client.CoreV1().Pods("default").Get(w.ctx, name, metav1.GetOptions{}); err != nil || pod.Spec.NodeName != "" {
			t.Fatalf("a thousandth of a device that is another's was given: %v, %v", pod, err)
		}
	}
	w.remove("stock")
	before := wanting()
	w.remove("whole")

	w.trains("thousandth")
	if has := w.limits("thousandth"); has.Floor != 1 || has.Ceiling != 1 || has.MemFloor != 1<<30 || has.MemCeiling != 1<<30 {
		t.Errorf("a pod with a thousandth is held to %+v", has)
	}
	for tries := 1; ; tries++ {
		var wrong error
		count := func() { wrong = w.leases(small.name) }
		if tries == 1 {
			count()
		} else { // once more, and others do nothing that a lease would wait for
			still.measure(w.ctx, w.shared, count)
		}
		waited := wanting() - before
		w.remove(small.name)
		if wrong == nil {
			break
		}
		t.Logf("%v, since when something waited for a processor for %v", wrong, waited)
		if tries == 5 || waited < time.Millisecond { // of 16 ms, which four leases are, 1.6 ms are too many already
			t.Fatal(wrong)
		}
		before = wanting()
		small.name = fmt.Sprint("thousandth-", tries) // what one owes that was starved is paid off in minutes
		w.submit(small)
		w.trains(small.name)
	}
	w.empty()
}

// leases checks that a pod with a thousandth runs for the 4 ms of a lease whenever its ceiling has room for one, every 4 s: counted from the begin of one
// to that of the third after it.
func (w *world) leases(name string) error {
	w.Helper()
	began, first, err := w.nextLease(name)
	ended, last := began, first
	for range 3 {
		if err == nil {
			ended, last, err = w.nextLease(name)
		}
	}
	if err != nil {
		return err
	}
	ran, over := last-first, ended-began
	w.Logf("a thousandth ran for %v of %v", ran, over)
	if off := ran - over/1000; off.Abs() > over/10_000 {
		return fmt.Errorf("of %v it had %v of the device, want a thousandth", over, ran)
	}
	return nil
}

// nextLease is when a pod that had paused goes on, by the device's clock, and what it has used of the device until then. It waits for some leases' time.
func (w *world) nextLease(name string) (at, busy time.Duration, err error) {
	w.Helper()
	const some = 20 * time.Second
	look := func() time.Duration {
		now := w.read()
		at = now.at
		return w.busy(name, now)
	}
	if ok, ran := within(some, func() (bool, string) {
		before := busy
		busy = look()
		return busy > 0 && busy == before, busy.String()
	}); !ok {
		return 0, 0, fmt.Errorf("for %v %s did not pause; it ran for %s", some, name, ran)
	}
	if ok, ran := within(some, func() (bool, string) {
		now := look()
		return now > busy, now.String()
	}); !ok {
		return 0, 0, fmt.Errorf("for %v %s did not go on; it had run for %s", some, name, ran)
	}
	return at, busy, nil
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
