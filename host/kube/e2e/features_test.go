package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcebeta "k8s.io/api/resource/v1beta2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/aliquot-dev/aliquot/host/kube/scheduler"
	"github.com/aliquot-dev/aliquot/host/kube/testcluster"
)

// What depends on the API server's features. Where it drops the fields of shares, the agent says so, devices are handed out whole, one to each claim, and a
// claim of before that asks for a part waits and says why; it has its part once the API server has the fields again and the agent has started anew. Rules that
// taint devices, which are off by default, hold for pods that come, and until they are gone.
func TestFeatures(t *testing.T) {
	w := beginCluster(t, "h200x1")
	w.shared.drops = true
	w.halves() // while the API server still keeps what it asks for
	w.no(w.RestartServer(w.ctx, "--feature-gates=DRAConsumableCapacity=false,DRADeviceTaintRules=true", "--runtime-config=resource.k8s.io/v1beta2=true"))
	w.withAgent(map[string]any{"scheduler": map[string]any{"enabled": true, "replicas": 0}})
	w.eventually("an event on the node says that devices are whole", func() (bool, string) {
		events, err := w.client.CoreV1().Events("default").List(w.ctx, metav1.ListOptions{FieldSelector: "involvedObject.kind=Node,involvedObject.name=" + testcluster.NodeName})
		w.no(err)
		return slices.ContainsFunc(events.Items, func(e corev1.Event) bool {
			return e.Reason == "WholeDevices" && e.Type == corev1.EventTypeWarning && strings.HasSuffix(e.Message, ": DRAConsumableCapacity.")
		}), fmt.Sprintf("%+v", events.Items)
	})
	w.startScheduler()

	trainer := []string{"/bin/trainer", "--seconds", "0", "--kernel-us", "5000", "--progress", "0"}
	w.admitted(w.claiming("before", func(pod *corev1.Pod) {
		pod.Spec.SchedulerName, pod.Spec.Containers[0].Command = scheduler.Name, trainer
	}))
	w.unplaced("before", "enable DRAConsumableCapacity")
	for _, by := range []string{scheduler.Name, corev1.DefaultSchedulerName} {
		w.submit(work{name: "quarter", compute: 250, memory: "4Gi", ceiling: `{"compute":"0.80","memory":"8Gi"}`, command: trainer, scheduler: by})
		w.trains("quarter")
		if has := w.limits("quarter"); has.Floor != 1000 || has.Ceiling != 1000 || has.MemFloor != has.MemDevice || has.MemCeiling != has.MemDevice {
			t.Errorf("placed by %s, where what is said of parts is dropped, it is held to %+v, want the whole device", by, has)
		}
		w.submit(work{name: "second", compute: 250, memory: "4Gi", command: trainer, scheduler: scheduler.Name})
		w.unplaced("second", "of a device")
		w.remove("quarter")
		w.trains("second")
		w.remove("second")
		w.no(w.client.ResourceV1().ResourceClaimTemplates("default").DeleteCollection(w.ctx, metav1.DeleteOptions{}, metav1.ListOptions{}))
	}
	w.unplaced("before", "enable DRAConsumableCapacity")
	w.taintedByRule()

	w.no(w.RestartServer(w.ctx))
	w.shared.drops = false
	w.agent.Kill()
	w.startAgent()
	w.trains("before")
	half, err := w.client.ResourceV1().ResourceClaims("default").Get(w.ctx, "half", metav1.GetOptions{})
	w.no(err)
	if has := w.policy(string(half.UID)); has.Floor != 500 {
		t.Errorf("once the API server keeps what is said of parts, it is held to %+v, want half of the device", has)
	}
}

// taintedByRule has all devices of the node tainted by a rule, and places a pod there once it is gone.
func (w *world) taintedByRule() {
	w.Helper()
	rules, pool := w.client.ResourceV1beta2().DeviceTaintRules(), testcluster.NodeName
	_, err := rules.Create(w.ctx, &resourcebeta.DeviceTaintRule{ObjectMeta: metav1.ObjectMeta{Name: "recalled"}, Spec: resourcebeta.DeviceTaintRuleSpec{
		DeviceSelector: &resourcebeta.DeviceTaintSelector{Pool: &pool},
		Taint:          resourcebeta.DeviceTaint{Key: "example.com/recalled", Effect: resourcebeta.DeviceTaintEffectNoSchedule},
	}}, metav1.CreateOptions{})
	w.no(err)
	w.submit(work{name: "barred", compute: 250, memory: "4Gi", command: []string{"/bin/trainer", "--seconds", "0", "--progress", "0"}, scheduler: scheduler.Name})
	w.unplaced("barred", "1 device: draining: it has the taint example.com/recalled")
	w.no(rules.Delete(w.ctx, "recalled", metav1.DeleteOptions{}))
	w.trains("barred")
	w.remove("barred")
}
