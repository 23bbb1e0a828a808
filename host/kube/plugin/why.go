package plugin

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Why says how a pod is and why: first in one line, then of each of its claims, then what was told of it and them, oldest first.
func (p Plugin) Why(ctx context.Context, namespace, name string) error {
	pod, err := p.pod(ctx, namespace, name)
	if err != nil {
		return err
	}
	claims, missing, err := p.claimsOf(ctx, pod)
	if err != nil {
		return err
	}
	var lines []string
	lines = append(lines, sentence(pod))
	for _, one := range missing {
		lines = append(lines, fmt.Sprintf("  Claim      %s: not there yet", one))
	}
	known := map[types.UID]string{pod.UID: "pod"}
	for _, claim := range claims {
		known[claim.UID] = "claim"
		lines = append(lines, aboutClaim(claim)...)
	}
	if len(claims) == 0 && len(missing) == 0 {
		lines = append(lines, "  Claim      none: it asks for no device")
	}
	events, err := p.Client.CoreV1().Events(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list events of namespace %s: %w", namespace, err)
	}
	lines = append(lines, told(events.Items, known)...)
	_, err = fmt.Fprintln(p.Out, strings.Join(lines, "\n"))
	return err
}

// sentence is how a pod is.
func sentence(pod *corev1.Pod) string {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodScheduled && condition.Status == corev1.ConditionFalse {
			return fmt.Sprintf("%s waits: %s", pod.Name, cmp.Or(condition.Message, condition.Reason))
		}
	}
	if pod.Spec.NodeName == "" {
		return fmt.Sprintf("%s waits, and no scheduler (%s) has said why", pod.Name, pod.Spec.SchedulerName)
	}
	if pod.Status.Phase == corev1.PodPending {
		for _, container := range pod.Status.ContainerStatuses {
			if waiting := container.State.Waiting; waiting != nil && waiting.Message != "" {
				return fmt.Sprintf("%s starts on node %s: %s: %s", pod.Name, pod.Spec.NodeName, waiting.Reason, waiting.Message)
			}
		}
		return fmt.Sprintf("%s starts on node %s", pod.Name, pod.Spec.NodeName)
	}
	is := map[corev1.PodPhase]string{corev1.PodRunning: "runs", corev1.PodSucceeded: "has ended well", corev1.PodFailed: "has failed"}[pod.Status.Phase]
	said := fmt.Sprintf("%s %s on node %s", pod.Name, cmp.Or(is, "is in an unknown state"), pod.Spec.NodeName)
	if pod.Status.Message != "" {
		said += ": " + pod.Status.Message
	}
	return said
}

// aboutClaim says what a claim has, or what it asks for while it has nothing.
func aboutClaim(claim *resourceapi.ResourceClaim) (lines []string) {
	if claim.Status.Allocation == nil {
		return []string{fmt.Sprintf("  Claim      %s: not allocated; it asks for %s", claim.Name, asked(claim))}
	}
	for _, one := range holdings(claim) {
		compute, memory := one.limits()
		lines = append(lines, fmt.Sprintf("  Claim      %s: %s of compute and %s of memory of %s on %s", claim.Name, compute, memory, one.at.Device, one.at.Pool))
		if one.ready != nil && one.ready.Status != metav1.ConditionTrue {
			lines = append(lines, fmt.Sprintf("  Not held   %s: %s", one.ready.Reason, one.ready.Message))
		}
	}
	if len(lines) == 0 {
		lines = append(lines, fmt.Sprintf("  Claim      %s: devices of other drivers", claim.Name))
	}
	return lines
}

// asked is what a claim's requests are for.
func asked(claim *resourceapi.ResourceClaim) string {
	var all []string
	for _, request := range claim.Spec.Devices.Requests {
		exactly := request.Exactly
		if exactly == nil {
			all = append(all, "one of several kinds")
			continue
		}
		one := fmt.Sprintf("%d of %s", max(exactly.Count, 1), exactly.DeviceClassName)
		if exactly.Capacity != nil {
			for _, capacity := range []resourceapi.QualifiedName{"compute", "memory"} {
				if amount, is := exactly.Capacity.Requests[capacity]; is {
					one += fmt.Sprintf(", %s %s", capacity, amount.String())
				}
			}
		}
		all = append(all, one)
	}
	return cmp.Or(strings.Join(all, "; "), "nothing")
}

// told are the events of these objects, oldest first.
func told(events []corev1.Event, known map[types.UID]string) (lines []string) {
	last := func(event corev1.Event) time.Time {
		switch {
		case event.Series != nil:
			return event.Series.LastObservedTime.Time
		case !event.LastTimestamp.IsZero():
			return event.LastTimestamp.Time
		case !event.EventTime.IsZero():
			return event.EventTime.Time
		}
		return event.CreationTimestamp.Time
	}
	events = slices.DeleteFunc(slices.Clone(events), func(event corev1.Event) bool { return known[event.InvolvedObject.UID] == "" })
	slices.SortStableFunc(events, func(a, b corev1.Event) int { return last(a).Compare(last(b)) })
	head := "  History    "
	for _, event := range events {
		times := event.Count
		if event.Series != nil {
			times = event.Series.Count
		}
		often := ""
		if times > 1 {
			often = fmt.Sprintf(" (%d times)", times)
		}
		lines = append(lines, fmt.Sprintf("%s%s  %s: %s%s", head, last(event).Local().Format(time.TimeOnly), event.Reason, strings.TrimSpace(event.Message), often))
		head = "             "
	}
	return lines
}
