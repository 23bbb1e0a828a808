package sim

import (
	"fmt"
	"strings"
	"testing"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/engine"
)

// never is who never ran, with a word of why each did not.
func never(t *testing.T, r *JobResult, says ...string) {
	t.Helper()
	var got []string
	for i, n := range r.NeverRun {
		got = append(got, fmt.Sprintf("%s: %s: %s", n.Job, n.Code, n.Reason))
		if i < len(says) && !strings.Contains(got[i], says[i]) {
			t.Errorf("%s: of %s it is said %q, want %q in it", r.Order, n.Job, got[i], says[i])
		}
	}
	if len(got) != len(says) {
		t.Errorf("%s: %d jobs never ran, want %d: %q", r.Order, len(got), len(says), got)
	}
}

// A job that no node serves is counted with why, and is in nobody's way: the others fare as without it.
func TestWhatNeverFits(t *testing.T) {
	others := []string{"nodes 2 devices=4", "job a at=0 run=100s devices=4", "job b at=0 run=100s devices=4", "job c at=10s run=50s devices=2", "job d at=11s run=5s tasks=2 devices=4"}
	for _, o := range orders {
		want := runJobs(t, few(t, others...), o)
		never(t, want)
		r := runJobs(t, few(t, append(others, "job huge at=0 run=1s devices=5 name=big user=ann queue=q", "job many at=1s run=1s tasks=9", "job h100 at=2s run=1s model=H100")...), o)
		never(t, r, "huge: impossible: workload huge wants 5 devices on one node and no node has more than 4", "many: impossible: workload many has 9 tasks", "h100: impossible: workload h100 wants a device of model H100")
		if n := r.NeverRun[0]; n.Name != "big" || n.User != "ann" || n.Queue != "q" || n.Ran != 0 {
			t.Errorf("%s: the first is told as %+v", o, n)
		}
		if r.Jobs != want.Jobs || r.MeanJCT != want.MeanJCT || r.MeanWait != want.MeanWait || r.FairnessWorst != want.FairnessWorst || r.Preemptions != want.Preemptions || r.Moves != want.Moves || r.Makespan != want.Makespan {
			t.Errorf("%s: %d jobs have a mean JCT of %g s and wait %g s, worst fairness %g; without those that never run %d, %g, %g and %g",
				o, r.Jobs, r.MeanJCT, r.MeanWait, r.FairnessWorst, want.Jobs, want.MeanJCT, want.MeanWait, want.FairnessWorst)
		}
	}
}

// What a queue may never hold, and what is there only until a node goes, are told with why, and the run is over with the last end.
func TestWhatNeverRuns(t *testing.T) {
	trace := few(t, "nodes 1 devices=2", "nodes 1 devices=4", "queue q quota=2", "job fixed at=0 run=1h devices=4 queue=q preemptible=no", "job long at=0 run=1h devices=4", "job short at=0 run=10s queue=q")
	trace.Events = []engine.Event{engine.NodeGone{At: engine.At{At: 60_000_000}, Node: trace.Nodes[1].Node}}
	r := runJobs(t, trace, Fair)
	never(t, r, "fixed: impossible: workload fixed wants 4 devices on one node and no node has more than 2", "long: impossible: ")
	if n := r.NeverRun[1]; n.Ran != 60 || r.Jobs != 1 || r.Preemptions != 1 || r.Makespan != 60 || r.MeanJCT != 10 {
		t.Errorf("one ran for %g s, %d jobs ended, %d were stopped, the run took %g s: %+v", n.Ran, r.Jobs, r.Preemptions, r.Makespan, r)
	}
	trace.Events = nil
	r = runJobs(t, trace, Fair)
	never(t, r, "fixed: more_than_quota: workload fixed asks for 4 devices and queue q may never hold more than 2 devices")
	if r.Jobs != 2 {
		t.Errorf("%d jobs ended, want the other two", r.Jobs)
	}
	if r := runJobs(t, trace, Backfill); r.Jobs != 3 || len(r.NeverRun) != 0 {
		t.Errorf("without queues %d jobs ended", r.Jobs)
	}
}

// A job waits for a node that comes later, whoever chooses, and is not taken for one that never runs.
func TestWaitsForANode(t *testing.T) {
	trace := few(t, "nodes 2 devices=1", "job two at=0 run=10s tasks=2", "job one at=0 run=10s")
	later := trace.Nodes[1]
	later.At.At = 100_000_000
	trace.Nodes, trace.Events = trace.Nodes[:1], []engine.Event{later}
	for _, o := range orders {
		r := runJobs(t, trace, o)
		never(t, r)
		if r.Jobs != 2 || r.MeanJCT != (110+10)/2.0 {
			t.Errorf("%s: %d jobs end, mean JCT %g s", o, r.Jobs, r.MeanJCT)
		}
		if w := r.FairnessWorst; w != 11 { // two wants nothing that there is while it is alone with what cannot serve it
			t.Errorf("%s: the worst fairness is %g", o, w)
		}
	}
}

// At a horizon what waits is not told, but what could never run.
func TestNeverRunAtAHorizon(t *testing.T) {
	trace := few(t, "nodes 1 devices=1", "job a run=1h", "job b run=1h", "job huge run=1h devices=2")
	for _, o := range orders {
		r, err := RunJobs(t.Context(), trace, JobOptions{Order: o, Until: 90 * 60 * 1_000_000})
		if err != nil {
			t.Fatal(err)
		}
		never(t, r, "huge: impossible: ")
	}
}

// What the engine rejects never runs; two jobs of one ID at once are the trace's mistake.
func TestRejectedJobs(t *testing.T) {
	trace := few(t, "nodes 1", "job a run=10s", "job b run=10s", "job c run=10s")
	trace.Jobs[1].Devices = engine.MaxDevices + 1
	for _, o := range orders {
		r := runJobs(t, trace, o)
		if r.Jobs != 2 || len(r.NeverRun) != 1 || r.NeverRun[0].Job != "b" || !strings.Contains(r.NeverRun[0].Reason, "devices") {
			t.Errorf("%s: %d jobs end, and of those that never ran it is said: %+v", o, r.Jobs, r.NeverRun)
		}
		twice := few(t, "nodes 1", "job a run=10s", "job b run=10s")
		twice.Jobs[1].ID = "a"
		if _, err := RunJobs(t.Context(), twice, JobOptions{Order: o}); err == nil || !strings.Contains(err.Error(), "two jobs a at once") {
			t.Errorf("%s: two jobs of one ID give %v", o, err)
		}
	}
}

// What needs a device that is down for good never runs, and holds nobody back.
func TestDeviceDownForGood(t *testing.T) {
	trace := few(t, "nodes 2 devices=2", "job all at=1s run=10s devices=2 tasks=2", "job one at=2s run=10s", "job two at=2s run=10s devices=2")
	d := trace.Nodes[0].Devices[0]
	trace.Events = []engine.Event{engine.DeviceHealth{Node: trace.Nodes[0].Node, UUID: d.UUID, Health: api.Down, Reason: "fell off the bus"}}
	for _, o := range orders {
		r := runJobs(t, trace, o)
		never(t, r, "all: impossible: nothing that may be used now could hold 2 tasks at once, each of 2 devices")
		if r.Jobs != 2 || r.MeanWait != 0 || r.Preemptions != 0 {
			t.Errorf("%s: %d jobs ended, after %g s of waiting", o, r.Jobs, r.MeanWait)
		}
	}
}
