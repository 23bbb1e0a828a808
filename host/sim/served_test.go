package sim

import (
	"slices"
	"testing"

	"github.com/aliquot-dev/aliquot/engine"
)

// Under served a job that had a minute of a device makes way for one that had less, by the engine's own eviction, and none does within a level.
func TestServedByHand(t *testing.T) {
	for _, c := range []struct {
		name        string
		lines       []string
		mean        float64
		preemptions int
	}{
		{"one that had a minute", []string{"job long at=0 run=100s", "job short at=70s run=30s"}, (130 + 30) / 2.0, 1},
		{"one that had less", []string{"job long at=0 run=100s", "job short at=50s run=20s"}, (120 + 30) / 2.0, 1}, // at 60 s long has had its minute
		{"within a level", []string{"job long at=0 run=55s", "job short at=10s run=10s"}, (55 + 55) / 2.0, 0},
		{"two that take turns", []string{"job a at=0 run=120s", "job b at=0 run=120s"}, (180 + 240) / 2.0, 1},
		{"one that is not preemptible", []string{"job long at=0 run=100s preemptible=no", "job short at=70s run=30s"}, (100 + 60) / 2.0, 0},
		{"one of a higher priority of its own", []string{"job long at=0 run=100s priority=1", "job short at=70s run=30s"}, (100 + 60) / 2.0, 0},
		{"one whose priority is over", []string{"job long at=0 run=100s priority=1 priority-until=80s", "job short at=70s run=30s"}, (130 + 40) / 2.0, 1},
	} {
		r := runJobs(t, few(t, append([]string{"nodes 1 devices=1"}, c.lines...)...), Served)
		if r.MeanJCT != c.mean || r.Preemptions != c.preemptions {
			t.Errorf("%s: mean JCT %g s with %d preemptions, want %g with %d", c.name, r.MeanJCT, r.Preemptions, c.mean, c.preemptions)
		}
	}
}

// Jobs whose stages leave room for each other share a device and take as much longer as was measured; others wait for each other.
func TestInterleaveByHand(t *testing.T) {
	for _, c := range []struct {
		name  string
		lines []string
		worst float64 // JCT
	}{
		{"host beside device", []string{"job a run=1015s stages=0.9/0.1/0", "job b run=1015s stages=0.1/0.9/0"}, 1330},
		{"three", []string{"job a run=1015s stages=0.9/0.1/0", "job b run=1015s stages=0.1/0.4/0.5", "job c run=1015s stages=0/0.5/0.5"}, 1500},
		{"two of the host", []string{"job a run=1015s stages=0.6/0.1/0", "job b run=1015s stages=0.5/0.1/0"}, 2030},
		{"two of the device", []string{"job a run=1015s stages=0/0.6/0", "job b run=1015s stages=0/0.5/0"}, 2030},
		{"two of the network", []string{"job a run=1015s stages=0/0.1/0.6", "job b run=1015s stages=0/0.1/0.5"}, 2030},
		{"one that is not known", []string{"job a run=1015s stages=0/0.1/0", "job b run=1015s"}, 2030},
		{"one of a fraction", []string{"job a run=1015s stages=0/0.1/0", "job b run=1015s gpu=0.9 busy=0.9 stages=0/0.1/0"}, 1330},
	} {
		trace, sharing, err := few(t, append([]string{"nodes 1 devices=1"}, c.lines...)...).Interleave()
		if err != nil {
			t.Fatal(err)
		}
		r, err := RunJobs(t.Context(), trace, JobOptions{Order: Backfill, Sharing: sharing})
		if err != nil {
			t.Fatal(err)
		}
		if r.P99JCT < c.worst-0.01 || r.P99JCT > c.worst+0.01 {
			t.Errorf("%s: the last has ended after %g s, want %g", c.name, r.P99JCT, c.worst)
		}
	}
	if _, _, err := few(t, "nodes 1", "job a run=1s").Interleave(); err == nil {
		t.Error("jobs interleave of which no stages are known")
	}
}

// What jobs wanted while others were there is what they would have with devices of their own, not what they are sure of; and nodes that come later have hosts, too.
func TestInterleavedCountsWholeDevices(t *testing.T) {
	was := few(t, "nodes 1", "job a run=100s devices=8 stages=0.9/0.1/0", "job b run=100s devices=8 stages=0.1/0.9/0")
	was.Events = []engine.Event{was.Nodes[0]}
	trace, sharing, err := was.Interleave()
	if err != nil {
		t.Fatal(err)
	}
	if came := trace.Events[0].(engine.NodeSet); !slices.Equal(came.Resources, trace.Nodes[0].Resources) || len(came.Resources) != 2 || len(was.Nodes[0].Resources) != 0 {
		t.Errorf("the node that comes has %v, those that are there %v", came.Resources, trace.Nodes[0].Resources)
	}
	r, err := RunJobs(t.Context(), trace, JobOptions{Order: Served, Sharing: sharing})
	if err != nil {
		t.Fatal(err)
	}
	// Both want all 8, so that a part is half of them: 200 s of its own.
	if want := 1330.0 / 1015 / 2; r.FairnessWorst < want-0.001 || r.FairnessWorst > want+0.001 || r.Unfair != 0 {
		t.Errorf("the worst fairness is %g, want %g", r.FairnessWorst, want)
	}
}

// Under held a job that is sure of a tenth of its device has had its minute after a minute, under served after ten.
func TestHeldByHand(t *testing.T) {
	trace := few(t, "nodes 1 devices=1", "job long at=0 run=100s gpu=0.1", "job short at=70s run=30s")
	for order, want := range map[Order]float64{Served: (100 + 60) / 2.0, Held: (130 + 30) / 2.0} {
		if r := runJobs(t, trace, order); r.MeanJCT != want {
			t.Errorf("under %s the mean JCT is %g s, want %g", order, r.MeanJCT, want)
		}
	}
}
