package place

import (
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/aliquot-dev/aliquot/api"
)

// TestOutlook holds what is expected to stay unused against its definition, worked out for each amount that may be free, with no rounding on the way.
func TestOutlook(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ground := &terrain{}
		p := &profile{}
		unit := rapid.SampledFrom([]int{1, 10, 50, 250}).Draw(t, "unit") // needs are multiples of it
		for range rapid.IntRange(0, 5).Draw(t, "kinds") {
			need := rapid.IntRange(0, int(whole)/unit).Draw(t, "need") * unit
			k := &kind{Request: Request{Compute: api.Milli(need), Devices: rapid.IntRange(1, 8).Draw(t, "devices")}}
			ground.popular, ground.share = append(ground.popular, k), append(ground.share, rapid.Int64Range(1, one).Draw(t, "share"))
			p.may, p.of = append(p.may, rapid.IntRange(0, 4).Draw(t, "may") > 0), append(p.of, int16(need))
		}
		least := int(whole)
		for i, need := range p.of {
			if p.may[i] && need > 0 {
				least = min(least, int(need))
			}
		}
		ground.look(p)
		for which := range p.outlook {
			want := unusedOf(ground, p, which)
			for f, got := range p.outlook[which] {
				rounds := patience[which]
				if which == inOrder {
					rounds = f / least
				}
				if off := math.Abs(float64(got) - 16*want[f]); off > float64(1+rounds) { // each may lose a sixteenth
					t.Fatalf("outlook %d of %d free is %d, want %v", which, f, got, 16*want[f])
				}
			}
		}
	})
}

// unusedOf is the outlook of a profile by its definition, in milli, by what is free.
func unusedOf(ground *terrain, p *profile, which int) []float64 {
	var needs []int
	var shares []float64
	var total float64
	for i, k := range ground.popular {
		if p.may[i] && p.of[i] > 0 {
			share := float64(ground.share[i]) * float64(k.Devices)
			needs, shares, total = append(needs, int(p.of[i])), append(shares, share), total+share
		}
	}
	u := make([]float64, whole+1)
	for f := range u {
		u[f] = float64(f)
	}
	if which == inOrder {
		for f := range u {
			var sum, weight float64
			for i, need := range needs {
				if need <= f {
					sum, weight = sum+shares[i]*u[f-need], weight+shares[i]
				}
			}
			if weight > 0 {
				u[f] = sum / weight
			}
		}
		return u
	}
	for range patience[which] {
		next := make([]float64, len(u))
		for f := range u {
			next[f] = u[f]
			if total > 0 {
				next[f] = 0
			}
			for i, need := range needs {
				best := u[f]
				if need <= f {
					best = min(best, u[f-need])
				}
				next[f] += shares[i] * best / total
			}
		}
		u = next
	}
	return u
}
