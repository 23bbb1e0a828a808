package e2e

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

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
	w.notReady(claim, "Unenforced")
	w.said(claim, "Unenforced")
	w.said("around", "Unenforced")
	w.health("around", corev1.ResourceHealthStatusHealthy, "")
	w.agent.Kill()
	w.startAgent("--unenforced", "stop")
	_, err = w.AwaitPod(w.ctx, "default", "around", corev1.PodSucceeded) // a trainer that is told to end does
	w.no(err)
	w.said("around", "ProcessEnded")
	w.remove("around")
}

// endless runs a program whose kernel does not end beside one that misses its floor for it: its claim says so, kubelet says that the device is
// ill, and nothing more is placed there; until the agent, which was told to stop such work, ends the program.
func (w *world) endless() {
	w.Helper()
	trainer := []string{"/bin/trainer", "--seconds", "0", "--progress", "0"}
	w.submit(work{name: "owner", compute: 600, memory: "2Gi", command: trainer})
	w.trains("owner")
	w.submit(work{name: "endless", compute: 100, memory: "1Gi", command: append(trainer, "--kernel-us", "1000000000")})
	pod, err := w.AwaitPod(w.ctx, "default", "endless", corev1.PodRunning)
	w.no(err)
	// What is over when the agent has ended the program, some 10 s after it has told of it, is looked for before what stays.
	w.health("owner", corev1.ResourceHealthStatusUnhealthy, "it is sick: work of task ")
	w.notReady(*pod.Status.ResourceClaimStatuses[0].ResourceClaimName, "Stalled")
	w.said("endless", "Stalled")
	_, err = w.AwaitPod(w.ctx, "default", "endless", corev1.PodFailed) // it does not hear that it is to end
	w.no(err)
	w.health("owner", corev1.ResourceHealthStatusHealthy, "")
	w.remove("endless", "owner")
}

// notReady waits until a claim's only share is not ready for a reason.
func (w *world) notReady(claim, reason string) {
	w.Helper()
	_, err := testcluster.AwaitObject(w.ctx, w.client.ResourceV1().ResourceClaims("default"), claim, "not ready: "+reason, func(claim *resourceapi.ResourceClaim) (bool, error) {
		return len(claim.Status.Devices) == 1 && slices.ContainsFunc(claim.Status.Devices[0].Conditions, func(c metav1.Condition) bool {
			return c.Type == "Ready" && c.Status == metav1.ConditionFalse && c.Reason == reason
		}), nil
	})
	w.no(err)
}

// health waits until kubelet says of a pod's share that its device is so, in words that begin so.
func (w *world) health(name string, want corev1.ResourceHealthStatus, message string) {
	w.Helper()
	_, err := testcluster.AwaitObject(w.ctx, w.client.CoreV1().Pods("default"), name, "on a device that kubelet calls "+string(want), func(pod *corev1.Pod) (bool, error) {
		for _, status := range pod.Status.ContainerStatuses {
			for _, resource := range status.AllocatedResourcesStatus {
				if resource.Name != "claim:share" || len(resource.Resources) != 1 || resource.Resources[0].Health != want {
					continue
				}
				said := resource.Resources[0].Message
				return message == "" || said != nil && strings.HasPrefix(*said, message), nil
			}
		}
		return false, nil
	})
	w.no(err)
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
