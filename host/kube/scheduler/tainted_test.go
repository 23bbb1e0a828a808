package scheduler

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	resourcebeta "k8s.io/api/resource/v1beta2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/dynamic-resource-allocation/resourceslice/tracker"
)

var rulesResource = resourcebeta.SchemeGroupVersion.WithResource("devicetaintrules")

// follows are devices as rules taint them, where the cluster has such rules.
func (c *cluster) follows(factory informers.SharedInformerFactory) Tainted {
	c.Helper()
	if !c.rules {
		return nil
	}
	tainted, err := tracker.StartTracker(c.Context(), tracker.Options{
		EnableDeviceTaintRules: true, SliceInformer: factory.Resource().V1().ResourceSlices(), ClassInformer: factory.Resource().V1().DeviceClasses(),
		TaintInformer: factory.Resource().V1beta2().DeviceTaintRules(),
	})
	if err != nil {
		c.Fatal(err)
	}
	c.Cleanup(tainted.Stop)
	return tainted
}

// rule adds a rule by which a device of a node takes nobody, or with an empty name all devices of the node.
func (c *cluster) rule(name, node, device string) {
	c.Helper()
	choice := &resourcebeta.DeviceTaintSelector{Pool: &node}
	if device != "" {
		choice.Device = &device
	}
	c.add(rulesResource, &resourcebeta.DeviceTaintRule{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: resourcebeta.DeviceTaintRuleSpec{
		DeviceSelector: choice, Taint: resourcebeta.DeviceTaint{Key: "example.com/" + name, Value: "yes", Effect: resourcebeta.DeviceTaintEffectNoSchedule},
	}})
}

// nodeNamed gives a node the label that named pods choose by.
func nodeNamed(name string) func(*corev1.Node) {
	return func(n *corev1.Node) { n.Labels = map[string]string{"name": name} }
}

// unrule takes a rule away.
func (c *cluster) unrule(name string) {
	c.Helper()
	if err := c.client.Tracker().Delete(rulesResource, "", name); err != nil {
		c.Fatal(err)
	}
}

// Devices that rules taint are given to nobody who does not tolerate that, from the first decision on and for as long as there is a rule.
func TestTaintRules(t *testing.T) {
	c := newCluster(t)
	c.rules = true
	c.node("a", 2, nodeNamed("a"))
	c.node("b", 1, nodeNamed("b"))
	c.rule("recalled", "a", "gpu-0")
	c.pod("first", 1000, named("a"))
	s, end := c.run()
	c.runs("first")
	if got := c.devicesOf("first"); !slices.Equal(got, []string{"gpu:a/gpu-1 1000"}) {
		t.Errorf("it has %q, and the other is tainted", got)
	}
	c.pod("second", 1000, named("a"))
	c.says("second", "1 device: draining: it has the taint example.com/recalled")
	c.rule("hot", "b", "")
	c.eventually("it has heard of the rule", func() bool {
		heard := make(chan int, 1)
		s.inbox.put(func() { heard <- len(s.nodes["b"].offered[0].Taints) })
		return <-heard == 1
	})
	c.pod("third", 1000, named("b"))
	c.says("third", "1 device: draining: it has the taint example.com/hot")
	tolerant := part("gpu", 500, 1)
	tolerant.Exactly.Tolerations = []resourceapi.DeviceToleration{{Key: "example.com/hot", Operator: resourceapi.DeviceTolerationOpExists}}
	c.pod("tolerant", 1, requests(tolerant), named("b"))
	c.runs("tolerant")
	c.remove("tolerant")
	c.unrule("hot")
	c.runs("third")
	c.sound(s)
	end()
	s, _ = c.run()
	c.node("c", 1, nodeNamed("c"))
	c.pod("fourth", 1000, named("c"))
	c.runs("fourth")
	if on := c.on("second"); on != "" {
		t.Errorf("with the next scheduler it runs on %s, and the rule is still there", on)
	}
	c.unrule("recalled")
	c.runs("second")
	c.sound(s)
}
