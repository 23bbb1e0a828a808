package filter

import (
	"maps"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

func rather(p *v1.Pod, change func(*v1.Affinity)) { change(affinity(p)) }

// Nodes are told apart by what is preferred, the best first, and by nothing else: not by what they have left.
func TestWished(t *testing.T) {
	weighed := func(app, topology string) []v1.WeightedPodAffinityTerm {
		return []v1.WeightedPodAffinityTerm{{Weight: 10, PodAffinityTerm: term(app, topology)}}
	}
	avoided := func(n *v1.Node) {
		n.Spec.Taints = []v1.Taint{{Key: "old", Effect: v1.TaintEffectPreferNoSchedule}}
	}
	db := pod("db", on("b"), labelled("app", "db"), asks("cpu", "2"))
	for _, of := range []struct {
		name    string
		cluster []runtime.Object // beside a and b in the east and c in the west
		pod     *v1.Pod
		ranks   [][]string
	}{
		{name: "nothing", cluster: objects(db), pod: pod("p"), ranks: [][]string{{"a", "b", "c"}}},
		{name: "our claim", cluster: devices(deviceClaim("mine", "gpu.aliquot.dev")), pod: pod("p", uses("mine"), func(p *v1.Pod) {
			rather(p, func(a *v1.Affinity) {
				a.NodeAffinity = &v1.NodeAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []v1.PreferredSchedulingTerm{{Weight: 1, Preference: where(zone, "west", false).NodeSelectorTerms[0]}}}
			})
		}), ranks: [][]string{{"c"}, {"a", "b"}}},
		{name: "node affinities", pod: pod("p", func(p *v1.Pod) {
			rather(p, func(a *v1.Affinity) {
				a.NodeAffinity = &v1.NodeAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []v1.PreferredSchedulingTerm{
					{Weight: 10, Preference: where(zone, "east", false).NodeSelectorTerms[0]}, {Weight: 1, Preference: where(host, "b", false).NodeSelectorTerms[0]},
				}}
			})
		}), ranks: [][]string{{"b"}, {"a"}, {"c"}}},
		{name: "affinity to pods", cluster: objects(db), pod: pod("p", func(p *v1.Pod) {
			rather(p, func(a *v1.Affinity) {
				a.PodAffinity = &v1.PodAffinity{PreferredDuringSchedulingIgnoredDuringExecution: weighed("db", zone)}
			})
		}), ranks: [][]string{{"a", "b"}, {"c"}}},
		{name: "anti-affinity to pods", cluster: objects(db), pod: pod("p", func(p *v1.Pod) {
			rather(p, func(a *v1.Affinity) {
				a.PodAntiAffinity = &v1.PodAntiAffinity{PreferredDuringSchedulingIgnoredDuringExecution: weighed("db", host)}
			})
		}), ranks: [][]string{{"a", "c"}, {"b"}}},
		{name: "anti-affinity of a pod that runs", cluster: objects(pod("q", on("a"), func(p *v1.Pod) {
			rather(p, func(a *v1.Affinity) {
				a.PodAntiAffinity = &v1.PodAntiAffinity{PreferredDuringSchedulingIgnoredDuringExecution: weighed("loud", zone)}
			})
		})), pod: pod("p", labelled("app", "loud")), ranks: [][]string{{"c"}, {"a", "b"}}},
		{name: "taint", cluster: objects(node("d", "west", avoided)), pod: pod("p"), ranks: [][]string{{"a", "b", "c"}, {"d"}}},
		{name: "tolerated taint", cluster: objects(node("d", "west", avoided)), pod: pod("p", func(p *v1.Pod) {
			p.Spec.Tolerations = []v1.Toleration{{Key: "old", Operator: v1.TolerationOpExists}}
		}), ranks: [][]string{{"a", "b", "c", "d"}}},
		{name: "spread", cluster: objects(pod("q", on("a"), labelled("app", "web"))), pod: pod("p", spread("web", zone), func(p *v1.Pod) {
			p.Spec.TopologySpreadConstraints[0].WhenUnsatisfiable = v1.ScheduleAnyway
		}), ranks: [][]string{{"c"}, {"a", "b"}}},
		{name: "too full for now", cluster: objects(db), pod: pod("p", asks("cpu", "3"), func(p *v1.Pod) {
			rather(p, func(a *v1.Affinity) {
				a.PodAffinity = &v1.PodAffinity{PreferredDuringSchedulingIgnoredDuringExecution: weighed("db", host)}
			})
		}), ranks: [][]string{{"b"}, {"a", "c"}}},
	} {
		t.Run(of.name, func(t *testing.T) {
			f, _ := over(t, append(objects(node("a", "east"), node("b", "east"), node("c", "west")), of.cluster...)...)
			found, err := f.Nodes(background, of.pod)
			if err != nil {
				t.Fatal(err)
			}
			levels := map[int64][]string{}
			for _, name := range slices.Sorted(maps.Keys(found.Wished)) {
				levels[found.Wished[name]] = append(levels[found.Wished[name]], name)
			}
			var ranks [][]string
			for _, level := range slices.Backward(slices.Sorted(maps.Keys(levels))) {
				ranks = append(ranks, levels[level])
			}
			if !slices.EqualFunc(ranks, of.ranks, slices.Equal) {
				t.Errorf("preferred are %v, not %v", ranks, of.ranks)
			}
			if len(found.Images) > 0 {
				t.Errorf("of images it says %v, where there are none", found.Images)
			}
		})
	}
}

// An image that a node has is said apart, and no wish.
func TestImages(t *testing.T) {
	f, _ := over(t, node("a", "east"), node("b", "east", func(n *v1.Node) {
		n.Status.Images = []v1.ContainerImage{{Names: []string{"work:latest"}, SizeBytes: 4 << 30}}
	}))
	found, err := f.Nodes(background, pod("p"))
	if err != nil {
		t.Fatal(err)
	}
	if found.Wished["a"] != found.Wished["b"] || found.Images["a"] != 0 || found.Images["b"] < 1 || found.Images["b"] > 100 {
		t.Errorf("wished %v, images %v", found.Wished, found.Images)
	}
}
