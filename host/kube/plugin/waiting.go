package plugin

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"text/tabwriter"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/aliquot-dev/aliquot/host/kube/annotation"
)

// mostWaiting is how many of those who wait are in the table: more than a screen shows.
const mostWaiting = 50

// waiterShown is a pod that waits for a device.
type waiterShown struct {
	Namespace string      `json:"namespace"`
	Pod       string      `json:"pod"`
	Since     metav1.Time `json:"since"`
	AsksFor   string      `json:"asksFor"`
	Message   string      `json:"message"` // why, in the scheduler's words
}

// whoWaits are the pods that wait for a device, who has waited longest first, and what the scheduler says of each.
func (p Plugin) whoWaits(ctx context.Context, namespace string, claims []resourceapi.ResourceClaim) ([]waiterShown, error) {
	pods, err := p.Client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{FieldSelector: fields.AndSelectors(
		fields.OneTermEqualSelector("spec.nodeName", ""), fields.OneTermEqualSelector("status.phase", string(corev1.PodPending)),
	).String()})
	if err != nil {
		return nil, err
	}
	byName := map[string]*resourceapi.ResourceClaim{}
	for i := range claims {
		byName[claims[i].Namespace+"/"+claims[i].Name] = &claims[i]
	}
	wait, classes := []waiterShown{}, p.classes(ctx)
	for _, pod := range pods.Items {
		if pod.Spec.NodeName != "" || pod.Status.Phase != corev1.PodPending {
			continue
		}
		if want := wanted(&pod, byName, classes); want != "" {
			wait = append(wait, waiterShown{pod.Namespace, pod.Name, pod.CreationTimestamp, want, reason(&pod)})
		}
	}
	slices.SortFunc(wait, func(a, b waiterShown) int {
		return cmp.Or(a.Since.Compare(b.Since.Time), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Pod, b.Pod))
	})
	return wait, nil
}

// waiting prints who waits; unknown is why that cannot be told.
func (p Plugin) waiting(wait []waiterShown, unknown error) error {
	if unknown != nil {
		_, err := fmt.Fprintf(p.Out, "Who waits is not known: %v\n", unknown)
		return err
	}
	if len(wait) == 0 {
		return nil
	}
	fmt.Fprintln(p.Out)
	table := tabwriter.NewWriter(p.Out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, "WAITS\tFOR\tASKS FOR\tWHY")
	for _, one := range wait[:min(len(wait), mostWaiting)] {
		since := duration.HumanDuration(p.Now().Sub(one.Since.Time).Round(time.Second))
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", one.Namespace+"/"+one.Pod, since, one.AsksFor, one.Message)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	if more := len(wait) - mostWaiting; more > 0 {
		fmt.Fprintf(p.Out, "and %d more\n", more)
	}
	return nil
}

// wanted is what a pod asks for of devices of ours; empty: nothing that is known.
func wanted(pod *corev1.Pod, claims map[string]*resourceapi.ResourceClaim, classes func(string) *resourceapi.DeviceClass) string {
	if ask, err := annotation.Parse(pod.Annotations); err == nil && ask != nil {
		said := pod.Annotations[annotation.GPU]
		if memory := pod.Annotations[annotation.Memory]; memory != "" {
			said += ", " + memory
		}
		if devices := pod.Annotations[annotation.Devices]; devices != "" {
			said = devices + " times " + said
		}
		return said
	}
	var names []string
	for _, one := range pod.Spec.ResourceClaims {
		if one.ResourceClaimName != nil {
			names = append(names, *one.ResourceClaimName)
		}
	}
	for _, one := range pod.Status.ResourceClaimStatuses {
		if one.ResourceClaimName != nil {
			names = append(names, *one.ResourceClaimName)
		}
	}
	for _, name := range names {
		if claim := claims[pod.Namespace+"/"+name]; claim != nil && asks(claim, classes) {
			return asked(claim)
		}
	}
	return ""
}

// reason is why a pod waits, in the scheduler's words.
func reason(pod *corev1.Pod) string {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodScheduled && condition.Status == corev1.ConditionFalse {
			return cmp.Or(condition.Message, condition.Reason)
		}
	}
	return "no scheduler has said why yet"
}
