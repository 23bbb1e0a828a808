package e2e

import (
	"fmt"
	"path/filepath"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/aliquot-dev/aliquot/host/kube/driver"
	"github.com/aliquot-dev/aliquot/host/kube/testcluster"
)

// around runs a program that finds the driver before the shim: its claim says that it is not held to its share, and events on the claim and its
// pod say so. Kubelet says that the device itself is well.
func (w *world) around() {
	w.Helper()
	w.submit(work{
		name: "around", compute: 100, memory: "1Gi", libraries: filepath.Join(w.run, "sim", "driver"),
		command: []string{"/bin/trainer", "--seconds", "0", "--progress", "0"},
	})
	pod, err := w.AwaitPod(w.ctx, "default", "around", corev1.PodRunning)
	w.no(err)
	claim := *pod.Status.ResourceClaimStatuses[0].ResourceClaimName
	_, err = testcluster.AwaitObject(w.ctx, w.client.ResourceV1().ResourceClaims("default"), claim, "not held to its share", func(claim *resourceapi.ResourceClaim) (bool, error) {
		return len(claim.Status.Devices) == 1 && slices.ContainsFunc(claim.Status.Devices[0].Conditions, func(c metav1.Condition) bool {
			return c.Type == "Ready" && c.Status == metav1.ConditionFalse && c.Reason == "Unenforced"
		}), nil
	})
	w.no(err)
	w.said(claim, "Unenforced")
	w.said("around", "Unenforced")
	_, err = testcluster.AwaitObject(w.ctx, w.client.CoreV1().Pods("default"), "around", "on a device that kubelet calls healthy", func(pod *corev1.Pod) (bool, error) {
		for _, status := range pod.Status.ContainerStatuses {
			for _, resource := range status.AllocatedResourcesStatus {
				if resource.Name == "claim:share" && len(resource.Resources) == 1 && resource.Resources[0].Health == corev1.ResourceHealthStatusHealthy {
					return true, nil
				}
			}
		}
		return false, nil
	})
	w.no(err)
	w.agent.Kill()
	w.startAgent("--unenforced", "stop")
	_, err = w.AwaitPod(w.ctx, "default", "around", corev1.PodSucceeded) // a trainer that is told to end does
	w.no(err)
	w.said("around", "ProcessEnded")
	w.remove("around")
}

// said waits until the agent gives a warning of an object.
func (w *world) said(object, reason string) {
	w.Helper()
	w.eventually(fmt.Sprintf("an event says of %s: %s", object, reason), func() (bool, string) {
		events, err := w.client.CoreV1().Events("default").List(w.ctx, metav1.ListOptions{FieldSelector: "involvedObject.name=" + object})
		w.no(err)
		return slices.ContainsFunc(events.Items, func(e corev1.Event) bool {
			return e.Reason == reason && e.Type == corev1.EventTypeWarning && e.Source.Component == driver.Name && e.Source.Host == testcluster.NodeName
		}), fmt.Sprintf("%+v", events.Items)
	})
}
