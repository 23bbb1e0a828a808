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

	"github.com/aliquot-dev/aliquot/api"
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
	known := map[types.UID]bool{pod.UID: true}
	for _, claim := range claims {
		known[claim.UID] = true
	}
	events, err := p.Client.CoreV1().Events(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list events of namespace %s: %w", namespace, err)
	}
	history := told(events.Items, known)
	if len(missing) == 0 { // its template was not there at first, as none is of which nobody has asked for so much before: it is by now
		history = slices.DeleteFunc(history, func(one toldShown) bool { return one.Reason == "FailedResourceClaimCreation" })
	}
	if p.encodes() {
		return p.encode(whyOf(pod, claims, missing, history))
	}
	lines := []string{sentence(pod, history)}
	for _, one := range missing {
		lines = append(lines, fmt.Sprintf("  Claim      %s: not there yet", one))
	}
	for _, claim := range claims {
		lines = append(lines, aboutClaim(claim)...)
	}
	if len(claims) == 0 && len(missing) == 0 {
		lines = append(lines, "  Claim      none: it asks for no device")
	}
	head := "  History    "
	for _, one := range history {
		often := ""
		if one.Times > 1 {
			often = fmt.Sprintf(" (%d times)", one.Times)
		}
		lines = append(lines, fmt.Sprintf("%s%s  %s: %s%s", head, one.At.Local().Format(time.TimeOnly), one.Reason, one.Message, often))
		head = "             "
	}
	_, err = fmt.Fprintln(p.Out, strings.Join(lines, "\n"))
	return err
}

// whyShown is why a pod is as it is.
type whyShown struct {
	Namespace string          `json:"namespace"`
	Pod       string          `json:"pod"`
	Phase     corev1.PodPhase `json:"phase"`
	Node      string          `json:"node,omitempty"`
	Message   string          `json:"message"` // how it is, in one sentence
	Claims    []claimShown    `json:"claims"`
	History   []toldShown     `json:"history"` // oldest first
}

// claimShown is one of a pod's claims.
type claimShown struct {
	Name      string       `json:"name"` // or, of one that is not there, of the pod's entry
	Template  string       `json:"template,omitempty"`
	There     bool         `json:"there"`
	Allocated bool         `json:"allocated"`
	AsksFor   string       `json:"asksFor,omitempty"`
	Grants    []usageShown `json:"grants"` // of our devices
}

// toldShown is what was told of a pod or of its claims.
type toldShown struct {
	At      metav1.Time `json:"at"` // the last time
	Reason  string      `json:"reason"`
	Message string      `json:"message"`
	Times   int32       `json:"times"`
}

func whyOf(pod *corev1.Pod, claims []*resourceapi.ResourceClaim, missing []absent, history []toldShown) whyShown {
	out := whyShown{
		Namespace: pod.Namespace, Pod: pod.Name, Phase: pod.Status.Phase, Node: pod.Spec.NodeName, Message: sentence(pod, history),
		Claims: []claimShown{}, History: append([]toldShown{}, history...),
	}
	for _, one := range missing {
		out.Claims = append(out.Claims, claimShown{Name: one.name, Template: one.template, Grants: []usageShown{}})
	}
	for _, claim := range claims {
		one := claimShown{Name: claim.Name, There: true, Allocated: claim.Status.Allocation != nil, AsksFor: asked(claim), Grants: []usageShown{}}
		for _, share := range holdings(claim) {
			one.Grants = append(one.Grants, share.shown())
		}
		out.Claims = append(out.Claims, one)
	}
	return out
}

// sentence is how a pod is, by what was told of it, too.
func sentence(pod *corev1.Pod, history []toldShown) string {
	if at := pod.DeletionTimestamp; at != nil && pod.Spec.NodeName != "" {
		said := fmt.Sprintf("%s is told to end by %s, on node %s", pod.Name, at.Local().Format(time.TimeOnly), pod.Spec.NodeName)
		if !slices.ContainsFunc(pod.Status.ContainerStatuses, func(c corev1.ContainerStatus) bool { return c.State.Running != nil }) {
			said += ": no container of it runs, and what is left is the node's to take back"
		}
		return said
	}
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodScheduled && condition.Status == corev1.ConditionFalse {
			return fmt.Sprintf("%s waits: %s", pod.Name, cmp.Or(condition.Message, condition.Reason))
		}
	}
	if pod.Spec.NodeName == "" {
		return fmt.Sprintf("%s waits, and no scheduler (%s) has said why", pod.Name, pod.Spec.SchedulerName)
	}
	starts := fmt.Sprintf("%s starts on node %s", pod.Name, pod.Spec.NodeName)
	for _, container := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		if waiting := container.State.Waiting; waiting != nil && waiting.Message != "" {
			if pod.Status.Phase != corev1.PodPending {
				starts = fmt.Sprintf("%s is on node %s, and container %s does not run", pod.Name, pod.Spec.NodeName, container.Name)
			}
			return fmt.Sprintf("%s: %s: %s", starts, waiting.Reason, waiting.Message)
		}
	}
	if pod.Status.Phase == corev1.PodPending {
		for _, one := range slices.Backward(history) {
			if strings.HasPrefix(one.Reason, "Failed") {
				return fmt.Sprintf("%s: %s: %s", starts, one.Reason, one.Message)
			}
		}
		return starts
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
		if one.administers() {
			lines = append(lines, fmt.Sprintf("  Claim      %s: sees all of %s on %s as an administrator", claim.Name, one.at.Device, one.at.Pool))
			continue
		}
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
			if part, is := exactly.Capacity.Requests["compute"]; is {
				one += fmt.Sprintf(", %s of compute", api.Milli(part.Value()))
			}
			if memory, is := exactly.Capacity.Requests["memory"]; is {
				one += fmt.Sprintf(", %s of memory", memory.String())
			}
		}
		all = append(all, one)
	}
	return cmp.Or(strings.Join(all, "; "), "nothing")
}

// told is what events say of these objects, oldest first.
func told(events []corev1.Event, known map[types.UID]bool) (all []toldShown) {
	for _, event := range events {
		if !known[event.InvolvedObject.UID] {
			continue
		}
		one := toldShown{Reason: event.Reason, Message: strings.TrimSpace(event.Message), Times: max(1, event.Count)}
		switch {
		case event.Series != nil:
			one.At, one.Times = metav1.NewTime(event.Series.LastObservedTime.Time), event.Series.Count
		case !event.LastTimestamp.IsZero():
			one.At = event.LastTimestamp
		case !event.EventTime.IsZero():
			one.At = metav1.NewTime(event.EventTime.Time)
		default:
			one.At = event.CreationTimestamp
		}
		all = append(all, one)
	}
	slices.SortStableFunc(all, func(a, b toldShown) int { return a.At.Compare(b.At.Time) })
	return all
}
