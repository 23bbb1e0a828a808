package filter

import (
	"context"
	"maps"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
)

// scene is a cluster of four nodes: a in the east; b and c in the west, c tainted; d in the west, cordoned.
func scene(more ...runtime.Object) []runtime.Object {
	return append([]runtime.Object{
		node("a", "east", func(n *v1.Node) { n.Status.Allocatable["example.com/dongle"] = list("n", "2")["n"] }),
		node("b", "west"),
		node("c", "west", func(n *v1.Node) {
			n.Spec.Taints = []v1.Taint{{Key: "team", Value: "x", Effect: v1.TaintEffectNoSchedule}}
		}),
		node("d", "west", func(n *v1.Node) { n.Spec.Unschedulable = true }),
		late(),
	}, more...)
}

type judgement struct {
	name    string
	cluster []runtime.Object
	pod     *v1.Pod
	nodes   []string
	why     map[string]string // of some nodes: part of the reason
	full    []string          // those that lack only what others requested
	held    []string          // those that others have something of; nil: it is not asked
}

// judgements are clusters, pods and what is to be said of them.
func judgements() []judgement {
	return []judgement{
		{name: "taint and cordon", pod: pod("p"), nodes: []string{"a", "b"}, why: map[string]string{"c": "untolerated taint", "d": "unschedulable"}, held: []string{}},
		{name: "toleration", pod: pod("p", func(p *v1.Pod) {
			p.Spec.Tolerations = []v1.Toleration{{Key: "team", Operator: v1.TolerationOpExists}}
		}), nodes: []string{"a", "b", "c"}},
		{name: "node selector", pod: pod("p", func(p *v1.Pod) { p.Spec.NodeSelector = map[string]string{zone: "east"} }), nodes: []string{"a"}, why: map[string]string{"b": "node affinity/selector"}, held: []string{}},
		{name: "node affinity", pod: pod("p", onlyIn(zone, "east", true)), nodes: []string{"b"}, why: map[string]string{"a": "node affinity/selector"}},
		{name: "host port", cluster: objects(pod("q", on("a"), port(80))), pod: pod("p", port(80)), nodes: []string{"b"}, why: map[string]string{"a": "free ports"}, held: []string{"a"}},
		{name: "another host port", cluster: objects(pod("q", on("a"), port(80))), pod: pod("p", port(81)), nodes: []string{"a", "b"}},
		{name: "spread", cluster: objects(pod("q", on("a"), labelled("app", "web"))), pod: pod("p", spread("web", zone)), nodes: []string{"b"}, why: map[string]string{"a": "topology spread"}, held: []string{"a"}},
		{name: "affinity to pods", cluster: objects(pod("q", on("b"), labelled("app", "db"))), pod: pod("p", beside("db", zone)), nodes: []string{"b"}, why: map[string]string{"a": "pod affinity"}},
		{name: "anti-affinity to pods", cluster: objects(pod("q", on("b"), labelled("app", "db"))), pod: pod("p", apart("db", host)), nodes: []string{"a"}, why: map[string]string{"b": "anti-affinity"}, held: []string{"b"}},
		{name: "anti-affinity of a pod that runs", cluster: objects(pod("q", on("c"), apart("loud", zone))), pod: pod("p", labelled("app", "loud")), nodes: []string{"a"}, why: map[string]string{"b": "existing pods anti-affinity"}},
		{name: "bound volume with node affinity", cluster: volume("data", "east", false), pod: pod("p", mounts("data")), nodes: []string{"a"}, why: map[string]string{"b": "node affinity"}},
		{name: "bound volume with a zone", cluster: volume("data", "west", true), pod: pod("p", mounts("data")), nodes: []string{"b"}, why: map[string]string{"a": "no available volume zone"}},
		{name: "volume that waits for a node", cluster: objects(waiting("data"), freeVolume("disk", "west")), pod: pod("p", mounts("data")), nodes: []string{"b"}, why: map[string]string{"a": "persistent volumes to bind"}},
		{name: "no such volume claim", pod: pod("p", mounts("data")), nodes: nil, why: map[string]string{"a": "not found", "d": "not found"}},
		{
			name: "attached volumes", cluster: append(append(volume("one", "east", false), volume("two", "east", false)...), pod("q", on("a"), mounts("one")), attachable("a", 1)),
			pod: pod("p", mounts("two")), nodes: nil, why: map[string]string{"a": "exceed max volume count"},
		},
		{name: "volume of one pod alone", cluster: append(exclusive("data"), pod("q", on("a"), mounts("data"))), pod: pod("p", mounts("data")), nodes: nil, why: map[string]string{"a": "ReadWriteOncePod"}},
		{name: "CPU", cluster: objects(pod("q", on("a"), asks("cpu", "2"))), pod: pod("p", asks("cpu", "3")), nodes: []string{"b"}, why: map[string]string{"a": "Insufficient cpu"}, full: []string{"a"}, held: []string{"a"}},
		{name: "pods that ended hold nothing", cluster: objects(pod("q", on("a"), asks("cpu", "2"), func(p *v1.Pod) { p.Status.Phase = v1.PodSucceeded })), pod: pod("p", asks("cpu", "3")), nodes: []string{"a", "b"}},
		{name: "number of pods", cluster: objects(node("e", "east", func(n *v1.Node) { n.Status.Allocatable["pods"] = list("n", "1")["n"] }), pod("q", on("e"))), pod: pod("p"), nodes: []string{"a", "b"}, why: map[string]string{"e": "Too many pods"}, full: []string{"e"}, held: []string{"e"}},
		{name: "extended resource", pod: pod("p", asks("example.com/dongle", "1")), nodes: []string{"a"}, why: map[string]string{"b": "Insufficient example.com/dongle"}, held: []string{}},
		{name: "nominated pod of a higher priority", cluster: objects(pod("q", asks("cpu", "4"), priority(9), func(p *v1.Pod) { p.Status.NominatedNodeName = "a" })), pod: pod("p", asks("cpu", "1")), nodes: []string{"b"}, why: map[string]string{"a": "Insufficient cpu"}, full: []string{"a"}},
		{name: "nominated pod of a lower priority", cluster: objects(pod("q", asks("cpu", "4"), func(p *v1.Pod) { p.Status.NominatedNodeName = "a" })), pod: pod("p", asks("cpu", "1"), priority(9)), nodes: []string{"a", "b"}},
		{name: "scheduling gate", pod: pod("p", func(p *v1.Pod) { p.Spec.SchedulingGates = []v1.PodSchedulingGate{{Name: "wait"}} }), nodes: nil, why: map[string]string{"a": "scheduling gates: [wait]"}},
		{name: "claim of our driver", cluster: devices(deviceClaim("mine", "gpu.aliquot.dev")), pod: pod("p", uses("mine")), nodes: []string{"a", "b"}},
		{name: "extended resource of our driver", cluster: devices(), pod: pod("p", asks("aliquot.dev/gpu", "1")), why: map[string]string{"a": "cannot allocate all claims", "b": "cannot allocate all claims"}},
		{name: "extended resource of our class by its name", cluster: devices(), pod: pod("p", asks("deviceclass.resource.kubernetes.io/gpu.aliquot.dev", "1")), why: map[string]string{"a": "cannot allocate all claims", "b": "cannot allocate all claims"}},
		{name: "claim of another driver", cluster: devices(deviceClaim("nic", "net.example")), pod: pod("p", uses("nic")), nodes: []string{"b"}, why: map[string]string{"a": "cannot allocate all claims"}},
		{name: "claims of both", cluster: devices(deviceClaim("mine", "gpu.aliquot.dev"), deviceClaim("nic", "net.example")), pod: pod("p", uses("mine"), uses("nic")), nodes: []string{"b"}},
		{name: "claim that mixes drivers", cluster: devices(deviceClaim("mix", "gpu.aliquot.dev", "net.example")), pod: pod("p", uses("mix")), nodes: []string{"a", "b"}}, // the scheduler looks for its devices
		{name: "claim that is not there", cluster: devices(), pod: pod("p", uses("mine")), nodes: nil, why: map[string]string{"a": "could not find ResourceClaim"}},
	}
}

func TestNodes(t *testing.T) {
	for _, test := range judgements() {
		t.Run(test.name, func(t *testing.T) {
			f, _ := over(t, scene(test.cluster...)...)
			found, err := f.Nodes(context.Background(), test.pod)
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(found.Nodes, test.nodes) {
				t.Errorf("Nodes: %v, want %v; the others: %v", found.Nodes, test.nodes, found.Why)
			}
			for name, part := range test.why {
				if !strings.Contains(found.Why[name], part) {
					t.Errorf("why not %s: %q, want %q in it", name, found.Why[name], part)
				}
			}
			if !slices.Equal(found.Full, test.full) {
				t.Errorf("others requested what is lacked of %v, want %v; the others: %v", found.Full, test.full, found.Why)
			}
			if test.held != nil && !slices.Equal(found.Held, test.held) {
				t.Errorf("others have something of %v, want %v; the others: %v", found.Held, test.held, found.Why)
			}
			agrees(t, f, test.pod, found)
		})
	}
}

// agrees fails unless Check says of every node what Nodes said.
func agrees(t *testing.T, f *Filters, p *v1.Pod, found Feasible) {
	t.Helper()
	want := maps.Clone(found.Why)
	for _, name := range found.Nodes {
		want[name] = ""
	}
	for name, reason := range want {
		why, err := f.Check(context.Background(), p, name)
		if err != nil {
			t.Fatal(err)
		}
		if why != reason {
			t.Errorf("Check on %s: %q; Nodes said %q", name, why, reason)
		}
	}
}

func TestCheckOfNoNode(t *testing.T) {
	f, _ := over(t, scene()...)
	why, err := f.Check(context.Background(), pod("p"), "nowhere")
	if err != nil || why != "there is no node nowhere" {
		t.Errorf("%q, %v", why, err)
	}
}

// What is listed and watched is what New says that the account needs, and no more.
func TestWhatIsWatched(t *testing.T) {
	_, client := over(t)
	var want []string
	for _, resource := range []string{
		"pods", "nodes", "namespaces", "persistentvolumes", "persistentvolumeclaims", "storageclasses", "csinodes", "csidrivers",
		"csistoragecapacities", "volumeattachments", "resourceclaims", "resourceslices", "deviceclasses", "poddisruptionbudgets",
	} {
		want = append(want, "list "+resource, "watch "+resource)
	}
	slices.Sort(want)
	seen := map[string]bool{}
	until(t, "everything is watched", func() bool {
		for _, action := range client.Actions() {
			seen[action.GetVerb()+" "+action.GetResource().Resource] = true
		}
		return len(seen) >= len(want)
	})
	is(t, "asked of the API server", slices.Sorted(maps.Keys(seen)), want...)
}

func objects(o ...runtime.Object) []runtime.Object { return o }

// attachable says that so many volumes of disk.example can be attached to a node.
func attachable(node string, count int32) runtime.Object {
	return &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: node}, Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{{
		Name: "disk.example", NodeID: node, Allocatable: &storagev1.VolumeNodeResources{Count: ptr.To(count)},
	}}}}
}

// exclusive is a bound volume that only one pod may use.
func exclusive(name string) []runtime.Object {
	made := volume(name, "east", false)
	made[1].(*v1.PersistentVolumeClaim).Spec.AccessModes = []v1.PersistentVolumeAccessMode{v1.ReadWriteOncePod}
	return made
}

// devices are our device class (also by the extended resource aliquot.dev/gpu), and another driver's with a device on b.
func devices(more ...runtime.Object) []runtime.Object {
	return append(objects(deviceClass("gpu.aliquot.dev", "gpu.aliquot.dev", "aliquot.dev/gpu"), deviceClass("net.example", "net.example", ""),
		slice("b", "net.example"), slice("a", "gpu.aliquot.dev")), more...)
}
