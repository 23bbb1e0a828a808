package scheduler

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A pod that waits is placed once what kept it has changed, also where the filters hear of that after they were asked because of it.
func TestFiltersHearLater(t *testing.T) {
	c := newCluster(t)
	c.askEvery = time.Hour
	c.node("a", 0, func(n *corev1.Node) { n.Spec.Unschedulable = true })
	s, _ := c.run()
	c.ordinary("waits", "1", 0)
	c.sound(s)
	if on := c.on("waits"); on != "" {
		t.Fatalf("it runs on %s, which takes none", on)
	}
	s.config.Filters.(*plain).late.Store(1)
	node, err := c.client.Tracker().Get(nodesResource, "", "a")
	if err != nil {
		t.Fatal(err)
	}
	open := node.DeepCopyObject().(*corev1.Node)
	open.Spec.Unschedulable = false
	if _, err := c.client.CoreV1().Nodes().Update(t.Context(), open, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	c.runs("waits")
	c.sound(s)
}

// Pods that were alike, and that others tell apart by a label from now on, are of classes of their own from then on, also those that wait.
func TestClassesAreToldApart(t *testing.T) {
	c := newCluster(t)
	c.classed = true
	c.node("a", 1)
	s, _ := c.run()
	c.pod("large", 1000)
	c.runs("large")
	late := func(word string) func(*corev1.Pod, *resourceapi.ResourceClaim) {
		return func(p *corev1.Pod, _ *resourceapi.ResourceClaim) { p.Labels = map[string]string{"late": word} }
	}
	c.pod("x", 300, late("x"))
	c.pod("y", 300, late("y"))
	classes := func() (all []*class) {
		c.idle(s, func() {
			all = nil
			for _, w := range s.work {
				if w.state == inLine {
					all = append(all, w.roles[0].class)
				}
			}
		})
		return all
	}
	if all := classes(); len(all) != 2 || all[0] != all[1] {
		t.Fatalf("two pods that are alike wait in %v", all)
	}
	s.config.Filters.(*plain).told.Store(1)
	c.eventually("two pods that are told apart wait in classes of their own", func() bool {
		all := classes()
		return len(all) == 2 && all[0] != all[1]
	})
	c.remove("large")
	c.runs("x", "y")
	c.sound(s)
}
