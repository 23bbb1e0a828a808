package scheduler

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// prefers are preferred affinities to nodes with a disk, of so much weight each.
func prefers(disks map[string]int32) *corev1.Affinity {
	all := &corev1.NodeAffinity{}
	for disk, weight := range disks {
		all.PreferredDuringSchedulingIgnoredDuringExecution = append(all.PreferredDuringSchedulingIgnoredDuringExecution, corev1.PreferredSchedulingTerm{
			Weight: weight, Preference: corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "disk", Operator: corev1.NodeSelectorOpIn, Values: []string{disk}}}},
		})
	}
	return &corev1.Affinity{NodeAffinity: all}
}

func disk(kind string) func(*corev1.Node) {
	return func(n *corev1.Node) { n.Labels = map[string]string{"disk": kind} }
}

// setDisk gives a node another disk.
func (c *cluster) setDisk(name, kind string) {
	c.Helper()
	stored, err := c.client.Tracker().Get(nodesResource, "", name)
	if err != nil {
		c.Fatal(err)
	}
	node := stored.(*corev1.Node).DeepCopy()
	disk(kind)(node)
	if _, err := c.client.CoreV1().Nodes().Update(c.Context(), node, metav1.UpdateOptions{}); err != nil {
		c.Fatal(err)
	}
	c.toldNode(name, func(known *corev1.Node) bool { return known.Labels["disk"] == kind })
}

// Pods with devices go where they would rather be, then to what they prefer next, and anywhere where that is full; also where another node has less left.
func TestPrefersNodes(t *testing.T) {
	c := newCluster(t)
	for name, kind := range map[string]string{"a": "tape", "b": "fast", "c": "slow", "d": "tape"} {
		c.node(name, 1, disk(kind))
	}
	s, _ := c.run()
	for i, want := range []string{"b", "b", "c", "c", "a", "a", "d"} {
		name := fmt.Sprint("pod", i)
		c.pod(name, 500, func(p *corev1.Pod, _ *resourceapi.ResourceClaim) {
			p.Spec.Affinity = prefers(map[string]int32{"fast": 10, "slow": 5})
		})
		c.runs(name)
		if on := c.on(name); on != want {
			t.Errorf("%s is on %s, not %s", name, on, want)
		}
	}
	c.sound(s)
}

// What pods prefer is what nodes are when they come, also where pods like them came before.
func TestPrefersNodesAsTheyAre(t *testing.T) {
	c := newCluster(t)
	c.classed = true
	for name, kind := range map[string]string{"a": "slow", "b": "fast", "c": "slow"} {
		c.node(name, 1, disk(kind))
	}
	s, _ := c.run()
	fast := func(p *corev1.Pod, _ *resourceapi.ResourceClaim) {
		p.Spec.Affinity = prefers(map[string]int32{"fast": 1})
	}
	plain := func(p *corev1.Pod) { fast(p, nil); p.Labels = map[string]string{"plain": ""} }
	for i, want := range []string{"b", "c", "a"} {
		if i > 0 {
			c.setDisk([]string{"a", "b", "c"}[i], "slow")
			c.setDisk(want, "fast")
		}
		name := fmt.Sprint("pod", i)
		c.pod(name, 250, fast)
		c.ordinary(name+"-plain", "1", 0, plain)
		c.runs(name, name+"-plain")
		for _, one := range []string{name, name + "-plain"} {
			if on := c.on(one); on != want {
				t.Errorf("%s is on %s, not %s", one, on, want)
			}
		}
	}
	c.sound(s)
}

// A pod without devices goes where it would rather be, though that has devices and another has more CPU left, and elsewhere where it does not fit.
func TestPlainPodPrefers(t *testing.T) {
	c := newCluster(t)
	c.node("bare", 0)
	c.node("liked", 1, disk("fast"))
	s, _ := c.run()
	for i, want := range []string{"liked", "bare"} {
		name := fmt.Sprint("pod", i)
		c.ordinary(name, "5", 0, func(p *corev1.Pod) { p.Spec.Affinity = prefers(map[string]int32{"fast": 1}) })
		c.runs(name)
		if on := c.on(name); on != want {
			t.Errorf("%s is on %s, not %s", name, on, want)
		}
	}
	c.ordinary("easy", "1", 0)
	c.runs("easy")
	if on := c.on("easy"); on != "bare" {
		t.Errorf("a pod that prefers nothing is on %s", on)
	}
	c.sound(s)
}
