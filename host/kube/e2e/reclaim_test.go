package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"

	"github.com/aliquot-dev/aliquot/host/kube/api/v1alpha1"
	"github.com/aliquot-dev/aliquot/host/kube/scheduler"
	"github.com/aliquot-dev/aliquot/host/kube/testcluster"
)

// A queue that holds more than its quota gives back to its owner: a pod that a disruption budget guards runs on, a Deployment's is evicted in its
// place, and the device is the owner's once that pod has ended. The Deployment makes another, which waits in line and runs when the owner is done.
func TestGivesBack(t *testing.T) {
	w := beginWith(t, "h200x1", map[string]any{"scheduler": map[string]any{"enabled": true, "replicas": 0}})
	w.startScheduler()
	w.lends()
	trainer := []string{"/bin/trainer", "--seconds", "0", "--kernel-us", "5000", "--progress", "0"}
	guest := work{name: "batch", compute: 500, memory: "1Gi", command: trainer, scheduler: scheduler.Name, queue: "guest", grace: 4}
	w.deployment(guest)
	evicted := w.podOf("batch", "")
	w.trains(evicted)
	guest.name, guest.labels = "kept", map[string]string{"app": "kept"}
	w.guarded("kept")
	w.submit(guest)
	w.trains("kept")
	w.budgeted("kept")
	before, err := w.client.CoreV1().Pods("default").Get(w.ctx, "kept", metav1.GetOptions{})
	w.no(err)

	w.givesWay(evicted, "own", func() {
		w.submit(work{name: "own", compute: 400, memory: "1Gi", command: trainer, scheduler: scheduler.Name, queue: "owner"})
	})
	pods := w.client.CoreV1().Pods("default")
	w.tellsOf(evicted, "Evicted", "queue owner wants back what it is guaranteed", "(plan ", "for pod default/own")
	w.tellsOf("own", "NotEvicted", "pod default/kept was to be evicted", "disruption budget default/kept allows 0 disruptions now")
	w.tellsOf("own", "Evicting", "pod default/"+evicted+" is evicted for it")
	w.trains("own")
	again := w.podOf("batch", evicted)
	w.unplaced(again, "not enough is free")
	w.remove("own")
	w.trains(again)
	if now, err := pods.Get(w.ctx, "kept", metav1.GetOptions{}); err != nil || now.UID != before.UID || now.Status.Phase != corev1.PodRunning {
		t.Errorf("what the budget guards is %+v: %v", now, err)
	}
	claim := w.claim(again).Name
	background := metav1.DeletePropagationBackground
	w.no(w.client.AppsV1().Deployments("default").Delete(w.ctx, "batch", metav1.DeleteOptions{PropagationPolicy: &background}))
	w.no(testcluster.AwaitGone(w.ctx, pods, again))
	w.no(testcluster.AwaitGone(w.ctx, w.client.ResourceV1().ResourceClaims("default"), claim))
	w.remove("kept")
	w.empty()
	if said := w.Log("scheduler"); strings.Contains(said, "forbidden") || strings.Contains(said, "panic") {
		t.Errorf("the scheduler said:\n%s", said)
	}
}

// givesWay does something, waits until a pod that comes by that has a node, and checks that another was evicted and had ended before. It sees each change of both, in
// the order in which they were written.
func (w *world) givesWay(evicted, to string, by func()) {
	w.Helper()
	pods := w.client.CoreV1().Pods("default")
	before, err := pods.List(w.ctx, metav1.ListOptions{})
	w.no(err)
	within, cancel := context.WithTimeout(w.ctx, patience)
	defer cancel()
	changes, err := pods.Watch(within, metav1.ListOptions{ResourceVersion: before.ResourceVersion})
	w.no(err)
	defer changes.Stop()
	by()
	told, ended := false, false
	for change := range changes.ResultChan() {
		pod, is := change.Object.(*corev1.Pod)
		switch {
		case !is:
			w.Fatalf("pods are not watched any more: %+v", change.Object)
		case pod.Name == evicted:
			told = told || pod.DeletionTimestamp != nil && slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
				return c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue
			})
			ended = ended || change.Type == watch.Deleted || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
		case pod.Name == to && pod.Spec.NodeName != "":
			if !told || !ended {
				w.Errorf("%s has a node, and %s was evicted: %v, and has ended: %v", to, evicted, told, ended)
			}
			return
		}
	}
	w.Fatalf("waited %v until %s has a node; %s was evicted: %v, and has ended: %v", patience, to, evicted, told, ended)
}

// lends makes two queues under that of the namespace: one owns the device, the other nothing.
func (w *world) lends() {
	w.Helper()
	client, err := dynamic.NewForConfig(w.REST())
	w.no(err)
	for name, spec := range map[string]map[string]any{
		"org": {}, "owner": {"parent": "org", "quota": map[string]any{"compute": "1"}}, "guest": {"parent": "org", "quota": map[string]any{"compute": "0"}},
	} {
		queue := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "aliquot.dev/v1alpha1", "kind": "Queue", "metadata": map[string]any{"name": name}, "spec": spec,
		}}
		_, err := client.Resource(v1alpha1.Queues).Create(w.ctx, queue, metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict})
		w.no(err)
	}
	_, err = w.client.CoreV1().Namespaces().Patch(w.ctx, "default", types.MergePatchType, []byte(`{"metadata":{"labels":{"aliquot.dev/queue":"org"}}}`), metav1.PatchOptions{})
	w.no(err)
}

// deployment makes a Deployment of one such pod, which takes two seconds to end.
func (w *world) deployment(one work) {
	w.Helper()
	pod, app := w.sharing(one), map[string]string{"app": one.name}
	pod.Spec.RestartPolicy = corev1.RestartPolicyAlways
	pod.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Sleep: &corev1.SleepAction{Seconds: 2}}}
	_, err := w.client.AppsV1().Deployments("default").Create(w.ctx, &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: one.name},
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: app},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: app, Annotations: pod.Annotations}, Spec: pod.Spec},
		},
	}, metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict})
	w.no(err)
}

// podOf is the name of the pod of an app, other than one that it had.
func (w *world) podOf(app, had string) (name string) {
	w.Helper()
	w.eventually(app+" has a pod", func() (bool, string) {
		list, err := w.client.CoreV1().Pods("default").List(w.ctx, metav1.ListOptions{LabelSelector: "app=" + app})
		w.no(err)
		var names []string
		for _, pod := range list.Items {
			if names = append(names, pod.Name); pod.Name != had {
				name = pod.Name
			}
		}
		return name != "", fmt.Sprint(names)
	})
	return name
}

// guarded makes a budget by which no pod of an app may be evicted; budgeted waits until it counts one.
func (w *world) guarded(app string) {
	w.Helper()
	one := intstr.FromInt32(1)
	_, err := w.client.PolicyV1().PodDisruptionBudgets("default").Create(w.ctx, &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: app},
		Spec:       policyv1.PodDisruptionBudgetSpec{MinAvailable: &one, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}},
	}, metav1.CreateOptions{})
	w.no(err)
}

func (w *world) budgeted(app string) {
	w.Helper()
	_, err := testcluster.AwaitObject(w.ctx, w.client.PolicyV1().PodDisruptionBudgets("default"), app, "a budget that guards a pod", func(budget *policyv1.PodDisruptionBudget) (bool, error) {
		return budget.Status.CurrentHealthy == 1 && budget.Status.DisruptionsAllowed == 0, nil
	})
	w.no(err)
}

// tellsOf waits until a pod has an event of a reason, with these words.
func (w *world) tellsOf(pod, reason string, words ...string) {
	w.Helper()
	w.eventually(fmt.Sprintf("%s has an event %s that says %q", pod, reason, words), func() (bool, string) {
		events, err := w.client.CoreV1().Events("default").List(w.ctx, metav1.ListOptions{FieldSelector: "involvedObject.name=" + pod})
		w.no(err)
		said := ""
		for _, event := range events.Items {
			missing := false
			for _, word := range words {
				missing = missing || !strings.Contains(event.Message, word)
			}
			if event.Reason == reason && !missing {
				return true, ""
			}
			said += event.Reason + ": " + event.Message + "\n"
		}
		return false, said
	})
}
