package queues

import (
	"cmp"
	"fmt"
	"math"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/host/kube/api/v1alpha1"
)

// Bounds are what queues let their work do: which priority it may have, and how long it may run. They are the queues that hold, by name, as the engine
// is told of them.
type Bounds map[string]api.QueueSpec

// BoundsOf are those of queues that hold.
func BoundsOf(told []api.QueueSpec) Bounds {
	b := make(Bounds, len(told))
	for _, q := range told {
		b[q.Name] = q
	}
	return b
}

// Refuse is a Bypass that says why a queue does not let a pod be as it asks; nil: it does. A pod that asks for no time limit it lets be: such a pod is
// to be given the one that Seconds says.
func (b Bounds) Refuse(queue string, pod *corev1.Pod) error {
	asked := int32(0)
	if pod.Spec.Priority != nil {
		asked = *pod.Spec.Priority
	}
	if most, of := b.maxPriority(queue); asked > most {
		return Bypass(fmt.Sprintf("priority %d was asked for (PriorityClass %s), and in queue %s pods may have at most %d: name a PriorityClass of that or less, or have an administrator raise spec.maxPriority of the queue %s",
			asked, cmp.Or(pod.Spec.PriorityClassName, "of the cluster"), queue, most, of))
	}
	seconds, of := b.Seconds(queue)
	if limit := pod.Spec.ActiveDeadlineSeconds; seconds > 0 && limit != nil && *limit > seconds {
		return Bypass(fmt.Sprintf("a time limit of %s was asked for (spec.activeDeadlineSeconds: %d), and work in queue %s may run for %s at most: ask for %d or less",
			api.Duration(time.Duration(min(*limit, math.MaxInt32))*time.Second), *limit, of, b[of].LongestRun, seconds))
	}
	return nil
}

// Start is Refuse of a pod that is to start: one without a time limit may not where the queue bounds it.
func (b Bounds) Start(queue string, pod *corev1.Pod) error {
	if err := b.Refuse(queue, pod); err != nil {
		return err
	}
	if seconds, of := b.Seconds(queue); seconds > 0 && pod.Spec.ActiveDeadlineSeconds == nil {
		return Bypass(fmt.Sprintf("work in queue %s may run for %s at most, and the pod has no time limit: give it spec.activeDeadlineSeconds of %d or less, or make it anew", of, b[of].LongestRun, seconds))
	}
	return nil
}

// Seconds is the longest time limit that a pod in a queue may have, the least of the queue's and of those above it, and whose that is; 0: any.
func (b Bounds) Seconds(queue string) (seconds int64, of string) {
	for at, is := b[queue]; is; at, is = b[at.Parent] {
		if at.LongestRun == 0 {
			continue
		}
		most := min(max(1, int64(time.Duration(at.LongestRun)/time.Second)), math.MaxInt32)
		if seconds == 0 || most < seconds {
			seconds, of = most, at.Name
		}
	}
	return seconds, of
}

// maxPriority is the highest priority that pods in a queue may have, as it says itself, else as the next above it that says one; and whose that is.
func (b Bounds) maxPriority(queue string) (most int32, of string) {
	for at, is := b[queue]; is; at, is = b[at.Parent] {
		if at.MaxPriority != v1alpha1.NoMaxPriority {
			return at.MaxPriority, at.Name
		}
	}
	return v1alpha1.NoMaxPriority, ""
}
