package sim

import (
	"context"
	"errors"
	"math"
	"reflect"
	"slices"
	"strings"
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

// A curve has a point for each number of moves, the mean of the seeds, and is the same each time; it is stored, compared and drawn.
func TestChurnCurve(t *testing.T) {
	o := Generate(6, 1)
	with := ChurnOptions{Percent: 130, Pods: 300, Moves: []int32{0, 5, 60}, Seeds: []uint64{1, 2}}
	best := func(uint64) (*place.Policy, error) { return Policy("best_fit", 0, nil) }
	var came []int
	told := func(moves int32, seed uint64, of Progress) {
		if of.Done == of.All {
			came = append(came, int(moves)*10+int(seed))
		}
	}
	run := func() *Churn {
		t.Helper()
		c, err := RunChurn(t.Context(), o, "best_fit", with, told, best)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	c := run()
	if want := []int{1, 2, 51, 52, 601, 602}; !slices.Equal(came, want) {
		t.Errorf("the runs that are told of are %v, want %v", came, want)
	}
	if again := run(); !reflect.DeepEqual(c, again) {
		t.Errorf("the same seeds give %+v and %+v", c, again)
	}
	if len(c.Points) != 3 || c.Points[0].Moved != 0 || c.Points[1].Moved <= 0 || c.Points[2].Moved <= c.Points[1].Moved || c.Points[2].Allocated <= c.Points[0].Allocated || c.Points[0].GivenUp <= 0 {
		t.Errorf("the curve is %+v", c.Points)
	}
	var held []float64
	for _, seed := range with.Seeds {
		placement, err := best(seed)
		if err != nil {
			t.Fatal(err)
		}
		r, err := Run(o.Churned(seed, 130, 300), Options{Config: engine.Config{Placement: placement}, GiveUp: true})
		if err != nil {
			t.Fatal(err)
		}
		held = append(held, r.Held)
	}
	if p := c.Points[0]; math.Abs(p.Allocated-mean(held)) > 1e-9 || math.Abs(p.Deviation-math.Abs(held[0]-held[1])/2) > 1e-9 {
		t.Errorf("without moves %g ± %g %% are allocated, and by single runs %v", p.Allocated, p.Deviation, held)
	}
	back := stored(t, &File{Trace: "pods", Churn: []*Churn{c, {Policy: "still", Points: []ChurnPoint{{Allocated: 50}}}}})
	if !reflect.DeepEqual(back.Churn[0], c) {
		t.Errorf("it is stored as %+v", back.Churn[0])
	}
	page := back.html()
	if strings.Count(page, "<svg") != 2 || strings.Count(page, "<circle") != 2*4 || strings.Contains(page, "NaN") || !strings.Contains(page, "<td>allocated with 60 moves an hour</td>") {
		t.Errorf("it is drawn as %s", page)
	}
	for part := range strings.SplitSeq(page, "<svg") {
		if end := strings.Index(part, "</svg>"); end >= 0 {
			wellFormed(t, "<svg"+part[:end]+"</svg>")
		}
	}
	stopped, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := RunChurn(stopped, o, "best_fit", with, nil, best); !errors.Is(err, context.Canceled) {
		t.Errorf("a run that is stopped ends with %v", err)
	}
}

// The axis of some lines has them all between its first and last tick.
func TestRangeAxis(t *testing.T) {
	for _, c := range []struct{ low, high, min, max float64 }{{98.11, 98.19, 98.1, 98.2}, {83.8, 89.2, 82, 90}, {50, 50, 50, 50.02}, {0, 100, 0, 100}} {
		a := rangeAxis("", []curve{{y: []float64{c.high, c.low}}})
		if math.Abs(a.min-c.min) > 1e-9 || math.Abs(a.max-c.max) > 1e-9 || a.ticks[0] != a.min || math.Abs(a.ticks[len(a.ticks)-1]-a.max) > 1e-9 || len(a.ticks) > 8 {
			t.Errorf("from %g to %g the axis goes from %g to %g with ticks at %v", c.low, c.high, a.min, a.max, a.ticks)
		}
	}
}
