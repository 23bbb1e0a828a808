package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/aliquot-dev/aliquot/host/kube/annotation"
	"github.com/aliquot-dev/aliquot/host/kube/testcluster"
)

// A pod that is given labels with kubectl, or asks by annotations, runs with its share; what cannot be is refused with why; what was made for it goes when it does.
// The webhook and the controller run as their own accounts.
func TestAnnotated(t *testing.T) {
	w := beginWith(t, "h200x1", map[string]any{"webhook": map[string]any{"enabled": true, "replicas": 0, "scheduler": ""}, "controller": map[string]any{"enabled": true, "replicas": 0}})
	w.startWebhook("")
	trainer := []string{"/bin/trainer", "--seconds", "0", "--kernel-us", "5000", "--progress", "0"}
	made := w.labelled(w.pod(work{name: "quarter", command: trainer}), "aliquot.dev/gpu=0.25..0.80", "aliquot.dev/memory=4Gi..8Gi")
	if claims := made.Spec.ResourceClaims; len(claims) != 1 || claims[0].Name != annotation.ClaimName || len(made.Spec.Containers[0].Resources.Claims) != 1 {
		t.Errorf("it became %+v", made.Spec)
	}
	w.trains("quarter") // its template is there
	w.refusals()
	w.told("quarter", `"compute":"0.25..0.80","memory":"4Gi..8Gi"`)
	w.shares("alone", map[string]part{"quarter": {800, 800}})
	w.demo()
	w.unchanged("quarter")
	w.queues()
	w.allocations("quarter")
	w.remove("quarter")
	w.empty()
	w.eventually("its template is gone", func() (bool, string) {
		left := w.templates()
		return len(left) == 0, fmt.Sprint(left)
	})
	for _, name := range []string{"webhook", "controller"} {
		if said := w.Log(name); strings.Contains(said, "forbidden") || strings.Contains(said, "panic") {
			t.Errorf("the %s said:\n%s", name, said)
		}
	}
	w.withoutDoubts("aliquot-annotations", "aliquot-labels", "aliquot-workloads")
}

// startWebhook starts the webhook, which has pods go to a scheduler, and the controller as processes of the node, each with an account of its own.
func (w *world) startWebhook(scheduler string) {
	w.Helper()
	w.startWebhookAt("127.0.0.1:0", scheduler)
	w.startController("--keep-templates", "2s")
}

// startWebhookAt starts the webhook, also after one that was killed and with more in its environment, has the API server ask it and says where it
// answers. It is the API server's host that it runs on, so it is found there.
func (w *world) startWebhookAt(listen, scheduler string, environment ...string) (*testcluster.Process, string) {
	w.Helper()
	kubeconfig, err := w.KubeconfigOf(w.ctx, "aliquot", "aliquot-webhook")
	w.no(err)
	answering := regexp.MustCompile(`answering on=(\S+)`)
	before := len(answering.FindAllString(w.Log("webhook"), -1))
	webhook, err := w.Start("webhook", environment, w.program, "webhook", "--kubeconfig", kubeconfig, "--listen", listen, "--scheduler", scheduler)
	w.no(err)
	var at string
	w.eventually("the webhook answers", func() (bool, string) {
		all := answering.FindAllStringSubmatch(webhook.Log(), -1)
		if len(all) > before {
			at = all[len(all)-1][1]
		}
		return at != "", webhook.Log()
	})
	for i := range 2 { // of pods that may ask for devices, and of those with other limits
		patch := fmt.Appendf(nil, `[{"op":"add","path":"/webhooks/%[1]d/clientConfig/url","value":"https://%[2]s/pods"},{"op":"add","path":"/webhooks/%[1]d/clientConfig/service","value":null}]`, i, at)
		_, err = w.client.AdmissionregistrationV1().MutatingWebhookConfigurations().Patch(w.ctx, "aliquot", types.JSONPatchType, patch, metav1.PatchOptions{})
		w.no(err)
	}
	return webhook, at
}

// startController starts the controller, as the account that it has.
func (w *world) startController(options ...string) {
	w.Helper()
	w.startControllerWith(nil, options...)
}

// startControllerWith is startController with more in its environment. It is the only one, so that it waits for no Lease.
func (w *world) startControllerWith(environment []string, options ...string) *testcluster.Process {
	w.Helper()
	kubeconfig, err := w.KubeconfigOf(w.ctx, "aliquot", "aliquot-controller")
	w.no(err)
	controller, err := w.Start("controller", environment, w.program, append([]string{"controller", "--kubeconfig", kubeconfig, "--leader-elect=false"}, options...)...)
	w.no(err)
	return controller
}

// annotated is a pod with these annotations, by their names without the prefix.
func (w *world) annotated(one work, pairs ...string) *corev1.Pod {
	pod := w.pod(one)
	pod.Annotations = map[string]string{}
	for i := 0; i < len(pairs); i += 2 {
		pod.Annotations[annotation.Prefix+pairs[i]] = pairs[i+1]
	}
	return pod
}

// labelled makes a pod with labels that kubectl gives it before, and returns what became of it.
func (w *world) labelled(pod *corev1.Pod, labels ...string) *corev1.Pod {
	w.Helper()
	kubectl, err := w.KubectlProgram(w.ctx)
	w.no(err)
	pod.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
	manifest, err := json.Marshal(pod)
	w.no(err)
	label := exec.CommandContext(w.ctx, kubectl, append([]string{"label", "--local", "-f", "-", "-o", "json"}, labels...)...)
	var wrong bytes.Buffer
	label.Stdin, label.Stderr = bytes.NewReader(manifest), &wrong
	said, err := label.Output()
	if err != nil {
		w.Fatalf("kubectl label: %v\n%s", err, wrong.String())
	}
	changed := &corev1.Pod{}
	w.no(json.Unmarshal(said, changed))
	return w.admitted(changed)
}

// admitted makes a pod, once the API server trusts the webhook, and returns what became of it.
func (w *world) admitted(pod *corev1.Pod) *corev1.Pod {
	w.Helper()
	made, err := w.makes(pod, metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict})
	w.no(err)
	return made
}

// makes makes a pod, or tries that, and returns what the API server says. As long as that cannot ask the webhook, or the webhook not find out what it has to know in
// its time, the pod is refused, for nobody can say what it is to be; then it is made again.
func (w *world) makes(pod *corev1.Pod, options metav1.CreateOptions) (made *corev1.Pod, err error) {
	w.Helper()
	w.eventually("the webhook answers", func() (bool, string) {
		made, err = w.client.CoreV1().Pods("default").Create(w.ctx, pod, options)
		unanswered := err != nil && (strings.Contains(err.Error(), "failed calling webhook") || apierrors.IsServiceUnavailable(err))
		return !unanswered, fmt.Sprint(err)
	})
	return made, err
}

// refusals tries what cannot be. A dry run of what can be leaves nothing.
func (w *world) refusals() {
	w.Helper()
	before := w.templates()
	both := w.annotated(work{name: "tried"}, "gpu", "0.25", "memory", "1Gi")
	both.Spec.Containers[0].Resources.Limits = corev1.ResourceList{wholes: resource.MustParse("1")}
	placed := w.annotated(work{name: "tried"}, "gpu", "0.25", "memory", "1Gi")
	placed.Spec.NodeName = testcluster.NodeName
	labelled := w.pod(work{name: "tried"})
	labelled.Labels = map[string]string{annotation.GPU: "a-quarter"}
	for _, test := range []struct {
		pod  *corev1.Pod
		want string // in the refusal; empty: it is taken
	}{
		{w.annotated(work{name: "tried"}, "gpu", "0.11", "memory", "1Gi"), ""},
		{w.annotated(work{name: "tried"}, "gpu", "a quarter", "memory", "1Gi"), "a digit is expected"},
		{w.annotated(work{name: "tried"}, "gpu", "0.25"), "for no memory there"},
		{w.annotated(work{name: "tried"}, "gpu", "0.25", "mem", "1Gi"), "aliquot.dev/mem is not known"},
		{both, "ask in one of the two ways"},
		{placed, "leave nodeName out"},
		{labelled, "labels of aliquot.dev/ are read as annotations"},
	} {
		_, err := w.makes(test.pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if (test.want == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), test.want) {
			w.Errorf("a pod with %v: got %v, want it refused with %q", test.pod.Annotations, err, test.want)
		}
	}
	if after := w.templates(); !slices.Equal(before, after) {
		w.Errorf("there were the templates %v, after dry runs there are %v", before, after)
	}
}

// templates are the names of those that were made for annotations.
func (w *world) templates() (names []string) {
	w.Helper()
	all, err := w.client.ResourceV1().ResourceClaimTemplates("default").List(w.ctx, metav1.ListOptions{LabelSelector: annotation.Made})
	w.no(err)
	for _, one := range all.Items {
		names = append(names, one.Name)
	}
	return names
}

// unchanged checks that a pod's annotations do not change, and that others' do.
func (w *world) unchanged(name string) {
	w.Helper()
	patch := func(text string) error {
		_, err := w.client.CoreV1().Pods("default").Patch(w.ctx, name, types.MergePatchType, []byte(text), metav1.PatchOptions{})
		return err
	}
	for _, label := range []string{`"aliquot.dev/gpu":"0.25..0.60"`, `"aliquot.dev/weight":"3"`} {
		if err := patch(`{"metadata":{"labels":{` + label + `}}}`); err == nil || !strings.Contains(err.Error(), "delete it, and make it again with that label") {
			w.Errorf("the label %s: got %v, want it refused", label, err)
		}
	}
	w.no(patch(`{"metadata":{"labels":{"aliquot.dev/gpu":null}}}`))
	w.no(patch(`{"metadata":{"annotations":{"example.com/a":"b"}}}`))
	w.no(patch(`{"metadata":{"annotations":{"aliquot.dev/checkpointed-at":"2026-11-22T05:00:09Z"}}}`))
	if err := patch(`{"metadata":{"annotations":{"aliquot.dev/checkpointed-at":"just now"}}}`); err == nil || !strings.Contains(err.Error(), "write it as 2026-11-22T05:00:09Z") {
		w.Errorf("a checkpoint at no time: got %v, want it refused", err)
	}
	for _, text := range []string{
		`{"metadata":{"annotations":{"aliquot.dev/gpu":"1.00"}}}`, `{"metadata":{"annotations":{"aliquot.dev/queue":"another"}}}`,
		`{"metadata":{"annotations":{"aliquot.dev/restart-time":"1m"}}}`, `{"metadata":{"annotations":null}}`,
	} {
		if err := patch(text); err == nil || !strings.Contains(err.Error(), "do not change while it is there") {
			w.Errorf("%s: got %v, want it refused", text, err)
		}
	}
}

// withoutDoubts checks that the API server finds nothing odd about policies.
func (w *world) withoutDoubts(names ...string) {
	w.Helper()
	for _, name := range names {
		_, err := testcluster.AwaitObject(w.ctx, w.client.AdmissionregistrationV1().ValidatingAdmissionPolicies(), name, "a policy without doubts",
			func(policy *admissionv1.ValidatingAdmissionPolicy) (bool, error) {
				checked := policy.Status.TypeChecking
				if checked != nil && len(checked.ExpressionWarnings) > 0 {
					return false, fmt.Errorf("the API server warns: %v", checked.ExpressionWarnings)
				}
				return checked != nil && policy.Status.ObservedGeneration == policy.Generation, nil
			})
		w.no(err)
	}
}
