package filter

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
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
	plain := f.Class(pod("p"))
	if len(plain) != 32 {
		t.Fatalf("class of a plain pod: %q", plain)
	}
	same := map[string]*v1.Pod{
		"another name":    pod("q"),
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

// Pods of one class get the same answer on every node, whatever runs in the cluster.
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
			p := randomPod(r, fmt.Sprintf("p%d", i), func(p *v1.Pod) { p.Spec.Containers[0].Image = one(r, "x", "y") })
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
				if !slices.Equal(before.found.Nodes, found.Nodes) || !maps.Equal(before.found.Why, found.Why) {
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
