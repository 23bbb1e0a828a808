package e2e

import (
	"fmt"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/aliquot-dev/aliquot/host/kube/driver"
	"github.com/aliquot-dev/aliquot/host/kube/testcluster"
)

// bounded checks that the agent's account writes of its own node and driver alone. Nothing of it is kept: these are dry runs.
func (w *world) bounded() {
	w.Helper()
	config, err := w.RESTOf(w.kubeconfig)
	w.no(err)
	agent, err := kubernetes.NewForConfig(config)
	w.no(err)
	dry := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
	for _, c := range []struct {
		driver, node, pool string
		want               string // in the refusal; empty: none
	}{
		{driver.Name, testcluster.NodeName, testcluster.NodeName, ""},
		{driver.Name, "another", "another", "writes slices of that node"},
		{driver.Name, testcluster.NodeName, "another", "the pool of its name alone"},
		{"gpu.other.example", testcluster.NodeName, testcluster.NodeName, "of the driver gpu.aliquot.dev alone"},
	} {
		slice := &resourceapi.ResourceSlice{
			ObjectMeta: metav1.ObjectMeta{Name: "tried"},
			Spec:       resourceapi.ResourceSliceSpec{Driver: c.driver, NodeName: &c.node, Pool: resourceapi.ResourcePool{Name: c.pool, Generation: 1, ResourceSliceCount: 1}},
		}
		w.refused("a slice", c.want, func() error {
			_, err := agent.ResourceV1().ResourceSlices().Create(w.ctx, slice, dry)
			return err
		})
	}
	w.unbound(dry)
	// One of another driver, which is there: it is neither changed nor removed.
	name := testcluster.NodeName
	slices := w.client.ResourceV1().ResourceSlices()
	foreign, err := slices.Create(w.ctx, &resourceapi.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{Name: "foreign"},
		Spec:       resourceapi.ResourceSliceSpec{Driver: "gpu.other.example", NodeName: &name, Pool: resourceapi.ResourcePool{Name: name, Generation: 1, ResourceSliceCount: 1}},
	}, metav1.CreateOptions{})
	w.no(err)
	w.refused("removing another's slice", "of the driver gpu.aliquot.dev alone", func() error {
		return agent.ResourceV1().ResourceSlices().Delete(w.ctx, foreign.Name, metav1.DeleteOptions{})
	})
	w.refused("changing another's slice", "of the driver gpu.aliquot.dev alone", func() error {
		changed := foreign.DeepCopy()
		changed.Spec.Pool.Generation++
		_, err := agent.ResourceV1().ResourceSlices().Update(w.ctx, changed, metav1.UpdateOptions{})
		return err
	})
	w.no(slices.Delete(w.ctx, foreign.Name, metav1.DeleteOptions{}))
	for host, want := range map[string]string{testcluster.NodeName: "", "another": "of that host alone"} {
		event := &corev1.Event{
			ObjectMeta:     metav1.ObjectMeta{Name: "tried"},
			InvolvedObject: corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: "default", Name: "tried"},
			Source:         corev1.EventSource{Component: driver.Name, Host: host}, Type: corev1.EventTypeWarning, Reason: "Tried",
		}
		w.refused("an event of "+host, want, func() error {
			_, err := agent.CoreV1().Events("default").Create(w.ctx, event, dry)
			return err
		})
	}
}

// unbound checks that a token of the account that says no node writes nothing, and that the API server has no doubts about the policies.
func (w *world) unbound(dry metav1.CreateOptions) {
	w.Helper()
	token, err := w.client.CoreV1().ServiceAccounts("aliquot").CreateToken(w.ctx, "aliquot-agent", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	w.no(err)
	config, err := w.RESTOf(w.kubeconfig)
	w.no(err)
	config.BearerToken = token.Status.Token
	anywhere, err := kubernetes.NewForConfig(config)
	w.no(err)
	everywhere := true
	w.refused("a slice of all nodes", "its token is bound to none", func() error {
		_, err := anywhere.ResourceV1().ResourceSlices().Create(w.ctx, &resourceapi.ResourceSlice{
			ObjectMeta: metav1.ObjectMeta{Name: "tried"},
			Spec:       resourceapi.ResourceSliceSpec{Driver: driver.Name, AllNodes: &everywhere, Pool: resourceapi.ResourcePool{Name: "tried", Generation: 1, ResourceSliceCount: 1}},
		}, dry)
		return err
	})
	w.withoutDoubts("aliquot-agent-slices", "aliquot-agent-events")
}

// refused waits until an attempt is refused with these words, for a policy is in force a moment after it was made; without words it must succeed.
func (w *world) refused(what, words string, attempt func() error) {
	w.Helper()
	if words == "" {
		if err := attempt(); err != nil {
			w.Errorf("%s that the agent may write: %v", what, err)
		}
		return
	}
	w.eventually(what+" is refused", func() (bool, string) {
		err := attempt()
		if err == nil || apierrors.IsForbidden(err) && !strings.Contains(err.Error(), "ValidatingAdmissionPolicy") {
			return false, "it was taken, or its role refused it: " + fmt.Sprint(err)
		}
		return strings.Contains(err.Error(), words), err.Error()
	})
}
