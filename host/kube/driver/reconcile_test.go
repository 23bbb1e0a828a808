package driver

import (
	"errors"
	"os"
	"strings"
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

// A claim whose checkpoint was damaged has its name from its CDI file, and is taken back as any other that kubelet forgot: once it is gone, and only then.
func TestReconcileMended(t *testing.T) {
	s := newSite(t, t.TempDir())
	p := s.open()
	all := claims("gone", "kept")
	s.prepare(p, all...)
	p.telling.Wait()
	if _, err := s.config.Client.ResourceV1().ResourceClaims("default").Create(t.Context(), all[1], metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	s.damage(p, "gone", []byte("rubbish"))
	s.damage(p, "kept", []byte("rubbish"))
	p = s.open()
	found, err := p.reconcile(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	s.has("gone", "kept")
	s.agent.used = map[string][]int{"gone": {7}}
	for range 2 {
		if found, err = p.reconcile(t.Context(), found); err != nil {
			t.Fatal(err)
		}
		s.has("gone", "kept") // a process is in it
	}
	s.agent.used = nil
	if _, err = p.reconcile(t.Context(), found); err != nil {
		t.Fatal(err)
	}
	s.has("kept")
}

// A claim that neither its checkpoint nor its CDI file names stays. It has its name back, in both, once kubelet asks for it again, and can be looked for.
func TestReconcileNameless(t *testing.T) {
	const says = "default/claim-a"
	for name, change := range map[string]func(string) string{
		"no file":  func(string) string { return "" },
		"not JSON": func(file string) string { return file[1:] },
		"no annotation": func(file string) string {
			return strings.Replace(file, `"gpu.aliquot.dev/claim":`, `"other.example/claim":`, 1)
		},
		"another name": func(file string) string { return strings.Replace(file, says, "default/claim-b", 1) },
		"another claim's": func(file string) string {
			return strings.Replace(file, summedName("a", "default", "claim-a"), summedName("b", "default", "claim-a"), 1)
		},
		"no sum": func(file string) string { return strings.Replace(file, says+" ", says, 1) },
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t, t.TempDir())
			p := s.open()
			s.prepare(p, claims("a", "b")...)
			file, err := os.ReadFile(p.specs.path("a"))
			if err != nil {
				t.Fatal(err)
			}
			changed := change(string(file))
			if changed == string(file) {
				t.Fatalf("the CDI file is as it was: %s", file)
			}
			if err := os.WriteFile(p.specs.path("a"), []byte(changed), 0o644); err != nil {
				t.Fatal(err)
			}
			s.damage(p, "a", []byte("rubbish"))
			p = s.open()
			for range 2 {
				if _, err := p.reconcile(t.Context(), map[string]bool{"a": true}); err != nil {
					t.Fatal(err)
				}
				s.has("a", "b") // nobody knows its name
			}
			s.prepare(p, claims("a")...)
			if namespace, name, err := p.specs.claim("a"); err != nil || namespace+"/"+name != says {
				t.Errorf("its CDI file says %s/%s (%v)", namespace, name, err)
			}
			if _, err := p.reconcile(t.Context(), map[string]bool{"a": true}); err != nil {
				t.Fatal(err)
			}
			s.has("b")
		})
	}
}
