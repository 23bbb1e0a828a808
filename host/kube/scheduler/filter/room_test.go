package filter

import (
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	"github.com/aliquot-dev/aliquot/host/kube/annotation"
)

// Whom a pod that fits nowhere has evicted, on nodes of 4 CPUs.
func TestMakeRoom(t *testing.T) {
	leaving := func(p *v1.Pod) {
		now := metav1.Now()
		p.DeletionTimestamp, p.Finalizers = &now, []string{"test/stays"}
	}
	low := func(name, node, cpu string, of int32, more ...func(*v1.Pod)) *v1.Pod {
		return pod(name, append([]func(*v1.Pod){on(node), asks("cpu", cpu), priority(of)}, more...)...)
	}
	both := objects(node("a", "east"), node("b", "west"))
	budget := &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default"}, Spec: policyv1.PodDisruptionBudgetSpec{Selector: selects("web")},
	}
	one := budget.DeepCopy()
	one.Status.DisruptionsAllowed = 1
	for _, test := range []struct {
		name    string
		cluster []runtime.Object
		pod     *v1.Pod
		only    string
		node    string
		pods    []string
		breach  int
	}{
		{"the least priority", objects(low("x", "a", "3", 5), low("y", "b", "3", 1)), pod("p", asks("cpu", "2"), priority(9)), "", "b", []string{"y"}, 0},
		{"as few as will do", objects(low("x", "a", "2", 1), low("y", "a", "2", 2), low("z", "b", "4", 9)), pod("p", asks("cpu", "2"), priority(9)), "", "a", []string{"x"}, 0},
		{"one node alone", objects(low("x", "a", "3", 5), low("y", "b", "3", 1)), pod("p", asks("cpu", "2"), priority(9)), "a", "a", []string{"x"}, 0},
		{"nobody of its own priority", objects(low("x", "a", "3", 9), low("y", "b", "3", 9)), pod("p", asks("cpu", "2"), priority(9)), "", "", nil, 0},
		{"nobody where that does not help", objects(low("x", "a", "3", 1), low("y", "b", "3", 1)), pod("p", asks("cpu", "2"), priority(9), onlyIn(zone, "north", false)), "", "", nil, 0},
		{"never", objects(low("x", "a", "3", 1), low("y", "b", "3", 1)), pod("p", asks("cpu", "2"), priority(9), func(p *v1.Pod) { p.Spec.PreemptionPolicy = ptr.To(v1.PreemptNever) }), "", "", nil, 0},
		{"host port", objects(low("x", "a", "1", 1, port(80)), low("y", "b", "1", 1, port(80), func(p *v1.Pod) { p.Spec.Priority = ptr.To[int32](2) })), pod("p", port(80), priority(9)), "", "a", []string{"x"}, 0},
		{"budgets are kept first", append(objects(low("x", "a", "3", 1, labelled("app", "web")), low("y", "b", "3", 5)), budget), pod("p", asks("cpu", "2"), priority(9)), "", "b", []string{"y"}, 0},
		{"budgets that are not kept are counted", append(objects(low("x", "a", "3", 1, labelled("app", "web")), low("y", "b", "3", 9)), budget), pod("p", asks("cpu", "2"), priority(9)), "", "a", []string{"x"}, 1},
		{"who still ends is no disruption of a budget", append(objects(low("x", "a", "2", 2, labelled("app", "web"), leaving), low("y", "a", "2", 1, labelled("app", "web")), low("z", "b", "4", 9)), one), pod("p", asks("cpu", "4"), priority(9)), "", "a", []string{"x", "y"}, 0},
		{"who has our devices stays", append(devices(deviceClaim("mine", "gpu.aliquot.dev")), low("x", "a", "3", 1, uses("mine")), low("y", "b", "3", 5)), pod("p", asks("cpu", "2"), priority(9)), "", "b", []string{"y"}, 0},
		{"who is not preemptible stays", objects(low("x", "a", "3", 1, func(p *v1.Pod) { p.Annotations = map[string]string{annotation.Preemptible: "false"} }), low("y", "b", "3", 5)), pod("p", asks("cpu", "2"), priority(9)), "", "b", []string{"y"}, 0},
		{"for one with our devices, too", append(devices(deviceClaim("mine", "gpu.aliquot.dev"), deviceClaim("its", "gpu.aliquot.dev")), low("x", "a", "3", 1, uses("mine")), low("y", "b", "3", 5)), pod("p", asks("cpu", "2"), priority(9), uses("its")), "", "b", []string{"y"}, 0},
		{"nobody of its own priority for one with our devices", append(devices(deviceClaim("its", "gpu.aliquot.dev")), low("x", "a", "3", 9), low("y", "b", "3", 9)), pod("p", asks("cpu", "2"), priority(9), uses("its")), "", "", nil, 0},
		{"nobody where it fits by now", objects(low("x", "a", "3", 1), low("y", "b", "1", 1)), pod("p", asks("cpu", "2"), priority(9)), "", "b", nil, 0},
		{"they still end on its node", objects(low("x", "a", "3", 1, leaving), low("y", "b", "3", 1)), pod("p", asks("cpu", "2"), priority(9), func(p *v1.Pod) { p.Status.NominatedNodeName = "a" }), "", "a", nil, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			f, _ := over(t, append(slices.Clone(both), test.cluster...)...)
			var only []string
			if test.only != "" {
				only = []string{test.only}
			}
			room, err := f.MakeRoom(background, test.pod, only)
			if err != nil {
				t.Fatal(err)
			}
			var names []string
			for _, p := range room.Pods {
				names = append(names, p.Name)
			}
			if room.Node != test.node || !slices.Equal(names, test.pods) || room.Breaches != test.breach {
				t.Errorf("on %q %v go, %d against their budget; want on %q %v, %d", room.Node, names, room.Breaches, test.node, test.pods, test.breach)
			}
		})
	}
}

// Who is assumed on a node and not seen there yet is not evicted from it.
func TestMakeRoomWhileBinding(t *testing.T) {
	f, _ := over(t, node("a", "east"))
	x := pod("x", asks("cpu", "3"), priority(1))
	if err := f.Assume(x, "a"); err != nil {
		t.Fatal(err)
	}
	p := pod("p", asks("cpu", "2"), priority(9))
	if room, err := f.MakeRoom(background, p, nil); err != nil || room.Node != "" {
		t.Errorf("%+v, %v", room, err)
	}
	seen := x.DeepCopy()
	seen.Spec.NodeName = "a"
	f.podChanged(x, seen)
	if room, err := f.MakeRoom(background, p, nil); err != nil || room.Node != "a" || len(room.Pods) != 1 {
		t.Errorf("%+v, %v", room, err)
	}
}
