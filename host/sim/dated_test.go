package sim

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/aliquot-dev/aliquot/engine"
)

// A priority that is over while its job waits counts no more for whose turn it is; one that is not over does.
func TestPriorityOfAJobIsOver(t *testing.T) {
	for until, waits := range map[string]float64{"2h": 58 + 4*60 - 1, "30m": 59 + 2*60 - 2} {
		trace := few(t, "nodes 1 devices=1", "job runs at=0 run=1h preemptible=no", "job plain at=1m run=1h priority=1 preemptible=no",
			"job dated at=2m run=3h priority=5 priority-after=-1 preemptible=no priority-until="+until)
		var log bytes.Buffer
		writer, err := engine.NewLogWriter(&log, engine.New(engine.Config{}).Snapshot())
		if err != nil {
			t.Fatal(err)
		}
		out, err := RunJobs(t.Context(), trace, JobOptions{Order: Fair, Log: writer})
		if err != nil {
			t.Fatal(err)
		}
		if out.MeanWait != waits*60/3 {
			t.Errorf("with a priority until %s the mean wait is %v s, want %v", until, out.MeanWait, waits*60/3)
		}
		path := t.TempDir() + "/events"
		if err := os.WriteFile(path, log.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
		was, err := ReadLog(path)
		if err != nil || was.Differs != nil {
			t.Fatal(err, was)
		}
		again, err := RunJobs(t.Context(), was.Trace, JobOptions{Order: Fair})
		if err != nil || again.MeanJCT != was.Was.MeanJCT {
			t.Errorf("until %s: run again the mean JCT is %v, recorded %v (%v)", until, again.MeanJCT, was.Was.MeanJCT, err)
		}
	}
	for _, wrong := range []string{"priority-after=1", "priority=x", "priority-until=soon"} {
		if _, err := scanLines("few", strings.NewReader(formatLine+"\nnodes 1\njob a run=1h "+wrong+"\n"), nil); err == nil || !strings.HasPrefix(err.Error(), "few:3: "+wrong[:9]) {
			t.Errorf("%s: %v", wrong, err)
		}
	}
}

// What a policy adds to the priority of a queue until a date is over at that moment of the run, however far it is.
func TestPriorityOfAQueueIsOverInARun(t *testing.T) {
	trace := few(t, "nodes 1 devices=1", "job long at=0 run=1000h queue=other", "job a at=1h run=10h queue=team priority=1", "job b at=1h run=1h queue=deadline")
	for until, want := range map[string]float64{
		"2026-02-01": 999 + 10, // over before the long job ends: a, then b
		"2026-03-01": 999 + 1,  // b, then a
	} {
		r := rules(t, "2026-01-05 00:00:00", "queue team", "queue deadline priority=5 priority-until="+until)
		out, err := RunJobs(t.Context(), trace, JobOptions{Order: Fair, Rules: r})
		if err != nil {
			t.Fatal(err)
		}
		if wait := (999 + want) * 3600 / 3; out.MeanWait != wait {
			t.Errorf("until %s the mean wait is %v s, want %v", until, out.MeanWait, wait)
		}
	}
}
