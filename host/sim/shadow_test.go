package sim

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/engine"
	"github.com/aliquot-dev/aliquot/host/policy"
)

// recordOf runs a trace under rules whose clock is the engine's own, and keeps what happened.
func recordOf(t *testing.T, trace *Trace, lines ...string) *Record {
	t.Helper()
	var text bytes.Buffer
	log, err := engine.NewLogWriter(&text, engine.New(engine.Config{}).Snapshot())
	if err != nil {
		t.Fatal(err)
	}
	r := &Rules{Policy: candidate(t, lines...), Start: time.UnixMicro(0).UTC()}
	if _, err := RunJobs(t.Context(), trace, JobOptions{Order: Fair, Rules: r, Log: log}); err != nil {
		t.Fatal(err)
	}
	record, err := ReadRecord("record", text.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	return record
}

func candidate(t *testing.T, lines ...string) *policy.Policy {
	t.Helper()
	p, err := policy.Parse("candidate", policy.FormatLine+"\n"+strings.Join(lines, "\n"), time.UnixMicro(0))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// shadowed runs a candidate beside a record and holds its engine to its invariants after each step.
func shadowed(t *testing.T, record *Record, lines ...string) *shadowing {
	t.Helper()
	s, err := newShadowing(record, candidate(t, lines...))
	if err != nil {
		t.Fatal(err)
	}
	from := s.now
	for s.next < len(s.steps) {
		event := s.steps[s.next].event
		if err := s.forward(); err != nil {
			t.Fatal(err)
		}
		if err := s.mine.CheckInvariants(); err != nil {
			t.Fatalf("after %T %+v: %v", event, event, err)
		}
	}
	s.result("candidate", from)
	return s
}

func shadowText(c ShadowJob) string {
	of := func(f ShadowFate) string {
		if f.Start == nil {
			return "never"
		}
		return fmt.Sprintf("%ds on %s, %d evictions", f.Start.Unix(), strings.Join(f.Devices, " "), f.Evictions)
	}
	text := fmt.Sprintf("%s %s: %s; %s", c.Workload, c.Change, of(c.Live), of(c.Candidate))
	if replicas := func(f ShadowFate) int { return f.Grown + f.Shrunk }; replicas(c.Live)+replicas(c.Candidate) > 0 {
		text += fmt.Sprintf("; %d grown and %d shrunk, %d and %d", c.Live.Grown, c.Live.Shrunk, c.Candidate.Grown, c.Candidate.Shrunk)
	}
	return text
}

var allDay = []string{
	"queue a quota=12 order=fair+priority:1h", "queue b quota=2 limit=16", "queue c parent=a quota=4 weight=3",
	"window night from=23:00 to=05:00", "queue b quota=8 limit=none", "placement default",
}

// busy is a trace that has work of queues over their quotas evicted.
func busy(t *testing.T, seed uint64) *Trace {
	t.Helper()
	trace := GenerateJobs(2, 1.1, seed)
	for i := range trace.Jobs {
		j := &trace.Jobs[i]
		j.Queue, j.Preemptible = []string{"a", "b", "c"}[i%3], i%4 > 0 || j.Devices*j.Tasks > 1
	}
	return trace
}

// Where the candidate is the policy that holds, the second engine is told and decides word for word what the first one was and did.
func TestShadowOfThePolicyItself(t *testing.T) {
	evictions := 0
	for seed := range uint64(3) {
		record := recordOf(t, busy(t, seed), allDay...)
		s := shadowed(t, record, allDay...)
		if out := s.out; len(out.Changes) > 0 || out.Refused > 0 || out.Live.Started == 0 || out.Live.MeanWait != out.Candidate.MeanWait || out.Live.Allocated != out.Candidate.Allocated {
			t.Errorf("seed %d: it differs in %d workloads, with %d refusals: %v", seed, len(out.Changes), out.Refused, out.Changes)
		}
		evictions += s.out.Live.Evictions
		live, mine := s.live.Snapshot(), s.mine.Snapshot()
		if !bytes.Equal(live, mine) {
			t.Errorf("seed %d: at the end the states are\n%.3000s\nand\n%.3000s", seed, live, mine)
		}
	}
	if evictions == 0 {
		t.Error("the records have no eviction")
	}
}

// What another policy makes of it can be told by hand.
func TestShadowByHand(t *testing.T) {
	for _, c := range []struct {
		name            string
		trace           []string
		live, candidate []string
		want            []string
	}{
		{
			"a limit has the second wait",
			[]string{"nodes 1 devices=2", "job one at=0 run=100s queue=a", "job two at=10s run=50s queue=a"},
			[]string{"queue a"},
			[]string{"queue a limit=1"},
			[]string{"two later: 10s on node-00000/node-00000-1, 0 evictions; 100s on node-00000/node-00000-0, 0 evictions"},
		},
		{
			"without the limit it starts at once, and the third with it",
			[]string{"nodes 1 devices=2", "job one at=0 run=100s queue=a", "job two at=10s run=50s queue=a", "job three at=20s run=50s queue=a"},
			[]string{"queue a limit=1"},
			[]string{"queue a limit=none"},
			[]string{
				"two earlier: 100s on node-00000/node-00000-0, 0 evictions; 10s on node-00000/node-00000-1, 0 evictions",
				"three earlier: 150s on node-00000/node-00000-0, 0 evictions; 60s on node-00000/node-00000-1, 0 evictions",
			},
		},
		{
			"the candidate takes back what the live one lets be; what was evicted comes again and begins anew",
			[]string{
				"nodes 1 devices=1", "job guest at=0 run=100s queue=b preemptible=yes", "job owner at=30s run=50s queue=a", "job next at=90s run=10s queue=b",
				"job last at=400s run=1s queue=a",
			},
			[]string{"queue a quota=0", "queue b"},
			[]string{"queue a quota=1", "queue b"},
			[]string{
				"guest evictions: 0s on node-00000/node-00000-0, 0 evictions; 0s on node-00000/node-00000-0, 1 evictions",
				"owner earlier: 100s on node-00000/node-00000-0, 0 evictions; 30s on node-00000/node-00000-0, 0 evictions",
				"next later: 150s on node-00000/node-00000-0, 0 evictions; 180s on node-00000/node-00000-0, 0 evictions",
			},
		},
		{
			"the candidate lets be what the live one takes back: it runs on for as long as it ran when it came again",
			[]string{
				"nodes 1 devices=1", "job guest at=0 run=100s queue=b preemptible=yes", "job owner at=30s run=50s queue=a", "job next at=90s run=10s queue=b",
				"job last at=400s run=1s queue=a",
			},
			[]string{"queue a quota=1", "queue b"},
			[]string{"queue a quota=0", "queue b"},
			[]string{
				"guest evictions: 0s on node-00000/node-00000-0, 1 evictions; 0s on node-00000/node-00000-0, 0 evictions",
				"owner later: 30s on node-00000/node-00000-0, 0 evictions; 70s on node-00000/node-00000-0, 0 evictions",
				"next earlier: 150s on node-00000/node-00000-0, 0 evictions; 120s on node-00000/node-00000-0, 0 evictions",
			},
		},
		{
			"the candidate moves work together, so that one that wants a whole device starts at once",
			[]string{"nodes 1 devices=2", "job a at=0 run=10m gpu=0.6", "job b at=1s run=3h gpu=0.6 preemptible=no", "job c at=2s run=3h gpu=0.4", "job big at=20m run=1h gpu=1"},
			[]string{"top fair"},
			[]string{"defragment moves-per-hour=1"},
			[]string{
				"c evictions: 2s on node-00000/node-00000-0, 0 evictions; 2s on node-00000/node-00000-0, 1 evictions",
				"big earlier: 10801s on node-00000/node-00000-1, 0 evictions; 1200s on node-00000/node-00000-0, 0 evictions",
			},
		},
	} {
		s := shadowed(t, recordOf(t, few(t, c.trace...), c.live...), c.candidate...)
		var got []string
		for _, change := range s.out.Changes {
			got = append(got, shadowText(change))
		}
		if strings.Join(got, "\n") != strings.Join(c.want, "\n") {
			t.Errorf("%s:\n%s\nwant\n%s", c.name, strings.Join(got, "\n"), strings.Join(c.want, "\n"))
		}
	}
}

// Whatever the candidate is, each workload has its place with it, and the figures of the record stay what they are.
func TestShadowOfAnything(t *testing.T) {
	others := [][]string{
		{"queue a", "queue b", "queue c"},
		{"queue a quota=2 limit=6", "queue b quota=12", "queue c limit=2 order=fifo"},
		{"top one-line", "queue a quota=8", "queue b quota=8 order=fair+priority+shortest:2", "queue c quota=none", "placement default", "window day from=08:00 to=20:00", "queue a quota=2"},
		{"queue a quota=4", "queue b quota=2", "queue c quota=1", "pool p devices=0-1 classes=training lends=yes", "pool q devices=2-7 classes=batch,training"},
	}
	for seed := range uint64(2) {
		record := recordOf(t, busy(t, seed), allDay...)
		was := shadowed(t, record, allDay...).out.Live
		for i, lines := range others {
			s := shadowed(t, record, lines...)
			if out := s.out.Live; out.Started != was.Started || out.MeanWait != was.MeanWait || out.Allocated != was.Allocated || out.Evictions != was.Evictions {
				t.Errorf("seed %d, candidate %d: the record's figures are %+v, and were %+v", seed, i, out, was)
			}
			if len(s.out.Changes) == 0 {
				t.Errorf("seed %d, candidate %d: it changes nothing", seed, i)
			}
			for _, j := range s.found {
				known, waits := s.mine.Known(j.mineID), s.mine.Phase(j.mineID) == api.Waiting
				if known == j.over || known && waits != (len(j.tasks) == 0) {
					t.Errorf("seed %d, candidate %d: workload %s is known %v, waits %v; it is over %v and has tasks %+v", seed, i, j.mineID, known, waits, j.over, j.tasks)
				}
			}
		}
	}
}

// The files of a folder are one record as far as each goes on where the one before ends; what was before the last start is left out.
func TestRecordOfAFolder(t *testing.T) {
	folder := t.TempDir()
	e := engine.New(engine.Config{})
	number := 0
	begin := func() (*engine.LogWriter, func()) {
		var text bytes.Buffer
		log, err := engine.NewLogWriter(&text, e.Snapshot())
		if err != nil {
			t.Fatal(err)
		}
		return log, func() {
			number++
			if err := os.WriteFile(filepath.Join(folder, fmt.Sprintf("%08d.events", number)), text.Bytes(), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	at := engine.Time(0)
	steps := func(trace *Trace, some int) {
		log, end := begin()
		for i := range some {
			at += 1_000_000
			w := trace.Jobs[0].Workload
			w.Queue = ""
			w.ID = fmt.Sprintf("w%d-%d", number, i)
			event := engine.Submit{At: engine.At{At: at}, Workload: w}
			if err := log.Append(event, e.Step(event)); err != nil {
				t.Fatal(err)
			}
		}
		end()
	}
	trace := GenerateJobs(1, 1, 1)
	steps(trace, 3)
	e = engine.New(engine.Config{}) // another start
	for _, n := range trace.Nodes {
		e.Step(n)
	}
	for _, some := range []int{2, 5, 4} {
		steps(trace, some)
	}
	r, err := OpenRecord(folder)
	if err != nil || len(r.steps) != 11 {
		t.Fatalf("%v, %+v", err, r)
	}
	if s := shadowed(t, r, "top fair"); len(s.found) != 11 || len(s.out.Changes) > 0 {
		t.Errorf("of %d workloads it changes %v", len(s.found), s.out.Changes)
	}
}

// A second engine that decides in a circle at one moment ends with a sentence.
func TestShadowStandsStill(t *testing.T) {
	path, _ := recorded(t, GenerateJobs(1, 1, 1), Fair)
	r, err := OpenRecord(path)
	if err != nil {
		t.Fatal(err)
	}
	s, err := newShadowing(r, candidate(t, "top fair"))
	if err != nil {
		t.Fatal(err)
	}
	var again func()
	again = func() { s.later(s.now, again) }
	s.later(s.now+5_000_000, again)
	s.alone(s.now + 60_000_000)
	if err := s.forward(); err == nil || !strings.Contains(err.Error(), "the engine starts and ends work over and over at one moment") {
		t.Errorf("it ends with %v", err)
	}
}

// What was used in a record is learned of by the second engine, too, whether a job goes on with the record or by itself, and by a run of the
// record's jobs.
func TestWhatWasUsedGoesOn(t *testing.T) {
	trace := few(t, "nodes 1 devices=2", "job a at=0 run=100s queue=a user=ann name=train", "job b at=10s run=50s queue=a user=ann name=train",
		"job c at=20s run=50s queue=a user=ann name=train", "job d at=30s run=50s queue=a user=ann name=train")
	for i := range trace.Jobs {
		trace.Jobs[i].Used = &engine.Used{Compute: 300, Memory: 1 << 30}
	}
	record := recordOf(t, trace, "queue a")
	s := shadowed(t, record, "queue a limit=1", "placement interference=10 remainder=1")
	parted := 0
	for _, j := range s.found {
		if !j.together {
			parted++
		}
	}
	s.alone(1 << 40) // until what goes on by itself has ended
	said, ok := s.mine.PredictUse(&trace.Jobs[0].Workload)
	if !ok || said.Compute.Samples != 4 || said.Compute.Median != 300 || said.Memory.Median != 1<<30 || parted == 0 {
		t.Errorf("with %d jobs that go on by themselves it is predicted to use %+v %v", parted, said, ok)
	}
	path, _ := recorded(t, trace, Backfill)
	again, err := ReadLog(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, j := range again.Trace.Jobs {
		if j.Used == nil || *j.Used != *trace.Jobs[0].Used {
			t.Errorf("job %s has used %+v by its record", j.ID, j.Used)
		}
	}
}

// A checkpoint is told where the workload runs, and not where it waits: what is cheap to lose goes first in both.
func TestShadowOfCheckpoints(t *testing.T) {
	record := func(policy string) *Record {
		var text bytes.Buffer
		e := engine.New(engine.Config{})
		log, err := engine.NewLogWriter(&text, e.Snapshot())
		if err != nil {
			t.Fatal(err)
		}
		now := engine.Time(0)
		var step func(event engine.Event)
		step = func(event engine.Event) {
			actions := e.Step(event)
			if err := log.Append(event, actions); err != nil {
				t.Fatal(err)
			}
			for _, a := range actions {
				at := engine.At{At: now}
				step(engine.Done{At: at, ID: a.Action()})
				switch a := a.(type) {
				case engine.Place:
					step(engine.Started{At: at, ID: a.Workload})
				case engine.Evict:
					step(engine.Ended{At: at, ID: a.Workload})
				}
			}
		}
		r := &ruling{Rules: &Rules{Policy: candidate(t, policy), Start: time.UnixMicro(0).UTC()}}
		step(r.turn(0))
		step(engine.NodeSet{Node: "n", Devices: []engine.Device{{UUID: "a", Model: "m", Memory: 1, Health: api.Healthy}, {UUID: "b", Index: 1, Model: "m", Memory: 1, Health: api.Healthy}}})
		whole := api.Share{Compute: api.Compute{Floor: api.WholeDevice, Ceiling: api.WholeDevice}}
		for _, w := range []engine.Workload{{ID: "one", Preemptible: true}, {ID: "two", Preemptible: true}, {ID: "own", Queue: "own"}} {
			if now += 60_000_000; w.ID == "own" {
				step(engine.Checkpoint{At: engine.At{At: now}, ID: "one"})
				step(engine.Checkpoint{At: engine.At{At: now}, ID: "two", Ago: 50_000_000})
			}
			w.Tasks, w.Devices, w.Share = 1, 1, whole
			step(engine.Submit{At: engine.At{At: now}, Workload: w})
		}
		out, err := ReadRecord("record", text.Bytes())
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	for policy, want := range map[string]string{
		"queue own quota=1": "",
		"queue default limit=1\nqueue own quota=1": "one evictions: 60s on n/a, 1 evictions; 60s on n/a, 0 evictions\n" +
			"two not_started: 120s on n/b, 0 evictions; never\nown elsewhere: 180s on n/a, 0 evictions; 180s on n/b, 0 evictions",
	} {
		out := shadowed(t, record("queue own quota=1"), strings.Split(policy, "\n")...).out
		var got []string
		for _, c := range out.Changes {
			got = append(got, shadowText(c))
		}
		if strings.Join(got, "\n") != want || out.Refused != 0 || out.Live.Evictions != 1 {
			t.Errorf("under %q %d are refused, %d evicted on the server; it differs in\n%s\nwant\n%s", policy, out.Refused, out.Live.Evictions, strings.Join(got, "\n"), want)
		}
	}
}
