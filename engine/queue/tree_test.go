package queue

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/aliquot-dev/aliquot/api"
)

// TestTreeAgainstSums moves queues about and holds amounts, and compares each queue with the sum over its subtree.
func TestTreeAgainstSums(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tree := New()
		own := map[string]int64{}
		parent := map[string]string{}
		name := func(label string) string { return fmt.Sprintf("q%d", rapid.IntRange(0, 5).Draw(t, label)) }
		under := func(n, above string) bool {
			for ; n != ""; n = parent[n] {
				if n == above {
					return true
				}
			}
			return false
		}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			n := name("queue")
			_, known := tree.Get(n)
			switch rapid.IntRange(0, 3).Draw(t, "what") {
			case 0, 1:
				p := rapid.SampledFrom([]string{"", name("parent")}).Draw(t, "under")
				_, there := tree.Get(p)
				ok := tree.Set(api.QueueSpec{Name: n, Parent: p, Quota: api.Unlimited}) == nil
				if want := p == "" || there && !(known && under(p, n)) && p != n; ok != want {
					t.Fatalf("%s under %q is taken: %v, want %v", n, p, ok, want)
				}
				if ok {
					parent[n] = p
				}
			case 2:
				if q, ok := tree.Get(n); ok {
					amount := int64(rapid.IntRange(-int(own[n]), 500).Draw(t, "amount"))
					q.Hold(amount)
					own[n] += amount
				}
			case 3:
				children := false
				for c, p := range parent {
					_, there := tree.Get(c)
					children = children || there && p == n
				}
				if known && own[n] == 0 && tree.Remove(n) == nil == children {
					t.Fatalf("%s with children %v is removed or kept wrongly", n, children)
				}
				if _, still := tree.Get(n); !still {
					delete(parent, n)
				}
			}
			for _, q := range tree.All() {
				var sum int64
				for c, amount := range own {
					if _, there := tree.Get(c); there && under(c, q.Name) {
						sum += amount
					}
				}
				if q.Held != sum {
					t.Fatalf("%s holds %d, its subtree %d", q.Name, q.Held, sum)
				}
			}
			again := New()
			for _, spec := range tree.Specs() {
				if err := again.Set(spec); err != nil {
					t.Fatalf("the queues as written cannot be set again: %v", err)
				}
			}
		}
	})
}
