package ordered

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestListAgainstSortedSlice holds the list against a slice that is searched and sorted naively.
func TestListAgainstSortedSlice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		list := New(func(a, b int) bool { return a < b })
		var naive []int
		steps := rapid.IntRange(1, 1500).Draw(t, "steps")
		seed := rapid.Uint64().Draw(t, "seed")
		for range steps {
			seed = seed*6364136223846793005 + 1442695040888963407
			v := int(seed>>33) % 1000
			at, there := slices.BinarySearch(naive, v)
			if there {
				if !list.Delete(v) {
					t.Fatalf("%d is in the list and was not found", v)
				}
				naive = slices.Delete(naive, at, at+1)
				continue
			}
			if list.Delete(v) {
				t.Fatalf("%d is not in the list and was deleted", v)
			}
			list.Insert(v)
			naive = slices.Insert(naive, at, v)
		}
		if got := slices.Collect(list.All); !slices.Equal(got, naive) {
			t.Fatalf("list reads %v, want %v", got, naive)
		}
		if list.Len() != len(naive) {
			t.Fatalf("length %d, want %d", list.Len(), len(naive))
		}
		for at, v := range naive {
			if got := list.Rank(v); got != at {
				t.Fatalf("%d has rank %d, want %d", v, got, at)
			}
		}
		from := rapid.IntRange(-1, 1001).Draw(t, "from")
		var got []int
		for c := list.Seek(func(v int) bool { return v < from }); c.Valid(); c.Next() {
			got = append(got, c.Value())
		}
		at, _ := slices.BinarySearch(naive, from)
		if !slices.Equal(got, naive[at:]) {
			t.Fatalf("from %d the list reads %v, want %v", from, got, naive[at:])
		}
	})
}
