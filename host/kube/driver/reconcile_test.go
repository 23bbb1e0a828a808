package driver

import (
	"errors"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	ktesting "k8s.io/client-go/testing"
)

// What kubelet forgot is taken back at the second look: claims that are gone, another's by now, or not allocated here. What is in use, is
// had by somebody, or not told of, stays.
func TestReconcile(t *testing.T) {
	s := newSite(t, t.TempDir())
	p := s.open()
	all := claims("kept", "gone", "renewed", "freed", "used", "silent")
	s.prepare(p, all...)
	p.telling.Wait()
	for _, claim := range all {
		switch claim.UID {
		case "gone", "used":
			continue
		case "renewed":
			claim.UID = "another"
		case "freed":
			claim.Status.Allocation = nil
		}
		if _, err := s.config.Client.ResourceV1().ResourceClaims("default").Create(t.Context(), claim, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	s.config.Client.(*fake.Clientset).PrependReactor("get", "resourceclaims", func(action ktesting.Action) (bool, runtime.Object, error) {
		return action.(ktesting.GetAction).GetName() == "claim-silent", nil, errors.New("no answer")
	})
	s.agent.used = map[string][]int{"used": {7}}
	look := func(before map[string]bool) map[string]bool {
		t.Helper()
		now, err := p.reconcile(t.Context(), before)
		if err != nil {
			t.Fatal(err)
		}
		return now
	}
	found := look(nil)
	s.has("freed", "gone", "kept", "renewed", "silent", "used")
	found = look(found)
	s.has("kept", "silent", "used")
	s.agent.used = nil
	look(found)
	s.has("kept", "silent")
}

// A claim whose checkpoint was damaged has its name back once kubelet asks for it again, and can be looked for.
func TestReconcileMended(t *testing.T) {
	s := newSite(t, t.TempDir())
	p := s.open()
	s.prepare(p, claims("a", "b")...)
	if err := writeSummed(p.checkpoints.path("a"), "rubbish"); err != nil {
		t.Fatal(err)
	}
	p = s.open()
	s.has("a", "b")
	for range 2 {
		if _, err := p.reconcile(t.Context(), map[string]bool{"a": true}); err != nil {
			t.Fatal(err)
		}
		s.has("a", "b") // nobody knows its name
	}
	s.prepare(p, claims("a")...)
	if _, err := p.reconcile(t.Context(), map[string]bool{"a": true}); err != nil {
		t.Fatal(err)
	}
	s.has("b")
}
