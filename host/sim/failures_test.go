package sim

import (
	"math"
	"reflect"
	"testing"

	"github.com/aliquot-dev/aliquot/engine"
)

// Nodes fail as often as was asked for, come back, and all jobs end all the same.
func TestFailures(t *testing.T) {
	const mean, repair = 4 * 3_600_000_000, 600_000_000
	made := func(seed uint64) *Trace {
		trace := GenerateJobs(4, 0.6, 1)
		trace.Fail(mean, repair, seed)
		return trace
	}
	trace := made(5)
	away := map[string]bool{}
	failures := 0
	for i, event := range trace.Events {
		if i > 0 && event.When() < trace.Events[i-1].When() {
			t.Fatalf("event %d comes before the one before it", i)
		}
		switch e := event.(type) {
		case engine.NodeGone:
			if failures++; away[e.Node] {
				t.Errorf("%s goes while it is away", e.Node)
			}
			away[e.Node] = true
		case engine.NodeSet:
			if !away[e.Node] || len(e.Devices) != perNode {
				t.Errorf("%s comes back with %d devices, away: %v", e.Node, len(e.Devices), away[e.Node])
			}
			away[e.Node] = false
		}
	}
	span := float64(trace.Jobs[len(trace.Jobs)-1].Submit)
	if want := 4 * span / (mean + repair); math.Abs(float64(failures)-want) > 4*math.Sqrt(want) || failures == 0 {
		t.Errorf("%d failures in all, want about %.0f", failures, want)
	}
	if !reflect.DeepEqual(trace.Events, made(5).Events) || reflect.DeepEqual(trace.Events, made(6).Events) {
		t.Error("the seed does not make the failures")
	}
	for _, o := range orders {
		r := runJobs(t, trace, o)
		if r.Jobs != len(trace.Jobs) || r.Preemptions == 0 {
			t.Errorf("%s: %d of %d jobs ended, %d were stopped", o, r.Jobs, len(trace.Jobs), r.Preemptions)
		}
	}
}

// Jobs and failures are at the times that the trace says, also where the first job comes late.
func TestFailuresKeepTheirTimes(t *testing.T) {
	trace := few(t, "nodes 1", "job a at=100s run=10s", "fail node-00000 at=105s for=5s")
	if r := runJobs(t, trace, FirstCome); r.MeanJCT != 15 || r.Preemptions != 1 || r.Makespan != 15 {
		t.Errorf("mean JCT %g s, %d stopped, makespan %g s", r.MeanJCT, r.Preemptions, r.Makespan)
	}
}

// Failures of one node that overlap are one.
func TestFailuresOverlap(t *testing.T) {
	trace := few(t, "nodes 2", "job a at=0 run=100s devices=8", "job b at=0 run=100s devices=8",
		"fail node-00000 at=10s for=20s", "fail node-00000 at=20s for=30s")
	if len(trace.Events) != 2 || trace.Events[1].When() != 50_000_000 {
		t.Fatalf("events %+v", trace.Events)
	}
	for _, o := range orders {
		// One is stopped at 10 s and goes on when the node is back at 50 s, for 90 s; where both take turns meanwhile, each for 70 s.
		want := 140.0
		if o == LeastService || o == Served || o == Held {
			want = 120
		}
		if r := runJobs(t, trace, o); r.P99JCT != want || r.Preemptions < 1 {
			t.Errorf("%s: p99 JCT %g s, %d stopped", o, r.P99JCT, r.Preemptions)
		}
	}
}

// Failures at random are one with those that the trace says, where they overlap.
func TestFailuresBesideThoseOfTheTrace(t *testing.T) {
	for seed := range uint64(50) {
		trace := few(t, "nodes 2", "job j0 at=195m run=54m", "fail node-00000 for=80m")
		trace.Fail(2*3_600_000_000, 3_600_000_000, seed)
		away := map[string]bool{}
		for i, event := range trace.Events {
			if i > 0 && event.When() < trace.Events[i-1].When() {
				t.Fatalf("seed %d: event %d comes before the one before it", seed, i)
			}
			gone, goes := event.(engine.NodeGone)
			if back, comes := event.(engine.NodeSet); goes && away[gone.Node] || comes && !away[back.Node] {
				t.Fatalf("seed %d: event %d is %+v", seed, i, event)
			}
			if away[gone.Node] = goes; !goes {
				away[event.(engine.NodeSet).Node] = false
			}
		}
		if first, ok := trace.Events[0].(engine.NodeGone); !ok || first.Node != "node-00000" || first.When() != 0 || trace.Events[len(trace.Events)-1].When() < 80*60_000_000 {
			t.Errorf("seed %d: the failure of the trace is not among %+v", seed, trace.Events)
		}
		if r := runJobs(t, trace, Backfill); r.Jobs != 1 {
			t.Errorf("seed %d: %d jobs ended", seed, r.Jobs)
		}
	}
}

// A gang that loses a node goes as a whole and starts again as a whole.
func TestGangLosesANode(t *testing.T) {
	trace := few(t, "nodes 2", "job gang at=0 run=100s tasks=2 devices=8", "job after at=1s run=10s devices=8", "fail node-00001 at=40s for=20s")
	for _, c := range []struct {
		order       Order
		mean        float64
		preemptions int
	}{
		{FirstCome, (120 + 49) / 2.0, 1},    // after 40..50 on the node that is left, the gang 60..120
		{ShortestTime, (130 + 10) / 2.0, 2}, // after 1..11 in between, the gang 11..40 and 60..130
	} {
		r := runJobs(t, trace, c.order)
		if r.Jobs != 2 || r.MeanJCT != c.mean || r.Preemptions != c.preemptions {
			t.Errorf("%s: %d jobs, mean JCT %g s, %d stopped, want %g and %d", c.order, r.Jobs, r.MeanJCT, r.Preemptions, c.mean, c.preemptions)
		}
	}
}
