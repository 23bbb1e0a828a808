package scheduler

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	dynamicfake "k8s.io/client-go/dynamic/fake"

	"github.com/aliquot-dev/aliquot/host/kube/api/v1alpha1"
)

// eventually waits until something is so. It gives up after so many looks, which are a minute at least, and not by the clock: for as long as the machine
// does not let this process run nobody looks, and nothing can become so.
func (c *cluster) eventually(what string, is func() bool) {
	c.Helper()
	const lookEvery = 2 * time.Millisecond
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	looks := 0
	for c.endEvicted(); !is(); c.endEvicted() {
		if looks++; looks > int(time.Minute/lookEvery) {
			c.Fatalf("waited a minute until %s", what)
		}
		<-look.C
	}
}

// watched is what schedulers watch.
func (c *cluster) watched() []string {
	all := []string{
		"namespaces", "nodes", "resourceslices", "deviceclasses", "resourceclaims", "jobs", "pods", "persistentvolumeclaims", "persistentvolumes",
		"storageclasses", "csinodes", "csidrivers", "csistoragecapacities", "volumeattachments", "poddisruptionbudgets",
	}
	if c.rules {
		all = append(all, "devicetaintrules")
	}
	if c.objects != nil {
		all = append(all, v1alpha1.Queues.Resource, v1alpha1.Policies.Resource)
	}
	return all
}

// watches are how many watches were begun, by resource.
func (c *cluster) watches() map[string]int {
	begun, actions := map[string]int{}, c.client.Actions()
	if objects, is := c.objects.(*dynamicfake.FakeDynamicClient); is {
		actions = append(actions, objects.Actions()...)
	}
	for _, action := range actions {
		if action.GetVerb() == "watch" {
			begun[action.GetResource().Resource]++
		}
	}
	return begun
}

// told waits until the scheduler that runs, if one does, knows of something that the test has just changed. What comes of kinds that are watched apart from
// each other comes in any order: without this a pod that is made after that may be placed before it is known.
func (c *cluster) told(what string, is func(s *Scheduler) bool) {
	c.Helper()
	s := c.scheduler
	if s == nil {
		return
	}
	c.eventually("the scheduler knows "+what, func() bool {
		knows := make(chan bool, 1)
		s.inbox.put(func() { knows <- is(s) })
		return <-knows
	})
}

// toldNode is told of a node.
func (c *cluster) toldNode(name string, is func(known *corev1.Node) bool) {
	c.Helper()
	c.told("how node "+name+" is now", func(s *Scheduler) bool {
		n := s.nodes[name]
		return n != nil && n.object != nil && is(n.object)
	})
}
