package scheduler

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

func priorityOf(object *corev1.Pod) int32 {
	if object.Spec.Priority == nil {
		return 0
	}
	return *object.Spec.Priority
}

// lowest is the priority of a pod, or of the lowest of those that it starts with.
func lowest(p *pod) int32 {
	return lowestOf(p.startsWith())
}

// lowestOf is the priority of the lowest of some pods.
func lowestOf(pods []*pod) int32 {
	return priorityOf(slices.MinFunc(pods, func(a, b *pod) int { return cmp.Compare(priorityOf(a.object), priorityOf(b.object)) }).object)
}

// highest is the priority of the highest of some pods.
func highest(pods []*pod) int32 {
	return priorityOf(slices.MaxFunc(pods, func(a, b *pod) int { return cmp.Compare(priorityOf(a.object), priorityOf(b.object)) }).object)
}
