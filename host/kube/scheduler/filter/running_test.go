package filter

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/kubernetes/pkg/scheduler/backend/cache"

	"github.com/aliquot-dev/aliquot/host/kube/scheduler"
)

// Random pods without devices, one after the other, in random clusters: our scheduler, which runs, binds each to a node that takes it in upstream's, and
// lets none wait that a node there takes. Volumes, which nobody binds here, and claims of other drivers are not among what they ask for.
func TestRunsWhereTheStockSchedulerWould(t *testing.T) {
	if bound, waited := inClusters(t, 4, 14, runsAlike); bound < 40 || waited < 4 {
		t.Error("the clusters show too little")
	}
}

// runsAlike tries one cluster until the third pod has to wait.
func runsAlike(t *testing.T, r *rand.Rand) (bound, waited int) {
	var nodes []runtime.Object
	for i := range 3 + r.IntN(8) {
		nodes = append(nodes, randomNode(r, fmt.Sprintf("n%d", i)))
	}
	c := newDeviceCluster(t, nodes...)
	var running []string
	for i := 0; i < 80 && waited < 3; i++ {
		if len(running) > 0 && r.IntN(4) == 0 {
			at := r.IntN(len(running))
			c.removePod(running[at])
			running = slices.Delete(running, at, at+1)
		}
		p := randomPod(r, fmt.Sprint("p", i), func(p *v1.Pod) {
			p.Namespace, p.Spec.Volumes, p.Spec.SchedulerName, p.Spec.Priority = "default", nil, scheduler.Name, nil
			for k := range p.Spec.Containers {
				p.Spec.Containers[k].VolumeMounts = nil
			}
		})
		c.bothKnow(len(running))
		want, _ := c.stock.feasible(t, p)
		c.create(podsResource, p)
		until(t, fmt.Sprintf("%s is bound, or told why not; upstream would place it on %v: %+v", p.Name, want, p.Spec), func() bool {
			now := c.pod(p.Name)
			return now.Spec.NodeName != "" || len(want) == 0 && slices.ContainsFunc(now.Status.Conditions, func(c v1.PodCondition) bool { return c.Type == v1.PodScheduled })
		})
		if node := c.pod(p.Name).Spec.NodeName; node == "" {
			waited++
			c.removePod(p.Name)
		} else if bound++; !slices.Contains(want, node) {
			t.Fatalf("%s runs on %s, and upstream takes it on %v: %+v", p.Name, node, want, p.Spec)
		} else {
			running = append(running, p.Name)
		}
	}
	return bound, waited
}

// bothKnow waits until both schedulers know how many pods run.
func (c *deviceCluster) bothKnow(running int) {
	c.Helper()
	for name, of := range map[string]cache.Cache{"the stock scheduler": c.stock.scheduler.Cache, "ours": c.filters.cache} {
		until(c.T, name+" knows what runs", func() bool {
			known, err := of.PodCount()
			return err == nil && known == running
		})
	}
}

// removePod deletes one.
func (c *deviceCluster) removePod(name string) {
	c.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.client.Tracker().Delete(podsResource, "default", name); err != nil {
		c.Fatal(err)
	}
}
