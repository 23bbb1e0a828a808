package scheduler

import (
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/aliquot-dev/aliquot/host/kube/api/v1alpha1"
)

// fill has a pod without devices run on each of some nodes, which it leaves two of eight CPUs of.
func (c *cluster) fill(priority int32, nodes ...string) {
	c.Helper()
	for _, node := range nodes {
		c.ordinary("low-"+node, "6", priority, func(pod *corev1.Pod) {
			pod.Labels = map[string]string{"app": "web"}
			pod.Spec.NodeSelector = map[string]string{"name": node}
		})
		c.runs("low-" + node)
	}
}

func called(name string) func(*corev1.Node) {
	return func(n *corev1.Node) { n.Labels = map[string]string{"name": name} }
}

// A gang that lacks CPU alone has its pods nominated for nodes where all would be started at once, those of lower priority and without devices are evicted there, as
// far as they are in the way, and it runs there whole once they are gone. What they leave is nobody's before.
func TestMakesRoomForAGang(t *testing.T) {
	for name, test := range map[string]struct {
		devices  map[string]int
		low      []string // nodes on which one of lower priority runs
		gang     func(*cluster)
		evicted  []string
		on       []string // by number; nil: each on another node
		nodesSay string
	}{
		"on two nodes": {
			devices: map[string]int{"a": 1, "b": 1}, low: []string{"a", "b"}, evicted: []string{"low-a", "low-b"}, nodesSay: "nodes a, b",
			gang: func(c *cluster) { c.gang("big", 2, 300, needing("5", 9)) },
		},
		"on one node": {
			devices: map[string]int{"a": 1}, low: []string{"a"}, evicted: []string{"low-a"}, on: []string{"a", "a"}, nodesSay: "node a",
			gang: func(c *cluster) { c.gang("big", 2, 300, needing("3", 9)) },
		},
		"where one node has room": {
			devices: map[string]int{"a": 1, "b": 1}, low: []string{"a"}, evicted: []string{"low-a"}, nodesSay: "nodes a, b",
			gang: func(c *cluster) { c.gang("big", 2, 300, needing("5", 9)) },
		},
		"where its devices have room": {
			devices: map[string]int{"a": 0, "b": 1, "c": 1}, low: []string{"a", "b", "c"}, evicted: []string{"low-b", "low-c"}, nodesSay: "nodes b, c",
			gang: func(c *cluster) { c.gang("big", 2, 800, needing("5", 9)) },
		},
		"a leader that asks for less": {
			devices: map[string]int{"a": 1, "b": 1, "c": 1}, low: []string{"a", "b", "c"}, evicted: []string{"low-a", "low-b"}, nodesSay: "nodes a, b",
			gang: func(c *cluster) {
				c.member("big", 0, 3, 100, needing("1", 9))
				for i := range 2 {
					c.member("big", i+1, 3, 700, needing("6", 9), func(pod *corev1.Pod, _ *resourceapi.ResourceClaim) {
						pod.Spec.NodeSelector = map[string]string{"name": []string{"a", "b"}[i]}
					})
				}
			},
			on: []string{"", "a", "b"},
		},
	} {
		for _, classed := range []bool{false, true} {
			t.Run(fmt.Sprint(name, ", classed: ", classed), func(t *testing.T) {
				t.Parallel()
				c := newCluster(t)
				c.classed = classed
				for _, node := range []string{"a", "b", "c"} {
					if devices, is := test.devices[node]; is {
						c.node(node, devices, called(node))
					}
				}
				s, _ := c.run()
				c.fill(1, test.low...)
				test.gang(c)
				if names := c.ending(len(test.evicted)); !slices.Equal(names, test.evicted) {
					t.Fatalf("%s were evicted, want %s", names, test.evicted)
				}
				pods := c.called("big")
				where := map[string]int{}
				for i, pod := range pods {
					c.eventually("it is nominated", func() bool { return c.nominated(pod.Name) != "" })
					on := c.nominated(pod.Name)
					if where[on]++; test.on == nil && where[on] > 1 || test.on != nil && test.on[i] != "" && test.on[i] != on {
						t.Errorf("%s is nominated for node %s", pod.Name, on)
					}
					c.hears(pod.Name, "Evicting", fmt.Sprint(len(test.evicted), " pods of lower priority are evicted from ", test.nodesSay, " for its gang"))
				}
				c.hears(test.evicted[0], "Evicted", "pod default/big-", "of higher priority is to run on node "+test.evicted[0][len("low-"):])
				c.ordinary("late", "4", 0, func(pod *corev1.Pod) {
					pod.Spec.NodeSelector = map[string]string{"name": test.evicted[0][len("low-"):]}
				})
				c.says("late", "too little cpu")
				c.looked(s, pods[0].Name)
				c.stays(s, pods[0].Name) // while they end
				for i, low := range test.evicted {
					if c.remove(low); i < len(test.evicted)-1 {
						c.stays(s, pods[0].Name) // while the others do
					}
				}
				for _, pod := range pods {
					c.runs(pod.Name)
				}
				c.stays(s, "late")
			})
		}
	}
}

// Nobody is evicted for a gang unless all of it could run then, nor against a budget of those who would go together, nor for one of whose pods one is not to evict
// others or is of no higher priority.
func TestMakesNoRoomForAGang(t *testing.T) {
	never := corev1.PreemptNever
	second := func(change func(*corev1.Pod)) func(*corev1.Pod, *resourceapi.ResourceClaim) {
		return func(pod *corev1.Pod, _ *resourceapi.ResourceClaim) {
			if pod.Name == "big-1" {
				change(pod)
			}
		}
	}
	same := func(*corev1.Pod, *resourceapi.ResourceClaim) {}
	for name, test := range map[string]struct {
		before  func(*cluster)
		compute int64
		change  func(*corev1.Pod, *resourceapi.ResourceClaim)
		budget  bool
	}{
		"one node has no room for the second": {before: func(c *cluster) { c.fill(1, "a"); c.fill(9, "b") }, compute: 300, change: same},
		"no device has room for the second": {before: func(c *cluster) {
			c.pod("holder", 800, firm, needing("0", 0), func(pod *corev1.Pod, _ *resourceapi.ResourceClaim) {
				pod.Spec.NodeSelector = map[string]string{"name": "b"}
			})
			c.runs("holder")
			c.fill(1, "a", "b")
		}, compute: 600, change: same},
		"its queue is full":            {before: func(c *cluster) { c.fill(1, "a", "b") }, compute: 300, change: naming("full")},
		"one is never to":              {before: func(c *cluster) { c.fill(1, "a", "b") }, compute: 300, change: second(func(pod *corev1.Pod) { pod.Spec.PreemptionPolicy = &never })},
		"one is of no higher priority": {before: func(c *cluster) { c.fill(1, "a", "b") }, compute: 300, change: second(func(pod *corev1.Pod) { pod.Spec.Priority = new(int32(1)) })},
		"a budget for one of two":      {before: func(c *cluster) { c.budget("web", 1); c.fill(1, "a", "b") }, compute: 300, change: same, budget: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newQueueCluster(t, "org")
			c.set(v1alpha1.Queues, "org", `{}`)
			c.set(v1alpha1.Queues, "full", `{"parent":"org","limit":{"compute":"0.5"}}`)
			c.node("a", 1, called("a"))
			c.node("b", 1, called("b"))
			s, _ := c.run()
			test.before(c)
			for _, low := range []string{"low-a", "low-b"} {
				c.rewrite(low, func(pod *corev1.Pod) {
					pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
				})
			}
			c.gang("big", 2, test.compute, needing("5", 9), test.change)
			c.says("big-0", "too little cpu")
			if test.budget {
				c.hears("big-1", "NotEvicted", "from nodes a, b and are not", "allows 1 disruptions now, and 2 are needed")
			}
			c.stays(s, "big-0")
			for _, pod := range c.called("big") {
				if on := c.nominated(pod.Name); on != "" {
					t.Errorf("%s is nominated for node %s", pod.Name, on)
				}
			}
		})
	}
}

// While others end that are evicted for a gang, nobody of its priority or a lower one takes its devices; a scheduler that starts meanwhile evicts nobody again, and
// a gang of which a pod has gone gives up what it was to have.
func TestKeepsDevicesForAGang(t *testing.T) {
	for name, leaves := range map[string]bool{"it starts": false, "a pod of it goes": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t)
			c.node("a", 1, called("a"))
			c.node("b", 1, called("b"))
			_, end := c.run()
			c.fill(1, "a", "b")
			c.gang("big", 2, 500, needing("5", 9))
			c.ending(2)
			for _, pod := range c.called("big") {
				c.eventually("it is nominated", func() bool { return c.nominated(pod.Name) != "" })
			}
			end()
			s, _ := c.run()
			c.looked(s, "big-0")
			c.pod("late", 600, needing("0", 9))
			c.pod("small", 400, needing("0", 0))
			c.runs("small")
			c.says("late", "kept for pod default/big-0")
			c.stays(s, "late")
			if leaves {
				c.remove("big-1")
				c.eventually("it is not nominated any more", func() bool { return c.nominated("big-0") == "" })
				c.runs("late")
				return
			}
			c.remove("low-a")
			c.stays(s, "big-0")
			c.remove("low-b")
			c.runs("big-0", "big-1")
			c.stays(s, "late")
		})
	}
}
