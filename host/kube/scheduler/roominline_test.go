package scheduler

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/aliquot-dev/aliquot/host/kube/api/v1alpha1"
)

// needing has a pod with a share request CPU, too, and gives it a priority.
func needing(cpu string, priority int32) func(*corev1.Pod, *resourceapi.ResourceClaim) {
	return func(pod *corev1.Pod, _ *resourceapi.ResourceClaim) {
		pod.Spec.Priority = &priority
		pod.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}
	}
}

// looked waits until a scheduler has looked in vain for whom to evict for a pod.
func (c *cluster) looked(s *Scheduler, name string) {
	c.Helper()
	c.eventually("it was looked for room for "+name, func() (was bool) {
		c.idle(s, func() {
			for _, p := range s.pods {
				was = was || p.object.Name == name && p.seeking.tries > 0
			}
		})
		return was
	})
}

// A pod with a share that lacks CPU alone is nominated for a node where its share has room, those of lower priority and without devices are evicted
// there, and it runs there once they are gone. What they leave is nobody's before, and nobody is evicted twice for it: also where another of its class waits,
// which came before it or after.
func TestMakesRoomForAShare(t *testing.T) {
	for name, before := range map[string]bool{"twin before": true, "twin after": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t)
			c.classed = true
			c.node("a", 1)
			c.node("b", 1)
			s, _ := c.run()
			c.pod("holder", 800, firm, needing("1", 5)) // whose device has no room beside
			c.runs("holder")
			full, other := c.on("holder"), map[string]string{"a": "b", "b": "a"}[c.on("holder")]
			c.ordinary("low", "6", 1)
			c.runs("low")
			c.ordinary("lower", "6", 0)
			c.runs("lower")
			victim := map[string]string{c.on("low"): "low", c.on("lower"): "lower"}[other]
			twin := func() {
				c.pod("twin", 300, needing("5", 9), func(pod *corev1.Pod, _ *resourceapi.ResourceClaim) {
					pod.Spec.PreemptionPolicy = new(corev1.PreemptNever)
				})
				c.says("twin", "too little cpu")
			}
			if before {
				twin()
			}
			c.pod("high", 500, needing("5", 9))
			if names := c.ending(1); names[0] != victim {
				t.Fatalf("%s was evicted, and %s has no room for the share", names, full)
			}
			c.hears(victim, "Evicted", "pod default/high of higher priority is to run on node "+other)
			c.hears("high", "Evicting", "1 pods of lower priority are evicted from node "+other)
			c.eventually("it is nominated", func() bool { return c.nominated("high") == other })
			if !before {
				twin()
			}
			c.ordinary("late", "4", 0)
			c.says("late", "too little cpu")
			c.looked(s, "high")
			c.stays(s, "high") // while it ends
			c.remove(victim)
			c.runs("high")
			if on := c.on("high"); on != other {
				t.Errorf("it runs on %s, and others went for it from %s", on, other)
			}
			c.stays(s, "late")
			c.stays(s, "twin")
			if said := metricsOf(s); !strings.Contains(said, "aliquot_scheduler_refused_total 0\n") {
				t.Errorf("places were refused that were another's:\n%s", said)
			}
		})
	}
}

// Nobody is evicted for a pod with a share where that would not let it run, or whose budget does not allow it, or for who is not to evict others.
func TestMakesNoRoomForAShare(t *testing.T) {
	never := corev1.PreemptNever
	for name, test := range map[string]struct {
		before func(*cluster)
		change func(*corev1.Pod, *resourceapi.ResourceClaim)
		budget int32
	}{
		"no device has room": {before: func(c *cluster) {
			c.pod("holder", 800, firm)
			c.runs("holder")
		}},
		"another is first in line for the device": {before: func(c *cluster) {
			c.pod("holder", 300, firm)
			c.runs("holder")
			c.pod("first", 1000, needing("1", 10))
		}},
		"its queue is full": {change: naming("full")},
		"never":             {change: func(pod *corev1.Pod, _ *resourceapi.ResourceClaim) { pod.Spec.PreemptionPolicy = &never }},
		"budget":            {budget: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newQueueCluster(t, "org")
			c.set(v1alpha1.Queues, "org", `{}`)
			c.set(v1alpha1.Queues, "full", `{"parent":"org","limit":{"compute":"0.4"}}`)
			c.node("a", 1)
			s, _ := c.run()
			if test.before != nil {
				test.before(c)
			}
			if test.budget > 0 {
				c.budget("web", 0)
			}
			c.ordinary("low", "6", 1, func(pod *corev1.Pod) { pod.Labels = map[string]string{"app": "web"} })
			c.runs("low")
			changes := []func(*corev1.Pod, *resourceapi.ResourceClaim){needing("5", 9)}
			if test.change != nil {
				changes = append(changes, test.change)
			}
			c.pod("high", 500, changes...)
			c.says("high", "too little cpu")
			if test.budget > 0 {
				c.hears("high", "NotEvicted", "from node a and are not", "disruption budget")
			}
			c.stays(s, "high")
			if on := c.nominated("high"); on != "" {
				t.Errorf("it is nominated for node %s", on)
			}
		})
	}
}

// A scheduler that starts while room is made evicts nobody again for the same pod, and takes back what it was nominated for where that does not help it
// any more.
func TestRestartWhileRoomIsMadeForAShare(t *testing.T) {
	c := newCluster(t)
	c.node("a", 1)
	c.node("b", 1)
	_, end := c.run()
	c.ordinary("low", "6", 1)
	c.ordinary("lower", "6", 0)
	c.runs("low", "lower")
	c.pod("high", 500, needing("5", 9))
	victim := c.ending(1)[0]
	on := c.on(victim)
	c.eventually("it is nominated", func() bool { return c.nominated("high") == on })
	end()
	s, end := c.run()
	c.looked(s, "high")
	c.stays(s, "high")
	if is := c.nominated("high"); is != on {
		t.Errorf("it is nominated for node %q, and was for %s", is, on)
	}
	end()
	for _, name := range []string{"one", "two"} { // they need no CPU, and take what it was to have
		c.pod(name, 800, firm, needing("0", 10))
	}
	s, _ = c.run()
	c.runs("one", "two")
	c.eventually("it is not nominated any more", func() bool { return c.nominated("high") == "" })
	c.stays(s, "high")
	c.remove(map[string]string{c.on("one"): "one", c.on("two"): "two"}[on])
	c.remove(victim)
	c.runs("high")
	c.sound(s)
}

// While others end that are evicted for a pod with a share, nobody of its priority or a lower one takes its part of the device there, be it in line or
// beside; who fits beside it runs, and who is of a higher priority takes it.
func TestKeepsDevicesWhileRoomIsMade(t *testing.T) {
	for name, above := range map[string]bool{"kept": false, "taken by a higher priority": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t)
			c.node("a", 1)
			s, _ := c.run()
			c.ordinary("low", "6", 1)
			c.runs("low")
			c.pod("high", 500, needing("5", 9))
			c.ending(1)
			c.pod("late", 600, needing("0", 9))
			c.pod("special", 1, needing("0", 9), requests(choice("gpu", part("one", 600, 1), part("two", 700, 1))))
			c.pod("small", 100, needing("0", 0))
			c.runs("small")
			c.says("late", "kept for pod default/high")
			c.says("special", "kept for pod default/high")
			c.stays(s, "late")
			c.stays(s, "special")
			c.stays(s, "high")
			if above {
				c.pod("above", 600, needing("0", 10))
				c.runs("above")
				c.eventually("it is not nominated any more", func() bool { return c.nominated("high") == "" })
				c.remove("low")
				c.stays(s, "high")
				return
			}
			c.remove("low")
			c.runs("high")
			c.stays(s, "late")
			c.remove("high")
			c.runs("late")
			c.sound(s)
		})
	}
}
