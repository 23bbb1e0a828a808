package filter

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	fwk "k8s.io/kube-scheduler/framework"
)

// unaware is what knows of no claim yet.
type unaware struct{ fwk.SharedDRAManager }

func (unaware) ResourceClaims() fwk.ResourceClaimTracker { return none{} }

type none struct{ fwk.ResourceClaimTracker }

func (none) Get(_, name string) (*resourceapi.ResourceClaim, error) {
	return nil, fmt.Errorf("there is no claim %s", name)
}

// Who hears of a claim may ask at once for a pod that uses it, whoever else has heard of it.
func TestNewClaimsCountAtOnce(t *testing.T) {
	f, _ := over(t, scene(devices(deviceClaim("mine", "gpu.aliquot.dev"))...)...)
	plain := f.Class(pod("p"))
	f.claims.manager = unaware{f.claims.manager}
	p := pod("p", uses("mine"))
	if got := f.Class(p); got != plain {
		t.Errorf("class %q, not that of a plain pod", got)
	}
	if why, err := f.Check(background, p, "a"); why != "" || err != nil {
		t.Errorf("Check: %q, %v", why, err)
	}
}

func TestClass(t *testing.T) {
	f, _ := over(t, scene(devices(deviceClaim("mine", "gpu.aliquot.dev"), deviceClaim("too", "gpu.aliquot.dev"))...)...)
	f.podAdded(pod("web", apart("web", zone), on("a")))
	plain := f.Class(pod("p"))
	if len(plain) != 32 {
		t.Fatalf("class of a plain pod: %q", plain)
	}
	same := map[string]*v1.Pod{
		"another name":    pod("q"),
		"another label":   pod("p", labelled("job-completion-index", "7")),
		"our claim":       pod("p", uses("mine")),
		"our other claim": pod("p", uses("too")),
		"a secret": pod("p", func(p *v1.Pod) {
			p.Spec.Volumes = []v1.Volume{{Name: "s", VolumeSource: v1.VolumeSource{Secret: &v1.SecretVolumeSource{SecretName: "s"}}}}
		}),
		"a port in its own":  pod("p", func(p *v1.Pod) { p.Spec.Containers[0].Ports = []v1.ContainerPort{{ContainerPort: 80}} }),
		"preemption refused": pod("p", func(p *v1.Pod) { never := v1.PreemptNever; p.Spec.PreemptionPolicy = &never }),
	}
	for what, p := range same {
		if got := f.Class(p); got != plain {
			t.Errorf("%s: class %q, not that of a plain pod", what, got)
		}
	}
	others := map[string]*v1.Pod{
		"namespace":    pod("p", func(p *v1.Pod) { p.Namespace = "other" }),
		"priority":     pod("p", priority(1)),
		"labels":       pod("p", labelled("app", "web")),
		"CPU":          pod("p", asks("cpu", "1")),
		"selector":     pod("p", func(p *v1.Pod) { p.Spec.NodeSelector = map[string]string{zone: "east"} }),
		"affinity":     pod("p", onlyIn(zone, "east", false)),
		"toleration":   pod("p", func(p *v1.Pod) { p.Spec.Tolerations = []v1.Toleration{{Operator: v1.TolerationOpExists}} }),
		"host port":    pod("p", port(80)),
		"UDP port":     pod("p", port(80), func(p *v1.Pod) { p.Spec.Containers[0].Ports[0].Protocol = v1.ProtocolUDP }),
		"port address": pod("p", port(80), func(p *v1.Pod) { p.Spec.Containers[0].Ports[0].HostIP = "127.0.0.1" }),
		"volume":       pod("p", mounts("data")),
		"image":        pod("p", func(p *v1.Pod) { p.Spec.Containers[0].Image = "other" }),
	}
	seen := map[string]string{plain: "none"}
	for what, p := range others {
		got := f.Class(p)
		if before, is := seen[got]; is || got == "" {
			t.Errorf("%s: class %q, as with the difference %q", what, got, before)
		}
		seen[got] = what
	}
}

func TestPodsWithoutAClass(t *testing.T) {
	f, _ := over(t, scene(devices(deviceClaim("nic", "net.example"))...)...)
	alone := map[string]*v1.Pod{
		"spread":          pod("p", spread("web", zone)),
		"affinity":        pod("p", beside("web", zone)),
		"anti-affinity":   pod("p", apart("web", zone)),
		"foreign claim":   pod("p", uses("nic")),
		"claim not there": pod("p", uses("none")),
		"gate":            pod("p", func(p *v1.Pod) { p.Spec.SchedulingGates = []v1.PodSchedulingGate{{Name: "wait"}} }),
		"nominated node":  pod("p", func(p *v1.Pod) { p.Status.NominatedNodeName = "a" }),
		"volume of its own": pod("p", func(p *v1.Pod) {
			p.Spec.Volumes = []v1.Volume{{Name: "v", VolumeSource: v1.VolumeSource{Ephemeral: &v1.EphemeralVolumeSource{}}}}
		}),
	}
	for what, p := range alone {
		if got := f.Class(p); got != "" {
			t.Errorf("%s: class %q, want none", what, got)
		}
	}
}

// A label counts once any affinity of a pod chooses others by it, and not before.
func TestLabelsThatCount(t *testing.T) {
	of := func(terms ...v1.PodAffinityTerm) v1.Affinity {
		return v1.Affinity{PodAffinity: &v1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: terms}}
	}
	weighted := []v1.WeightedPodAffinityTerm{{Weight: 5, PodAffinityTerm: term("web", zone)}}
	exists := &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: metav1.LabelSelectorOpExists}}}
	for what, a := range map[string]v1.Affinity{
		"affinity":                of(term("web", zone)),
		"another term":            of(v1.PodAffinityTerm{TopologyKey: zone}, term("web", zone)),
		"expression":              of(v1.PodAffinityTerm{TopologyKey: zone, LabelSelector: exists}),
		"matched label":           of(v1.PodAffinityTerm{TopologyKey: zone, MatchLabelKeys: []string{"app"}}),
		"mismatched label":        of(v1.PodAffinityTerm{TopologyKey: zone, MismatchLabelKeys: []string{"app"}}),
		"anti-affinity":           {PodAntiAffinity: &v1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []v1.PodAffinityTerm{term("web", zone)}}},
		"preferred affinity":      {PodAffinity: &v1.PodAffinity{PreferredDuringSchedulingIgnoredDuringExecution: weighted}},
		"preferred anti-affinity": {PodAntiAffinity: &v1.PodAntiAffinity{PreferredDuringSchedulingIgnoredDuringExecution: weighted}},
	} {
		t.Run(what, func(t *testing.T) {
			f, _ := over(t, scene()...)
			web, db := pod("p", labelled("app", "web")), pod("p", labelled("app", "db"))
			if one, other := f.Class(web), f.Class(db); one != other || one == "" {
				t.Errorf("classes %q and %q, and nobody chooses by the label in which they differ", one, other)
			}
			before := f.Distinctions()
			chooses := pod("chooses", on("a"), func(p *v1.Pod) { p.Spec.Affinity = &a })
			f.podAdded(chooses)
			if one, other := f.Class(web), f.Class(db); one == other || one == "" || other == "" {
				t.Errorf("classes %q and %q, and a pod chooses by the label in which they differ", one, other)
			}
			told := f.Distinctions()
			if told <= before {
				t.Errorf("classes were told apart %d times, after %d", told, before)
			}
			f.podGone(chooses)
			f.podAdded(chooses)
			if again := f.Distinctions(); again != told {
				t.Errorf("nothing is new, and classes were told apart %d times, after %d", again, told)
			}
		})
	}
}

// Pods of one class get the same answer on every node and prefer the same ones, whatever runs in the cluster.
func TestMembersOfAClassHaveEqualAnswers(t *testing.T) {
	alike, refused := 0, 0
	for seed, r := range seeded(6, 9) {
		f, _ := over(t, storage()...)
		for i := range 12 {
			f.nodeAdded(randomNode(r, fmt.Sprintf("n%d", i)))
		}
		for i := range 30 {
			f.podAdded(randomPod(r, fmt.Sprintf("bound%d", i), on(fmt.Sprintf("n%d", r.IntN(12)))))
			f.podAdded(randomPod(r, fmt.Sprintf("waits%d", i), func(p *v1.Pod) { p.Status.NominatedNodeName = fmt.Sprintf("n%d", r.IntN(12)) }))
		}
		type member struct {
			pod   *v1.Pod
			found Feasible
		}
		first := map[string]member{}
		for i := range 600 {
			p := randomPod(r, fmt.Sprintf("p%d", i), labelled("number", fmt.Sprint(i)), func(p *v1.Pod) { p.Spec.Containers[0].Image = one(r, "x", "y") })
			class := f.Class(p)
			if class == "" {
				continue
			}
			found, err := f.Nodes(background, p)
			if err != nil {
				t.Fatal(err)
			}
			if before, is := first[class]; is {
				alike, refused = alike+1, refused+len(found.Why)
				if !slices.Equal(before.found.Nodes, found.Nodes) || !maps.Equal(before.found.Why, found.Why) ||
					!maps.Equal(before.found.Wished, found.Wished) || !maps.Equal(before.found.Images, found.Images) {
					t.Fatalf("seed %d: of one class are\n%+v\n%+v\nand their answers\n%+v\n%+v", seed, before.pod.Spec, p.Spec, before.found, found)
				}
			} else {
				first[class] = member{p, found}
			}
		}
	}
	if alike < 200 || refused < 200 {
		t.Errorf("only %d pods were of a class that another was of, and refused on %d nodes", alike, refused)
	}
}
