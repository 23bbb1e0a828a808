package sim

import (
	"math"
	"testing"

	"github.com/aliquot-dev/aliquot/engine"
	"github.com/aliquot-dev/aliquot/engine/place"
)

// Pods that come and go want what they are to want on average, at the begin as later; the same seed gives the same.
func TestChurnedTrace(t *testing.T) {
	o := Generate(50, 1)
	a, b := o.Churned(7, 90, 20_000), o.Churned(7, 90, 20_000)
	if len(a.Jobs) != len(b.Jobs) || a.Jobs[len(a.Jobs)-1].Duration != b.Jobs[len(b.Jobs)-1].Duration {
		t.Fatalf("the same seed gives %d and %d pods", len(a.Jobs), len(b.Jobs))
	}
	var there, work float64
	first := len(a.Jobs) - 20_000
	for i := range a.Jobs {
		j := &a.Jobs[i]
		if !j.Preemptible || !j.Requeue || j.Duration < 1 || i > 0 && j.Submit < a.Jobs[i-1].Submit {
			t.Fatalf("pod %d is %+v", i, j)
		}
		if i < first {
			there += float64(j.Compute())
		} else {
			work += float64(j.Compute()) * float64(j.Duration)
		}
	}
	want, long := 0.9*float64(a.Capacity()), float64(a.Jobs[len(a.Jobs)-1].Submit)
	if there < want || there > want+8000 || math.Abs(work/long-want)/want > 0.05 {
		t.Errorf("of %v that are to be wanted %v are at the begin, and %v later", want, there, work/long)
	}
}

// What may be moved lets more be allocated; what is moved is elsewhere at once, and no more is moved than may be.
func TestChurnWithMoves(t *testing.T) {
	o := Generate(12, 1)
	trace := o.Churned(3, 130, 1000)
	weights := place.Default()
	hours := float64(trace.Jobs[len(trace.Jobs)-1].Submit) / 3.6e9
	var held []float64
	for _, moves := range []int32{0, 20, 60} {
		options := Options{Config: engine.Config{Placement: &weights}, GiveUp: true}
		if moves > 0 {
			options.Defragment = &engine.Defragment{MovesPerHour: moves}
		}
		r, err := Run(trace, options)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%d moves an hour: %.2f %% held, %d placed, %d moved in %.1f h, %d of them late", moves, r.Held, r.Placed, r.Moves, hours, r.Unplaced)
		if float64(r.Moves) > float64(moves)*(hours+1) || (moves > 0) != (r.Moves > 0) || r.Placed+r.GivenUp != r.Jobs || r.Held <= 0 || r.Held > 100 || r.Unplaced > 0 {
			t.Errorf("with %d moves an hour for %v h: %+v", moves, hours, r)
		}
		held = append(held, r.Held)
	}
	if held[2] <= held[0] {
		t.Errorf("what is allocated on average without, with few and with more moves is %v %%", held)
	}
}
