package filter

import (
	"flag"
	"fmt"
	"iter"
	"math/rand/v2"
	"sync"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

var seedFlag = flag.Uint64("seed", 0, "first of the seeds from which random clusters and pods are drawn")

// seeded are so many sources of chance, by their seeds.
func seeded(count int, what uint64) iter.Seq2[uint64, *rand.Rand] {
	return func(yield func(uint64, *rand.Rand) bool) {
		for i := range uint64(count) {
			if seed := *seedFlag + i; !yield(seed, rand.New(rand.NewPCG(seed, what))) {
				return
			}
		}
	}
}

// inClusters tries so many random clusters, several at once, and adds up what was placed in them, and what was left waiting.
func inClusters(t *testing.T, count int, what uint64, try func(t *testing.T, r *rand.Rand) (placed, waited int)) (placed, waited int) {
	t.Helper()
	var mu sync.Mutex
	t.Run("seeds", func(t *testing.T) {
		for seed, r := range seeded(count, what) {
			t.Run(fmt.Sprint(seed), func(t *testing.T) {
				t.Parallel()
				did, left := try(t, r)
				mu.Lock()
				defer mu.Unlock()
				placed, waited = placed+did, waited+left
			})
		}
	})
	t.Logf("%d placed, %d left waiting", placed, waited)
	return placed, waited
}

func one[T any](r *rand.Rand, of ...T) T { return of[r.IntN(len(of))] }

// randomNode is a node of any of the kinds that filters tell apart.
func randomNode(r *rand.Rand, name string) *v1.Node {
	return node(name, one(r, "east", "west", "north"), func(n *v1.Node) {
		n.Labels["disk"] = one(r, "ssd", "hdd")
		if r.IntN(6) == 0 {
			delete(n.Labels, zone)
		}
		n.Status.Allocatable = list("cpu", one(r, "2", "8", "16"), "memory", one(r, "4Gi", "16Gi"), "pods", one(r, "3", "32"), "example.com/dongle", one(r, "0", "1", "3"))
		n.Spec.Unschedulable = r.IntN(8) == 0
		if r.IntN(4) == 0 {
			n.Spec.Taints = append(n.Spec.Taints, v1.Taint{Key: "team", Value: one(r, "x", "y"), Effect: one(r, v1.TaintEffectNoSchedule, v1.TaintEffectNoExecute, v1.TaintEffectPreferNoSchedule)})
		}
	})
}

// randomPod is a pod with some of the things that filters look at.
func randomPod(r *rand.Rand, name string, more ...func(*v1.Pod)) *v1.Pod {
	p := pod(name, labelled("app", one(r, "web", "db", "loud")), asks("cpu", one(r, "0", "500m", "1", "3"), "memory", one(r, "0", "1Gi", "3Gi")), priority(one[int32](r, 0, 5, 9)))
	p.Namespace = one(r, "default", "default", "other")
	app, over := one(r, "web", "db", "loud"), one(r, zone, host, "disk")
	for _, rare := range []func(*v1.Pod){
		func(p *v1.Pod) { p.Spec.NodeSelector = map[string]string{zone: one(r, "east", "west")} },
		onlyIn("disk", one(r, "ssd", "hdd"), r.IntN(2) == 0),
		func(p *v1.Pod) {
			p.Spec.Tolerations = []v1.Toleration{{Key: "team", Operator: v1.TolerationOpEqual, Value: one(r, "x", "y")}, {Key: v1.TaintNodeUnschedulable, Operator: v1.TolerationOpExists}}
		},
		port(one[int32](r, 80, 81)),
		func(p *v1.Pod) {
			port(80)(p)
			p.Spec.Containers[0].Ports[0].HostIP = one(r, "127.0.0.1", "10.0.0.1")
			p.Spec.Containers[0].Ports[0].Protocol = one(r, v1.ProtocolTCP, v1.ProtocolUDP)
		},
		spread(app, over),
		beside(app, over),
		apart(app, over),
		func(p *v1.Pod) {
			apart(app, over)(p)
			p.Spec.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution[0].Namespaces = []string{"default", "other"}
		},
		func(p *v1.Pod) {
			weighted := []v1.WeightedPodAffinityTerm{{Weight: 5, PodAffinityTerm: term(app, over)}}
			affinity(p).PodAffinity = &v1.PodAffinity{PreferredDuringSchedulingIgnoredDuringExecution: weighted}
		},
		func(p *v1.Pod) { asks("cpu", "1", "example.com/dongle", "1")(p) },
		func(p *v1.Pod) {
			p.Spec.InitContainers = []v1.Container{{Name: "first", Resources: v1.ResourceRequirements{Requests: list("cpu", one(r, "1", "4"))}}}
		},
		func(p *v1.Pod) { p.Spec.Overhead = list("cpu", "250m") },
		mounts(one(r, "bound-east", "bound-west", "alone", "late-1", "late-2", "missing")),
		mounts(one(r, "late-1", "late-2")),
		mounts(one(r, "bound-east", "bound-west")),
	} {
		if r.IntN(16) == 0 {
			rare(p)
		}
	}
	for _, m := range more {
		m(p)
	}
	return p
}

// storage is what randomPod's volumes need, in both namespaces, with fewer free volumes than claims for them.
func storage() []runtime.Object {
	made := objects(late(), freeVolume("disk-1", "east"), freeVolume("disk-2", "west"), freeVolume("disk-3", "north"))
	for _, space := range []string{"default", "other"} {
		made = append(made, &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: space}})
		for _, o := range append(append(append(volume("bound-east", "east", false), volume("bound-west", "west", true)...), exclusive("alone")...), waiting("late-1"), waiting("late-2")) {
			switch o := o.(type) {
			case *v1.PersistentVolumeClaim:
				o.Namespace = space
				if o.Spec.VolumeName != "" {
					o.Spec.VolumeName += "-" + space
				}
			case *v1.PersistentVolume:
				o.Name += "-" + space
				o.Spec.ClaimRef.Namespace = space
			}
			made = append(made, o)
		}
	}
	for i := range 12 {
		made = append(made, attachable(fmt.Sprintf("n%d", i), 1))
	}
	return made
}
