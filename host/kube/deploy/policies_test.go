package deploy

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types/ref"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
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
	if was == nil {
		return says(t, policy, "Pod", "pods", pod, nil)
	}
	return says(t, policy, "Pod", "pods", pod, was)
}

// object is one of Kubernetes'.
type object interface {
	metav1.Object
	runtime.Object
}

// says is saysOf, of an object of whatever kind.
func says(t *testing.T, policy *admissionv1.ValidatingAdmissionPolicy, name, resources string, now, was object) string {
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
	kind, resource := corev1.SchemeGroupVersion.WithKind(name), corev1.SchemeGroupVersion.WithResource(resources)
	attributes := admission.NewAttributesRecord(now, nil, kind, now.GetNamespace(), now.GetName(), resource, "", admission.Create, &metav1.CreateOptions{}, false, nil)
	if was != nil {
		attributes = admission.NewAttributesRecord(now, was, kind, now.GetNamespace(), now.GetName(), resource, "", admission.Update, &metav1.UpdateOptions{}, false, nil)
	}
	request := plugincel.CreateAdmissionRequest(attributes, metav1.GroupVersionResource(resource), metav1.GroupVersionKind(kind))
	value := func(text string, result *cel.Type) ref.Val {
		t.Helper()
		compiled := compiler.CompileCondition([]plugincel.ExpressionAccessor{expression{"", text, result}}, plugincel.OptionalVariableDeclarations{}, environment.StoredExpressions)
		versioned := &admission.VersionedAttributes{Attributes: attributes, VersionedObject: now, VersionedKind: kind}
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
	return policyThat(t, name, admissionv1.Deny)
}

// policyThat is the chart's admission policy of a name, which does this.
func policyThat(t *testing.T, name string, does admissionv1.ValidationAction) (policy *admissionv1.ValidatingAdmissionPolicy) {
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
			bound = object.Spec.PolicyName == name && slices.Contains(object.Spec.ValidationActions, does)
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

// A label that would ask for something, and was not read, or is given to a pod that is there already, is refused, where the annotation does not say the same; one
// that goes, those of gangs and others' are the pod's own affair.
func TestLabels(t *testing.T) {
	policy := policyOf(t, "aliquot-labels")
	type pairs = map[string]string
	asks := pairs{annotation.GPU: "0.25..0.80", annotation.Memory: "4Gi"}
	pod := func(labels, annotations pairs) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "tried", Labels: labels, Annotations: annotations}}
	}
	const unread, late = "was not read by Aliquot's webhook", "says what a pod asks for when it is made, and this one is there"
	check := func(was *corev1.Pod, now, annotations pairs, key, why string) {
		t.Helper()
		want := ""
		if key != "" {
			want = "the label " + key + " " + why
		}
		if said := saysOf(t, policy, pod(now, annotations), was); (want == "") != (said == "") || !strings.HasPrefix(said, want) {
			t.Errorf("of %v with labels that become %v beside the annotations %v it says %q, want %q", was, now, annotations, said, want)
		}
	}
	for _, c := range []struct {
		was, now, annotations pairs
		made, given           string // the label that is refused of a pod that is made so, and of one that becomes so; empty: none
	}{
		{nil, nil, nil, "", ""},
		{nil, pairs{"app": "train", "example.com/gpu": "0.25"}, nil, "", ""},
		{nil, pairs{annotation.Gang: "a", annotation.GangMin: "2"}, nil, "", ""},
		{nil, pairs{annotation.GPU: "0.25..0.80"}, nil, annotation.GPU, annotation.GPU},
		{nil, pairs{annotation.GPU: "0.25..0.60"}, asks, annotation.GPU, annotation.GPU},
		{nil, asks, asks, "", ""},
		{asks, asks, asks, "", ""},
		{asks, asks, nil, annotation.GPU, ""}, // made while there was no policy
		{asks, nil, asks, "", ""},
		{asks, pairs{annotation.GPU: "0.25..0.80", annotation.Memory: "8Gi"}, asks, annotation.Memory, annotation.Memory},
		{pairs{annotation.GPU: "1"}, asks, asks, "", ""},
	} {
		check(nil, c.now, c.annotations, c.made, unread)
		check(pod(c.was, c.annotations), c.now, c.annotations, c.given, late)
	}
	for _, name := range annotation.Fixed() {
		check(nil, pairs{name: "1"}, nil, name, unread)
		check(pod(nil, nil), pairs{name: "1"}, nil, name, late)
	}
}

// API servers ask the webhook of pods that may ask for devices, and make all others whether it is there or not.
func TestWebhookIsAsked(t *testing.T) {
	var asks admissionv1.MutatingWebhook
	for _, one := range render(t, everything) {
		if object, is := decoded(t, one).(*admissionv1.MutatingWebhookConfiguration); is {
			asks = object.Webhooks[0]
		}
	}
	if asks.Name != "pods.aliquot.dev" {
		t.Fatalf("the first webhook is %+v", asks)
	}
	policy := &admissionv1.ValidatingAdmissionPolicy{Spec: admissionv1.ValidatingAdmissionPolicySpec{
		MatchConditions: asks.MatchConditions, Validations: []admissionv1.Validation{{Expression: "false", Message: "asked"}},
	}}
	type pairs = map[string]string
	limit := func(name corev1.ResourceName) corev1.PodSpec {
		return corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{name: resource.MustParse("1")}}}}}
	}
	inits := limit("deviceclass.resource.kubernetes.io/gpu.aliquot.dev")
	inits.InitContainers, inits.Containers = inits.Containers, []corev1.Container{{Name: "then"}}
	plain := corev1.PodSpec{Containers: []corev1.Container{{Name: "main"}}}
	for name, c := range map[string]struct {
		labels, annotations pairs
		spec                corev1.PodSpec
		want                bool
	}{
		"nothing":             {nil, nil, plain, false},
		"others'":             {pairs{"example.com/gpu": "1"}, pairs{"example.com/gpu": "1"}, limit("example.com/card"), false},
		"an annotation":       {nil, pairs{annotation.GPU: "0.25"}, plain, true},
		"a label":             {pairs{annotation.GPU: "0.25"}, nil, plain, true},
		"a misspelt label":    {pairs{"aliquot.dev/gpus": "0.25"}, nil, plain, true},
		"a gang":              {pairs{annotation.Gang: "a", annotation.GangMin: "2"}, nil, plain, false},
		"a gang with a share": {pairs{annotation.Gang: "a", annotation.GangMin: "2", annotation.Memory: "1Gi"}, nil, plain, true},
		"a claim":             {nil, nil, corev1.PodSpec{Containers: plain.Containers, ResourceClaims: []corev1.PodResourceClaim{{Name: "share"}}}, true},
		"a limit":             {nil, nil, limit("deviceclass.resource.kubernetes.io/gpu.aliquot.dev"), true},
		"an init container's": {nil, nil, inits, true},
	} {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "tried", Labels: c.labels, Annotations: c.annotations}, Spec: c.spec}
		if said := saysOf(t, policy, pod, nil); (said == "asked") != c.want {
			t.Errorf("%s: it is asked: %q, want %t", name, said, c.want)
		}
	}
}

// Whoever gives a namespace a queue and no level of Pod Security, or takes that away, is told.
func TestTenants(t *testing.T) {
	policy := policyThat(t, "aliquot-tenants", admissionv1.Warn)
	type pairs = map[string]string
	space := func(labels pairs) *corev1.Namespace {
		return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team", Labels: labels}}
	}
	const level = "pod-security.kubernetes.io/enforce"
	for _, c := range []struct {
		was  *corev1.Namespace
		now  pairs
		told bool
	}{
		{nil, nil, false},
		{nil, pairs{"a": "b"}, false},
		{nil, pairs{annotation.Queue: "team"}, true},
		{nil, pairs{annotation.Queue: "team", level: "baseline"}, false},
		{nil, pairs{annotation.Queue: "team", level: "privileged"}, false}, // somebody has thought of it
		{space(nil), pairs{annotation.Queue: "team"}, true},
		{space(pairs{annotation.Queue: "team"}), pairs{annotation.Queue: "team", "a": "b"}, false},
		{space(pairs{annotation.Queue: "team"}), pairs{annotation.Queue: "org"}, true},
		{space(pairs{annotation.Queue: "team", level: "baseline"}), pairs{annotation.Queue: "team"}, true},
		{space(pairs{annotation.Queue: "team", level: "baseline"}), pairs{annotation.Queue: "org", level: "baseline"}, false},
		{space(pairs{annotation.Queue: "team"}), pairs{"a": "b"}, false},
	} {
		var said string
		if c.was == nil {
			said = says(t, policy, "Namespace", "namespaces", space(c.now), nil)
		} else {
			said = says(t, policy, "Namespace", "namespaces", space(c.now), c.was)
		}
		if (said != "") != c.told || c.told && !strings.HasSuffix(said, "kubectl label namespace team pod-security.kubernetes.io/enforce=baseline") {
			t.Errorf("of %v that becomes %v it says %q, want that told: %t", c.was, c.now, said, c.told)
		}
	}
}

// Who asks for a share by a Deployment's own labels, or misspells those of its template, is told.
func TestWorkloads(t *testing.T) {
	policy := policyThat(t, "aliquot-workloads", admissionv1.Warn)
	type pairs = map[string]string
	for _, c := range []struct {
		own, ownAnnotations, labels, annotations pairs
		want                                     string
	}{
		{nil, nil, nil, nil, ""},
		{pairs{"app": "a"}, pairs{"example.com/gpu": "1"}, pairs{"app": "a"}, nil, ""},
		{nil, nil, pairs{annotation.GPU: "0.25", annotation.Memory: "4Gi", annotation.Gang: "a", annotation.GangMin: "2"}, nil, ""},
		{nil, nil, nil, pairs{annotation.GPU: "0.25", annotation.CheckpointedAt: "2026-11-22T05:00:09Z"}, ""},
		{pairs{annotation.GPU: "0.25"}, nil, nil, pairs{annotation.GPU: "0.25"}, ""},
		{pairs{annotation.GPU: "0.25"}, nil, pairs{"app": "a"}, nil, "aliquot.dev/gpu says nothing here: its pods ask for a share by the labels or annotations of spec.template.metadata"},
		{nil, pairs{annotation.Queue: "team"}, nil, nil, "aliquot.dev/queue says nothing here"},
		{nil, nil, pairs{"aliquot.dev/gpus": "0.25"}, nil, "aliquot.dev/gpus of the template is not known, and its pods will be refused for it; there are aliquot.dev/gpu, aliquot.dev/memory"},
		{nil, nil, nil, pairs{"aliquot.dev/mem": "4Gi"}, "aliquot.dev/mem of the template is not known"},
	} {
		workload := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "serves", Labels: c.own, Annotations: c.ownAnnotations}}
		workload.Spec.Template.Labels, workload.Spec.Template.Annotations = c.labels, c.annotations
		if said := says(t, policy, "Deployment", "deployments", workload, nil); (said == "") != (c.want == "") || !strings.HasPrefix(said, c.want) {
			t.Errorf("of %v and %v, with a template of %v and %v, it says %q, want %q", c.own, c.ownAnnotations, c.labels, c.annotations, said, c.want)
		}
	}
}
