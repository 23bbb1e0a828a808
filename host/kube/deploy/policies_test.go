package deploy

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types/ref"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"
	plugincel "k8s.io/apiserver/pkg/admission/plugin/cel"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel/environment"

	"github.com/aliquot-dev/aliquot/host/kube/annotation"
)

// expression is one of a policy.
type expression struct {
	name, text string
	kind       *cel.Type
}

func (e expression) GetName() string          { return e.name }
func (e expression) GetExpression() string    { return e.text }
func (e expression) ReturnTypes() []*cel.Type { return []*cel.Type{e.kind} }

// saysOf is what a policy says of a pod that is to be created, or to become so where it was another, as the API server finds it; empty: it lets that be.
func saysOf(t *testing.T, policy *admissionv1.ValidatingAdmissionPolicy, pod, was *corev1.Pod) string {
	t.Helper()
	compiler, err := plugincel.NewCompositedCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()))
	if err != nil {
		t.Fatal(err)
	}
	var variables []plugincel.NamedExpressionAccessor
	for _, one := range policy.Spec.Variables {
		variables = append(variables, expression{one.Name, one.Expression, cel.AnyType})
	}
	compiler.CompileAndStoreVariables(variables, plugincel.OptionalVariableDeclarations{}, environment.StoredExpressions)
	kind, resource := corev1.SchemeGroupVersion.WithKind("Pod"), corev1.SchemeGroupVersion.WithResource("pods")
	attributes := admission.NewAttributesRecord(pod, nil, kind, pod.Namespace, pod.Name, resource, "", admission.Create, &metav1.CreateOptions{}, false, nil)
	if was != nil {
		attributes = admission.NewAttributesRecord(pod, was, kind, pod.Namespace, pod.Name, resource, "", admission.Update, &metav1.UpdateOptions{}, false, nil)
	}
	request := plugincel.CreateAdmissionRequest(attributes, metav1.GroupVersionResource(resource), metav1.GroupVersionKind(kind))
	value := func(text string, kind *cel.Type) ref.Val {
		t.Helper()
		compiled := compiler.CompileCondition([]plugincel.ExpressionAccessor{expression{"", text, kind}}, plugincel.OptionalVariableDeclarations{}, environment.StoredExpressions)
		versioned := &admission.VersionedAttributes{Attributes: attributes, VersionedObject: pod, VersionedKind: corev1.SchemeGroupVersion.WithKind("Pod")}
		if was != nil {
			versioned.VersionedOldObject = was
		}
		results, _, err := compiled.ForInput(t.Context(), versioned, request, plugincel.OptionalVariableBindings{}, nil, celconfig.RuntimeCELCostBudget)
		if err != nil || results[0].Error != nil {
			t.Fatalf("%s: %v, %v", text, err, results)
		}
		return results[0].EvalResult
	}
	for _, condition := range policy.Spec.MatchConditions {
		if value(condition.Expression, cel.BoolType).Value() != true {
			return ""
		}
	}
	for _, validation := range policy.Spec.Validations {
		if value(validation.Expression, cel.BoolType).Value() != true {
			if validation.MessageExpression == "" {
				return validation.Message
			}
			return fmt.Sprint(value(validation.MessageExpression, cel.StringType).Value())
		}
	}
	return ""
}

// policyOf is the chart's admission policy of a name, which is in force.
func policyOf(t *testing.T, name string) (policy *admissionv1.ValidatingAdmissionPolicy) {
	t.Helper()
	bound := false
	for _, one := range render(t, everything) {
		if one.Name != name {
			continue
		}
		switch object := decoded(t, one).(type) {
		case *admissionv1.ValidatingAdmissionPolicy:
			policy = object
		case *admissionv1.ValidatingAdmissionPolicyBinding:
			bound = object.Spec.PolicyName == name && slices.Contains(object.Spec.ValidationActions, admissionv1.Deny)
		}
	}
	if policy == nil || !bound {
		t.Fatalf("there is the policy %v; it is bound: %t", policy, bound)
	}
	return policy
}

// What a pod's annotations say when it is made stays so, but for when it saved what it has done; its gang does once it has a node.
func TestAnnotationsStay(t *testing.T) {
	policy := policyOf(t, "aliquot-annotations")
	pod := func(node string, labels, annotations map[string]string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "tried", Labels: labels, Annotations: annotations}, Spec: corev1.PodSpec{NodeName: node}}
	}
	type pairs = map[string]string
	for _, name := range annotation.Fixed() {
		for _, c := range []struct{ was, now pairs }{{nil, pairs{name: "1"}}, {pairs{name: "1"}, nil}, {pairs{name: "1"}, pairs{name: "2"}}} {
			if said := saysOf(t, policy, pod("", nil, c.now), pod("", nil, c.was)); !strings.Contains(said, "do not change while it is there") {
				t.Errorf("of annotations %v that become %v it says %q", c.was, c.now, said)
			}
		}
		if said := saysOf(t, policy, pod("a", nil, pairs{name: "1", "example.com/a": "b"}), pod("", nil, pairs{name: "1"})); said != "" {
			t.Errorf("of the annotation %s, which stays, it says %q", name, said)
		}
	}
	saved := pairs{annotation.CheckpointedAt: "2026-11-22T05:00:09Z"}
	if said := saysOf(t, policy, pod("a", nil, saved), pod("a", nil, nil)); said != "" {
		t.Errorf("of a pod that saved what it has done it says %q", said)
	}
	gang := pairs{"aliquot.dev/gang": "a", "aliquot.dev/gang-min": "2"}
	for _, c := range []struct {
		node     string
		was, now pairs
		refused  bool
	}{
		{"", nil, gang, false},
		{"a", gang, gang, false},
		{"a", gang, pairs{"aliquot.dev/gang": "a", "aliquot.dev/gang-min": "2", "example.com/a": "b"}, false},
		{"a", nil, gang, true},
		{"a", gang, nil, true},
		{"a", gang, pairs{"aliquot.dev/gang": "b", "aliquot.dev/gang-min": "2"}, true},
		{"a", gang, pairs{"aliquot.dev/gang": "a", "aliquot.dev/gang-min": "99"}, true},
	} {
		if said := saysOf(t, policy, pod(c.node, c.now, nil), pod(c.node, c.was, nil)); (said != "") != c.refused {
			t.Errorf("of labels %v on node %q that become %v it says %q, want it refused: %t", c.was, c.node, c.now, said, c.refused)
		}
	}
}

// A pod that asks by labels is refused and told how to ask; labels beside annotations, those of gangs and others' are its own affair.
func TestLabels(t *testing.T) {
	policy := policyOf(t, "aliquot-labels")
	type pairs = map[string]string
	for _, c := range []struct {
		labels, annotations pairs
		want                string // the label that is refused; empty: none
	}{
		{nil, nil, ""},
		{nil, pairs{annotation.GPU: "0.25", annotation.Memory: "4Gi"}, ""},
		{pairs{"app": "train", "example.com/gpu": "0.25"}, nil, ""},
		{pairs{"aliquot.dev/gang": "a", "aliquot.dev/gang-min": "2"}, nil, ""},
		{pairs{annotation.GPU: "0.25..0.80"}, nil, annotation.GPU},
		{pairs{annotation.Memory: "4Gi..8Gi"}, nil, annotation.Memory},
		{pairs{annotation.GPU: "0.25..0.80", annotation.Memory: "4Gi"}, pairs{"example.com/a": "b"}, annotation.GPU},
		{pairs{annotation.GPU: "0.25", annotation.Memory: "4Gi"}, pairs{annotation.GPU: "0.25"}, annotation.Memory},
		{pairs{annotation.GPU: "0.25", annotation.Memory: "4Gi"}, pairs{annotation.GPU: "0.25", annotation.Memory: "4Gi"}, ""},
	} {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "tried", Labels: c.labels, Annotations: c.annotations}}
		said := saysOf(t, policy, pod, nil)
		if (c.want == "") != (said == "") || said != "" && !(strings.Contains(said, "the label "+c.want+",") && strings.Contains(said, "write it as an annotation")) {
			t.Errorf("of a pod with the labels %v and the annotations %v it says %q, want the label %q refused", c.labels, c.annotations, said, c.want)
		}
	}
	// Whatever an annotation says when a pod is made is heard of annotations alone.
	for _, name := range annotation.Fixed() {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: pairs{name: "1"}}}
		if said := saysOf(t, policy, pod, nil); !strings.Contains(said, "the label "+name+",") {
			t.Errorf("of a pod with the label %s it says %q", name, said)
		}
	}
}
