package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/aliquot-dev/aliquot/host/kube/annotation"
	"github.com/aliquot-dev/aliquot/host/kube/scheduler"
	"github.com/aliquot-dev/aliquot/host/kube/testcluster"
)

// Gangs that nobody labels wait whole while one of their pods would not fit, and start whole once all do: the pods of an indexed Job, those of a
// JobSet, which are a launcher and two Jobs of workers, and a group of a LeaderWorkerSet, whose leader asks for less than its workers. Pods are made by the
// controllers that users have, from templates that ask by annotations and nothing more, or by a claim's template. A JobSet whose programs are done is, and
// what is deleted leaves nothing. A Deployment asks by labels, and replaces its pods as these change.
func TestOwnedGangs(t *testing.T) {
	w := beginWith(t, "h200x1", map[string]any{
		"webhook": map[string]any{"enabled": true, "replicas": 0, "scheduler": scheduler.Name}, "controller": map[string]any{"enabled": true, "replicas": 0},
		"scheduler": map[string]any{"enabled": true, "replicas": 0},
	})
	w.startWebhook(scheduler.Name)
	w.startScheduler()
	for _, name := range []string{testcluster.JobSet, testcluster.LeaderWorkerSet} {
		_, err := w.Operate(w.ctx, name)
		w.no(err)
	}
	objects, err := dynamic.NewForConfig(w.REST())
	w.no(err)
	trainer := []string{"/bin/trainer", "--seconds", "0", "--kernel-us", "5000", "--progress", "0"}
	// template is that of pods that train with so many thousandths of a device, by a claim's template, of a gang of this name.
	template := func(gang, name string, compute int64) corev1.PodTemplateSpec {
		pod := w.sharing(work{name: name, compute: compute, memory: "1Gi", command: trainer})
		pod.Spec.RestartPolicy = corev1.RestartPolicyAlways
		return corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"gang": gang}}, Spec: pod.Spec}
	}
	indexed := func(gang string, count int32, gpu string) batchv1.JobSpec {
		mode, none := batchv1.IndexedCompletion, int32(0)
		return batchv1.JobSpec{
			Completions: &count, Parallelism: &count, CompletionMode: &mode, BackoffLimit: &none, Template: w.annotatedTemplate(gang, trainer, gpu),
		}
	}
	background := metav1.DeletePropagationBackground

	jobs := w.client.BatchV1().Jobs("default")
	w.wholeOrNot("indexed", 4, "4 tasks at once, each of 0.20 of a device", func() {
		_, err := jobs.Create(w.ctx, &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "indexed"}, Spec: indexed("indexed", 4, "0.20")}, metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict})
		w.no(err)
	}, func() { w.no(jobs.Delete(w.ctx, "indexed", metav1.DeleteOptions{PropagationPolicy: &background})) })

	sets := objects.Resource(schema.GroupVersionResource{Group: "jobset.x-k8s.io", Version: "v1alpha2", Resource: "jobsets"}).Namespace("default")
	w.wholeOrNot("set", 5, "4 tasks at once, each of 0.20 of a device with 1Gi of memory, and with them for role set-launcher-0-0", func() {
		w.owner(sets, "jobset.x-k8s.io/v1alpha2", "JobSet", "set", map[string]any{
			"replicatedJobs": []any{
				map[string]any{"name": "launcher", "replicas": 1, "template": map[string]any{"spec": indexed("set", 1, "0.10")}},
				map[string]any{"name": "workers", "replicas": 2, "template": map[string]any{"spec": indexed("set", 2, "0.20")}},
			},
		})
	}, func() {
		w.done("set", sets)
		w.no(sets.Delete(w.ctx, "set", metav1.DeleteOptions{PropagationPolicy: &background}))
	})

	leaders := objects.Resource(schema.GroupVersionResource{Group: "leaderworkerset.x-k8s.io", Version: "v1", Resource: "leaderworkersets"}).Namespace("default")
	w.wholeOrNot("serve", 4, "3 tasks at once, each of 0.20 of a device with 1Gi of memory, and with them for role serve-0 0.10 of a device", func() {
		w.owner(leaders, "leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", "serve", map[string]any{
			"replicas": 1, "startupPolicy": "LeaderCreated", "leaderWorkerTemplate": map[string]any{
				"size":           4,
				"leaderTemplate": template("serve", "leads", 100), "workerTemplate": template("serve", "works", 200),
			},
		})
	}, func() { w.no(leaders.Delete(w.ctx, "serve", metav1.DeleteOptions{PropagationPolicy: &background})) })
	w.replaces(trainer)
	w.empty()
	w.permitted("webhook", "controller", "scheduler", testcluster.JobSet, testcluster.LeaderWorkerSet)
}

// annotatedTemplate is that of pods that ask for so much of a device by annotations, and say nothing else that a pod without a device would not.
func (w *world) annotatedTemplate(gang string, command []string, gpu string) corev1.PodTemplateSpec {
	pod := w.annotated(work{command: command}, "gpu", gpu, "memory", "1Gi")
	return corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"gang": gang}, Annotations: pod.Annotations}, Spec: pod.Spec}
}

// replaces has a Deployment's two pods replaced by others, one after the other, as the labels of its template ask for another share.
func (w *world) replaces(command []string) {
	w.Helper()
	deployments, count := w.client.AppsV1().Deployments("default"), int32(2)
	strict := metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict}
	pod := w.pod(work{command: command})
	pod.Spec.RestartPolicy = corev1.RestartPolicyAlways
	_, err := deployments.Create(w.ctx, &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "serves"}, Spec: appsv1.DeploymentSpec{
		Replicas: &count, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"gang": "serves"}},
		Template: corev1.PodTemplateSpec{Spec: pod.Spec, ObjectMeta: metav1.ObjectMeta{
			Labels: map[string]string{"gang": "serves", annotation.GPU: "0.20..0.50", annotation.Memory: "1Gi"},
		}},
	}}, strict)
	w.no(err)
	var all []corev1.Pod
	have := func(want string) {
		w.Helper()
		_, err := testcluster.AwaitObject(w.ctx, deployments, "serves", "a Deployment with as many pods as it wants, all new", func(d *appsv1.Deployment) (bool, error) {
			s := d.Status
			return s.ObservedGeneration == d.Generation && s.Replicas == count && s.UpdatedReplicas == count && s.AvailableReplicas == count, nil
		})
		w.no(err)
		w.eventually("those that it had have gone", func() (bool, string) {
			list, err := w.client.CoreV1().Pods("default").List(w.ctx, metav1.ListOptions{LabelSelector: "gang=serves"})
			w.no(err)
			all = list.Items
			return len(all) == int(count), fmt.Sprint(len(all), " pods")
		})
		for _, pod := range all {
			w.trains(pod.Name)
			w.told(pod.Name, want)
		}
	}
	have(`"compute":"0.20..0.50","memory":"1Gi"`)
	before := all
	_, err = deployments.Patch(w.ctx, "serves", types.MergePatchType, []byte(`{"spec":{"template":{"metadata":{"labels":{"aliquot.dev/gpu":"0.30..0.60"}}}}}`), metav1.PatchOptions{})
	w.no(err)
	have(`"compute":"0.30..0.60","memory":"1Gi"`)
	background := metav1.DeletePropagationBackground
	w.no(deployments.Delete(w.ctx, "serves", metav1.DeleteOptions{PropagationPolicy: &background}))
	for _, pod := range all {
		w.no(testcluster.AwaitGone(w.ctx, w.client.CoreV1().Pods("default"), pod.Name))
	}
	w.goneWith(append(before, all...)...)
}

// done has the programs of a JobSet end as if they had done all they have to, and waits until the set is complete.
func (w *world) done(set string, sets dynamic.ResourceInterface) {
	w.Helper()
	pods, err := w.client.CoreV1().Pods("default").List(w.ctx, metav1.ListOptions{LabelSelector: "gang=" + set})
	w.no(err)
	for _, pod := range pods.Items {
		for pid := range w.processesOf(string(pod.UID)) {
			name, err := os.ReadFile(filepath.Join("/proc", fmt.Sprint(pid), "comm"))
			if err == nil && strings.TrimSpace(string(name)) == "trainer" { // not the sandbox's
				w.no(syscall.Kill(pid, syscall.SIGTERM))
			}
		}
	}
	w.eventually("the JobSet is complete", func() (bool, string) {
		now, err := sets.Get(w.ctx, set, metav1.GetOptions{})
		w.no(err)
		conditions, _, err := unstructured.NestedSlice(now.Object, "status", "conditions")
		w.no(err)
		return slices.ContainsFunc(conditions, func(one any) bool {
			condition, _ := one.(map[string]any)
			return condition["type"] == "Completed" && condition["status"] == "True"
		}), fmt.Sprint(now.Object["status"])
	})
}

// wholeOrNot has a gang made while half of the device is another's, of which no pod starts though two would fit; when that has gone all do, and
// they are removed.
func (w *world) wholeOrNot(gang string, count int, why string, begin, remove func()) {
	w.Helper()
	before := "before-" + gang
	w.submit(work{name: before, compute: 500, memory: "1Gi", command: []string{"/bin/trainer", "--seconds", "0", "--kernel-us", "5000", "--progress", "0"}, scheduler: scheduler.Name})
	w.trains(before)
	begin()
	pods := w.client.CoreV1().Pods("default")
	list := func() []corev1.Pod {
		w.Helper()
		found, err := pods.List(w.ctx, metav1.ListOptions{LabelSelector: "gang=" + gang})
		w.no(err)
		return found.Items
	}
	w.eventually(gang+" has its pods", func() (bool, string) { return len(list()) == count, fmt.Sprint(len(list()), " pods") })
	for _, pod := range list() {
		w.unplaced(pod.Name, why)
	}
	for _, pod := range list() {
		if pod.Spec.NodeName != "" {
			w.Fatalf("%s was placed, and only two of its gang of %d fit", pod.Name, count)
		}
	}
	w.remove(before)
	all := list()
	for _, pod := range all {
		w.trains(pod.Name)
	}
	remove()
	for _, pod := range all {
		w.no(testcluster.AwaitGone(w.ctx, pods, pod.Name))
		for _, claim := range claimsOf(&pod) {
			w.no(testcluster.AwaitGone(w.ctx, w.client.ResourceV1().ResourceClaims("default"), claim))
		}
	}
}

// owner makes an object of a kind with this in its spec.
func (w *world) owner(kind dynamic.ResourceInterface, version, name, called string, spec map[string]any) {
	w.Helper()
	text, err := json.Marshal(map[string]any{"apiVersion": version, "kind": name, "metadata": map[string]any{"name": called}, "spec": spec})
	w.no(err)
	object := &unstructured.Unstructured{}
	w.no(object.UnmarshalJSON(text))
	_, err = kind.Create(w.ctx, object, metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict})
	w.no(err)
}
