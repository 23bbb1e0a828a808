package deploy

import (
	"fmt"
	"maps"
	"path/filepath"
	"strings"
	"testing"

	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v3/pkg/lint"
	"helm.sh/helm/v3/pkg/lint/support"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"
)

var repository = filepath.Join("..", "..", "..")

func chartOf(t *testing.T) Chart {
	t.Helper()
	chart, err := Read(filepath.Join(repository, "deploy", "chart"))
	if err != nil {
		t.Fatal(err)
	}
	return chart
}

// values reads values as they stand in a file.
func values(t *testing.T, text string) map[string]any {
	t.Helper()
	read := map[string]any{}
	if err := yaml.UnmarshalStrict([]byte(text), &read); err != nil {
		t.Fatal(err)
	}
	return read
}

// everything switches on all there is.
const everything = `
namespace: {name: gpus}
apiServer: {host: 127.0.0.1, port: "6444"}
image: {repository: registry.example/aliquot, tag: v9, pullPolicy: Always, pullSecrets: [one, two]}
agent: {simulate: "h200x2,a10x4", unenforced: stop, latencyClass: "1@NVIDIA H200,2@A10,3", nodeSelector: {gpu: "true"}, hostNetwork: true}
monitoring:
  serviceMonitor: {enabled: true, labels: {release: prometheus}}
  prometheusRule: {enabled: true}
  dashboard: {enabled: true}
`

// decoded is an object as its own type of Kubernetes; fields that the type does not have are errors.
func decoded(t *testing.T, one Object) runtime.Object {
	t.Helper()
	all := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{scheme.AddToScheme, apiextensionsv1.AddToScheme} {
		if err := add(all); err != nil {
			t.Fatal(err)
		}
	}
	switch one.Kind { // the Prometheus operator's, of which only what is used is known here
	case "ServiceMonitor":
		strict(t, one, &struct {
			metav1.TypeMeta   `json:",inline"`
			metav1.ObjectMeta `json:"metadata"`
			Spec              struct {
				Selector  metav1.LabelSelector
				Endpoints []struct {
					Port        string
					HonorLabels bool
					Relabelings []struct {
						SourceLabels []string
						TargetLabel  string
					}
				}
			}
		}{})
		return nil
	case "PrometheusRule":
		strict(t, one, &struct {
			metav1.TypeMeta   `json:",inline"`
			metav1.ObjectMeta `json:"metadata"`
			Spec              rules
		}{})
		return nil
	}
	object, _, err := serializer.NewCodecFactory(all, serializer.EnableStrict).UniversalDeserializer().Decode([]byte(one.YAML), nil, nil)
	if err != nil {
		t.Fatalf("%s %s of %s: %v\n%s", one.Kind, one.Name, one.Template, err, one.YAML)
	}
	return object
}

func strict(t *testing.T, one Object, into any) {
	t.Helper()
	if err := yaml.UnmarshalStrict([]byte(one.YAML), into); err != nil {
		t.Fatalf("%s %s of %s: %v\n%s", one.Kind, one.Name, one.Template, err, one.YAML)
	}
}

func render(t *testing.T, text string, versions ...string) []Object {
	t.Helper()
	objects, err := chartOf(t).Render(values(t, text), versions...)
	if err != nil {
		t.Fatal(err)
	}
	return objects
}

// What is the Prometheus operator's is there where the cluster has its kinds, or as values say.
func TestMonitored(t *testing.T) {
	for _, c := range []struct {
		values   string
		versions []string
		monitors int
		rules    int
	}{
		{`{}`, nil, 0, 0},
		{`{}`, []string{"monitoring.coreos.com/v1"}, 4, 1},
		{`{monitoring: {serviceMonitor: {enabled: false}}}`, []string{"monitoring.coreos.com/v1"}, 0, 1},
		{`{monitoring: {prometheusRule: {enabled: true}}}`, nil, 0, 1},
	} {
		if have := kinds(render(t, c.values, c.versions...)); have["ServiceMonitor"] != c.monitors || have["PrometheusRule"] != c.rules {
			t.Errorf("with %s and %v there are %d ServiceMonitors and %d PrometheusRules, want %d and %d", c.values, c.versions, have["ServiceMonitor"], have["PrometheusRule"], c.monitors, c.rules)
		}
	}
}

// Each component's pods are for nodes that the image is for, and for those that values say.
func TestNodes(t *testing.T) {
	set := `{nodeSelector: {pool: system}, tolerations: [{key: system, operator: Exists}]}`
	arm := `{nodeSelector: {kubernetes.io/arch: arm64}}`
	for _, one := range render(t, fmt.Sprintf(`{agent: %s, scheduler: %s, webhook: %s, controller: %s}`, arm, set, set, set)) {
		var pod corev1.PodSpec
		switch object := decoded(t, one).(type) {
		case *appsv1.DaemonSet:
			pod = object.Spec.Template.Spec
		case *appsv1.Deployment:
			pod = object.Spec.Template.Spec
		default:
			continue
		}
		want := map[string]string{"kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64", "pool": "system"}
		if one.Kind == "DaemonSet" {
			want = map[string]string{"kubernetes.io/os": "linux", "kubernetes.io/arch": "arm64"}
		}
		if !maps.Equal(pod.NodeSelector, want) || len(pod.Tolerations) != 1 {
			t.Errorf("%s %s is for nodes with %v, want %v, and tolerates %v", one.Kind, one.Name, pod.NodeSelector, want, pod.Tolerations)
		}
	}
}

// kinds counts objects by kind.
func kinds(objects []Object) map[string]int {
	counts := map[string]int{}
	for _, one := range objects {
		counts[one.Kind]++
	}
	return counts
}

func TestRender(t *testing.T) {
	for name, c := range map[string]struct {
		values  string
		want    map[string]int
		without []string
	}{
		"agents alone": {`{agent: {simulate: h200x1}, scheduler: {enabled: false}, webhook: {enabled: false}, controller: {enabled: false}}`, map[string]int{"Namespace": 1, "DaemonSet": 1, "DeviceClass": 1, "NetworkPolicy": 1, "ConfigMap": 1}, []string{"ServiceMonitor", "PrometheusRule", "Service", "Deployment", "MutatingWebhookConfiguration"}},
		"annotations, placed by whom they name": {
			`{agent: {enabled: false}, scheduler: {enabled: false}, webhook: {scheduler: ""}}`,
			map[string]int{"Deployment": 2, "ValidatingAdmissionPolicy": 9, "ValidatingAdmissionPolicyBinding": 9},
			nil,
		},
		"everything":                 {everything, map[string]int{"Namespace": 1, "DaemonSet": 1, "ServiceMonitor": 4, "PrometheusRule": 1, "ConfigMap": 1, "Service": 5, "Deployment": 3, "PodDisruptionBudget": 3, "MutatingWebhookConfiguration": 1, "ValidatingAdmissionPolicy": 10, "NetworkPolicy": 4}, nil},
		"agents as processes, alone": {`{agent: {enabled: false}, scheduler: {enabled: false}, webhook: {enabled: false}, controller: {enabled: false}}`, map[string]int{"ServiceAccount": 1, "CustomResourceDefinition": 3, "ValidatingAdmissionPolicy": 6, "ValidatingAdmissionPolicyBinding": 6}, []string{"DaemonSet", "NetworkPolicy"}},
		"a namespace of its own": {
			`{agent: {simulate: h200x1}, namespace: {create: false, name: there}, networkPolicy: {enabled: false}, monitoring: {dashboard: {enabled: false}}}`,
			map[string]int{"DaemonSet": 1, "Deployment": 3},
			[]string{"Namespace", "NetworkPolicy", "ConfigMap"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			objects := render(t, c.values)
			have := kinds(objects)
			for kind, count := range c.want {
				if have[kind] != count {
					t.Errorf("it has %d of %s, want %d", have[kind], kind, count)
				}
			}
			for _, kind := range c.without {
				if have[kind] > 0 {
					t.Errorf("it has a %s", kind)
				}
			}
			seen := map[string]bool{}
			for _, one := range objects {
				decoded(t, one)
				if key := one.Kind + "/" + one.Name; seen[key] {
					t.Errorf("%s is there twice", key)
				} else {
					seen[key] = true
				}
			}
			if objects[0].Kind != "Namespace" && have["Namespace"] > 0 {
				t.Errorf("%s is made before the namespace", objects[0].Kind)
			}
		})
	}
}

// Limits call whole devices by the class alone, or by a name of one's own, too.
func TestDeviceClass(t *testing.T) {
	for set, want := range map[string]string{"": "", "deviceClass: {extendedResourceName: example.com/gpu}\n": "example.com/gpu"} {
		tried := false
		for _, one := range render(t, everything+set) {
			if class, ok := decoded(t, one).(*resourceapi.DeviceClass); ok {
				tried = true
				if name := class.Spec.ExtendedResourceName; (name == nil) != (want == "") || name != nil && *name != want {
					t.Errorf("with %q limits may name the class %v, want %q", set, name, want)
				}
			}
		}
		if !tried {
			t.Error("there is no class")
		}
	}
}

// What Helm says at the end tells how pods ask, who has no alerts how to have them, and where the dashboard is.
func TestNotes(t *testing.T) {
	for set, c := range map[string]struct{ with, without []string }{
		"agent: {simulate: h200x1}": {[]string{"monitoring.serviceMonitor.enabled", "monitoring.prometheusRule.enabled", "Prometheus operator", "aliquot-dashboard"}, nil},
		"{agent: {simulate: h200x1}, monitoring: {dashboard: {enabled: false}}}":               {[]string{"monitoring.prometheusRule.enabled"}, []string{"aliquot-dashboard"}},
		"{agent: {simulate: h200x1}, webhook: {enabled: false}, controller: {enabled: false}}": {[]string{"docs/kubernetes.md"}, []string{"aliquot.dev/gpu:"}},
		"{}":       {[]string{"look for their nodes' driver in / (agent.driverRoot)"}, []string{"simulated"}},
		everything: {[]string{"in the namespace gpus", "kubectl -n gpus get pods", "aliquot.dev/gpu:", "kubectl aliquot top", "aliquot-dashboard"}, []string{"monitoring."}},
	} {
		read := chartOf(t)
		all, err := chartutil.ToRenderValues(read.chart, values(t, set), chartutil.ReleaseOptions{Name: "aliquot"}, nil)
		if err != nil {
			t.Fatal(err)
		}
		files, err := engine.Render(read.chart, all)
		if err != nil {
			t.Fatal(err)
		}
		said := files["aliquot/templates/NOTES.txt"]
		for _, words := range c.with {
			if !strings.Contains(said, words) {
				t.Errorf("with %s it does not say %q:\n%s", set, words, said)
			}
		}
		for _, words := range c.without {
			if strings.Contains(said, words) {
				t.Errorf("with %s it says %q:\n%s", set, words, said)
			}
		}
	}
}

// A release in the namespace that everything is to be in finds it there: Helm has made it, or the user.
func TestReleaseInItsNamespace(t *testing.T) {
	for _, c := range []struct {
		release, set string
		makes        bool
	}{
		{"default", "{}", true}, {"aliquot", "{}", false}, {"gpus", "{}", true}, {"gpus", "namespace: {name: gpus}", false},
	} {
		read := chartOf(t)
		all, err := chartutil.ToRenderValues(read.chart, values(t, c.set), chartutil.ReleaseOptions{Name: "aliquot", Namespace: c.release}, nil)
		if err != nil {
			t.Fatal(err)
		}
		files, err := engine.Render(read.chart, all)
		if err != nil {
			t.Fatal(err)
		}
		if made := files["aliquot/templates/namespace.yaml"]; strings.Contains(made, "kind: Namespace") != c.makes {
			t.Errorf("in the namespace %s, with %s, it makes\n%s", c.release, c.set, made)
		}
	}
}

// Wherever the chart is installed, nothing names the namespace that it would be in by default.
func TestNamespaceEverywhere(t *testing.T) {
	for _, one := range render(t, everything) {
		if strings.Contains(one.YAML, "serviceaccount:aliquot:") || strings.Contains(one.YAML, "namespace: aliquot") {
			t.Errorf("%s %s names the namespace aliquot:\n%s", one.Kind, one.Name, one.YAML)
		}
		object, ok := decoded(t, one).(metav1.Object)
		if ok && object.GetNamespace() != "" && object.GetNamespace() != "gpus" {
			t.Errorf("%s %s is in %s", one.Kind, one.Name, object.GetNamespace())
		}
	}
}

func TestRefused(t *testing.T) {
	for _, c := range []struct{ values, want string }{
		{`agent: {driverRoot: run/nvidia}`, "agent.driverRoot"},
		{`agent: {simulate: h200 x2}`, "agent.simulate"},
		{`agent: {simulate: h200x2, unenforced: kill}`, "agent.unenforced"},
		{`agent: {simulate: h200x2, latencyClass: "10"}`, "agent.latencyClass"},
		{`agent: {simulate: h200x2, latencyClass: "1@"}`, "agent.latencyClass"},
		{`agent: {simulate: h200x2, metricsPort: 70000}`, "agent.metricsPort"},
		{`agent: {simulate: h200x2, run: run/aliquot}`, "agent.run"},
		{`agent: {simulate: h200x2, group: /aliquot}`, "agent.group"},
		{`agents: {}`, "agents"},
		{`namespace: {name: Not_One}`, "namespace.name"},
		{`image: {pullPolicy: Sometimes}`, "image.pullPolicy"},
		{`apiServer: {port: 6443}`, "apiServer.port"},
		{`apiServer: {cidrs: [10.0.0.1]}`, "apiServer.cidrs"},
		{`deviceClass: {extendedResourceName: gpu}`, "deviceClass.extendedResourceName"},
		{`{agent: {simulate: h200x2}, controller: {enabled: false}}`, "set controller.enabled, too"},
		{`{agent: {simulate: h200x2}, scheduler: {enabled: false}}`, "webhook.scheduler"},
		{`{agent: {simulate: h200x2}, webhook: {scheduler: "a b"}}`, "webhook.scheduler"},
		{`{agent: {simulate: h200x2}, scheduler: {also: ["a,b"]}}`, "scheduler.also"},
		{`monitoring: {runbooks: "here/"}`, "monitoring.runbooks"},
	} {
		_, err := chartOf(t).Render(values(t, c.values))
		if flat := strings.ReplaceAll(fmt.Sprint(err), "/", "."); err == nil || !strings.Contains(flat, c.want) {
			t.Errorf("%s: %v; want an error with %s", c.values, err, c.want)
		}
	}
}

// `helm lint` has nothing to say but that there is no icon.
func TestLint(t *testing.T) {
	version, err := chartutil.ParseKubeVersion(kubeVersion)
	if err != nil {
		t.Fatal(err)
	}
	said := lint.AllWithKubeVersion(filepath.Join(repository, "deploy", "chart"), values(t, everything), "default", version)
	for _, message := range said.Messages {
		if message.Severity > support.InfoSev {
			t.Error(message)
		}
	}
	if len(said.Messages) == 0 {
		t.Error("it says nothing of the icon: it did not look")
	}
}
