package e2e

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/aliquot-dev/aliquot/host/kube/testcluster"
)

// handsOver has the node's agent replaced by another, in whatever way replace does it, while pods with shares start all along: kubelet
// has an answer to all that it asks, so that none of them fails to start and is tried again, which takes kubelet 10 s and more.
func (w *world) handsOver(replace func()) {
	w.Helper()
	before := w.agentReady("")
	replace()
	var started []string
	next := time.NewTicker(250 * time.Millisecond)
	defer next.Stop()
	for gone := false; !gone; <-next.C {
		name := fmt.Sprintf("start-%d-beside-%s", len(started), before.Name)
		started = append(started, name)
		// They request next to nothing: of a node that is nearly full two schedulers may give the rest away twice, and kubelet then rejects a pod.
		w.submit(work{name: name, compute: 1, memory: "64Mi", cpu: "2m", scheduler: "aliquot-scheduler", command: []string{"/bin/smi"}})
		_, err := w.client.CoreV1().Pods(ours).Get(w.ctx, before.Name, metav1.GetOptions{})
		if gone = apierrors.IsNotFound(err); !gone {
			w.no(err)
		}
		if len(started) > 500 {
			w.Fatalf("the agent was not replaced while %d pods started", len(started))
		}
	}
	w.agentReady(string(before.UID))
	var longest time.Duration
	for _, name := range started {
		pod, err := testcluster.AwaitObject(w.ctx, w.client.CoreV1().Pods("default"), name, "a pod that has ended", func(pod *corev1.Pod) (bool, error) {
			return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed, nil
		})
		w.no(err)
		if pod.Status.Phase != corev1.PodSucceeded {
			w.Errorf("%s is %s: %s", name, pod.Status.Phase, pod.Status.Message)
			continue
		}
		longest = max(longest, pod.Status.ContainerStatuses[0].State.Terminated.StartedAt.Sub(pod.CreationTimestamp.Time))
		events, err := w.client.CoreV1().Events("default").SearchWithContext(w.ctx, scheme.Scheme, pod)
		w.no(err)
		for _, event := range events.Items {
			if event.Reason == "FailedPrepareDynamicResources" {
				w.Errorf("%s is told %s: %s", name, event.Reason, event.Message)
			}
		}
	}
	w.Logf("%d pods started while the agent was replaced, each within %v (full seconds)", len(started), longest)
	w.remove(started...)
}
