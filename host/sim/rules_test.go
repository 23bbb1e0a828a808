package sim

import (
	"bytes"
	"math"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/aliquot-dev/aliquot/engine"
	"github.com/aliquot-dev/aliquot/host/policy"
)

func rules(t *testing.T, start string, lines ...string) *Rules {
	t.Helper()
	at, err := time.Parse(time.DateTime, start)
	if err != nil {
		t.Fatal(err)
	}
	p, err := policy.Parse("rules", policy.FormatLine+"\n"+strings.Join(lines, "\n"), at)
	if err != nil {
		t.Fatal(err)
	}
	return &Rules{Policy: p, Start: at}
}

// Windows begin and end while jobs run: what a queue may not start by day starts at night, and what is not named stays as the trace has it.
func TestWindowsByHand(t *testing.T) {
	trace := few(t, "nodes 1 devices=2", "queue serve quota=1",
		"job train at=0 run=1h queue=train", "job late at=3h run=10h queue=train", "job serve at=0 run=1h queue=serve", "job next at=11h run=1h queue=train")
	r := rules(t, "2026-01-05 20:00:00", "zone Europe/Berlin", "queue train limit=0", "window night from=23:00 to=06:00", "queue train limit=1")
	var log bytes.Buffer
	writer, err := engine.NewLogWriter(&log, engine.New(engine.Config{}).Snapshot())
	if err != nil {
		t.Fatal(err)
	}
	out, err := RunJobs(t.Context(), trace, JobOptions{Order: Fair, Rules: r, Log: writer})
	if err != nil {
		t.Fatal(err)
	}
	// In Berlin it is 21:00: the night begins after 2 h and ends after 9 h. The second job waits for the first by 1 minute less than nothing:
	// it comes as that ends. It ends at 13 h, by day, so the last waits for the next night, 26 h after the start.
	if want := (2 + 0 + 0 + 15.0) * 3600 / 4; out.MeanWait != want {
		t.Errorf("the mean wait is %v s, want %v", out.MeanWait, want)
	}
	if _, err := engine.Replay(&log); err != nil {
		t.Errorf("its log does not replay: %v", err)
	}
	if _, err := RunJobs(t.Context(), trace, JobOptions{Order: Backfill, Rules: r}); err == nil || !strings.Contains(err.Error(), "rules the order") {
		t.Errorf("another order: %v", err)
	}
	wrong := rules(t, "2026-01-05 20:00:00", "queue serve", "window night from=23:00 to=06:00", "queue serve limit=0.5")
	if _, err := RunJobs(t.Context(), trace, JobOptions{Order: Fair, Rules: wrong}); err == nil || !strings.HasPrefix(err.Error(), "rules:4: in window night queue serve: its quota of 1 device is over its limit") {
		t.Errorf("what does not add up with the trace: %v", err)
	}
}

// A model is named by a part of its name in a simulation as on a server; what no device of the trace is like is refused with its line.
func TestRulesNameModels(t *testing.T) {
	trace := few(t, "nodes 1 devices=2 model=NVIDIA-H200", "job one at=0 run=1h queue=train", "job two at=0 run=1h queue=train")
	r := rules(t, "2026-01-05 20:00:00", "queue train limit@h200=1")
	if out, err := RunJobs(t.Context(), trace, JobOptions{Order: Fair, Rules: r}); err != nil || out.MeanWait != 1800 {
		t.Errorf("under a limit of one device of two: %+v %v", out, err)
	}
	r = rules(t, "2026-01-05 20:00:00", "queue train limit@A10=1")
	if _, err := RunJobs(t.Context(), trace, JobOptions{Order: Fair, Rules: r}); err == nil || !strings.HasPrefix(err.Error(), "rules:2: no device is of model A10: name one of those there are (NVIDIA-H200)") {
		t.Errorf("a model that no device has: %v", err)
	}
}

// A queue's longest run ends jobs, as it does on a server: the shortest of it and those above it when the job comes.
func TestRulesEndLongRuns(t *testing.T) {
	trace := few(t, "nodes 1 devices=1", "job long at=0 run=20h queue=train", "job short at=0 run=1h queue=train", "job free at=0 run=10h queue=serve", "job night at=40h run=20h queue=train")
	r := rules(t, "2026-01-05 08:00:00", "queue org longest-run=3h", "queue train parent=org longest-run=8h", "queue serve",
		"window night from=23:00 to=06:00", "queue org longest-run=none")
	out, err := RunJobs(t.Context(), trace, JobOptions{Order: Fair, Rules: r})
	if err != nil {
		t.Fatal(err)
	}
	// 3 h, 1 h and 10 h in some order until 14 h; the last comes at midnight, and has 8 h.
	if out.TimedOut != 2 || out.Makespan != 48*3600 || trace.Jobs[0].Duration != 20*3600*1_000_000 {
		t.Errorf("%d jobs were ended, the last after %v h", out.TimedOut, out.Makespan/3600)
	}
}

// Under min-run a queue gets back what it is guaranteed when what borrowed it has run for so long.
func TestRulesKeepYoungWork(t *testing.T) {
	trace := few(t, "nodes 1", "queue a quota=4", "queue b quota=4", "job a1 at=0 run=100s devices=8 queue=a", "job b1 at=10s run=20s devices=4 queue=b")
	out, err := RunJobs(t.Context(), trace, JobOptions{Order: Fair, Rules: rules(t, "2026-01-05 20:00:00", "queue a min-run=50s")})
	if err != nil {
		t.Fatal(err)
	}
	if out.Preemptions != 1 || out.P99JCT != 120 || out.MeanJCT != (120+60)/2.0 { // b1 waits until 50 s
		t.Errorf("%d preemptions, p99 JCT %g s, mean %g s", out.Preemptions, out.P99JCT, out.MeanJCT)
	}
}

// With a budget of disruptions a queue gets back what it is guaranteed from work that was not evicted lately; what was keeps running until that is so long ago.
func TestRulesBoundDisruptions(t *testing.T) {
	trace := few(t, "nodes 1", "queue a quota=0", "queue b quota=8", "job a1 at=0 run=100s devices=8 queue=a", "job b1 at=10s run=20s devices=8 queue=b", "job b2 at=40s run=20s devices=8 queue=b")
	for budget, want := range map[string]float64{"none": 20, "1/60s": 50} {
		out, err := RunJobs(t.Context(), trace, JobOptions{Order: Fair, Rules: rules(t, "2026-01-05 20:00:00", "queue a disruptions="+budget)})
		if err != nil {
			t.Fatal(err)
		}
		if out.Preemptions != 2 || out.MeanJCT != (140+20+want)/3 { // b1 at 10 s, b2 at 40 s or at 70 s
			t.Errorf("%s: %d preemptions, mean JCT %g s", budget, out.Preemptions, out.MeanJCT)
		}
	}
}

// What no window lets start ends the run and is counted, though windows come for ever.
func TestWindowsThatNeverHelp(t *testing.T) {
	trace := few(t, "nodes 1 devices=2", "job one at=0 run=1h queue=train", "job more at=0 run=1h queue=train")
	r := rules(t, "2026-01-05 20:00:00", "queue train limit=1", "window night from=23:00 to=06:00", "queue train limit=0")
	if _, err := RunJobs(t.Context(), trace, JobOptions{Order: Fair, Rules: r}); err != nil {
		t.Errorf("what starts by day: %v", err)
	}
	r = rules(t, "2026-01-05 20:00:00", "queue train limit=0", "window night from=23:00 to=06:00", "queue train limit=0.5")
	out, err := RunJobs(t.Context(), trace, JobOptions{Order: Fair, Rules: r})
	if err != nil {
		t.Fatal(err)
	}
	never(t, out, "one: more_than_quota: workload one asks for 1 device", "more: more_than_quota: ")
}

// A day that was recorded under a policy replays, and is run again among the same queues.
func TestPolicyIsRecorded(t *testing.T) {
	trace := few(t, "nodes 1 devices=2", "job train at=0 run=1h queue=train", "job serve at=0 run=1h queue=serve")
	r := rules(t, "2026-01-05 20:00:00", "queue train limit=0", "window night from=23:00 to=06:00", "queue train limit=1")
	path := t.TempDir() + "/events"
	var log bytes.Buffer
	writer, err := engine.NewLogWriter(&log, engine.New(engine.Config{}).Snapshot())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := RunJobs(t.Context(), trace, JobOptions{Order: Fair, Rules: r, Log: writer}); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, log.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	was, err := ReadLog(path)
	if err != nil || was.Differs != nil {
		t.Fatal(err, was)
	}
	again, err := RunJobs(t.Context(), was.Trace, JobOptions{Order: Fair})
	if err != nil {
		t.Fatal(err)
	}
	if again.MeanWait != was.Was.MeanWait || again.MeanWait != 3*3600/2 {
		t.Errorf("it waited %v s, again %v s, and it should be %v s", was.Was.MeanWait, again.MeanWait, 3*3600/2)
	}
	free, err := RunJobs(t.Context(), was.Trace, JobOptions{Order: Fair, Rules: rules(t, "2026-01-05 20:00:00", "queue train limit=1")})
	if err != nil {
		t.Fatal(err)
	}
	if free.MeanWait != 0 {
		t.Errorf("under other rules it waits %v s, and nothing is in its way", free.MeanWait)
	}
}

// Work that is moved together lets one start that wants a whole device; what was moved goes on with what it has left.
func TestRulesDefragment(t *testing.T) {
	lines := []string{
		"nodes 1 devices=2", "job a at=0 run=10m gpu=0.6", "job b at=1s run=3h gpu=0.6 preemptible=no", "job c at=2s run=3h gpu=0.4", "job big at=20m run=1h gpu=1",
	}
	for _, c := range []struct {
		line string
		wait float64 // s, in all
		move int
	}{
		{"defragment moves-per-hour=1", 0, 1},
		{"defragment moves-per-hour=1 min-run=15m", 0, 1},
		{"defragment moves-per-hour=1 min-run=30m", 602, 1}, // c has run for half an hour 10 minutes after big came
		{"defragment moves-per-hour=1 max-loss=4m", 3*3600 + 1 - 1200, 0},
		{"defragment off", 3*3600 + 1 - 1200, 0},
	} {
		var log bytes.Buffer
		writer, err := engine.NewLogWriter(&log, engine.New(engine.Config{}).Snapshot())
		if err != nil {
			t.Fatal(err)
		}
		out, err := RunJobs(t.Context(), few(t, lines...), JobOptions{Order: Fair, Rules: rules(t, "2026-01-05 08:00:00", c.line), Log: writer})
		if err != nil {
			t.Fatal(err)
		}
		if out.MeanWait != c.wait/4 || out.Preemptions != c.move {
			t.Errorf("%s: the mean wait is %v s, want %v; %d are evicted, want %d", c.line, out.MeanWait, c.wait/4, out.Preemptions, c.move)
		}
		if _, err := engine.Replay(&log); err != nil {
			t.Errorf("%s: its log does not replay: %v", c.line, err)
		}
	}
}

// A policy lets preemptible jobs start before the first in line that are like what was over in time: they wait for nothing, it starts when it would, and what was
// told wrongly gives way to it.
func TestRulesBackfillByPredictions(t *testing.T) {
	for _, c := range []struct {
		backfill, run string
		wait          float64 // minutes, of all jobs together
		preemptions   int
	}{
		{"limits", "5m", 29 + 38, 0},
		{"predicted", "5m", 29, 0},
		{"predicted", "40m", 29, 1},
	} {
		trace := few(t, "nodes 1 devices=1", "job a at=0 run=5m gpu=0.5 user=ann", "job b at=0 run=5m gpu=0.5 user=ann", "job c at=5m run=5m gpu=0.5 user=ann", "job d at=5m run=5m gpu=0.5 user=ann",
			"job long at=20m run=30m limit=30m gpu=0.5 preemptible=no", "job first at=21m run=10m preemptible=no", "job short at=22m gpu=0.5 user=ann run="+c.run)
		r := rules(t, "2026-01-05 20:00:00", "backfill "+c.backfill)
		out, err := RunJobs(t.Context(), trace, JobOptions{Order: Fair, Rules: r})
		if err != nil {
			t.Fatal(err)
		}
		if got := out.MeanWait * 7 / 60; math.Abs(got-c.wait) > 1e-9 || out.Preemptions != c.preemptions {
			t.Errorf("backfill %s, for %s: jobs wait %v min and %d are evicted, want %v and %d", c.backfill, c.run, got, out.Preemptions, c.wait, c.preemptions)
		}
	}
}

// What jobs were served counts under a policy's order as under that of the simulator: their turns get longer.
func TestRulesCountService(t *testing.T) {
	trace := few(t, "nodes 1 devices=1", "job a at=0 run=10h", "job b at=0 run=10h", "job c at=0 run=10h")
	want := runJobs(t, trace, Served).Preemptions
	out, err := RunJobs(t.Context(), trace, JobOptions{Order: Fair, Rules: rules(t, "2026-01-05 20:00:00", "queue default order=priority+served:1m")})
	if err != nil || out.Preemptions != want || want < 10 || want > 40 {
		t.Errorf("%d preemptions under the policy and %d under the order (%v)", out.Preemptions, want, err)
	}
}

// A policy says how soon use is forgotten: a used more, but long ago.
func TestRulesHalfLife(t *testing.T) {
	trace := few(t, "nodes 1 devices=1", "job a1 at=0 run=8h queue=a", "job b1 at=8h run=2h queue=b", "job x at=10h run=1h queue=c", "job a2 at=10h30m run=1h queue=a", "job b2 at=10h30m run=3h queue=b")
	for line, want := range map[string]float64{"top fair": 0.5 + 3.5, "half-life 1h": 0.5 + 1.5, "half-life 7d": 0.5 + 3.5} {
		out, err := RunJobs(t.Context(), trace, JobOptions{Order: Fair, Rules: rules(t, "2026-01-05 08:00:00", line)})
		if err != nil {
			t.Fatal(err)
		}
		if got := out.MeanWait * 5 / 3600; math.Abs(got-want) > 1e-9 {
			t.Errorf("%s: jobs wait %v h together, want %v", line, got, want)
		}
	}
}
