package filter

import (
	"context"
	"fmt"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/aliquot-dev/aliquot/host/kube/scheduler"
)

// fleet is filters over 5,000 nodes of 8 zones with 2 pods each, some of them tainted, cordoned or full.
func fleet(b *testing.B) *Filters {
	b.Helper()
	client := fake.NewClientset()
	factory := informers.NewSharedInformerFactory(client, 0)
	ctx, cancel := context.WithCancel(context.Background())
	b.Cleanup(factory.Shutdown)
	b.Cleanup(cancel)
	f, err := New(ctx, client, factory, scheduler.Name)
	if err != nil {
		b.Fatal(err)
	}
	for i := range 5000 {
		name := fmt.Sprintf("node-%04d", i)
		f.nodeAdded(node(name, fmt.Sprintf("zone-%d", i%8), func(n *v1.Node) {
			n.Status.Allocatable = list("cpu", "64", "memory", "256Gi", "pods", "110")
			if i%10 == 0 {
				n.Spec.Taints = []v1.Taint{{Key: "team", Value: "x", Effect: v1.TaintEffectNoSchedule}}
			}
			n.Spec.Unschedulable = i%50 == 1
		}))
		for j := range 2 {
			f.podAdded(pod(fmt.Sprintf("runs-%d-%d", i, j), on(name), asks("cpu", fmt.Sprint(1+i%31))))
		}
	}
	return f
}

// kinds are pods of 127 classes.
func kinds() []*v1.Pod {
	var pods []*v1.Pod
	for i := range 127 {
		p := pod(fmt.Sprintf("kind-%d", i), asks("cpu", fmt.Sprint(1+i%16), "memory", fmt.Sprintf("%dGi", 1+i)))
		if i%3 == 0 {
			onlyIn(zone, fmt.Sprintf("zone-%d", i%8), i%2 == 0)(p)
		}
		pods = append(pods, p)
	}
	return pods
}

// A pod judged on all nodes.
func BenchmarkNodes(b *testing.B) {
	f := fleet(b)
	for name, p := range map[string]*v1.Pod{"plain": kinds()[1], "affinity": kinds()[0], "spread": pod("p", spread("web", zone)), "apart": pod("p", apart("web", zone))} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if _, err := f.Nodes(background, p); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// A pod judged on one node, assumed there and forgotten.
func BenchmarkCheckAssumeForget(b *testing.B) {
	f := fleet(b)
	p := kinds()[1]
	for b.Loop() {
		if why, err := f.Check(background, p, "node-0002"); why != "" || err != nil {
			b.Fatal(why, err)
		}
		if err := f.Assume(p, "node-0002"); err != nil {
			b.Fatal(err)
		}
		f.Forget(p)
	}
}

// Which class a pod is of.
func BenchmarkClass(b *testing.B) {
	f := fleet(b)
	p := kinds()[0]
	for b.Loop() {
		if f.Class(p) == "" {
			b.Fatal("no class")
		}
	}
}
