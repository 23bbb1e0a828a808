package e2e

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/aliquot-dev/aliquot/host/kube/api/v1alpha1"
	"github.com/aliquot-dev/aliquot/host/kube/scheduler"
	"github.com/aliquot-dev/aliquot/host/kube/testcluster"
)

// Pods that ask in the two short ways go to our scheduler, which alone may hand devices out, and get no more than their namespace's queue is
// guaranteed; a larger quota holds at once. Whole devices are asked for by the chart's own name for them, too. The webhook's certificate renews itself. Each part runs as its
// own account.
func TestTenants(t *testing.T) {
	w := beginWith(t, "h200x1", map[string]any{
		"webhook": map[string]any{"enabled": true, "replicas": 0, "scheduler": scheduler.Name}, "controller": map[string]any{"enabled": true, "replicas": 0},
		"scheduler": map[string]any{"enabled": true, "replicas": 0}, "deviceClass": map[string]any{"extendedResourceName": ownName},
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
	answering, _ := w.startWebhookAt("127.0.0.1:0", scheduler.Name)
	w.startController("--keep-templates", "2s", "--certificate-life", "2m")
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
	w.renews(answering)
	w.named(answering, trainer)
	w.empty()
	for _, name := range []string{"webhook", "controller", "scheduler"} {
		if said := w.Log(name); strings.Contains(said, "forbidden") || strings.Contains(said, "panic") {
			t.Errorf("the %s said:\n%s", name, said)
		}
	}
}

var certificates = regexp.MustCompile(`msg="showing a certificate" serial=(\d+)`)

// renews waits until the webhook shows another certificate than its first, and has the API server ask it then, which trusts it.
func (w *world) renews(webhook *testcluster.Process) {
	w.Helper()
	w.eventually("the webhook shows another certificate", func() (bool, string) {
		all := certificates.FindAllStringSubmatch(webhook.Log(), -1)
		return len(all) > 0 && all[len(all)-1][1] != all[0][1], webhook.Log()
	})
	w.eventually("the webhook answers", func() (bool, string) {
		_, err := w.client.CoreV1().Pods("default").Create(w.ctx, w.annotated(work{name: "renewed"}, "gpu", "0.10", "memory", "1Gi"), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err != nil && strings.Contains(err.Error(), "x509") {
			w.Fatalf("the API server does not trust the webhook's next certificate: %v", err)
		}
		return err == nil, fmt.Sprint(err)
	})
}

var refusedUnasked = regexp.MustCompile(`(?m)^apiserver_admission_webhook_rejection_count\{error_type="calling_webhook_error",name="pods\.aliquot\.dev",.*\} [1-9]`)

const ownName = "example.com/gpu" // that a cluster's chart may give to whole devices

// named has a pod ask for a whole device by the chart's own name for it. While the webhook is away such a pod is refused, as it would go to a scheduler that may not hand devices
// out; one with a limit that may be of anything is made.
func (w *world) named(webhook *testcluster.Process, command []string) {
	w.Helper()
	if made := w.admitted(w.limited(work{name: "named", command: command}, ownName)); made.Spec.SchedulerName != scheduler.Name || len(made.Spec.ResourceClaims) != 1 {
		w.Errorf("a pod with a limit of %s became %+v", ownName, made.Spec)
	}
	w.trains("named")
	w.told("named", `"compute":"1.00"`)
	w.remove("named")
	webhook.Kill()
	<-webhook.Ended()
	try := func(name corev1.ResourceName) error {
		_, err := w.client.CoreV1().Pods("default").Create(w.ctx, w.limited(work{name: "unasked", command: command}, name), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	}
	for _, name := range []corev1.ResourceName{ownName, wholes} {
		if err := try(name); err == nil || !strings.Contains(err.Error(), `failed calling webhook "pods.aliquot.dev"`) {
			w.Errorf("without the webhook a pod with a limit of %s got %v, want it refused", name, err)
		}
	}
	w.no(try("example.com/other"))
	raw, err := w.client.CoreV1().RESTClient().Get().AbsPath("/metrics").DoRaw(w.ctx)
	w.no(err)
	if !refusedUnasked.Match(raw) {
		w.Error("the API server does not count what the alert AliquotWebhookNotReached asks for")
	}
}
