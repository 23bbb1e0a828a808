package e2e

import (
	rbacv1 "k8s.io/api/rbac/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/aliquot-dev/aliquot/host/kube/annotation"
	"github.com/aliquot-dev/aliquot/host/kube/deploy"
	"github.com/aliquot-dev/aliquot/host/kube/driver"
	"github.com/aliquot-dev/aliquot/host/kube/testcluster"
)

// allocations checks who may hand out devices, and take them back, once there is a scheduler of ours: the pod has a claim that the cluster's own
// scheduler allocated before. Nothing of it is kept: these are dry runs. Both schedulers have the same role here, so the policy alone tells them apart.
func (w *world) allocations(pod string) {
	w.Helper()
	chart := w.chart()
	objects, err := chart.Render(map[string]any{
		"agent": map[string]any{"enabled": false}, "webhook": map[string]any{"enabled": true, "scheduler": "aliquot-scheduler"}, "controller": map[string]any{"enabled": true},
	})
	w.no(err)
	var policy []deploy.Object
	for _, one := range objects {
		if one.Template == "webhook/allocation.yaml" {
			policy = append(policy, one)
		}
	}
	w.no(w.Create(w.ctx, deploy.Stream(policy)))
	_, err = w.client.RbacV1().ClusterRoleBindings().Create(w.ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "tried"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "system:kube-scheduler"},
		Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: "aliquot", Name: "aliquot-scheduler"}},
	}, metav1.CreateOptions{})
	w.no(err)
	ours, stock := w.as("system:serviceaccount:aliquot:aliquot-scheduler"), w.as("system:kube-scheduler")
	collector := w.as("system:serviceaccount:kube-system:resource-claim-controller")

	ask, err := annotation.Parse(map[string]string{annotation.GPU: "0.10", annotation.Memory: "1Gi"})
	w.no(err)
	spec, err := ask.Spec()
	w.no(err)
	claims := w.client.ResourceV1().ResourceClaims("default")
	fresh, err := claims.Create(w.ctx, &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: "tried"}, Spec: spec}, metav1.CreateOptions{})
	w.no(err)
	held := w.claim(pod)
	given := fresh.DeepCopy()
	given.Status.Allocation = &resourceapi.AllocationResult{Devices: resourceapi.DeviceAllocationResult{Results: []resourceapi.DeviceRequestAllocationResult{
		{Request: "gpu", Driver: driver.Name, Pool: testcluster.NodeName, Device: held.Status.Allocation.Devices.Results[0].Device},
	}}}
	const only = "handed out and taken back by the scheduler aliquot-scheduler"
	w.refused("handing out by the cluster's own scheduler", only, try(w, stock, given))
	w.refused("handing out by ours", "", try(w, ours, given))
	w.refused("handing out by the controller of claims", only, try(w, collector, given))
	taken := func() *resourceapi.ResourceClaim {
		taken := w.claim(pod) // its node agent writes into it, too
		taken.Status.Allocation, taken.Status.ReservedFor, taken.Status.Devices = nil, nil, nil
		return taken
	}
	w.refused("taking back by the cluster's own scheduler", only, try(w, stock, taken()))
	w.refused("taking back by the controller of claims", "", try(w, collector, taken()))
	w.refused("taking back by ours", "", try(w, ours, taken()))
	shared := w.claim(pod)
	shared.Status.ReservedFor = append(shared.Status.ReservedFor, resourceapi.ResourceClaimConsumerReference{Resource: "pods", Name: "another", UID: "another"})
	w.refused("another pod for a claim, by the cluster's own scheduler", "", try(w, stock, shared))
	w.no(claims.Delete(w.ctx, "tried", metav1.DeleteOptions{}))
	w.withoutDoubts("aliquot-allocation")
}

// try is an attempt to write a claim's status.
func try(w *world, client kubernetes.Interface, claim *resourceapi.ResourceClaim) func() error {
	return func() error {
		_, err := client.ResourceV1().ResourceClaims("default").UpdateStatus(w.ctx, claim, metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	}
}

// as is the API server as an account sees it.
func (w *world) as(user string) kubernetes.Interface {
	w.Helper()
	config := w.REST()
	config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"system:authenticated"}}
	client, err := kubernetes.NewForConfig(config)
	w.no(err)
	return client
}
