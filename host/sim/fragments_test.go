package sim

import (
	"math"
	"slices"
	"testing"

	"github.com/aliquot-dev/aliquot/engine"
)

// What is free and of no use, by hand: three in four tasks want 0.6 of a device, one wants two whole ones.
func TestFragmentsByHand(t *testing.T) {
	trace := few(t, "nodes 1 devices=2 cpu=8", "nodes 1 devices=1",
		"job a run=10s gpu=0.6 cpu=2 tasks=3", "job b at=20s run=10s devices=2", "fail node-00001 at=30s for=5s")
	f := newFragments(trace)
	if len(f.kinds) != 2 || f.kinds[0].part != 0.75 || f.kinds[1].part != 0.25 {
		t.Fatalf("the kinds are %+v", f.kinds)
	}
	at := func(when engine.Time, want float64) {
		t.Helper()
		if got := float64(f.sum) / 1e6; math.Abs(got-want) > 1e-9 {
			t.Errorf("at %d s %g devices are of no use, want %g", when, got, want)
		}
	}
	for _, n := range trace.Nodes {
		f.event(n)
	}
	at(0, 0.25*1) // the node with one device is none for two
	j := &trace.Jobs[0]
	start := func(id, node, device string) {
		f.place(j, engine.Place{Workload: id, Tasks: []engine.Placing{{Node: node, Grants: []engine.Grant{{Device: device, Compute: j.Share.Compute}}}}}, 0)
	}
	start("one", "node-00000", "node-00000-0")
	at(1, 0.25*1+0.75*0.4+0.25*1.4) // 0.4 are too few for 0.6, and all 1.4 for two whole ones
	start("two", "node-00000", "node-00000-1")
	at(2, 0.25*1+0.75*0.8+0.25*0.8)
	start("three", "node-00001", "node-00001-0")
	at(3, 0.75*0.4+0.25*0.4+0.8)
	f.event(engine.NodeGone{Node: "node-00001"})
	at(4, 0.8)
	f.event(engine.Ended{ID: "three"})
	at(5, 0.8)
	f.event(trace.Nodes[1])
	at(6, 0.8+0.25)
	f.event(engine.Ended{ID: "one"})
	f.event(engine.Ended{ID: "two"})
	at(7, 0.25)
	j = &Job{Workload: engine.Workload{Tasks: 1, Resources: []engine.Resource{{Name: "cpu", Amount: 7000}}}}
	start("cpu", "node-00000", "node-00000-0")
	at(8, 0.25+0.75*2) // no CPU is left for any that wants some
}

// A run says what was of no use: never more than was free, and nothing where one kind of work fills whole devices.
func TestFragmentsOfARun(t *testing.T) {
	r := runJobs(t, GenerateJobs(3, 0.9, 7), Backfill)
	if len(r.Plots.Fragmented) != len(r.Plots.Allocated) || r.Fragmented <= 0 {
		t.Fatalf("%g %% are of no use in %d steps, of %d", r.Fragmented, len(r.Plots.Fragmented), len(r.Plots.Allocated))
	}
	for k, v := range r.Plots.Fragmented {
		if v < 0 || v > 100-r.Plots.Allocated[k]+0.01 {
			t.Errorf("in step %d %g %% are of no use, and %g %% are held", k, v, r.Plots.Allocated[k])
		}
	}
	if whole := runJobs(t, few(t, "nodes 1", "job a run=10s", "job b run=20s devices=1"), Backfill); whole.Fragmented != 0 || slices.Max(whole.Plots.Fragmented) != 0 {
		t.Errorf("of whole devices %v are of no use to work that wants one", whole.Plots.Fragmented)
	}
}
