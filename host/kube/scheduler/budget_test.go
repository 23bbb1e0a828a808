package scheduler

import (
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/aliquot-dev/aliquot/host/kube/annotation"
)

// A pod that came to a gang, and goes with it and for its own claim, is one disruption of its budget and not two.
func TestBudgetOfAGangAndWhoCameToIt(t *testing.T) {
	c := newLentCluster(t)
	s, _ := c.run()
	c.budget("web", 3)
	web := func(pod *corev1.Pod, claim *resourceapi.ResourceClaim) {
		labelled("web", true)(pod, claim)
		pod.Labels[annotation.Gang], pod.Labels[annotation.GangMin] = "two", "2"
	}
	for i := range 3 {
		c.pod(fmt.Sprint("two-", i), 300, guest, web)
	}
	c.runs("two-0", "two-1", "two-2")
	c.idle(s, func() {})
	c.pod("own", 900, owner)
	if names := c.ending(3); !slices.Equal(names, []string{"two-0", "two-1", "two-2"}) {
		t.Fatalf("%v were evicted", names)
	}
	c.removeAll("two")
	c.runs("own")
	c.sound(s)
}
