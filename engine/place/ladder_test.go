package place

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// A ladder ranks as a search does: amounts near each other, far apart, less than nothing, none at all.
func TestLadderIsTheSearch(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		most := rapid.SampledFrom([]int64{3, 1023, 1024, 5000, 1 << 50}).Draw(t, "most")
		amounts := rapid.SliceOfN(rapid.Int64Range(-3, most), 0, 300).Draw(t, "amounts")
		slices.Sort(amounts)
		amounts = slices.Compact(amounts)
		l := newLadder(amounts)
		values := append([]int64{-9, 0, most + 1, 1 << 62}, rapid.SliceOfN(rapid.Int64Range(-5, most), 1, 20).Draw(t, "values")...)
		for _, a := range amounts {
			values = append(values, a-1, a, a+1)
		}
		for _, v := range values {
			want, _ := slices.BinarySearch(amounts, v+1)
			if got := l.rank(v); got != want {
				t.Fatalf("of %v, %d are no more than %d, want %d", amounts, got, v, want)
			}
		}
	})
}
