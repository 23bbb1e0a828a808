package driver

import (
	"errors"
	"strings"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	ktesting "k8s.io/client-go/testing"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/dynamic-resource-allocation/resourceslice"
)

// told checks that a claim's status has this floor for its one share.
func (s *site) told(p plugin, name string, floor int) {
	s.Helper()
	p.telling.Wait()
	claim, err := s.config.Client.ResourceV1().ResourceClaims("default").Get(s.Context(), name, metav1.GetOptions{})
	if err != nil {
		s.Fatal(err)
	}
	want := map[int]string{250: `"compute":"0.25`, 500: `"compute":"0.50`}[floor]
	if len(claim.Status.Devices) != 1 || !strings.Contains(string(claim.Status.Devices[0].Data.Raw), want) {
		s.Errorf("the claim's status says %+v, want one share with %s", claim.Status.Devices, want)
	}
}

// What kubelet asks for again is told again where that is not in the status, and nothing is written where it is. What was allocated anew
// meanwhile, with more or fewer results, is not told of the old limits.
func TestTell(t *testing.T) {
	s := newSite(t, t.TempDir())
	p := s.open()
	claims := s.config.Client.ResourceV1().ResourceClaims("default")
	claim, err := claims.Create(t.Context(), claimOf("a", 250, 1<<30, ""), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	s.prepare(p, claim)
	s.told(p, "claim-a", 250)
	claim.Status.Devices = nil // the agent was killed before it wrote this
	if _, err := claims.UpdateStatus(t.Context(), claim, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	s.prepare(p, claim)
	s.told(p, "claim-a", 250)

	one, _, err := p.checkpoints.read("a")
	if err != nil {
		t.Fatal(err)
	}
	written, err := claims.Get(t.Context(), claim.Name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if changed, err := p.setDevices(written, one); err != nil || changed {
		t.Errorf("what is written already is written again: %v, %v", changed, err)
	}
	another := twice(claimOf("a", 250, 1<<30, ""))
	if _, err := claims.UpdateStatus(t.Context(), another, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	conflict(s, another)
	p.tellNow(t.Context(), claim, one)
	if now, err := claims.Get(t.Context(), claim.Name, metav1.GetOptions{}); err != nil || len(now.Status.Devices) != 0 {
		t.Errorf("a claim that was allocated anew is told %+v (%v)", now.Status.Devices, err)
	}
}

// conflict has the next write of a status meet a newer claim.
func conflict(s *site, newer *resourceapi.ResourceClaim) {
	client := s.config.Client.(*fake.Clientset)
	first := true
	client.PrependReactor("update", "resourceclaims", func(ktesting.Action) (bool, runtime.Object, error) {
		if !first {
			return false, nil, nil
		}
		first = false
		return true, nil, apierrors.NewConflict(resourceapi.Resource("resourceclaims"), newer.Name, errors.New("it was written meanwhile"))
	})
}

// A server that kubelet calls and that has ended ends the driver; slices that were not taken are tried again.
func TestEndsWhenKubeletIsNotServed(t *testing.T) {
	p := newSite(t, t.TempDir()).open()
	p.events = &recorder{}
	again := errors.Join(kubeletplugin.ErrRecoverable, errors.New("no slice today"))
	dropped := &resourceslice.DroppedFieldsError{DesiredSlice: &resourceapi.ResourceSlice{}, ActualSlice: &resourceapi.ResourceSlice{}}
	for _, err := range []error{again, dropped} {
		p.HandleError(t.Context(), err, "publish")
		select {
		case err := <-p.Failed():
			t.Errorf("ended by %v", err)
		default:
		}
	}
	for range 2 {
		p.HandleError(t.Context(), errors.New("listener closed"), "DRA gRPC server failed")
	}
	select {
	case err := <-p.Failed():
		if !strings.Contains(err.Error(), "DRA gRPC server failed: listener closed") {
			t.Error(err)
		}
	default:
		t.Error("the driver lives on, and kubelet cannot reach it")
	}
}
