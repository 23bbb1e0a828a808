package e2e

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	resourceapi "k8s.io/api/resource/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/host/kube/annotation"
	"github.com/aliquot-dev/aliquot/host/kube/api/v1alpha1"
	"github.com/aliquot-dev/aliquot/host/kube/scheduler"
)

// What a queue lets its pods do holds when they are made, and what it uses stands in its status, each by its component's own account and as the API server
// takes it; `kubectl aliquot queue show` prints it.
func TestQueueBounds(t *testing.T) {
	w := beginWith(t, "h200x1", map[string]any{
		"scheduler": map[string]any{"enabled": true, "replicas": 0},
		"webhook":   map[string]any{"enabled": true, "replicas": 0, "scheduler": scheduler.Name}, "controller": map[string]any{"enabled": true, "replicas": 0},
	})
	w.halves()
	objects, err := dynamic.NewForConfig(w.REST())
	w.no(err)
	queues := objects.Resource(v1alpha1.Queues)
	queue := &unstructured.Unstructured{}
	w.no(json.Unmarshal([]byte(`{"apiVersion":"aliquot.dev/v1alpha1","kind":"Queue","metadata":{"name":"default"},"spec":{"quota":{"compute":"1"},"hours":"100/week","longestRun":"2h","maxPriority":50}}`), queue))
	_, err = queues.Create(w.ctx, queue, metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict})
	w.no(err)
	w.startWebhook(scheduler.Name)
	w.startScheduler()

	made := w.admitted(w.claiming("runs", nil))
	if limit := made.Spec.ActiveDeadlineSeconds; limit == nil || *limit != 7200 {
		t.Errorf("its time limit is %v, want the queue's", limit)
	}
	long := int64(7201)
	for name, pod := range map[string]*corev1.Pod{
		"a time limit of 2h0m1s was asked for": w.claiming("long", func(pod *corev1.Pod) { pod.Spec.ActiveDeadlineSeconds = &long }),
		"priority 100 was asked for (PriorityClass urgent), and in queue default pods may have at most 50": w.claiming("high", func(pod *corev1.Pod) { pod.Spec.PriorityClassName = "urgent" }),
	} {
		if _, err := w.makes(pod, metav1.CreateOptions{}); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("got %v, want it refused: %s", err, name)
		}
	}
	uses := func() *v1alpha1.QueueUses {
		object, err := queues.Get(w.ctx, "default", metav1.GetOptions{})
		w.no(err)
		read, err := v1alpha1.Read[v1alpha1.Queue](object)
		w.no(err)
		return read.Status.Uses
	}
	w.eventually("it is said what the queue uses", func() (bool, string) {
		u := uses()
		return u != nil && u.Running == 1 && u.Held.Compute == 500 && u.Hours != nil && u.Hours.Per == api.Week, fmt.Sprintf("%+v\n%s", u, w.Log("scheduler"))
	})
	w.showsQueue()
	_, err = queues.Patch(w.ctx, "default", types.MergePatchType, []byte(`{"spec":{"hours":null}}`), metav1.PatchOptions{})
	w.no(err)
	w.eventually("nothing is said of device-hours any more", func() (bool, string) {
		u := uses()
		return u != nil && u.Hours == nil, fmt.Sprintf("%+v", u)
	})
	w.permitted("webhook", "controller", "scheduler")
	w.remove("runs")
}

// showsQueue has `kubectl aliquot queue show` say what queue default has and uses, to a user who may view all of the cluster. Who may view one namespace
// alone is told what it takes.
func (w *world) showsQueue() {
	w.Helper()
	program := w.built("kubectl-aliquot")
	says := func(user string, fails bool, want ...string) {
		w.Helper()
		kubeconfig, err := w.KubeconfigOf(w.ctx, "default", user)
		w.no(err)
		w.eventually("queue show says what is so to "+user, func() (bool, string) { // once the API server knows what they may
			said, err := exec.CommandContext(w.ctx, program, "queue", "show", "default", "--kubeconfig", kubeconfig).CombinedOutput()
			lacks := slices.ContainsFunc(want, func(word string) bool { return !strings.Contains(string(said), word) })
			return (err != nil) == fails && !lacks, fmt.Sprintf("%v\n%s\nwant %q", err, said, want)
		})
	}
	view := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "view"}
	user := func(name string) (metav1.ObjectMeta, []rbacv1.Subject) {
		meta := metav1.ObjectMeta{Name: name}
		_, err := w.client.CoreV1().ServiceAccounts("default").Create(w.ctx, &corev1.ServiceAccount{ObjectMeta: meta}, metav1.CreateOptions{})
		w.no(err)
		return meta, []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "default", Name: name}}
	}
	all, who := user("sees-all")
	_, err := w.client.RbacV1().ClusterRoleBindings().Create(w.ctx, &rbacv1.ClusterRoleBinding{ObjectMeta: all, RoleRef: view, Subjects: who}, metav1.CreateOptions{})
	w.no(err)
	says(all.Name, false, "quota ", "1.00", "held ", "0.50", "of 100 this week", "longest run", "highest priority", "Running 1, waiting 0, as of ")
	one, who := user("sees-one")
	_, err = w.client.RbacV1().RoleBindings("default").Create(w.ctx, &rbacv1.RoleBinding{ObjectMeta: one, RoleRef: view, Subjects: who}, metav1.CreateOptions{})
	w.no(err)
	says(one.Name, true, "forbidden", "takes the role view by a ClusterRoleBinding")
}

// permitted checks that nothing was forbidden to these.
func (w *world) permitted(names ...string) {
	w.Helper()
	for _, name := range names {
		if said := w.Log(name); strings.Contains(said, "forbidden") || strings.Contains(said, "panic") {
			w.Errorf("the %s said:\n%s", name, said)
		}
	}
}

// halves makes a claim for half of a device, and a priority that is higher than others.
func (w *world) halves() {
	w.Helper()
	_, err := w.client.SchedulingV1().PriorityClasses().Create(w.ctx, &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "urgent"}, Value: 100}, metav1.CreateOptions{})
	w.no(err)
	ask, err := annotation.Parse(map[string]string{annotation.GPU: "0.50", annotation.Memory: "4Gi"})
	w.no(err)
	spec, err := ask.Spec()
	w.no(err)
	_, err = w.client.ResourceV1().ResourceClaims("default").Create(w.ctx, &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: "half"}, Spec: spec}, metav1.CreateOptions{})
	w.no(err)
}

// claiming is a pod with the claim half.
func (w *world) claiming(name string, change func(*corev1.Pod)) *corev1.Pod {
	pod, claim := w.pod(work{name: name, command: []string{"/bin/pod"}}), "half"
	pod.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "share", ResourceClaimName: &claim}}
	pod.Spec.Containers[0].Resources.Claims = []corev1.ResourceClaim{{Name: "share"}}
	if change != nil {
		change(pod)
	}
	return pod
}
