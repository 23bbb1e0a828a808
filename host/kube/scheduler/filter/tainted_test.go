package filter

import (
	"testing"

	resourcebeta "k8s.io/api/resource/v1beta2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/kubernetes/pkg/features"

	"github.com/aliquot-dev/aliquot/host/kube/driver"
)

// Where rules that taint devices are followed, those of other drivers are given to nobody either while a rule is there, nor a share beside them.
func TestFollowTaintRules(t *testing.T) {
	if err := FollowTaintRules(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := utilfeature.DefaultMutableFeatureGate.Set(string(features.DRADeviceTaintRules) + "=false"); err != nil {
			t.Error(err)
		}
	})
	pool := "a"
	rule := &resourcebeta.DeviceTaintRule{ObjectMeta: metav1.ObjectMeta{Name: "recalled"}, Spec: resourcebeta.DeviceTaintRuleSpec{
		DeviceSelector: &resourcebeta.DeviceTaintSelector{Pool: &pool}, Taint: resourcebeta.DeviceTaint{Key: "recalled", Effect: resourcebeta.DeviceTaintEffectNoSchedule},
	}}
	c := newDeviceCluster(t, machine("a"), machine("b"), deviceClass(driver.Name, driver.Name, ""), deviceClass(network, network, ""), slice("a", network), slice("b", network), gpus("a", 1), gpus("b", 1), rule)
	c.add(deviceClaim("card", network))
	until(t, "a card that no rule taints is had", func() bool { return c.pod("card").Spec.NodeName == "b" })
	c.add(deviceClaim("share", driver.Name))
	until(t, "a share of a device that no rule taints is had", func() bool { return c.pod("share").Spec.NodeName == "b" })
	c.add(deviceClaim("late", network))
	until(t, "it is told why it waits", func() bool {
		_, why := c.told("late")
		return why != ""
	})
	if err := c.client.ResourceV1beta2().DeviceTaintRules().Delete(t.Context(), "recalled", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	until(t, "once the rule is gone what it tainted is had", func() bool { return c.pod("late").Spec.NodeName == "a" })
}
