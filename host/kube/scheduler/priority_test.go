package scheduler

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
)

// Nobody is evicted for a gang of which one pod is to have nobody evicted, or is of no higher priority than who would go; nor is a gang one of whose pods is of
// no lower priority.
func TestGangOfPriorities(t *testing.T) {
	never := corev1.PreemptNever
	only := func(number int, change func(*corev1.Pod)) func(*corev1.Pod, *resourceapi.ResourceClaim) {
		return func(pod *corev1.Pod, _ *resourceapi.ResourceClaim) {
			if pod.Name == fmt.Sprint("big-", number) {
				change(pod)
			}
		}
	}
	patient := func(pod *corev1.Pod) { pod.Spec.PreemptionPolicy = &never }
	ranks := func(priority int32) func(*corev1.Pod) {
		return func(pod *corev1.Pod) { pod.Spec.Priority = &priority }
	}
	for name, test := range map[string]struct {
		change  func(*corev1.Pod, *resourceapi.ResourceClaim)
		holds   bool // the gang runs, and another wants what it has
		evicted int
	}{
		"the first is never to":                   {only(0, patient), false, 0},
		"the second is never to":                  {only(1, patient), false, 0},
		"the first is of no higher priority":      {only(0, ranks(3)), false, 0},
		"the second is of no higher priority":     {only(1, ranks(3)), false, 0},
		"all are of a higher priority":            {only(1, ranks(4)), false, 1},
		"it has one of no lower priority":         {only(1, ranks(7)), true, 0},
		"it has a first one of no lower priority": {only(0, ranks(7)), true, 0},
		"it is of lower priority":                 {only(1, ranks(6)), true, 2},
	} {
		for _, restarts := range []bool{false, true} {
			t.Run(fmt.Sprint(name, ", another scheduler: ", restarts), func(t *testing.T) {
				t.Parallel()
				c := newCluster(t)
				c.node("a", 1)
				s, end := c.run()
				anew := func() {
					c.idle(s, func() {})
					if restarts {
						end()
						s, _ = c.run()
					}
				}
				gang := func() { c.gang("big", 2, 400, ranking(5), test.change) }
				waits := "big-0"
				if test.holds {
					gang()
					c.runs("big-0", "big-1")
					anew()
					waits = "high"
					c.pod("high", 600, ranking(7))
				} else {
					c.pod("low", 600, ranking(3))
					c.runs("low")
					anew()
					gang()
				}
				if test.evicted == 0 {
					c.says(waits, "not enough is free")
					c.stays(s, waits)
					return
				}
				for _, name := range c.ending(test.evicted) {
					c.remove(name)
				}
				c.runs(waits)
				c.sound(s)
			})
		}
	}
}
