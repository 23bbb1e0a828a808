package e2e

import (
	"encoding/json"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/aliquot-dev/aliquot/host/kube/api/v1alpha1"
)

// queues checks what the API server takes of queues and of the policy, what the controller says of them, and whom the webhook lets into them.
func (w *world) queues() {
	w.Helper()
	client, err := dynamic.NewForConfig(w.REST())
	w.no(err)
	queues, policies := client.Resource(v1alpha1.Queues), client.Resource(v1alpha1.Policies)
	w.defines(queues, policies)
	w.holds(queues, "org", v1alpha1.ReasonAccepted, "")
	w.holds(queues, "team", v1alpha1.ReasonAccepted, "")
	w.holds(queues, "wide", v1alpha1.ReasonDoesNotAddUp, "add up to 5 devices, and its own is 4")
	w.holds(policies, "default", v1alpha1.ReasonDoesNotAddUp, "policy:2: ")
	_, err = policies.Patch(w.ctx, "default", types.MergePatchType, []byte(`{"spec":{"text":"aliquot policy 1\nqueue org quota=6\n"}}`), metav1.PatchOptions{})
	w.no(err)
	w.holds(policies, "default", v1alpha1.ReasonAccepted, "")

	_, err = w.client.CoreV1().Namespaces().Patch(w.ctx, "default", types.MergePatchType, []byte(`{"metadata":{"labels":{"aliquot.dev/queue":"team"}}}`), metav1.PatchOptions{})
	w.no(err)
	for named, want := range map[string]string{"team": "", "org": "org is not under that; name team", "nobody": `there is no queue "nobody"`} {
		pod := w.annotated(work{name: "tried"}, "gpu", "0.25", "memory", "1Gi", "queue", named)
		_, err := w.makes(pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if (want == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), want) {
			w.Errorf("a pod of queue %s: got %v, want it refused with %q", named, err, want)
		}
	}
}

// defines makes queues and a policy, and tries what the API server refuses of them.
func (w *world) defines(queues, policies dynamic.ResourceInterface) {
	w.Helper()
	for _, test := range []struct {
		kind             dynamic.ResourceInterface
		name, spec, want string // in the refusal; empty: it is taken
	}{
		{queues, "default", `{}`, ""}, // under none and without bounds, as where there is no such Queue
		{queues, "org", `{"quota":{"compute":"4","memory":"320Gi","devices":8},"limit":{"compute":"8","memory":"1Ti","devices":8},"weight":{"all":2},
			"models":[{"model":"H200","quota":{"compute":"2"}}],"hours":"100/week","order":"fair+priority:1h","longestRun":"2h30m","maxPriority":100,
			"priority":5,"priorityUntil":"2126-12-01T18:00:00Z","priorityAfter":1}`, ""},
		{queues, "team", `{"parent":"org","quota":{"compute":"3"}}`, ""},
		{queues, "wide", `{"parent":"org","quota":{"compute":"2"}}`, ""}, // the controller says what is wrong with it
		{queues, "a", `{"quota":{"compute":"4"},"limit":{"compute":"3.5"}}`, "a quota of 4 devices is over the limit of 3.5"},
		{queues, "a", `{"quota":{"memory":"2Ti"},"limit":{"memory":"1500Gi"}}`, "a quota of 2Ti of memory is over the limit of 1500Gi"},
		{queues, "a", `{"quota":{"devices":4},"limit":{"devices":3}}`, "the quota of shares is over their limit"},
		{queues, "a", `{"models":[{"model":"H200","quota":{"compute":"4"},"limit":{"compute":"3"}}]}`, "a quota of 4 devices is over the limit of 3"},
		{queues, "a", `{"models":[{"model":"H200"},{"model":"H200"}]}`, "Duplicate value"},
		{queues, "a", `{"parent":"a"}`, "a queue cannot be its own parent"},
		{queues, "a.b", `{}`, "metadata.name: Invalid value"},
		{queues, "a", `{"priorityAfter":3}`, "a priority after a date needs that date"},
		{queues, "a", `{"priority":3,"priorityUntil":"2126-12-01T18:00:00Z","priorityAfter":3}`, "the priority is the same before this date and after it"},
		{queues, "a", `{"priority":1001}`, "should be less than or equal to 1000"},
		{queues, "a", `{"hours":"100/year"}`, "should match"},
		{queues, "a", `{"quota":{"compute":"-1"}}`, "should match"},
		{queues, "a", `{"qouta":{"compute":"1"}}`, `unknown field "spec.qouta"`},
		{policies, "default", `{"text":"aliquot policy 1\nqueue org quota=1\n"}`, ""},
		{policies, "another", `{"text":"aliquot policy 1\nqueue org quota=6\n"}`, "there is one policy in a cluster"},
		{policies, "default", `{"text":"queue org"}`, "the first line of a policy is"},
	} {
		kind := "Queue"
		if test.kind == policies {
			kind = "Policy"
		}
		object := &unstructured.Unstructured{}
		w.no(json.Unmarshal(fmt.Appendf(nil, `{"apiVersion":"aliquot.dev/v1alpha1","kind":%q,"metadata":{"name":%q},"spec":%s}`, kind, test.name, test.spec), object))
		_, err := test.kind.Create(w.ctx, object, metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict})
		if (test.want == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), test.want) {
			w.Errorf("%s %s of %s: got %v, want it refused with %q", kind, test.name, test.spec, err, test.want)
		}
	}
}

// holds waits until the controller says of an object what is so.
func (w *world) holds(kind dynamic.ResourceInterface, name, reason, words string) {
	w.Helper()
	w.eventually("it is said of "+name+": "+reason, func() (bool, string) {
		object, err := kind.Get(w.ctx, name, metav1.GetOptions{})
		w.no(err)
		raw, err := object.MarshalJSON()
		w.no(err)
		var read struct {
			Status v1alpha1.Status `json:"status"`
		}
		w.no(json.Unmarshal(raw, &read))
		found := meta.FindStatusCondition(read.Status.Conditions, v1alpha1.Accepted)
		return found != nil && found.Reason == reason && strings.Contains(found.Message, words) && read.Status.ObservedGeneration == object.GetGeneration(), string(raw)
	})
}
