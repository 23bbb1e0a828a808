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
	bound, waited := make([]int, 4), make([]int, 4)
	t.Run("seeds", func(t *testing.T) {
		for seed, r := range seeded(4, 14) {
			t.Run(fmt.Sprint(seed), func(t *testing.T) {
				t.Parallel()
				i := seed - *seedFlag
				bound[i], waited[i] = runsAlike(t, r)
			})
		}
	})
	total := [2]int{}
	for i := range bound {
		total[0], total[1] = total[0]+bound[i], total[1]+waited[i]
	}
	t.Logf("%d bound, %d left waiting", total[0], total[1])
	if total[0] < 40 || total[1] < 4 {
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
		for name, of := range map[string]cache.Cache{"the stock scheduler": c.stock.scheduler.Cache, "ours": c.filters.cache} {
			until(t, name+" knows what runs", func() bool {
				known, err := of.PodCount()
				return err == nil && known == len(running)
			})
		}
		want, _ := c.stock.feasible(t, p)
		c.addPod(p)
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

// addPod makes a pod.
func (c *deviceCluster) addPod(p *v1.Pod) {
	c.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.next(p)
	if err := c.client.Tracker().Create(podsResource, p, p.Namespace); err != nil {
		c.Fatal(err)
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
