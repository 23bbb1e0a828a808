package scheduler

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	core "k8s.io/client-go/testing"
)

var budgetsResource = policyv1.SchemeGroupVersion.WithResource("poddisruptionbudgets")

// evict is the eviction API: what runs is to end, and does when a test says so.
func (c *cluster) evict(action core.CreateActionImpl) (bool, runtime.Object, error) {
	ask := action.GetObject().(*policyv1.Eviction)
	tried := len(ask.DeleteOptions.DryRun) > 0
	wrong := none
	if !tried {
		wrong = c.fails("evict pods")
	}
	if c.refuses != nil && c.refuses("evict pods", ask) {
		wrong = before
	}
	switch wrong {
	case before:
		return true, nil, apierrors.NewForbidden(podsResource.GroupResource(), ask.Name, fmt.Errorf("the test wants it"))
	case lostly:
		return true, nil, errUnreachable
	}
	stored, err := c.client.Tracker().Get(podsResource, ask.Namespace, ask.Name)
	if err != nil {
		return true, nil, err
	}
	pod := stored.(*corev1.Pod).DeepCopy()
	if pod.UID != *ask.DeleteOptions.Preconditions.UID {
		return true, nil, apierrors.NewConflict(podsResource.GroupResource(), ask.Name, fmt.Errorf("it is another"))
	}
	if pod.DeletionTimestamp == nil {
		if err := c.spend(pod, tried); err != nil || tried {
			return true, ask, err
		}
		now := metav1.Now()
		pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds = &now, ask.DeleteOptions.GracePeriodSeconds
		if err := c.store(podsResource, pod); err != nil {
			return true, nil, err
		}
		c.evicted <- pod.Name
	}
	if wrong == after {
		return true, nil, errUnreachable
	}
	return true, ask, nil
}

// spend takes a disruption from a pod's budget, or tries whether it can be.
func (c *cluster) spend(pod *corev1.Pod, tried bool) error {
	list, err := c.client.Tracker().List(budgetsResource, policyv1.SchemeGroupVersion.WithKind("PodDisruptionBudget"), pod.Namespace)
	if err != nil {
		return err
	}
	for _, budget := range list.(*policyv1.PodDisruptionBudgetList).Items {
		if !labels.SelectorFromSet(budget.Spec.Selector.MatchLabels).Matches(labels.Set(pod.Labels)) {
			continue
		}
		if budget.Status.DisruptionsAllowed == 0 {
			refusal := apierrors.NewTooManyRequests("Cannot evict pod as it would violate the pod's disruption budget.", 0)
			refusal.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: policyv1.DisruptionBudgetCause, Message: "The disruption budget " + budget.Name + " needs them all"}}
			return refusal
		}
		if tried {
			return nil
		}
		budget.Status.DisruptionsAllowed--
		return c.store(budgetsResource, &budget)
	}
	return nil
}

// budget makes a disruption budget for the pods that have a label, or changes how many it allows.
func (c *cluster) budget(app string, allows int32) {
	c.Helper()
	budget := &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: app, UID: types.UID("budget-" + app)},
		Spec:       policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}},
		Status:     policyv1.PodDisruptionBudgetStatus{DisruptionsAllowed: allows},
	}
	if _, err := c.client.Tracker().Get(budgetsResource, "default", app); err != nil {
		c.add(budgetsResource, budget)
	} else {
		c.mu.Lock()
		err = c.store(budgetsResource, budget)
		c.mu.Unlock()
		if err != nil {
			c.Fatal(err)
		}
	}
	c.told("the budget "+app, func(s *Scheduler) bool {
		known, err := s.newAllowance().lister.PodDisruptionBudgets("default").Get(app)
		return err == nil && known.ResourceVersion == budget.ResourceVersion
	})
}

// patch is a change of a pod's status, which fails as a test wants.
func (c *cluster) patch(action core.PatchActionImpl) (bool, runtime.Object, error) {
	wrong := c.fails("patch pods")
	switch wrong {
	case before:
		return true, nil, apierrors.NewForbidden(podsResource.GroupResource(), action.GetName(), fmt.Errorf("the test wants it"))
	case lostly:
		return true, nil, errUnreachable
	}
	var patch struct{ Metadata metav1.ObjectMeta }
	if err := json.Unmarshal(action.GetPatch(), &patch); err != nil {
		return true, nil, err
	}
	stored, err := c.client.Tracker().Get(podsResource, action.GetNamespace(), action.GetName())
	if err != nil {
		return true, nil, err
	}
	now := stored.(*corev1.Pod)
	if want := patch.Metadata; want.UID != now.UID || want.ResourceVersion != "" && want.ResourceVersion != now.ResourceVersion {
		return true, nil, apierrors.NewConflict(podsResource.GroupResource(), action.GetName(), fmt.Errorf("it is another, or has changed"))
	}
	done, object, err := core.ObjectReaction(c.client.Tracker())(action)
	if err == nil && wrong == after {
		return true, nil, errUnreachable
	}
	return done, object, err
}

// endEvicted ends the pods that are to end, and makes them again, if this test wants that.
func (c *cluster) endEvicted() {
	c.Helper()
	for c.ends {
		select {
		case name := <-c.evicted:
			stored, err := c.client.Tracker().Get(podsResource, "default", name)
			if err != nil || stored.(*corev1.Pod).DeletionTimestamp == nil {
				continue // a test was faster
			}
			c.remove(name)
			c.recipes[name]()
		default:
			return
		}
	}
}

// ending waits until so many pods are to end, and returns their names in order.
func (c *cluster) ending(count int) []string {
	c.Helper()
	var names []string
	c.eventually(fmt.Sprint(count, " pods are evicted"), func() bool {
		select {
		case name := <-c.evicted:
			names = append(names, name)
		default:
		}
		return len(names) >= count
	})
	slices.Sort(names)
	return names
}

// hears waits until a pod has an event of a reason, with these words.
func (c *cluster) hears(name, reason string, words ...string) {
	c.Helper()
	c.eventually(fmt.Sprintf("%s has an event %s that says %q", name, reason, words), func() bool {
		events, err := c.client.Tracker().List(corev1.SchemeGroupVersion.WithResource("events"), corev1.SchemeGroupVersion.WithKind("Event"), "default")
		if err != nil {
			c.Fatal(err)
		}
		return slices.ContainsFunc(events.(*corev1.EventList).Items, func(event corev1.Event) bool {
			return event.InvolvedObject.Name == name && event.Reason == reason && allIn(event.Message, words)
		})
	})
}

func allIn(text string, words []string) bool {
	return !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(text, word) })
}
