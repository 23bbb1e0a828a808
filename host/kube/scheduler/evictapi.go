package scheduler

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/aliquot-dev/aliquot/internal/point"
)

// Evicting is the condition of a running pod that is to be evicted together with others: it is written to all of them before the first is
// evicted. What a scheduler that ends meanwhile has begun, the next one finishes by it.
const Evicting corev1.PodConditionType = "aliquot.dev/Evicting"

// Causes of evictions that are refused, as metrics have them.
const (
	causePod    = "pod"    // none is known that has its claims
	causeBudget = "budget" // of disruption, that has nothing left now
	causeGang   = "gang"   // of which another is being started
	causeAPI    = "api"    // the API server did not do it
	causeGone   = "gone"   // who it is for does not wait any more
)

// notEvicted is why a pod runs on.
type notEvicted struct {
	cause string
	why   string
	after time.Duration // when the API server says that it may be tried again; 0: it does not
}

// evictOrder is which pods are to be evicted together.
type evictOrder struct {
	pods  []*corev1.Pod
	grace time.Duration // that each has at most
	why   string
}

// evictAll has pods evicted: all of them, or none and why. It begins if the API server would evict each of them now; once the first is evicted, the others are tried
// until they are, too. After the context has ended it is not known how far it came.
func (w *writer) evictAll(ctx context.Context, order evictOrder) *notEvicted {
	together := len(order.pods) > 1
	refused := w.wouldEvict(ctx, order.pods, order.grace)
	if refused != nil {
		return refused
	}
	for i := 0; together && refused == nil && i < len(order.pods); i++ {
		refused = w.mark(ctx, order.pods[i], true, order.why)
	}
	point.Here("kube.evict.marked")
	for i, pod := range order.pods {
		switch {
		case refused != nil:
		case i == 0:
			refused = w.evict(ctx, pod, order.grace)
			point.Here("kube.evict.begun")
		default:
			w.evictSurely(ctx, pod, order.grace)
		}
	}
	if refused == nil || !together {
		return refused
	}
	for _, pod := range order.pods {
		for try := 0; ; try++ {
			if w.mark(ctx, pod, false, order.why) == nil || !again(ctx, try) {
				break
			}
		}
	}
	return refused
}

// evictSurely tries to evict a pod until it is.
func (w *writer) evictSurely(ctx context.Context, pod *corev1.Pod, grace time.Duration) {
	for try := 0; ; try++ {
		refused := w.evict(ctx, pod, grace)
		if refused == nil {
			return
		}
		if try == tries {
			w.log.Warn("a pod cannot be evicted, and is tried on, for others of its gang have been", "pod", pod.Namespace+"/"+pod.Name, "reason", refused.why)
		}
		if !again(ctx, try) {
			return
		}
	}
}

// wouldEvict says which of several pods, each by itself, the API server would not evict now: nil, if it would evict them all, or there is only one, which can as well be tried.
func (w *writer) wouldEvict(ctx context.Context, pods []*corev1.Pod, grace time.Duration) *notEvicted {
	if len(pods) < 2 {
		return nil
	}
	for _, pod := range pods {
		if refused := w.askEviction(ctx, pod, grace, metav1.DryRunAll); refused != nil {
			return refused
		}
	}
	return nil
}

// evict has the API server end a pod as its disruption budgets allow: nil, if it ends or is gone.
func (w *writer) evict(ctx context.Context, pod *corev1.Pod, grace time.Duration) *notEvicted {
	return w.askEviction(ctx, pod, grace)
}

// askEviction asks for an eviction, or says with DryRunAll whether it would be done.
func (w *writer) askEviction(ctx context.Context, pod *corev1.Pod, grace time.Duration, dryRun ...string) *notEvicted {
	pods := w.client.CoreV1().Pods(pod.Namespace)
	uid := pod.UID
	ask := &policyv1.Eviction{
		ObjectMeta:    metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name},
		DeleteOptions: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}, DryRun: dryRun},
	}
	if most := int64(grace.Seconds()); pod.Spec.TerminationGracePeriodSeconds != nil && *pod.Spec.TerminationGracePeriodSeconds > most {
		ask.DeleteOptions.GracePeriodSeconds = &most
	}
	for try := 0; ; try++ {
		_, err := within(ctx, func(ctx context.Context) (*policyv1.Eviction, error) { return ask, pods.EvictV1(ctx, ask) })
		switch {
		case err == nil || apierrors.IsNotFound(err):
			return nil
		case apierrors.HasStatusCause(err, policyv1.DisruptionBudgetCause):
			seconds, _ := apierrors.SuggestsClientDelay(err)
			return &notEvicted{cause: causeBudget, why: budgetSays(err), after: time.Duration(seconds) * time.Second}
		}
		now, unknown := within(ctx, func(ctx context.Context) (*corev1.Pod, error) { return pods.Get(ctx, pod.Name, metav1.GetOptions{}) })
		switch {
		case apierrors.IsNotFound(unknown) || unknown == nil && (now.UID != pod.UID || now.DeletionTimestamp != nil):
			return nil
		case unknown == nil && try >= tries:
			return &notEvicted{cause: causeAPI, why: fmt.Sprintf("the API server did not evict pod %s/%s: %v", pod.Namespace, pod.Name, err)}
		case !again(ctx, try):
			return &notEvicted{cause: causeAPI, why: ctx.Err().Error()}
		}
	}
}

// budgetSays is what a disruption budget that refused says of itself.
func budgetSays(err error) string {
	if cause, ok := apierrors.StatusCause(err, policyv1.DisruptionBudgetCause); ok && cause.Message != "" {
		return "its disruption budget does not allow it: " + cause.Message
	}
	return "its disruption budget does not allow it"
}

// mark writes into a pod's status that it is to be evicted with others, or that it is not any more: nil, if that is so or the pod is gone.
func (w *writer) mark(ctx context.Context, pod *corev1.Pod, evicting bool, why string) *notEvicted {
	status, reason := corev1.ConditionTrue, "WithItsGang"
	if !evicting {
		status, reason = corev1.ConditionFalse, "RunsOn"
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": pod.UID},
		"status": map[string]any{"conditions": []corev1.PodCondition{{
			Type: Evicting, Status: status, Reason: reason, Message: why, LastTransitionTime: metav1.Now(),
		}}},
	})
	for try := 0; err == nil; try++ {
		_, err = within(ctx, func(ctx context.Context) (*corev1.Pod, error) {
			return w.client.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
		})
		if err == nil || apierrors.IsNotFound(err) || apierrors.IsConflict(err) { // a conflict: another has its name
			return nil
		}
		if try >= tries || !again(ctx, try) {
			break
		}
		err = nil
	}
	return &notEvicted{cause: causeAPI, why: fmt.Sprintf("it could not be written that pod %s/%s is to be evicted: %v", pod.Namespace, pod.Name, err)}
}

// marked is whether a pod is to be evicted with others, and why.
func marked(pod *corev1.Pod) (why string, is bool) {
	for _, c := range pod.Status.Conditions {
		if c.Type == Evicting && c.Status == corev1.ConditionTrue {
			return c.Message, true
		}
	}
	return "", false
}
