package scheduler

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	policylisters "k8s.io/client-go/listers/policy/v1"
)

// allowance is what disruption budgets have left for the evictions of one plan, as far as is known here: it spares a plan that cannot be carried out
// whole. The API server has the last word.
type allowance struct {
	lister policylisters.PodDisruptionBudgetLister
	taken  map[types.UID]int32 // by budget
	pods   map[types.UID]bool  // that were counted
	named  map[types.UID]bool  // of these, those that a budget is for
}

func (s *Scheduler) newAllowance() *allowance {
	return &allowance{lister: s.config.Informers.Policy().V1().PodDisruptionBudgets().Lister(), taken: map[types.UID]int32{}, pods: map[types.UID]bool{}, named: map[types.UID]bool{}}
}

// take counts pods, each once, or says why one of them cannot be evicted now.
func (a *allowance) take(pods []*pod) *notEvicted {
	for _, p := range pods {
		if a.pods[p.object.UID] { // it goes with its gang, and for what it holds itself
			continue
		}
		a.pods[p.object.UID] = true
		if why := a.takeOne(p.object); why != "" {
			return &notEvicted{cause: causeBudget, why: why}
		}
	}
	return nil
}

func (a *allowance) takeOne(pod *corev1.Pod) string {
	if pod.Status.Phase == corev1.PodPending {
		return "" // budgets do not count what does not run yet
	}
	all, err := a.lister.PodDisruptionBudgets(pod.Namespace).List(labels.Everything())
	if err != nil {
		return ""
	}
	var names []string
	for _, budget := range all {
		selector, err := metav1.LabelSelectorAsSelector(budget.Spec.Selector)
		if err != nil || !selector.Matches(labels.Set(pod.Labels)) {
			continue
		}
		a.named[pod.UID] = true
		if names = append(names, budget.Name); len(names) > 1 {
			return fmt.Sprintf("pod %s/%s has several disruption budgets (%s, %s), and the eviction API takes one", pod.Namespace, pod.Name, names[0], names[1])
		}
		if !ready(pod) {
			continue // the API server knows what holds for it
		}
		if a.taken[budget.UID]++; a.taken[budget.UID] > budget.Status.DisruptionsAllowed {
			return fmt.Sprintf("disruption budget %s/%s allows %d disruptions now, and %d are needed", budget.Namespace, budget.Name, budget.Status.DisruptionsAllowed, a.taken[budget.UID])
		}
	}
	return ""
}

// budgetedFirst are pods that were counted, those first that a budget is for: where others have used that up meanwhile, nobody without one has gone for
// nothing.
func (a *allowance) budgetedFirst(pods []*pod) []*pod {
	first, others := []*pod{}, []*pod{}
	for _, p := range pods {
		if a.named[p.object.UID] {
			first = append(first, p)
		} else {
			others = append(others, p)
		}
	}
	return append(first, others...)
}

func ready(pod *corev1.Pod) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}
