package filter

import (
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
)

// Whom pods that start together have evicted, on nodes of 4 CPUs: for each, those before it are there, and those are gone who go for these.
func TestMakeRoomTogether(t *testing.T) {
	leaving := func(p *v1.Pod) {
		now := metav1.Now()
		p.DeletionTimestamp, p.Finalizers = &now, []string{"test/stays"}
	}
	low := func(name, node, cpu string, of int32, more ...func(*v1.Pod)) *v1.Pod {
		return pod(name, append([]func(*v1.Pod){on(node), asks("cpu", cpu), priority(of)}, more...)...)
	}
	one := func(name, cpu string, of int32, more ...func(*v1.Pod)) *v1.Pod {
		return pod(name, append([]func(*v1.Pod){asks("cpu", cpu), priority(of)}, more...)...)
	}
	nominatedFor := func(node string) func(*v1.Pod) { return func(p *v1.Pod) { p.Status.NominatedNodeName = node } }
	web := labelled("app", "web")
	budget := func(allows int32) *policyv1.PodDisruptionBudget {
		return &policyv1.PodDisruptionBudget{
			ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default"}, Spec: policyv1.PodDisruptionBudgetSpec{Selector: selects("web")},
			Status: policyv1.PodDisruptionBudgetStatus{DisruptionsAllowed: allows},
		}
	}
	for _, test := range []struct {
		name    string
		cluster []runtime.Object
		pods    []*v1.Pod
		nodes   []string
		gone    []string
		breach  int
		lacking []int
	}{
		{"on two nodes", objects(low("x", "a", "3", 1), low("y", "b", "3", 1)), []*v1.Pod{one("p", "2", 9), one("q", "2", 9)}, []string{"a", "b"}, []string{"x", "y"}, 0, nil},
		{"one where nobody has to go", objects(low("x", "a", "3", 1)), []*v1.Pod{one("p", "2", 9), one("q", "2", 9)}, []string{"a", "b"}, []string{"x"}, 0, nil},
		{"the second beside the first", objects(low("x", "a", "2", 1), low("y", "a", "2", 2)), []*v1.Pod{one("p", "2", 9), one("q", "2", 9)}, []string{"a", "a"}, []string{"x", "y"}, 0, nil},
		{"the second in what went for the first", objects(low("x", "a", "4", 1)), []*v1.Pod{one("p", "2", 9), one("q", "2", 9)}, []string{"a", "a"}, []string{"x"}, 0, nil},
		{"no room for the second", objects(low("x", "a", "4", 1)), []*v1.Pod{one("p", "3", 9), one("q", "2", 9)}, []string{"a", "a"}, []string{"x"}, 0, []int{1}},
		{"and a third elsewhere", objects(low("x", "a", "4", 1), low("y", "b", "4", 1)), []*v1.Pod{one("p", "3", 9), one("q", "2", 9), one("r", "2", 9)}, []string{"a", "a", "b"}, []string{"x", "y"}, 0, []int{1}},
		{"one node has a port once", objects(low("x", "a", "1", 1, port(80))), []*v1.Pod{one("p", "1", 9, port(80)), one("q", "1", 9, port(80))}, []string{"a", "a"}, []string{"x"}, 0, []int{1}},
		{"apart from each other", objects(low("x", "a", "3", 1)), []*v1.Pod{one("p", "2", 9, web), one("q", "1", 9, web, apart("web", host))}, []string{"a", "a"}, []string{"x"}, 0, []int{1}},
		{"nobody of the priority of one of them", objects(low("x", "a", "3", 5), low("y", "b", "3", 1)), []*v1.Pod{one("p", "2", 9), one("q", "2", 5)}, []string{"a", "b"}, []string{"y"}, 0, []int{0}},
		{"nor one of them for another", nil, []*v1.Pod{one("p", "3", 5), one("q", "3", 9)}, []string{"a", "a"}, nil, 0, []int{1}},
		{"a budget for one of two", append(objects(low("x", "a", "3", 1, web), low("y", "b", "3", 1, web)), budget(1)), []*v1.Pod{one("p", "2", 9), one("q", "2", 9)}, []string{"a", "b"}, []string{"x"}, 1, []int{1}},
		{"a budget for both", append(objects(low("x", "a", "3", 1, web), low("y", "b", "3", 1, web)), budget(2)), []*v1.Pod{one("p", "2", 9), one("q", "2", 9)}, []string{"a", "b"}, []string{"x", "y"}, 0, nil},
		{"who has a budget left goes second", append(objects(low("x", "a", "4", 1, web), low("y", "b", "2", 1, web), low("z", "b", "2", 2)), budget(1)), []*v1.Pod{one("p", "2", 9), one("q", "2", 9)}, []string{"a", "b"}, []string{"x", "z"}, 0, nil},
		{"who still ends", objects(low("x", "a", "3", 1, leaving), low("y", "b", "3", 1)), []*v1.Pod{one("p", "2", 9, nominatedFor("a")), one("q", "2", 9, nominatedFor("b"))}, []string{"a", "b"}, []string{"y"}, 0, nil},
		{"each in the room of the other", objects(), []*v1.Pod{one("p", "3", 9, nominatedFor("b")), one("q", "3", 9, nominatedFor("a"))}, []string{"a", "b"}, nil, 0, nil},
		{"who still ends is no disruption of a budget", append(objects(low("x", "a", "2", 2, web, leaving), low("y", "a", "2", 1, web)), budget(1)), []*v1.Pod{one("p", "4", 9)}, []string{"a"}, []string{"x", "y"}, 0, nil},
		{"another driver's device once", devices(deviceClaim("its", "net.example"), deviceClaim("other", "net.example"), low("x", "b", "3", 1)), []*v1.Pod{one("p", "2", 9, uses("its")), one("q", "1", 9, uses("other"))}, []string{"b", "b"}, []string{"x"}, 0, []int{1}},
		{"no such node", objects(), []*v1.Pod{one("p", "1", 9)}, []string{"gone"}, nil, 0, []int{0}},
	} {
		t.Run(test.name, func(t *testing.T) {
			cluster := objects(node("a", "east"), node("b", "west"))
			for _, p := range test.pods {
				cluster = append(cluster, p)
			}
			f, _ := over(t, append(cluster, test.cluster...)...)
			f.Together(test.pods)
			rooms, err := f.MakeRoomTogether(background, test.pods, test.nodes)
			if err != nil {
				t.Fatal(err)
			}
			var names []string
			for _, p := range rooms.Pods {
				names = append(names, p.Name)
			}
			if held := f.pending(); held > 0 {
				t.Errorf("%d claims are held", held)
			}
			if !slices.Equal(names, test.gone) || rooms.Breaches != test.breach || !slices.Equal(rooms.Lacking, test.lacking) {
				t.Errorf("%v go, %d against their budget, %v lack room; want %v, %d, %v", names, rooms.Breaches, rooms.Lacking, test.gone, test.breach, test.lacking)
			}
		})
	}
}

// pending is how many claims are being allocated, as far as upstream's plugins know.
func (f *Filters) pending() (count int) {
	claims, err := f.claims.made.List(labels.Everything())
	for _, claim := range claims {
		if err == nil && f.claims.manager.ResourceClaims().GetPendingAllocation(claim.UID) != nil {
			count++
		}
	}
	return count
}
