package scheduler

import (
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/aliquot-dev/aliquot/host/kube/api/v1alpha1"
)

// status is what is said of a queue.
func (c *cluster) status(queue string) v1alpha1.QueueStatus {
	c.Helper()
	object, err := c.objects.Resource(v1alpha1.Queues).Get(c.Context(), queue, metav1.GetOptions{})
	if err != nil {
		c.Fatal(err)
	}
	read, err := v1alpha1.Read[v1alpha1.Queue](object)
	if err != nil {
		c.Fatal(err)
	}
	return read.Status
}

// uses waits until it is said of a queue what it uses: workloads that run and wait, compute that it holds and has borrowed.
func (c *cluster) uses(queue, want string) {
	c.Helper()
	last := ""
	c.Cleanup(func() {
		if c.Failed() {
			c.Logf("last it was said of %s: %s", queue, last)
		}
	})
	c.eventually("it is said of "+queue+": "+want, func() bool {
		last = "nothing"
		if u := c.status(queue).Uses; u != nil {
			last = fmt.Sprintf("%d run, %d wait, %s held, %s borrowed", u.Running, u.Waiting, u.Held.Compute, u.Borrowed.Compute)
		}
		return last == want
	})
}

// What the work of a queue and of those under it holds and wants stands in its status, by a scheduler that began anew, too. What another wrote there stays.
func TestUses(t *testing.T) {
	c := newQueueCluster(t, "team")
	c.node("a", 2)
	c.set(v1alpha1.Queues, "org", `{"quota":{"compute":"1"}}`)
	c.set(v1alpha1.Queues, "team", `{"parent":"org","quota":{"compute":"0.5"}}`)
	object, err := c.objects.Resource(v1alpha1.Queues).Get(t.Context(), "team", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	object.Object["status"] = map[string]any{"observedGeneration": int64(1)}
	if _, err := c.objects.Resource(v1alpha1.Queues).UpdateStatus(t.Context(), object, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	_, end := c.run()
	c.uses("org", "0 run, 0 wait, 0.00 held, 0.00 borrowed")
	c.pod("first", 600)
	c.runs("first")
	c.pod("second", 600, firm)
	c.says("second", "team", "quota")
	c.uses("team", "1 run, 1 wait, 0.60 held, 0.10 borrowed")
	c.uses("org", "1 run, 1 wait, 0.60 held, 0.00 borrowed")
	if said := c.status("team"); said.ObservedGeneration != 1 {
		t.Errorf("what another said is lost: %+v", said)
	}
	end()
	c.remove("second")
	s, _ := c.run()
	c.uses("team", "1 run, 0 wait, 0.60 held, 0.10 borrowed")
	c.remove("first")
	c.uses("team", "0 run, 0 wait, 0.00 held, 0.00 borrowed")
	c.set(v1alpha1.Queues, "team", `{"parent":"nobody"}`) // which does not hold, and is none of the engine's
	c.uses("team", "nothing")
	c.sound(s)
}
