package e2e

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/aliquot-dev/aliquot/host/kube/driver"
	"github.com/aliquot-dev/aliquot/host/kube/scheduler"
)

// seen is what the example smi prints of a whole device and of each process there.
var (
	seen      = regexp.MustCompile(`  memory \d+ of (\d+) MiB`)
	processes = regexp.MustCompile(`(?m)^ +(\d+) +\d+ MiB `)
)

// administers has a pod with access as an administrator beside the pods named, which have shares of the node's only device: it sees the whole device and their
// processes, they keep their floors, also while the agent is killed and started again, and what computes by such access is told of and not ended. Only a
// namespace with Kubernetes' label for it may ask so.
func (w *world) administers(shares ...string) {
	w.Helper()
	spec := resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{Requests: []resourceapi.DeviceRequest{{Name: "all", Exactly: &resourceapi.ExactDeviceRequest{
		DeviceClassName: driver.Name, AllocationMode: resourceapi.DeviceAllocationModeAll, AdminAccess: new(true),
	}}}}}
	template := &resourceapi.ResourceClaimTemplate{ObjectMeta: metav1.ObjectMeta{Name: "access"}, Spec: resourceapi.ResourceClaimTemplateSpec{Spec: spec}}
	templates := w.client.ResourceV1().ResourceClaimTemplates("default")
	strict := metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict}
	if _, err := templates.Create(w.ctx, template, strict); !apierrors.IsInvalid(err) {
		w.Fatalf("a namespace without the label is told %v", err)
	}
	_, err := w.client.CoreV1().Namespaces().Patch(w.ctx, "default", types.MergePatchType, []byte(`{"metadata":{"labels":{"resource.kubernetes.io/admin-access":"true"}}}`), metav1.PatchOptions{})
	w.no(err)
	_, err = templates.Create(w.ctx, template, strict)
	w.no(err)
	submit := func(name string, command ...string) {
		w.Helper()
		pod := w.pod(work{name: name, command: command, scheduler: scheduler.Name})
		pod.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "access", ResourceClaimTemplateName: &template.Name}}
		pod.Spec.Containers[0].Resources.Claims = []corev1.ResourceClaim{{Name: "access"}}
		w.admitted(pod)
	}
	submit("monitor", "/bin/smi", "--every", "1")
	running := map[int]bool{}
	for _, name := range shares {
		maps.Copy(running, w.pids(name))
	}
	w.eventually("the administrator sees the device and what runs there", func() (bool, string) {
		said, err := w.client.CoreV1().Pods("default").GetLogs("monitor", &corev1.PodLogOptions{}).DoRaw(w.ctx)
		device := seen.FindSubmatch(said)
		if err != nil || device == nil || string(device[1]) != "143771" {
			return false, fmt.Sprintf("%v\n%s", err, said)
		}
		there := map[int]bool{}
		for _, one := range processes.FindAllSubmatch(said, -1) {
			pid, err := strconv.Atoi(string(one[1]))
			w.no(err)
			there[pid] = running[pid]
		}
		return len(there) == len(shares) && !slices.Contains(slices.Collect(maps.Values(there)), false), fmt.Sprintf("%v\n%s", running, said)
	})
	w.agent.Kill()
	w.startAgent("--unenforced", "stop")
	w.shares("beside an administrator", map[string]part{shares[0]: {250, 1000}, shares[1]: {500, 1000}})
	// What the agent would end it ends at the second look that finds it: who is told of by the first one is found by all up to the one that tells of the next.
	for _, name := range []string{"computes", "computes-too"} {
		submit(name, "/bin/trainer", "--seconds", "0", "--progress", "0")
		w.trains(name)
		w.administersTold(name)
	}
	if said := w.agent.Log(); strings.Contains(said, "kind=stopped") || strings.Contains(said, "kind=unenforced") {
		w.Errorf("the agent said\n%s", said)
	}
	w.trains("computes")
	w.remove("monitor", "computes", "computes-too")
}

// administersTold waits until an event of the node tells that a pod's process computes by access as an administrator.
func (w *world) administersTold(name string) {
	w.Helper()
	w.eventually("it is told of "+name+" on the node", func() (bool, string) {
		events, err := w.client.CoreV1().Events("default").List(w.ctx, metav1.ListOptions{FieldSelector: "involvedObject.kind=Node,reason=Administers"})
		w.no(err)
		for pid := range w.pids(name) {
			if slices.ContainsFunc(events.Items, func(e corev1.Event) bool { return strings.HasPrefix(e.Message, fmt.Sprintf("Process %d ", pid)) }) {
				return true, ""
			}
		}
		return false, w.agent.Log()
	})
}
