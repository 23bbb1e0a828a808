package scheduler

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
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
