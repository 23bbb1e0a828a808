package sim

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/engine"
)

// recorded runs a trace in the engine's own order and keeps the log of it.
func recorded(t *testing.T, trace *Trace, o Order) (string, *JobResult) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "00000001.events")
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	log, err := engine.NewLogWriter(file, engine.New(engine.Config{NoBackfill: o == FirstCome}).Snapshot())
	if err != nil {
		t.Fatal(err)
	}
	r, err := RunJobs(t.Context(), trace, JobOptions{Order: o, Log: log})
	if err != nil {
		t.Fatal(err)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	return path, r
}

// Of elastic work a record says how much it did, so that run again with as many replicas it takes as long, and with fewer longer.
func TestRecordedElasticWorkRunsAgain(t *testing.T) {
	trace := few(t, "nodes 2 devices=2", "job grows run=100s tasks=1..4", "job two at=10s run=20s tasks=2", "job last at=100s run=10s")
	path, was := recorded(t, trace, Backfill)
	rec, err := ReadLog(path)
	if err != nil {
		t.Fatal(err)
	}
	again := runJobs(t, rec.Trace, Backfill)
	for name, r := range map[string]*JobResult{"as recorded": rec.Was, "run again": again} {
		if r.MeanJCT != was.MeanJCT || r.Utilisation != was.Utilisation || r.Fairness != was.Fairness {
			t.Errorf("%s: mean JCT %g s, %g %% used, fairness %g; it was %g, %g and %g", name, r.MeanJCT, r.Utilisation, r.Fairness, was.MeanJCT, was.Utilisation, was.Fairness)
		}
	}
	if d := rec.Trace.Jobs[0].Duration; d != 100_000_000 || again.Grown != was.Grown || was.Grown == 0 {
		t.Errorf("it takes %d µs with one replica, and grows %d times; it was %d times", d, again.Grown, was.Grown)
	}
	if fixed := runJobs(t, rec.Trace, ShortestTime); fixed.P99JCT != 100 || fixed.Grown > 0 {
		t.Errorf("with one replica alone it takes %g s, and grows %d times", fixed.P99JCT, fixed.Grown)
	}
}

// A recorded day comes to what it came to, and so does its trace when it is run again under what decided it.
func TestRecordingRunsAgain(t *testing.T) {
	for _, o := range []Order{FirstCome, Backfill, Fair} {
		trace := GenerateJobs(2, 1.0, 3)
		for i := range trace.Jobs { // as what a server puts back into the line, and never told of a save
			trace.Jobs[i].Checkpoint = NeverSaves
		}
		path, was := recorded(t, trace, o)
		rec, err := ReadLog(path)
		if err != nil {
			t.Fatal(err)
		}
		if rec.Differs != nil || rec.Steps == 0 || rec.Left != 0 || len(rec.Trace.Jobs) != was.Jobs {
			t.Fatalf("%s: %d steps, differs %v, %d jobs, %d left out", o, rec.Steps, rec.Differs, len(rec.Trace.Jobs), rec.Left)
		}
		again := runJobs(t, rec.Trace, o)
		for name, r := range map[string]*JobResult{"as recorded": rec.Was, "run again": again} {
			got, want := r.Figures(), was.Figures()
			if !reflect.DeepEqual(got, want) {
				t.Errorf("%s, %s: %v, want %v", o, name, got, want)
			}
		}
		if !reflect.DeepEqual(rec.Was.Plots.Allocated, was.Plots.Allocated) {
			t.Errorf("%s: what was allocated is read otherwise", o)
		}
	}
}

// A log may begin in the middle of a day and end there; nodes come and go in it.
func TestRecordingOfAPart(t *testing.T) {
	e := engine.New(engine.Config{})
	at := func(s int) engine.At { return engine.At{At: engine.Time(s) * 1_000_000} }
	trace := few(t, "nodes 2 devices=2", "job runs run=1s devices=2", "job ends run=1s devices=2", "job waits run=1s devices=2", "job new run=1s")
	for _, n := range trace.Nodes {
		e.Step(n)
	}
	start := func(s int, id string) {
		for _, a := range e.Step(engine.Submit{At: at(s), Workload: workloadOf(trace, id)}) {
			e.Step(engine.Done{At: at(s), ID: a.Action()})
			e.Step(engine.Started{At: at(s), ID: id})
		}
	}
	start(1000, "runs")
	start(1001, "ends")
	start(1002, "waits")
	path := filepath.Join(t.TempDir(), "00000002.events")
	var text bytes.Buffer
	log, err := engine.NewLogWriter(&text, e.Snapshot())
	if err != nil {
		t.Fatal(err)
	}
	step := func(event engine.Event) []engine.Action {
		t.Helper()
		actions := e.Step(event)
		if err := log.Append(event, actions); err != nil {
			t.Fatal(err)
		}
		return actions
	}
	// The log begins at 1010: ends ends at 1030 and new comes and starts nowhere, for waits takes what came free; a node comes at 1040.
	step(engine.Tick{At: at(1010)})
	step(engine.Submit{At: at(1020), Workload: workloadOf(trace, "new")})
	step(engine.Submit{At: at(1020), Workload: workloadOf(trace, "new")})
	placed := step(engine.Ended{At: at(1030), ID: "ends"})
	step(engine.Done{At: at(1030), ID: placed[0].Action()})
	step(engine.Started{At: at(1030), ID: "waits"})
	node := trace.Nodes[1]
	node.Node, node.At = "late", at(1040)
	node.Devices = []engine.Device{{UUID: "late-0", Memory: 1 << 30, Health: node.Devices[0].Health}}
	step(node)
	step(engine.Ended{At: at(1050), ID: "waits"})
	whole := text.Len()
	step(engine.Tick{At: at(1060)})
	torn := text.Bytes()[:whole+7]
	if err := os.WriteFile(path, torn, 0o600); err != nil {
		t.Fatal(err)
	}
	rec, err := ReadLog(path)
	if err != nil {
		t.Fatal(err)
	}
	if rec.Was.Jobs != 2 || rec.Was.MeanJCT != (20+40)/2.0 || rec.Was.MeanWait != 10 || rec.Was.Capacity != 5000 || rec.Left != 1 || len(rec.Trace.Jobs) != 3 {
		t.Errorf("as recorded %+v, %d left out, jobs %+v", rec.Was, rec.Left, rec.Trace.Jobs)
	}
	if r := runJobs(t, rec.Trace, Backfill); r.Jobs != 3 || r.Makespan != 40 {
		t.Errorf("run again, %d jobs take %g s", r.Jobs, r.Makespan)
	}
}

// The pools and the order that held when a log began hold when its day is run again.
func TestRecordingKeepsPools(t *testing.T) {
	trace := few(t, "nodes 1 devices=2", "job one run=10s", "job two run=10s")
	e := engine.New(engine.Config{})
	last := 0
	e.Step(engine.PolicySet{Policy: engine.Policy{OneLine: true, HalfLife: engine.LeastHalfLife, Pools: []engine.Pool{{Name: "serving", Last: &last, Classes: []api.Class{api.Inference}}}}})
	e.Step(trace.Nodes[0])
	var text bytes.Buffer
	log, err := engine.NewLogWriter(&text, e.Snapshot())
	if err != nil {
		t.Fatal(err)
	}
	step := func(event engine.Event) (first engine.ActionID) {
		t.Helper()
		actions := e.Step(event)
		if err := log.Append(event, actions); err != nil {
			t.Fatal(err)
		}
		if len(actions) > 0 {
			first = actions[0].Action()
		}
		return first
	}
	for i, id := range []string{"one", "two"} {
		at := engine.At{At: engine.Time(i) * 10_000_000}
		w := workloadOf(trace, id)
		w.Class = api.Training
		step(engine.Done{At: at, ID: step(engine.Submit{At: at, Workload: w})})
		step(engine.Started{At: at, ID: id})
		step(engine.Ended{At: engine.At{At: at.At + 10_000_000}, ID: id})
	}
	path := filepath.Join(t.TempDir(), "00000003.events")
	if err := os.WriteFile(path, text.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	rec, err := ReadLog(path)
	if err != nil || rec.Differs != nil {
		t.Fatal(err, rec)
	}
	for i := range rec.Trace.Jobs {
		rec.Trace.Jobs[i].Submit = 0
	}
	// One of the two devices is for others: the second job waits for the first.
	if r := runJobs(t, rec.Trace, Fair); r.MeanWait != 5 {
		t.Errorf("run again, a job waits %g s in the mean, want 5", r.MeanWait)
	}
	if set, ok := rec.Trace.Events[0].(engine.PolicySet); !ok || !set.Policy.OneLine || set.Policy.HalfLife != engine.LeastHalfLife {
		t.Errorf("its first event is %+v", rec.Trace.Events[0])
	}
}

// A class that was forgotten is kept until it is spoken of anew, and then begins anew: in the run what is of it may come later than it did.
func TestForgottenClassesAreKept(t *testing.T) {
	l := listener{trace: &Trace{}, forgotten: map[string]bool{}, start: 5}
	first := engine.Feasibility{At: engine.At{At: 6}, Class: "zone", Allowed: []string{"n1"}}
	again := engine.Feasibility{At: engine.At{At: 9}, Class: "zone", Allowed: []string{"n2"}}
	for _, event := range []engine.Event{first, engine.FeasibilityGone{At: engine.At{At: 7}, Classes: []string{"zone", "other"}}, again} {
		l.setting(event)
	}
	first.At.At, again.At.At = 1, 4
	want := []engine.Event{first, engine.FeasibilityGone{At: engine.At{At: 4}, Classes: []string{"other", "zone"}}, again}
	if !reflect.DeepEqual(l.trace.Events, want) {
		t.Errorf("the trace has %+v, want %+v", l.trace.Events, want)
	}
}

func TestWhatIsNoLog(t *testing.T) {
	path, _ := recorded(t, GenerateJobs(1, 0.9, 1), Fair)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	damaged := bytes.Replace(text, []byte("job-000007"), []byte("job-000008"), 1)
	for want, text := range map[string][]byte{"is damaged": damaged, "this is no event log": []byte("job x\n")} {
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := ReadLog(path); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), path) {
			t.Errorf("a log that is not one gives %v, want %q", err, want)
		}
	}
}

func workloadOf(t *Trace, id string) engine.Workload {
	for i := range t.Jobs {
		if t.Jobs[i].ID == id {
			return t.Jobs[i].Workload
		}
	}
	return engine.Workload{}
}

// What runs on a node that goes is placed elsewhere with what it has left.
func TestNodesGo(t *testing.T) {
	trace := few(t, "nodes 2", "job a at=0 run=100s devices=8", "job b at=0 run=100s devices=8")
	trace.Events = []engine.Event{engine.NodeGone{At: engine.At{At: 60_000_000}, Node: trace.Nodes[0].Node}}
	for _, o := range []Order{FirstCome, Fair, ShortestTime} {
		// One has 40 s left and waits for the other's end at 100 s.
		if r := runJobs(t, trace, o); r.Preemptions != 1 || r.MeanJCT != (100+140)/2.0 {
			t.Errorf("%s: %d are stopped, mean JCT %g s", o, r.Preemptions, r.MeanJCT)
		}
	}
}

// A recorded day runs on other nodes: its own, one of which went, their classes and what they have beside devices count for nothing, its models and queues do.
func TestRecordedDayOnOtherNodes(t *testing.T) {
	trace := few(t, "nodes 2 devices=2", "job a at=0 run=100s devices=2", "job b at=0 run=100s devices=2", "job c at=0 run=100s devices=2 queue=late")
	const model = "NVIDIA H100 80GB HBM3"
	for _, n := range trace.Nodes {
		n.Devices[0].Model, n.Devices[1].Model = model, model
	}
	trace.Jobs[2].Model = model
	trace.Queues = []api.QueueSpec{{Name: "late", Limit: api.QueueAmounts{Compute: new(api.Quota(0))}}}
	trace.Events = []engine.Event{
		engine.NodeGone{At: engine.At{At: 1}, Node: trace.Nodes[1].Node},
		engine.QueueSet{At: engine.At{At: 250_000_000}, Queue: api.QueueSpec{Name: "late"}},
	}
	trace.Classes = []engine.Feasibility{{Class: "here", Allowed: []string{trace.Nodes[0].Node}}}
	trace.Nodes[0].Resources = []engine.Resource{{Name: "slot", Amount: 1}}
	for i := range trace.Jobs {
		j := &trace.Jobs[i]
		j.Submit, j.Feasibility, j.Resources = 2, "here", []engine.Resource{{Name: "slot", Amount: 1}}
	}
	path, was := recorded(t, trace, Fair)
	for _, c := range []struct {
		nodes string
		waits float64 // s, of all jobs together
		never string  // says
	}{
		{"1x2:h100", 100 + 250, ""},
		{"2x2:h100", 250, ""},
		{"4x8:h100", 250, ""},
		{"4x8:l4", 0, "wants a device of model " + model},
	} {
		rec, err := ReadLog(path)
		if err != nil || rec.Differs != nil || rec.Was.MeanWait != was.MeanWait || math.Abs(was.MeanWait*3-350) > 1e-3 {
			t.Fatal(err, rec, was.MeanWait)
		}
		nodes, err := ReadNodes(c.nodes)
		if err != nil {
			t.Fatal(err)
		}
		rec.Trace.On(nodes)
		r := runJobs(t, rec.Trace, Fair)
		if math.Abs(r.MeanWait*float64(r.Jobs)-c.waits) > 1e-3 || r.Preemptions != 0 {
			t.Errorf("on %s %d jobs wait %g s and %d are stopped, want %g s", c.nodes, r.Jobs, r.MeanWait*float64(r.Jobs), r.Preemptions, c.waits)
		}
		if never := fmt.Sprint(r.NeverRun); (c.never == "") != (len(r.NeverRun) == 0) || !strings.Contains(never, c.never) {
			t.Errorf("on %s never run %s", c.nodes, never)
		}
	}
}

// Whatever a log says, it is read or refused.
func FuzzRecords(f *testing.F) {
	e := engine.New(engine.Config{})
	trace := GenerateJobs(1, 0.9, 1)
	trace.Jobs = trace.Jobs[:5]
	var text bytes.Buffer
	log, err := engine.NewLogWriter(&text, e.Snapshot())
	if err != nil {
		f.Fatal(err)
	}
	if _, err := RunJobs(f.Context(), trace, JobOptions{Order: Fair, Log: log}); err != nil {
		f.Fatal(err)
	}
	f.Add(text.Bytes())
	f.Fuzz(func(t *testing.T, text []byte) {
		record, err := readRecords(text)
		if err != nil {
			return
		}
		snapshot, err := record.state()
		if err != nil {
			return
		}
		steps := record.taken()
		var out Recording
		out.listen(snapshot, steps)
		if out.Was == nil || out.Left < 0 || len(out.Trace.Jobs)+out.Left > len(steps)+len(snapshot.Workloads) {
			t.Fatalf("of %d steps %d jobs are made and %d left out", len(steps), len(out.Trace.Jobs), out.Left)
		}
	})
}
