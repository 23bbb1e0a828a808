package sim

import (
	"bytes"
	"testing"

	"github.com/aliquot-dev/aliquot/engine"
)

// Once a queue and those under it have used their device-hours up nothing more of them starts until the next period; what runs goes on, and other
// queues do not wait.
func TestHoursAreUsedUpInARun(t *testing.T) {
	trace := few(t, "nodes 1 devices=2", "job long at=0 run=10h queue=team", "job late at=1h run=1h queue=team", "job early at=0 run=1h queue=team", "job other at=5h run=1h queue=serve")
	r := rules(t, "2026-01-05 08:00:00", "zone Europe/Berlin", "queue org hours=3/day", "queue team parent=org")
	var log bytes.Buffer
	writer, err := engine.NewLogWriter(&log, engine.New(engine.Config{}).Snapshot())
	if err != nil {
		t.Fatal(err)
	}
	out, err := RunJobs(t.Context(), trace, JobOptions{Order: Fair, Rules: r, Log: writer})
	if err != nil {
		t.Fatal(err)
	}
	// Until 1 h two devices are held, then long and late: 3 device-hours are used up at 1.5 h, and late runs on. Nothing waits.
	if out.MeanWait != 0 || out.Makespan != 10*3600 {
		t.Errorf("where all runs when they are used up the mean wait is %v s and all is over after %v s", out.MeanWait, out.Makespan)
	}
	if _, err := engine.Replay(&log); err != nil {
		t.Errorf("its log does not replay: %v", err)
	}
	// Here late comes once they are: it waits for midnight in Berlin, 15 h after the start. Then long is over, and 3 h are there again.
	trace = few(t, "nodes 1 devices=2", "job long at=0 run=10h queue=team", "job late at=4h run=1h queue=team", "job other at=5h run=1h queue=serve")
	if out, err = RunJobs(t.Context(), trace, JobOptions{Order: Fair, Rules: r}); err != nil || out.MeanWait != 11*3600/3.0 {
		t.Errorf("what comes later waits %v s on average, want %v (%v)", out.MeanWait, 11*3600/3.0, err)
	}
	// A month is longer than any window is away.
	r = rules(t, "2026-01-02 00:00:00", "queue team hours=1/month")
	trace = few(t, "nodes 1 devices=1", "job first at=0 run=1h queue=team", "job next at=1h run=1h queue=team")
	if out, err = RunJobs(t.Context(), trace, JobOptions{Order: Fair, Rules: r}); err != nil || out.MeanWait != (30*24-1)*3600/2.0 {
		t.Errorf("what waits for the next month waits %v s, want %v (%v)", out.MeanWait, (30*24-1)*3600/2.0, err)
	}
	r = rules(t, "2026-01-02 00:00:00", "queue team hours=0/day")
	if out, err = RunJobs(t.Context(), trace, JobOptions{Order: Fair, Rules: r}); err != nil {
		t.Fatal(err)
	}
	never(t, out, "first: hours: queue team has used its device-hours up", "next: hours: ")
}
