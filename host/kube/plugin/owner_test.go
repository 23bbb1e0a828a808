package plugin

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	dynamicfake "k8s.io/client-go/dynamic/fake"
)

func controlledBy(kind, name string) []metav1.OwnerReference {
	return []metav1.OwnerReference{{APIVersion: "x/v1", Kind: kind, Name: name, UID: types.UID(kind + "-" + name), Controller: ptr(true)}}
}

// maker is an object that makes pods, or makes what does.
func maker(version, kind, name string, by ...metav1.OwnerReference) runtime.Object {
	one := &unstructured.Unstructured{Object: map[string]any{"apiVersion": version, "kind": kind}}
	one.SetNamespace("ml")
	one.SetName(name)
	one.SetUID(types.UID(kind + "-" + name))
	one.SetOwnerReferences(by)
	return one
}

// Of what pods are made by it is said how each of these is, and why there are no more, through whatever lies between.
func TestWhyAll(t *testing.T) {
	kinds := map[schema.GroupVersionResource]string{}
	for _, resource := range makers {
		kinds[resource] = resource.Resource + "List"
	}
	event := func(on types.UID, seconds int, reason, message string) *corev1.Event {
		return &corev1.Event{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ml", Name: fmt.Sprint(on, seconds)}, InvolvedObject: corev1.ObjectReference{UID: on},
			Reason: reason, Message: message, LastTimestamp: at(seconds),
		}
	}
	of := func(name, kind, by string, change func(*corev1.Pod)) *corev1.Pod {
		one := pod(name)
		one.OwnerReferences, one.CreationTimestamp = controlledBy(kind, by), at(10)
		if change != nil {
			change(one)
		}
		return one
	}
	waits := func(one *corev1.Pod) {
		one.Spec.NodeName, one.Status.Phase = "", corev1.PodPending
		one.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Message: "queue ml is over its quota"}}
	}
	ended := func(one *corev1.Pod) { one.Status.Phase = corev1.PodSucceeded }
	p, out := plugged(
		of("web-1-a", "ReplicaSet", "web-1", nil), of("web-1-b", "ReplicaSet", "web-1", waits), of("web-1-c", "ReplicaSet", "web-1", waits), of("web-1-d", "ReplicaSet", "web-1", waits),
		of("other-1-a", "ReplicaSet", "other-1", nil), pod("bare"),
		of("night-1-x", "Job", "night-1", ended), of("ring-0-x", "Job", "ring-0", waits),
		event("ReplicaSet-web-1", 9, "FailedCreate", "of before"), event("ReplicaSet-web-1", 11, "FailedCreate", "quota of pods"), event("ReplicaSet-web-1", 12, "SuccessfulCreate", "made one"),
		event("ReplicaSet-refused-1", 3, "FailedCreate", `admission webhook denied the request: the annotation aliquot.dev/mem is not known`), event("ReplicaSet-other-1", 20, "FailedCreate", "another's"),
	)
	p.Objects = dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), kinds,
		maker("apps/v1", "Deployment", "web"), maker("apps/v1", "ReplicaSet", "web-1", controlledBy("Deployment", "web")...),
		maker("apps/v1", "Deployment", "other"), maker("apps/v1", "ReplicaSet", "other-1", controlledBy("Deployment", "other")...),
		maker("apps/v1", "Deployment", "refused"), maker("apps/v1", "ReplicaSet", "refused-1", controlledBy("Deployment", "refused")...),
		maker("batch/v1", "CronJob", "night"), maker("batch/v1", "Job", "night-1", controlledBy("CronJob", "night")...),
		maker("batch/v1", "Job", "ring-0", controlledBy("JobSet", "ring")...), maker("apps/v1", "StatefulSet", "none"),
	)
	for _, c := range []struct{ kind, name, want string }{
		{"deployment", "web", `deployment/web has 4 pods: 3 waiting, 1 running
  web-1-b and 2 more: waits: queue ml is over its quota
  web-1-a runs on node node1
  Not made   05:00:11  quota of pods
`},
		{"deploy", "refused", `deployment/refused has no pods
  Not made   05:00:03  admission webhook denied the request: the annotation aliquot.dev/mem is not known
`},
		{"replicasets", "other-1", `replicaset/other-1 has 1 pod: running
  other-1-a runs on node node1
  Not made   05:00:20  another's
`},
		{"CronJob", "night", `cronjob/night has 1 pod: done
  night-1-x has ended well on node node1
`},
		{"jobs.batch", "night-1", `job/night-1 has 1 pod: done
  night-1-x has ended well on node node1
`},
		{"jobsets.jobset.x-k8s.io", "ring", `jobset/ring has 1 pod: waiting
  ring-0-x waits: queue ml is over its quota
`},
		{"sts", "none", "statefulset/none has no pods\n"},
	} {
		out.Reset()
		if err := p.WhyAll(t.Context(), "ml", c.kind, c.name); err != nil {
			t.Fatal(err)
		}
		if out.String() != c.want {
			t.Errorf("of %s/%s it says\n%s\nwant\n%s", c.kind, c.name, out, c.want)
		}
	}
	for kind, name := range map[string]string{"deployment": "web-1", "job": "web", "jobset": "night"} {
		if err := p.WhyAll(t.Context(), "ml", kind, name); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("there is no %s %s in namespace ml", kind, name)) {
			t.Errorf("of %s/%s, which is not there: %v", kind, name, err)
		}
	}
	out.Reset()
	p.Format = JSON
	var shown whyAllShown
	if err := p.WhyAll(t.Context(), "ml", "deployment", "web"); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(out.Bytes(), &shown); err != nil || len(shown.Pods) != 4 || shown.Pods[0].State != "waiting" || shown.Pods[0].Message != "web-1-b waits: queue ml is over its quota" || len(shown.NotMade) != 1 {
		t.Errorf("as JSON it says\n%s: %v", out, err)
	}
}
