package scheduler

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/aliquot-dev/aliquot/engine"
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

// A gang ends with the last of its pods: it has a time limit if each of them has one.
func TestGangEndsWithItsLast(t *testing.T) {
	for name, test := range map[string]struct {
		limits []int64 // of its pods, in seconds; 0: none
		want   engine.Time
	}{
		"one has none":    {[]int64{60, 0}, 0},
		"the other":       {[]int64{0, 60}, 0},
		"the longest":     {[]int64{60, 3600}, 3600_000_000},
		"the longest too": {[]int64{3600, 60}, 3600_000_000},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t)
			c.node("a", 1)
			s, end := c.run()
			for i, limit := range test.limits {
				c.member("big", i, 2, 400, func(pod *corev1.Pod, _ *resourceapi.ResourceClaim) {
					if limit > 0 {
						pod.Spec.ActiveDeadlineSeconds = &limit
					}
				})
			}
			for _, who := range []string{"the first", "the next one"} {
				c.runs("big-0", "big-1")
				c.idle(s, func() {
					for id := range s.work {
						if known, _ := s.engine.Workload(id); known.TimeLimit != test.want {
							t.Errorf("%s has it end after %d µs, want %d", who, known.TimeLimit, test.want)
						}
					}
				})
				end()
				s, end = c.run()
			}
		})
	}
}
