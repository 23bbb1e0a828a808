package e2e

import (
	"encoding/json"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/aliquot-dev/aliquot/host/kube/api/v1alpha1"
	"github.com/aliquot-dev/aliquot/host/kube/scheduler"
)

// Pods that ask in the two short ways go to our scheduler, which alone may hand devices out, and get no more than their namespace's queue is
// guaranteed; a larger quota holds at once. Each part runs as its own account.
func TestTenants(t *testing.T) {
	w := beginWith(t, "h200x1", map[string]any{
		"webhook": map[string]any{"enabled": true, "replicas": 0, "scheduler": scheduler.Name}, "controller": map[string]any{"enabled": true, "replicas": 0},
		"scheduler": map[string]any{"enabled": true, "replicas": 0},
	})
	client, err := dynamic.NewForConfig(w.REST())
	w.no(err)
	queues := client.Resource(v1alpha1.Queues)
	team := &unstructured.Unstructured{}
	w.no(json.Unmarshal([]byte(`{"apiVersion":"aliquot.dev/v1alpha1","kind":"Queue","metadata":{"name":"team"},"spec":{"quota":{"compute":"0.5"}}}`), team))
	_, err = queues.Create(w.ctx, team, metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict})
	w.no(err)
	_, err = w.client.CoreV1().Namespaces().Patch(w.ctx, "default", types.MergePatchType, []byte(`{"metadata":{"labels":{"aliquot.dev/queue":"team"}}}`), metav1.PatchOptions{})
	w.no(err)
	w.startWebhook(scheduler.Name)
	w.startScheduler() // which hears of queues, namespaces and pods by a watch each: it knows of the first two before there are any of the last

	trainer := []string{"/bin/trainer", "--seconds", "0", "--kernel-us", "5000", "--progress", "0"}
	first := w.admitted(w.annotated(work{name: "first", command: trainer}, "gpu", "0.40..1.00", "memory", "4Gi", "preemptible", "false"))
	if first.Spec.SchedulerName != scheduler.Name {
		t.Errorf("it goes to the scheduler %s", first.Spec.SchedulerName)
	}
	w.trains("first")
	w.told("first", `"compute":"0.40..1.00","memory":"4Gi"`)
	w.admitted(w.annotated(work{name: "second", command: trainer}, "gpu", "0.40", "memory", "4Gi", "preemptible", "false"))
	w.unplaced("second", "queue team holds 0.4 of its quota of 0.5")
	_, err = queues.Patch(w.ctx, "team", types.MergePatchType, []byte(`{"spec":{"quota":{"compute":"1"}}}`), metav1.PatchOptions{})
	w.no(err)
	w.trains("second")
	w.remove("first", "second")

	w.submitWhole(work{name: "whole", command: trainer})
	w.trains("whole")
	w.told("whole", `"compute":"1.00"`)
	w.remove("whole")
	w.empty()
	for _, name := range []string{"webhook", "controller", "scheduler"} {
		if said := w.Log(name); strings.Contains(said, "forbidden") || strings.Contains(said, "panic") {
			t.Errorf("the %s said:\n%s", name, said)
		}
	}
}
