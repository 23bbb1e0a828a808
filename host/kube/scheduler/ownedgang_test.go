package scheduler

import (
	"slices"
	"sync/atomic"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	core "k8s.io/client-go/testing"
)

// A JobSet that a scheduler had begun to evict is evicted whole by the next one, which has to ask first how it starts, also where the answer is late.
func TestRestartWhileJobSetIsEvicted(t *testing.T) {
	for name, late := range map[string]bool{"told at once": false, "told late": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := jobSetCluster(t, func(spec map[string]any) { spec["replicatedJobs"] = spec["replicatedJobs"].([]any)[2:] })
			first, end := c.run()
			names := []string{"set-workers-0-0", "set-workers-0-1", "set-workers-1-0", "set-workers-1-1"}
			for i := range 2 {
				c.ofSet("workers", 2, i, 2, 500, ranking(1))
			}
			c.runs(names...)
			c.idle(first, func() {})
			var written atomic.Int32
			broken := c.breakAt(func(write string) bool { return write == "evict pods" && written.Add(1) == 2 })
			c.pod("own", 1000, ranking(9))
			broken(first, end)
			c.remove("own")
			var unanswered atomic.Bool
			unanswered.Store(late)
			c.objects.(*dynamicfake.FakeDynamicClient).PrependReactor("get", jobSets.Resource, func(core.Action) (bool, runtime.Object, error) {
				return unanswered.Load(), nil, errUnreachable
			})
			s, _ := c.run()
			c.idle(s, func() {}) // it has begun
			unanswered.Store(false)
			if evicted := c.ending(4); !slices.Equal(evicted, names) {
				t.Errorf("%v were evicted", evicted)
			}
			for _, name := range names {
				c.remove(name)
			}
			c.sound(s)
		})
	}
}

// What runs of a JobSet or of a group of a LeaderWorkerSet is one workload, for the next scheduler, too.
func TestOwnedGangIsOneWorkload(t *testing.T) {
	for name, test := range map[string]struct {
		cluster func() *cluster
		pods    func(c *cluster)
		runs    []string
	}{
		"JobSet": {
			func() *cluster {
				return jobSetCluster(t, func(spec map[string]any) { spec["replicatedJobs"] = spec["replicatedJobs"].([]any)[2:] })
			},
			func(c *cluster) {
				c.ofSet("workers", 2, 0, 2, 500)
				c.ofSet("workers", 2, 1, 2, 500)
			},
			[]string{"set-workers-0-0", "set-workers-0-1", "set-workers-1-0", "set-workers-1-1"},
		},
		"LeaderWorkerSet": {
			func() *cluster { return leaderCluster(t, "LeaderCreated") },
			func(c *cluster) {
				for i := range 3 {
					c.ofGroup(i, 500, "all")
				}
			},
			[]string{"serve-0", "serve-1", "serve-2"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := test.cluster()
			s, end := c.run()
			test.pods(c)
			c.runs(test.runs...)
			before := c.together(s)
			end()
			s, _ = c.run()
			if after := c.together(s); !slices.Equal(before, []int{len(test.runs)}) || !slices.Equal(after, before) {
				t.Errorf("the engine knew of workloads with %v tasks, and the next one's of such with %v, want one with %d", before, after, len(test.runs))
			}
			c.sound(s)
		})
	}
}
