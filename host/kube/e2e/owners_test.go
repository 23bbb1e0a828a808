package e2e

import (
	"fmt"
	"strconv"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/aliquot-dev/aliquot/host/kube/scheduler"
	"github.com/aliquot-dev/aliquot/host/kube/testcluster"
)

// Gangs that nobody labels wait whole while one of their pods would not fit, and start whole once all do: the pods of an indexed Job, those of the
// two Jobs that a JobSet makes of one replicated Job, and a group of a LeaderWorkerSet. Pods of Jobs are the controller manager's. JobSet and
// LeaderWorkerSet are objects of these kinds, and what their controllers would make of them, as they label and own it, the test makes: these
// controllers are not part of the cluster.
func TestOwnedGangs(t *testing.T) {
	w := beginWith(t, "h200x1", map[string]any{"scheduler": map[string]any{"enabled": true, "replicas": 0}})
	w.startScheduler()
	sets, leaders := w.ownerKinds()
	trainer := []string{"/bin/trainer", "--seconds", "0", "--kernel-us", "5000", "--progress", "0"}
	part := func(name string) work {
		return work{name: name, compute: 200, memory: "1Gi", command: trainer, scheduler: scheduler.Name}
	}
	jobs := w.client.BatchV1().Jobs("default")
	job := func(name string, count int32, labels map[string]string, owners ...metav1.OwnerReference) {
		pod, mode := w.sharing(part(name)), batchv1.IndexedCompletion
		_, err := jobs.Create(w.ctx, &batchv1.Job{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels, OwnerReferences: owners},
			Spec: batchv1.JobSpec{
				Completions: &count, Parallelism: &count, CompletionMode: &mode,
				Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"gang": labels["gang"]}}, Spec: pod.Spec},
			},
		}, metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict})
		w.no(err)
	}
	background := metav1.DeletePropagationBackground
	remove := func(names ...string) func() {
		return func() {
			for _, name := range names {
				w.no(jobs.Delete(w.ctx, name, metav1.DeleteOptions{PropagationPolicy: &background}))
			}
		}
	}

	w.wholeOrNot("indexed", 4, func() { job("indexed", 4, map[string]string{"gang": "indexed"}) }, remove("indexed"))

	set := w.owner(sets, "JobSet", "set", map[string]any{})
	w.wholeOrNot("set", 4, func() {
		for i := range 2 {
			job(fmt.Sprint("set-workers-", i), 2, map[string]string{
				"gang": "set", "jobset.sigs.k8s.io/jobset-name": "set", "jobset.sigs.k8s.io/replicatedjob-name": "workers",
				"jobset.sigs.k8s.io/replicatedjob-replicas": "2", "jobset.sigs.k8s.io/restart-attempt": "0", "jobset.sigs.k8s.io/job-index": strconv.Itoa(i),
			}, set)
		}
	}, remove("set-workers-0", "set-workers-1"))

	serve := w.owner(leaders, "LeaderWorkerSet", "serve", map[string]any{"startupPolicy": "LeaderCreated"})
	w.wholeOrNot("serve", 4, func() {
		for i := range 4 {
			pod := w.sharing(part(fmt.Sprint("serve-0-", i)))
			pod.OwnerReferences = []metav1.OwnerReference{serve}
			pod.Annotations = map[string]string{"leaderworkerset.sigs.k8s.io/size": "4"}
			pod.Labels = map[string]string{
				"gang": "serve", "leaderworkerset.sigs.k8s.io/name": "serve", "leaderworkerset.sigs.k8s.io/group-index": "0",
				"leaderworkerset.sigs.k8s.io/worker-index": strconv.Itoa(i),
			}
			w.create(pod)
		}
	}, func() {
		for i := range 4 {
			w.remove(fmt.Sprint("serve-0-", i))
		}
	})
	w.empty()
	w.permitted("scheduler")
}

// wholeOrNot has a gang made while half of the device is another's, of which no pod starts though two would fit; when that has gone all do, and
// they are removed.
func (w *world) wholeOrNot(gang string, count int, begin, remove func()) {
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
		w.unplaced(pod.Name, fmt.Sprint(count, " tasks at once, each of 0.20 of a device"))
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

// ownerKinds has the API server know of JobSets and LeaderWorkerSets: their names alone, whatever is in them.
func (w *world) ownerKinds() (sets, leaders dynamic.ResourceInterface) {
	w.Helper()
	client, err := dynamic.NewForConfig(w.REST())
	w.no(err)
	definitions := schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	kinds := make([]dynamic.ResourceInterface, 2)
	for i, of := range []struct{ group, version, kind, singular, plural string }{
		{"jobset.x-k8s.io", "v1alpha2", "JobSet", "jobset", "jobsets"},
		{"leaderworkerset.x-k8s.io", "v1", "LeaderWorkerSet", "leaderworkerset", "leaderworkersets"},
	} {
		definition := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": map[string]any{
				"name": of.plural + "." + of.group, "annotations": map[string]any{"api-approved.kubernetes.io": "unapproved, for a test"},
			},
			"spec": map[string]any{
				"group": of.group, "scope": "Namespaced", "names": map[string]any{"kind": of.kind, "singular": of.singular, "plural": of.plural},
				"versions": []any{map[string]any{
					"name": of.version, "served": true, "storage": true,
					"schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
				}},
			},
		}}
		_, err := client.Resource(definitions).Create(w.ctx, definition, metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict})
		w.no(err)
		kinds[i] = client.Resource(schema.GroupVersionResource{Group: of.group, Version: of.version, Resource: of.plural}).Namespace("default")
		w.eventually(of.kind+" is known", func() (bool, string) {
			_, err := kinds[i].List(w.ctx, metav1.ListOptions{})
			return err == nil, fmt.Sprint(err)
		})
	}
	return kinds[0], kinds[1]
}

// owner makes an object of such a kind, and says how what it makes names it.
func (w *world) owner(kind dynamic.ResourceInterface, name, called string, spec map[string]any) metav1.OwnerReference {
	w.Helper()
	version := map[string]string{"JobSet": "jobset.x-k8s.io/v1alpha2", "LeaderWorkerSet": "leaderworkerset.x-k8s.io/v1"}[name]
	made, err := kind.Create(w.ctx, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": version, "kind": name, "metadata": map[string]any{"name": called}, "spec": spec,
	}}, metav1.CreateOptions{})
	w.no(err)
	controller := true
	return metav1.OwnerReference{APIVersion: version, Kind: name, Name: called, UID: made.GetUID(), Controller: &controller}
}
