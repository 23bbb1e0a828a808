package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/kubernetes/scheme"
	resourcev1 "k8s.io/client-go/kubernetes/typed/resource/v1"

	"github.com/aliquot-dev/aliquot/host/kube/annotation"
	"github.com/aliquot-dev/aliquot/host/kube/driver"
	"github.com/aliquot-dev/aliquot/host/kube/testcluster"
)

// edits tries to have more than was given by claims that say so: who may edit a namespace changes no claim that there is, and of one that was allocated by
// hand, as administrators and schedulers may where no policy of ours holds, no agent makes more than its devices have room for.
func (w *world) edits() {
	w.Helper()
	w.editor()
	held := w.claim("victim").Status.Allocation.Devices.Results[0]
	all := w.device().Capacity[driver.Memory].Value
	for name, c := range map[string]struct {
		result resourceapi.DeviceRequestAllocationResult
		config string // a ShareConfig's other fields
		want   string
	}{
		"another-pool":    {forged(held, 100, "1Gi", func(r *resourceapi.DeviceRequestAllocationResult) { r.Pool = "another" }), "", "which has no such device"},
		"another-device":  {forged(held, 100, "1Gi", func(r *resourceapi.DeviceRequestAllocationResult) { r.Device = "gpu-another" }), "", "which has no such device"},
		"over-a-device":   {forged(held, 1001, "1Gi", nil), "", "it consumes 1001 thousandths of a device"},
		"others-floors":   {forged(held, 800, "1Gi", nil), "", "floors of 250 are granted there already"},
		"others-memory":   {forged(held, 100, all.String(), nil), "", "granted there already"},
		"over-its-memory": {forged(held, 100, "1Ti", nil), "", "the device has"},
		"whole":           {forged(held, 0, "0", func(r *resourceapi.DeviceRequestAllocationResult) { r.ConsumedCapacity, r.ShareID = nil, nil }), "", "floors of 250 are granted there already"},
		"ceiling":         {forged(held, 100, "1Gi", nil), `,"ceiling":{"compute":"5"}`, "ceiling"},
		"nothing":         {forged(held, 0, "1Gi", nil), "", "neither a compute floor nor a ceiling"},
	} {
		w.forgery("forged-"+name, c.result, c.config, c.want)
	}
	entries, err := os.ReadDir(w.CDI())
	w.no(err)
	if len(entries) != 1 {
		w.Errorf("of the forged claims there are CDI files: %v", entries)
	}
	w.told("victim", `"compute":"0.25","memory":"4Gi"`)
}

// forged is a share of the victim's device that nobody decided on.
func forged(held resourceapi.DeviceRequestAllocationResult, compute int64, memory string, change func(*resourceapi.DeviceRequestAllocationResult)) resourceapi.DeviceRequestAllocationResult {
	share := uuid.NewUUID()
	held.ShareID = &share
	held.ConsumedCapacity = map[resourceapi.QualifiedName]resource.Quantity{
		driver.Compute: *resource.NewQuantity(compute, resource.DecimalSI), driver.Memory: resource.MustParse(memory),
	}
	if change != nil {
		change(&held)
	}
	return held
}

// forgery makes a pod on the node with a claim that is allocated by hand, and waits until kubelet says why it does not start.
func (w *world) forgery(name string, result resourceapi.DeviceRequestAllocationResult, config, want string) {
	w.Helper()
	ask, err := annotation.Parse(map[string]string{annotation.GPU: "0.10", annotation.Memory: "1Gi"})
	w.no(err)
	spec, err := ask.Spec()
	w.no(err)
	claims := w.client.ResourceV1().ResourceClaims("default")
	claim, err := claims.Create(w.ctx, &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec}, metav1.CreateOptions{})
	w.no(err)
	pod := w.pod(work{name: name, command: []string{"/bin/smi"}})
	pod.Spec.NodeName = testcluster.NodeName
	pod.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "share", ResourceClaimName: &name}}
	pod.Spec.Containers[0].Resources.Claims = []corev1.ResourceClaim{{Name: "share"}}
	pod, err = w.client.CoreV1().Pods("default").Create(w.ctx, pod, metav1.CreateOptions{})
	w.no(err)
	result.Request = spec.Devices.Requests[0].Name
	claim.Status.Allocation = &resourceapi.AllocationResult{Devices: resourceapi.DeviceAllocationResult{Results: []resourceapi.DeviceRequestAllocationResult{result}}}
	if config != "" {
		claim.Status.Allocation.Devices.Config = []resourceapi.DeviceAllocationConfiguration{{
			Source: resourceapi.AllocationConfigSourceClaim, DeviceConfiguration: resourceapi.DeviceConfiguration{Opaque: &resourceapi.OpaqueDeviceConfiguration{
				Driver: driver.Name, Parameters: runtime.RawExtension{Raw: []byte(`{"apiVersion":"aliquot.dev/v1alpha1","kind":"ShareConfig"` + config + `}`)},
			}},
		}}
	}
	claim.Status.ReservedFor = []resourceapi.ResourceClaimConsumerReference{{Resource: "pods", Name: pod.Name, UID: pod.UID}}
	_, err = claims.UpdateStatus(w.ctx, claim, metav1.UpdateOptions{})
	w.no(err)
	w.eventually(name+" is refused by the node, as "+want, func() (bool, string) {
		events, err := w.client.CoreV1().Events("default").SearchWithContext(w.ctx, scheme.Scheme, pod)
		w.no(err)
		var said []string
		for _, event := range events.Items {
			said = append(said, event.Reason+": "+event.Message)
		}
		all := strings.Join(said, "\n")
		return strings.Contains(all, "FailedPrepareDynamicResources: ") && strings.Contains(all, want), all
	})
	if ran := w.processesOf(string(pod.UID)); len(ran) > 0 {
		w.Errorf("of %s run %v", name, ran)
	}
	if _, err := os.Stat(filepath.Join(w.run, "tasks", string(claim.UID))); err == nil {
		w.Errorf("of %s there are pages", name)
	}
	w.no(w.client.CoreV1().Pods("default").Delete(w.ctx, name, metav1.DeleteOptions{}))
	w.no(testcluster.AwaitGone(w.ctx, w.client.CoreV1().Pods("default"), name))
	w.no(claims.Delete(w.ctx, name, metav1.DeleteOptions{}))
	w.no(testcluster.AwaitGone(w.ctx, claims, name))
}

// editor tries what the role `edit` of a namespace allows with the victim's claim, and what not even administrators may.
func (w *world) editor() {
	w.Helper()
	_, err := w.client.RbacV1().RoleBindings("default").Create(w.ctx, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "editor"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "edit"},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: "editor"}},
	}, metav1.CreateOptions{})
	w.no(err)
	editor := w.as("editor").ResourceV1().ResourceClaims("default")
	name := w.claim("victim").Name
	w.eventually("the role edit may change claims", func() (bool, string) {
		_, err := editor.Patch(w.ctx, name, types.MergePatchType, []byte(`{"metadata":{"labels":{"tried":"yes"}}}`), metav1.PatchOptions{})
		return err == nil, fmt.Sprint(err)
	})
	err = w.edit(name, func(larger *resourceapi.ResourceClaim) error {
		larger.Spec.Devices.Requests[0].Exactly.Capacity.Requests[driver.Compute] = resource.MustParse("900")
		_, err := editor.Update(w.ctx, larger, metav1.UpdateOptions{})
		return err
	})
	if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "field is immutable") {
		w.Errorf("a larger request in a claim that is there: %v", err)
	}
	give := func(by resourcev1.ResourceClaimInterface) error {
		return w.edit(name, func(given *resourceapi.ResourceClaim) error {
			given.Status.Allocation.Devices.Results[0].ConsumedCapacity[driver.Compute] = resource.MustParse("900")
			_, err := by.UpdateStatus(w.ctx, given, metav1.UpdateOptions{})
			return err
		})
	}
	if err := give(editor); !apierrors.IsForbidden(err) {
		w.Errorf("a larger allocation, by who may edit the namespace: %v", err)
	}
	if err := give(w.client.ResourceV1().ResourceClaims("default")); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "field is immutable") {
		w.Errorf("a larger allocation, by an administrator: %v", err)
	}
}
