package filter

import (
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Of pods that start together none is kept off a node by what another is nominated for, and everybody else of their priority is.
func TestNominatedTogether(t *testing.T) {
	of := func(name, node string) *v1.Pod {
		return pod(name, asks("cpu", "3"), priority(5), func(p *v1.Pod) { p.Status.NominatedNodeName = node })
	}
	p, q, other := of("p", "a"), of("q", "b"), pod("other", asks("cpu", "3"), priority(5))
	f, _ := over(t, node("a", "east"), node("b", "west"), p, q, other)
	takes := func(when string, one *v1.Pod, want ...string) {
		t.Helper()
		found, err := f.Nodes(background, one)
		if err != nil || !slices.Equal(found.Nodes, want) {
			t.Errorf("%s, %s may run on %v, want %v; %v", when, one.Name, found.Nodes, want, err)
		}
		for _, node := range []string{"a", "b"} {
			if why, err := f.Check(background, one, node); err != nil || (why == "") != slices.Contains(want, node) {
				t.Errorf("%s, node %s says of %s %q, %v", when, node, one.Name, why, err)
			}
		}
	}
	takes("as they are", p, "a")
	f.Together([]*v1.Pod{p, q})
	takes("together", p, "a", "b")
	takes("together", q, "a", "b")
	takes("together", other)
	if err := f.Assume(p, "b"); err != nil {
		t.Fatal(err)
	}
	takes("when the first is assumed", q, "a")
	f.Forget(p)
	takes("when the first is not assumed any more", p, "a", "b")
	takes("when the first is not assumed any more", q, "a", "b")
	f.podGone(q)
	f.podAdded(q)
	takes("when one is another of that name", p, "a")
}

// What pods start together is known of such alone as wait: of those that are gone, or ended, nothing is kept.
func TestTogetherOfGone(t *testing.T) {
	p, q, r := pod("p"), pod("q"), pod("r")
	f, client := over(t, node("a", "east"), p, q, r)
	changes := f.changed.now()
	if err := client.CoreV1().Pods("default").Delete(background, "q", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	ended := r.DeepCopy()
	ended.Status.Phase = v1.PodFailed
	if _, err := client.CoreV1().Pods("default").Update(background, ended, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	until(t, "both are seen to be over", func() bool { return f.changed.now() >= changes+2 })
	f.Together([]*v1.Pod{p, q, r})
	if len(f.nominated.first) != 1 || f.nominated.first[p.UID] == "" {
		t.Errorf("of %v it is kept what they start with, want of %s alone", f.nominated.first, p.UID)
	}
}

// What a pod is nominated for while it is assumed holds once it is not assumed any more.
func TestNominationWhileAssumed(t *testing.T) {
	for name, next := range map[string]string{"for none": "", "for another": "b"} {
		t.Run(name, func(t *testing.T) {
			p := pod("p", asks("cpu", "3"), priority(5), func(p *v1.Pod) { p.Status.NominatedNodeName = "a" })
			other := pod("other", asks("cpu", "3"), priority(5))
			f, client := over(t, node("a", "east"), node("b", "west"), p)
			if err := f.Assume(p, "b"); err != nil {
				t.Fatal(err)
			}
			now := p.DeepCopy()
			now.Status.NominatedNodeName = next
			if _, err := client.CoreV1().Pods("default").Update(background, now, metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
			last := pod("last", on("a"))
			if _, err := client.CoreV1().Pods("default").Create(background, last, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			until(t, "what came after it is seen", func() bool {
				_, err := f.cache.GetPod(last)
				return err == nil
			})
			f.Forget(p)
			want := []string{"a", "b"}
			if next != "" {
				want = want[:1]
			}
			is(t, "beside it", nodesOf(t, f, other), want...)
		})
	}
}
