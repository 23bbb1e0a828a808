package e2e

import (
	"fmt"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"

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
	w.may(ours, authorizationv1.ResourceAttributes{Namespace: "default", Verb: "update", Group: resourceapi.GroupName, Resource: "resourceclaims", Subresource: "status"})
	collector := w.as("system:serviceaccount:kube-system:resource-claim-controller")

	ask, err := annotation.Parse(map[string]string{annotation.GPU: "0.10", annotation.Memory: "1Gi"})
	w.no(err)
	spec, err := ask.Spec()
	w.no(err)
	claims := w.client.ResourceV1().ResourceClaims("default")
	_, err = claims.Create(w.ctx, &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: "tried"}, Spec: spec}, metav1.CreateOptions{})
	w.no(err)
	held := w.claim(pod)
	give := func(claim *resourceapi.ResourceClaim) {
		claim.Status.Allocation = &resourceapi.AllocationResult{Devices: resourceapi.DeviceAllocationResult{Results: []resourceapi.DeviceRequestAllocationResult{
			{Request: "gpu", Driver: driver.Name, Pool: testcluster.NodeName, Device: held.Status.Allocation.Devices.Results[0].Device},
		}}}
	}
	const only = "handed out and taken back by the scheduler aliquot-scheduler"
	w.refused("handing out by the cluster's own scheduler", only, w.try(stock, "tried", give))
	w.refused("handing out by ours", "", w.try(ours, "tried", give))
	w.refused("handing out by the controller of claims", only, w.try(collector, "tried", give))
	take := func(claim *resourceapi.ResourceClaim) {
		claim.Status.Allocation, claim.Status.ReservedFor, claim.Status.Devices = nil, nil, nil
	}
	w.refused("taking back by the cluster's own scheduler", only, w.try(stock, held.Name, take))
	w.refused("taking back by the controller of claims", "", w.try(collector, held.Name, take))
	w.refused("taking back by ours", "", w.try(ours, held.Name, take))
	w.refused("another pod for a claim, by the cluster's own scheduler", "", w.try(stock, held.Name, func(claim *resourceapi.ResourceClaim) {
		claim.Status.ReservedFor = append(claim.Status.ReservedFor, resourceapi.ResourceClaimConsumerReference{Resource: "pods", Name: "another", UID: "another"})
	}))
	w.no(claims.Delete(w.ctx, "tried", metav1.DeleteOptions{}))
	w.withoutDoubts("aliquot-allocation")
}

// try is an attempt to change a claim's status.
func (w *world) try(client kubernetes.Interface, name string, change func(*resourceapi.ResourceClaim)) func() error {
	return func() error {
		return w.edit(name, func(claim *resourceapi.ResourceClaim) error {
			change(claim)
			_, err := client.ResourceV1().ResourceClaims("default").UpdateStatus(w.ctx, claim, metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}})
			return err
		})
	}
}

// edit has a claim written as it is then, and again where its node agent wrote into it meanwhile: that the API server says first.
func (w *world) edit(name string, write func(*resourceapi.ResourceClaim) error) error {
	w.Helper()
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		claim, err := w.client.ResourceV1().ResourceClaims("default").Get(w.ctx, name, metav1.GetOptions{})
		w.no(err)
		return write(claim)
	})
}

// may waits until the API server lets an account do something: of a binding it hears a moment after that was made.
func (w *world) may(client kubernetes.Interface, what authorizationv1.ResourceAttributes) {
	w.Helper()
	w.eventually(fmt.Sprintf("the account may %+v", what), func() (bool, string) {
		said, err := client.AuthorizationV1().SelfSubjectAccessReviews().Create(w.ctx,
			&authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &what}}, metav1.CreateOptions{})
		w.no(err)
		return said.Status.Allowed, fmt.Sprintf("%+v", said.Status)
	})
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
