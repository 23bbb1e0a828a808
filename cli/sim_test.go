package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aliquot-dev/aliquot/engine"
	"github.com/aliquot-dev/aliquot/engine/place"
	"github.com/aliquot-dev/aliquot/host/sim"
)

// Runs of jobs are printed, stored, compared and drawn; what cannot be is refused in one sentence.
func TestSimJobs(t *testing.T) {
	folder := t.TempDir()
	html := filepath.Join(folder, "report.html")
	file := func(order string) string {
		t.Helper()
		got := invoke(t, Program{}, "sim", "run", "--trace", "generated-jobs:1", "--order", order, "--html", html, "-o", "json")
		var f sim.File
		if err := json.Unmarshal([]byte(got.out), &f); err != nil || got.exit.Status != 0 || len(f.Jobs) != 1 || f.Jobs[0].Jobs != 100 {
			t.Fatalf("status %d, %v: %s%s", got.exit.Status, err, got.out, got.err)
		}
		path := filepath.Join(folder, order+".json")
		if err := os.WriteFile(path, []byte(got.out), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	fifo, las := file("fifo"), file("las")
	staged := filepath.Join(folder, "staged.trace")
	if err := os.WriteFile(staged, []byte("aliquot trace 1\nnodes 1\njob a run=1m stages=0.9/0.1/0\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	huge := filepath.Join(folder, "huge.trace")
	if err := os.WriteFile(huge, []byte("aliquot trace 1\nnodes 1\njob a run=1m\njob big run=1m devices=9 name=dream queue=team\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	none := filepath.Join(folder, "none.policy")
	if err := os.WriteFile(none, []byte("aliquot policy 1\nqueue students limit=0\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	days := eventLog(t, t.TempDir(), false)
	log, broken := eventLog(t, folder, false), eventLog(t, folder, true)
	if text, err := os.ReadFile(html); err != nil || !strings.Contains(string(text), "las/default") {
		t.Errorf("the report is not of the last run: %v", err)
	}
	for _, c := range []struct {
		line   []string
		status int
		says   string
	}{
		{[]string{"compare", fifo, las}, 0, "fifo/default → las/default"},
		{[]string{"compare", fifo, fifo}, 0, "The figures of both are the same."},
		{[]string{"compare", fifo}, ExitUsage, "takes two files, not 1: name"},
		{[]string{"compare", fifo, html}, ExitFailed, "is not what `aliquot sim run -o json` writes"},
		{[]string{"run", "--trace", "generated-jobs:1", "--order", "fifo,srsf"}, 0, "3434.6 s          42.41           390.70      56.00    47.07           0\n"},
		{[]string{"run", "--trace", "generated-jobs:1", "--order", "first"}, ExitUsage, `there is no order "first"`},
		{[]string{"run", "--trace", "generated-jobs:1", "--load", "0"}, ExitUsage, "--load 0: give a part"},
		{[]string{"run", "--trace", "generated-jobs:4", "--failures", "2h", "--repair", "10m"}, 0, "backfill"},
		{[]string{"run", "--trace", "generated-jobs:1", "--failures", "1s"}, ExitUsage, "nodes fail each minute at most"},
		{[]string{"run", "--trace", "generated:2", "--order", "srtf"}, ExitUsage, "--order is for traces of jobs, and generated:2 is one of pods: leave it out, or use muri:FILE, "},
		{[]string{"run", "--trace", "generated-mix:1", "--load", "3", "--horizon", "5h", "--use", "0.9"}, 0, "FLOORS MISSED %"},
		{[]string{"run", "--trace", "generated-mix:1", "--own", "--horizon", "5h"}, 0, "   8.00\n"},
		{[]string{"run", "--trace", "generated-jobs:1", "--interference", "made"}, 0, "USEFUL %"},
		{[]string{"run", "--trace", "generated-jobs:1", "--interference", html}, ExitFailed, "single_data.csv"},
		{[]string{"run", "--trace", "generated-jobs:1", "--duty", html}, ExitFailed, "the name must have duty_cycle in it"},
		{[]string{"run", "--trace", "generated-jobs:1", "--use", "0.5"}, ExitUsage, "nothing is known of what jobs keep busy"},
		{[]string{"run", "--trace", "generated-mix:1", "--use", "1.5"}, ExitUsage, "--use 1.5: give a part"},
		{[]string{"run", "--trace", "generated-mix:1", "--interleave"}, ExitUsage, "is told by their stages alone"},
		{[]string{"run", "--trace", "generated-jobs:1", "--interleave"}, ExitFailed, "nothing is known of the stages of any job of the trace"},
		{[]string{"run", "--trace", "jobs:" + staged, "--interleave", "--order", "served"}, 0, "served"},
		{[]string{"run", "--trace", "jobs:" + huge, "--order", "fifo,srtf"}, 0, "NEVER RAN   NAME    QUEUE   ORDER   POLICY    WHY\nbig         dream   team    fifo    default   workload big wants 9 devices on one node and no node has more than 8 that would do: ask for fewer\n"},
		{[]string{"run", "--trace", "jobs:" + huge, "--nodes", "1x4:h100,1x16:l4", "-o", "json"}, 0, "\"nodes\": \"1x4:h100,1x16:l4\",\n  \"seeds\": [\n    42\n  ],\n  \"jobs\": [\n    {\n      \"order\": \"backfill\",\n      \"policy\": \"default\",\n      \"jobs\": 2,"},
		{[]string{"run", "--trace", "generated:2", "--seeds", "1", "--churn", "0,20", "--churn-pods", "50", "--nodes", "2x8"}, 0, "MOVED/1000 PODS"},
		{[]string{"run", "--trace", "generated:2", "--seeds", "1", "--churn", "5", "--churn-pods", "50", "-o", "json"}, 0, "\"movesPerHour\": 5,"},
		{[]string{"run", "--trace", "generated:2", "--churn", "-1"}, ExitUsage, "--churn -1: give 0 to 1000000 moves an hour"},
		{[]string{"run", "--trace", "generated:2", "--churn", "0", "--churn-pods", "1"}, ExitUsage, "--churn-pods 1: give 2 to 10000000"},
		{[]string{"run", "--trace", "generated:2", "--churn-pods", "5"}, ExitUsage, "with --churn alone"},
		{[]string{"run", "--trace", "generated-jobs:2", "--churn", "5"}, ExitUsage, "come and leave anyway"},
		{[]string{"run", "--trace", "generated:2", "--seeds", "1", "--nodes", "2x8"}, 0, "AT 130"},
		{[]string{"run", "--trace", "generated:2", "--nodes", "2x8:h1000"}, ExitUsage, `--nodes: "2x8:h1000" of "2x8:h1000": there is no model "h1000"; use one of A10, `},
		{[]string{"run", "--trace", "generated-jobs:2", "--nodes", html}, ExitUsage, "report.html:1: the first line is"},
		{[]string{"run", "--trace", "philly:none", "--nodes", "2x8", "--load", "0.5"}, ExitUsage, "leave one of them out"},
		{[]string{"run", "--trace", "jobs:" + huge, "-o", "json"}, 0, `"job": "big",`},
		{[]string{"run", "--trace", "generated-mix:1", "--use", "0.5", "--own"}, ExitUsage, "leave one of them out"},
		{[]string{"run", "--trace", "generated-mix:1", "--horizon", "1ms"}, ExitUsage, "a run takes at least 1s"},
		{[]string{"run", "--trace", "generated:2", "--own"}, ExitUsage, "are for traces of jobs"},
		{[]string{"predict", "--trace", "generated-jobs:2"}, 0, "by work of that queue"},
		{[]string{"predict", "--trace", "generated-jobs:2", "-o", "json"}, 0, `"medianOff"`},
		{[]string{"predict"}, ExitUsage, "needs --trace"},
		{[]string{"predict", "--trace", "generated:2"}, ExitUsage, "is not one of jobs"},
		{[]string{"predict", "--trace", "generated-jobs:2", "--samples", "0"}, ExitUsage, "each must be over 0"},
		{[]string{"predict", "--trace", "generated-jobs:2", "--enough", "65"}, ExitUsage, "needs 65 of 64 samples"},
		{[]string{"replay", log}, 0, " steps taken again with the same actions.\n"},
		{[]string{"replay", log}, 0, "recorded   as it was    100"},
		{[]string{"replay", filepath.Dir(days)}, 0, "recorded   as it was    100"},
		{[]string{"replay", folder + "/none"}, ExitFailed, "read the event log: "},
		{[]string{"replay", log, "--order", "srtf,fair"}, 0, "srtf       best_fit     100"},
		{[]string{"replay", log, "--policy", "random"}, 0, "fair       random       100"},
		{[]string{"replay", log, "--policy", none}, 0, "workload job-000009 asks for 2 devices and queue students may never hold more than 0 devices"},
		{[]string{"replay", log, "--nodes", "9x8:h100"}, 0, "fair       best_fit     100"},
		{[]string{"replay", log, "--nodes", "1x4:l4", "--order", "srtf", "-o", "json"}, 0, "\"nodes\": \"1x4:l4\","},
		{[]string{"replay", log, "--nodes", "x"}, ExitUsage, "--nodes: read nodes: open x"},
		{[]string{"replay", log, "--order", "last"}, ExitUsage, `there is no order "last"`},
		{[]string{"replay"}, ExitUsage, "takes one event log, not 0: name the folder STATE/events, or one of its files"},
		{[]string{"replay", fifo}, ExitFailed, "this is no event log"},
		{[]string{"replay", broken}, ExitFailed, "decides otherwise than the one that wrote the log: record "},
		{[]string{"run", "--trace", "weather"}, ExitFailed, "there is no trace \"weather\": write openb:FOLDER/LIST, generated:NODES, muri:FILE, "},
		{[]string{"run", "--trace", "generated-jobs:4", "--failures", "30d", "--repair", "2h"}, 0, "backfill"},
		{[]string{"run", "--trace", "generated-mix:1", "--horizon", "0.5d"}, 0, "FLOORS MISSED %"},
		{[]string{"run", "--trace", "generated-jobs:4", "--failures", "-2h"}, ExitUsage, "--failures -2h: this is no time: write for example "},
		{[]string{"predict", "--trace", "generated-jobs:2", "--half-life", "7d"}, 0, "by work of that queue"},
		{[]string{"run", "--trace", "generated-jobs:1", "--start", "2026-99-01"}, ExitUsage, "--start: \"2026-99-01\" is no time: write it as 2026-01-05T08:00"},
		{[]string{"run", "--trace", "generated:2", "--failures", "30d"}, ExitUsage, "--failures is for traces of jobs, and generated:2 is one of pods"},
		{[]string{"tune", "--trace", "muri:FILE"}, ExitFailed, "trace \"muri:FILE\" is one of jobs, and one of pods is wanted: write openb:FOLDER/LIST or generated:NODES\n"},
		{[]string{"tune", "--trace", "weather"}, ExitFailed, "there is no trace \"weather\": write openb:FOLDER/LIST or generated:NODES\n"},
		{[]string{"tune", "--trace", "generated:1", "--seeds", "3..6", "--held-out", "9,5"}, ExitUsage, "--held-out 9,5: seed 5 is one of --seeds, too"},
		{[]string{"tune", "--trace", "generated:1", "--held-out", "x"}, ExitUsage, "--held-out: seeds \"x\""},
		{[]string{"run", "--trace", "generated:2", "--seeds", "1"}, 0, "AT 130"},
	} {
		got := invoke(t, Program{}, append([]string{"sim"}, c.line...)...)
		if got.exit.Status != c.status || !strings.Contains(got.out+got.err, c.says) {
			t.Errorf("sim %s: status %d, want %d with %q:\n%s%s", strings.Join(c.line, " "), got.exit.Status, c.status, c.says, got.out, got.err)
		}
	}
}

// Runs of other traces, seeds or nodes are compared with a word on that.
func TestSimCompareOfOthers(t *testing.T) {
	folder := t.TempDir()
	file := func(name string, line ...string) string {
		t.Helper()
		got := invoke(t, Program{}, append([]string{"sim", "run", "-o", "json"}, line...)...)
		path := filepath.Join(folder, name)
		if err := os.WriteFile(path, []byte(got.out), 0o600); err != nil || got.exit.Status != 0 {
			t.Fatal(err, got.err)
		}
		return path
	}
	a := file("a", "--trace", "generated-jobs:1", "--seeds", "7", "--failures", "1d")
	b := file("b", "--trace", "generated-jobs:1", "--seeds", "8", "--failures", "1d")
	on := file("on", "--trace", "generated-jobs:1", "--seeds", "8", "--nodes", "2x8")
	pods := file("pods", "--trace", "generated:1", "--seeds", "1..3,9", "--policy", "best_fit")
	for _, c := range []struct{ a, b, says string }{
		{a, a, ""},
		{a, b, "The runs are not of the same: A is of trace generated-jobs:1, seed 7, and B of trace generated-jobs:1, seed 8.\n"},
		{b, on, "The runs are not of the same: A is of trace generated-jobs:1, seed 8, and B of trace generated-jobs:1 on 2x8, seed 8.\n"},
		{pods, a, "The runs are not of the same: A is of trace generated:1, seeds 1..3,9, and B of trace generated-jobs:1, seed 7.\n"},
	} {
		if got := invoke(t, Program{}, "sim", "compare", c.a, c.b); got.exit.Status != 0 || got.err != c.says {
			t.Errorf("%s and %s: status %d, it says %q, want %q", c.a, c.b, got.exit.Status, got.err, c.says)
		}
	}
}

// Pods that come and leave have a line and a point for each number of moves, and say how far each of those runs is.
func TestSimChurn(t *testing.T) {
	html := filepath.Join(t.TempDir(), "churn.html")
	now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	clock := func() time.Time { now = now.Add(time.Minute); return now }
	got := invoke(t, Program{Now: clock}, "sim", "run", "--trace", "generated:2", "--seeds", "1", "--policy", "best_fit", "--churn", "0,20", "--churn-pods", "50", "--progress", "--html", html)
	lines := strings.Split(strings.TrimSpace(got.out), "\n")
	if got.exit.Status != 0 || len(lines) != 3 || !slices.Equal(strings.Fields(lines[1])[:3], []string{"best_fit", "0", "0.00"}) || !slices.Equal(strings.Fields(lines[2])[:2], []string{"best_fit", "20"}) {
		t.Errorf("status %d:\n%s%s", got.exit.Status, got.out, got.err)
	}
	if !strings.Contains(got.err, "best_fit, 20 moves an hour, seed 1: ") {
		t.Errorf("how far it is: %s", got.err)
	}
	if page, err := os.ReadFile(html); err != nil || strings.Count(string(page), "<circle") != 4 {
		t.Errorf("the report has %d points (%v)", strings.Count(string(page), "<circle"), err)
	}
}

// eventLog writes the log of a run; a broken one says that it was decided by another policy than it was.
func eventLog(t *testing.T, folder string, broken bool) string {
	t.Helper()
	var config engine.Config
	if broken {
		policy := place.Random()
		config.Placement = &policy
	}
	path := filepath.Join(folder, fmt.Sprint(broken, ".events"))
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	log, err := engine.NewLogWriter(file, engine.New(config).Snapshot())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := sim.RunJobs(t.Context(), sim.GenerateJobs(1, 0.9, 1), sim.JobOptions{Order: sim.Fair, Log: log}); err != nil {
		t.Fatal(err)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

// Long runs say how far they are where that is asked for or a terminal shows it, and nothing of it is left on a terminal nor among what is printed.
func TestSimProgress(t *testing.T) {
	minutes := func() func() time.Time { // a clock that is a minute further at each look
		now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
		return func() time.Time {
			now = now.Add(time.Minute)
			return now
		}
	}
	jobs, pods := []string{"sim", "run", "--trace", "generated-jobs:1", "--order", "fifo,served"}, []string{"sim", "run", "--trace", "generated:2", "--policy", "best_fit", "--seeds", "7"}
	quiet := invoke(t, Program{Now: minutes()}, jobs...)
	told := invoke(t, Program{Now: minutes()}, append(slices.Clone(jobs), "--progress")...)
	if quiet.err != "" || told.out != quiet.out || quiet.exit.Status != 0 {
		t.Errorf("without --progress it says %q; the tables are\n%s\nand\n%s", quiet.err, quiet.out, told.out)
	}
	lines := strings.Split(strings.TrimSpace(told.err), "\n")
	if first := "fifo/default: 50s of the trace, "; !strings.HasPrefix(lines[0], first) || !strings.HasSuffix(lines[0], " events, 0 of 100 jobs have ended (0 %)") {
		t.Errorf("the first line is %q", lines[0])
	}
	if last := lines[len(lines)-1]; !strings.HasPrefix(last, "served/default: ") || !strings.HasSuffix(last, " events, 100 of 100 jobs have ended (100 %)") {
		t.Errorf("the last line is %q", last)
	}
	if told := invoke(t, Program{Now: minutes()}, append(pods, "--progress")...); !strings.Contains(told.err, "best_fit, seed 7: ") || !strings.HasSuffix(told.err, " pods have come (100 %)\n") {
		t.Errorf("of pods it says %q", told.err)
	}
	people, programs := newTerminal(t)
	out, err := os.CreateTemp(t.TempDir(), "out")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = out.Close() }()
	one := sim.JobOptions{Order: sim.FirstCome}
	c := &invocation{Program: &Program{Out: out, Err: programs, Env: []string{"NO_COLOR=1"}, Now: minutes()}}
	progress := c.progress(false)
	one.Told = progress.of("fifo", jobsDone)
	one.Told(sim.Progress{At: 90_000_000, Events: 12, Done: 1, All: 4})
	progress.over()
	const end = "\r\x1b[Kfifo: 1m30s of the trace, 12 events, 1 of 4 jobs have ended (25 %)\r\x1b[K"
	shown := make([]byte, len(end))
	if _, err := io.ReadFull(people, shown); err != nil || string(shown) != end {
		t.Errorf("a terminal shows %q (%v), want %q", shown, err, end)
	}
}

// Of many jobs that never ran the first are named, and all with -o wide.
func TestSimNeverRun(t *testing.T) {
	path := filepath.Join(t.TempDir(), "many.trace")
	text := "aliquot trace 1\nnodes 1 devices=2\n"
	for i := range 12 {
		text += fmt.Sprintf("job j%d run=1m devices=3\n", i)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	short, wide := invoke(t, Program{}, "sim", "run", "--trace", "jobs:"+path), invoke(t, Program{}, "sim", "run", "--trace", "jobs:"+path, "-o", "wide")
	if short.exit.Status != 0 || !strings.HasSuffix(short.out, "\nand 2 more: -o wide names all\n") || strings.Contains(short.out, "j11") {
		t.Errorf("status %d, in short it says\n%s%s", short.exit.Status, short.out, short.err)
	}
	if !strings.Contains(wide.out, "\nj11 ") || strings.Contains(wide.out, "more: ") {
		t.Errorf("with -o wide it says\n%s%s", wide.out, wide.err)
	}
	if fields := strings.Fields(strings.Split(short.out, "\n")[1]); fields[2] != "0" || fields[len(fields)-1] != "12" {
		t.Errorf("the run's line is %q", fields)
	}
}
