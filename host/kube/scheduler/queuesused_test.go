package scheduler

import (
	"testing"
	"time"

	"github.com/aliquot-dev/aliquot/host/kube/api/v1alpha1"
)

// A queue that used a device for hours comes behind one that did not, with the next scheduler, too.
func TestQueuesUsedAreKept(t *testing.T) {
	c := newQueueCluster(t, "org")
	_, ahead := c.clocked()
	c.node("a", 1)
	c.set(v1alpha1.Queues, "org", `{}`)
	c.set(v1alpha1.Queues, "early", `{"parent":"org"}`)
	c.set(v1alpha1.Queues, "late", `{"parent":"org"}`)
	in := func(queue, name string) {
		c.pod(name, 1000, naming(queue))
	}
	_, end := c.run()
	in("early", "first")
	c.runs("first")
	ahead(5 * time.Hour)
	c.eventually("it is said that queue early used a device for five hours", func() bool {
		u := c.status("early").Uses
		return u != nil && u.Used != nil && u.Used.All > 4800 && u.Used.All <= 5100 && u.Used.All == u.Used.Own
	})
	c.remove("first")
	in("org", "between")
	c.runs("between")
	ahead(5*time.Hour + 10*time.Minute)
	c.eventually("what the queues used is said anew", func() bool {
		u := c.status("org").Uses
		return u != nil && u.Used != nil && u.Running == 1 && u.Used.Own > 100 && u.Used.All > u.Used.Own+4800
	})
	end()
	in("early", "before")
	in("late", "behind")
	s, _ := c.run()
	c.sound(s)
	c.remove("between")
	c.runs("behind")
	c.sound(s)
	if on := c.on("before"); on != "" {
		t.Errorf("a pod of the queue that used most is on %s, before the other", on)
	}
}
