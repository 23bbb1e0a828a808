package e2e

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/aliquot-dev/aliquot/host/kube/testcluster"
)

// again are points that an agent passes beside those of its beginning where it makes a claim again.
var again = []string{"node.prepare.filled", "node.prepare.renamed", "kube.file.written"}

// staysBegins makes the pod that runs on, with a ceiling that was changed since it was prepared. Containers of its that end are started again.
func (k *killer) staysBegins(command []string) {
	k.Helper()
	pod := k.annotated(work{name: "stays", command: command}, "gpu", "0.50..0.90", "memory", "5Gi", "queue", "owner")
	pod.Spec.RestartPolicy = corev1.RestartPolicyAlways
	k.admitted(pod)
	k.trains("stays")
	k.changes("stays", "0.80")
	k.applied(k.sharesAs(k.Kubeconfig()), k.claim("stays").Name, "0.50..0.80")
}

// reboots has everything of the pod that runs on and of ours end, and the run folder and CDI files go, as they do when a node reboots, and the agent killed at each
// point of its beginning after that. It makes what the pod is held to again, by what it keeps over a reboot alone, for kubelet is not there to ask for it until
// then; kubelet starts the pod's container anew, which is what runs on from there.
func (k *killer) reboots(command []string) {
	k.Helper()
	k.untilOffered()
	offered, err := k.client.ResourceV1().ResourceSlices().List(k.ctx, metav1.ListOptions{})
	k.no(err)
	stays, err := k.client.CoreV1().Pods("default").Get(k.ctx, "stays", metav1.GetOptions{})
	k.no(err)
	pod, uid := string(stays.UID), string(k.claim("stays").UID)
	limits, file := k.policy(uid), k.cdiFile(uid)
	before := k.pids("stays")
	k.no(k.Kill("kubelet"))
	k.agent.Kill()
	for pid := range before {
		if err := syscall.Kill(pid, syscall.SIGKILL); !errors.Is(err, syscall.ESRCH) {
			k.no(err)
		}
	}
	k.no(errors.Join(k.endOutliving(), os.RemoveAll(k.run), os.RemoveAll(k.CDI())))
	for _, point := range slices.Concat(beginning[:3], again, beginning[3:]) {
		k.agentDiesBeginning(point)
	}
	k.startAgent()
	if now := k.policy(uid); now != limits || !bytes.Equal(k.cdiFile(uid), file) {
		k.Fatalf("after a reboot the pod is held to %+v, by the CDI file %s; before it was %+v and %s", now, k.cdiFile(uid), limits, file)
	}
	k.oneEach()
	k.no(k.Restart(k.ctx, "kubelet"))
	k.asksAgain("stays", func() bool { return len(k.inPod(pod, command)) > 0 })
	// Kubelet takes away what its node offered before it began; the agent offers it again.
	k.no(testcluster.AwaitGone(k.ctx, k.client.ResourceV1().ResourceSlices(), offered.Items[0].Name))
	k.untilOffered()
	k.trains("stays")
	k.stays, k.busy = k.pids("stays"), 0
	for pid := range before {
		if k.stays[pid] {
			k.Fatalf("process %d of the pod has outlived the reboot", pid)
		}
	}
	if now := k.policy(uid); now != limits {
		k.Fatalf("once kubelet has started it again the pod is held to %+v; before it was %+v", now, limits)
	}
}

// cdiFile is what the only CDI file of a claim holds.
func (w *world) cdiFile(uid string) []byte {
	w.Helper()
	files, err := filepath.Glob(filepath.Join(w.CDI(), "*"+uid+".json")) // what is just written has another end
	w.no(err)
	if len(files) != 1 {
		w.Fatalf("the claim %s has the CDI files %v, want one", uid, files)
	}
	content, err := os.ReadFile(files[0])
	w.no(err)
	return content
}
