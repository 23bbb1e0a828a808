package sim

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/engine"
)

// An elastic job that has other replicas with the candidate does the same work with them, and ends so much earlier or later.
func TestShadowOfElasticWork(t *testing.T) {
	for _, c := range []struct {
		name            string
		trace           []string
		live, candidate []string
		want            []string
	}{
		{
			"a limit has it grow less, so that it ends later: 100 s of one replica in 50 s with two instead of 25 s with four",
			[]string{"nodes 1 devices=4", "job grows run=100s tasks=1..4 queue=a", "job all at=10s run=1s devices=4 preemptible=no queue=b", "job last at=400s run=1s"},
			[]string{"queue a", "queue b"},
			[]string{"queue a limit=2", "queue b"},
			[]string{
				"grows replicas: 0s on node-00000/node-00000-0, 0 evictions; 0s on node-00000/node-00000-0, 0 evictions; 3 grown and 0 shrunk, 1 and 0",
				"all later: 25s on node-00000/node-00000-0 node-00000/node-00000-1 node-00000/node-00000-2 node-00000/node-00000-3, 0 evictions; " +
					"50s on node-00000/node-00000-0 node-00000/node-00000-1 node-00000/node-00000-2 node-00000/node-00000-3, 0 evictions",
			},
		},
		{
			"without the limit it grows more, and ends earlier",
			[]string{"nodes 1 devices=4", "job grows run=100s tasks=1..4 queue=a", "job all at=10s run=1s devices=4 preemptible=no queue=b", "job last at=400s run=1s"},
			[]string{"queue a limit=2", "queue b"},
			[]string{"queue a limit=none", "queue b"},
			[]string{
				"grows replicas: 0s on node-00000/node-00000-0, 0 evictions; 0s on node-00000/node-00000-0, 0 evictions; 1 grown and 0 shrunk, 3 and 0",
				"all earlier: 50s on node-00000/node-00000-0 node-00000/node-00000-1 node-00000/node-00000-2 node-00000/node-00000-3, 0 evictions; " +
					"25s on node-00000/node-00000-0 node-00000/node-00000-1 node-00000/node-00000-2 node-00000/node-00000-3, 0 evictions",
			},
		},
		{
			// By the record 10 s with four, 20 s with two and 5 s with four. With the candidate two waits until it may, and it has four until 25 s.
			"the candidate does not shrink it for work that may not start",
			[]string{"nodes 1 devices=4", "job grows run=100s tasks=1..4 queue=a", "job two at=10s run=20s tasks=2 queue=b", "job last at=400s run=1s"},
			[]string{"queue a", "queue b"},
			[]string{"queue a", "queue b limit=1"},
			[]string{
				"grows replicas: 0s on node-00000/node-00000-0, 0 evictions; 0s on node-00000/node-00000-0, 0 evictions; 5 grown and 2 shrunk, 3 and 0",
				"two not_started: 10s on node-00000/node-00000-2 node-00000/node-00000-3, 0 evictions; never",
			},
		},
		{
			// By the record it has four until 50 s, for what it is sure of leaves no three devices. With the candidate it is evicted when it has done 40 s of
			// 200 s of work, waits until 40 s, and begins anew with four: until 90 s.
			"the candidate evicts it as a whole",
			[]string{"nodes 1 devices=4", "job grows run=100s tasks=2..4 queue=a", "job own at=10s run=30s devices=3 queue=b", "job after at=45s run=1s devices=4 queue=c", "job last at=400s run=1s"},
			[]string{"queue a", "queue b", "queue c"},
			[]string{"queue a quota=0", "queue b quota=4", "queue c"},
			[]string{
				"grows evictions: 0s on node-00000/node-00000-0 node-00000/node-00000-1, 0 evictions; 0s on node-00000/node-00000-0 node-00000/node-00000-1, 1 evictions; 2 grown and 0 shrunk, 4 and 2",
				"own earlier: 50s on node-00000/node-00000-0 node-00000/node-00000-2 node-00000/node-00000-3, 0 evictions; " +
					"10s on node-00000/node-00000-0 node-00000/node-00000-2 node-00000/node-00000-3, 0 evictions",
				"after later: 80s on node-00000/node-00000-0 node-00000/node-00000-1 node-00000/node-00000-2 node-00000/node-00000-3, 0 evictions; " +
					"90s on node-00000/node-00000-0 node-00000/node-00000-1 node-00000/node-00000-2 node-00000/node-00000-3, 0 evictions",
			},
		},
	} {
		s := shadowed(t, recordOf(t, few(t, c.trace...), c.live...), c.candidate...)
		var got []string
		for _, change := range s.out.Changes {
			got = append(got, shadowText(change))
		}
		if strings.Join(got, "\n") != strings.Join(c.want, "\n") || s.out.Refused > 0 {
			t.Errorf("%s: %d refused\n%s\nwant\n%s", c.name, s.out.Refused, strings.Join(got, "\n"), strings.Join(c.want, "\n"))
		}
	}
}

// elasticBusy is busy with jobs that grow and shrink among those that do not.
func elasticBusy(t *testing.T, seed uint64) *Trace {
	t.Helper()
	trace := busy(t, seed)
	for i := range trace.Jobs {
		if j := &trace.Jobs[i]; i%3 == 1 && len(j.Roles) == 0 {
			j.Max = j.Tasks + 1 + i%5
			j.Preemptible = true
		}
	}
	return trace
}

// Where the candidate is the policy that holds, elastic work is the same to the byte, too; whatever it is, all has its place, and no work is done twice or lost.
func TestShadowOfElasticRecords(t *testing.T) {
	for seed := range uint64(3) {
		trace := elasticBusy(t, seed)
		record := recordOf(t, trace, allDay...)
		was := shadowed(t, record, allDay...)
		if out := was.out; len(out.Changes) > 0 || out.Refused > 0 || out.Live.Grown == 0 || out.Live.Shrunk == 0 || out.Live.Grown != out.Candidate.Grown || out.Live.Shrunk != out.Candidate.Shrunk {
			t.Errorf("seed %d: the policy itself differs in %v, with %d refusals; the figures are %+v and %+v", seed, out.Changes, out.Refused, out.Live, out.Candidate)
		}
		if live, mine := was.live.Snapshot(), was.mine.Snapshot(); !bytes.Equal(live, mine) {
			t.Errorf("seed %d: at the end the states are\n%.3000s\nand\n%.3000s", seed, live, mine)
		}
		for i, lines := range [][]string{
			{"queue a", "queue b", "queue c"},
			{"queue a quota=4 limit=8", "queue b quota=12", "queue c quota=4 limit=6 order=fifo"},
			{"queue a quota=4", "queue b quota=2", "queue c quota=1", "pool p devices=0-1 classes=training lends=yes", "pool q devices=2-7 classes=batch,training"},
		} {
			s := shadowed(t, record, lines...)
			if out := s.out; out.Live.Grown != was.out.Live.Grown || out.Live.Shrunk != was.out.Live.Shrunk || out.Candidate.Grown == out.Live.Grown || out.Refused > 0 {
				t.Errorf("seed %d, candidate %d: %d and %d grow, with %d refusals; in the record %d do", seed, i, out.Live.Grown, out.Candidate.Grown, out.Refused, was.out.Live.Grown)
			}
			parted := 0
			for _, j := range s.found {
				known, waits := s.mine.Known(j.mineID), s.mine.Phase(j.mineID) == api.Waiting
				if known == j.over || known && waits != (len(j.tasks) == 0) {
					t.Errorf("seed %d, candidate %d: workload %s is known %v, waits %v; it is over %v and has tasks %+v", seed, i, j.mineID, known, waits, j.over, j.tasks)
				}
				work := s.past.workOf(j)
				if !j.elastic() || j.together || !j.over || j.stopped || work == engine.Never {
					continue
				}
				parted++
				// Replicas end at whole µs, and as many as there are pass the end by one each.
				if late := j.done - work; late < 0 || late > engine.Time(len(j.tasks)) {
					t.Errorf("seed %d, candidate %d: the replicas of %s were there for %d µs, and %d in the record", seed, i, j.mineID, j.done, work)
				}
			}
			if parted == 0 {
				t.Errorf("seed %d, candidate %d: no elastic job went on by itself to its end", seed, i)
			}
		}
	}
}

// A record that begins while elastic work runs, with replicas that are being started and ended, is shadowed like one that begins before.
func TestShadowFromTheMiddle(t *testing.T) {
	whole := recordOf(t, elasticBusy(t, 1), allDay...)
	e, err := engine.Restore(whole.snapshot)
	if err != nil {
		t.Fatal(err)
	}
	further := 0
	for k := range whole.steps {
		e.Step(whole.steps[k].event)
		if k%97 != 0 {
			continue
		}
		record := &Record{snapshot: e.Snapshot(), steps: whole.steps[k+1:]}
		state, err := record.state()
		if err != nil {
			t.Fatal(err)
		}
		for i := range state.Workloads {
			further += len(state.Workloads[i].Of)
		}
		s := shadowed(t, record, allDay...)
		if out := s.out; len(out.Changes) > 0 || out.Refused > 0 || !bytes.Equal(s.live.Snapshot(), s.mine.Snapshot()) {
			t.Errorf("from step %d on the policy itself differs in %v, with %d refusals", k, out.Changes, out.Refused)
		}
		s = shadowed(t, record, "queue a", "queue b limit=6 quota=2", "queue c")
		for _, j := range s.found {
			if known := s.mine.Known(j.mineID); known == j.over {
				t.Errorf("from step %d on workload %s is known %v, and over %v with tasks %+v", k, j.mineID, known, j.over, j.tasks)
			}
		}
	}
	if further == 0 {
		t.Error("no record begins with a further replica")
	}
}

// handRecord keeps what an engine does with events; what it proposes is done at once, but for starts of replicas that refuse names.
func handRecord(t *testing.T, policy string, refuse func(task int) bool, events ...engine.Event) *Record {
	t.Helper()
	var text bytes.Buffer
	e := engine.New(engine.Config{})
	log, err := engine.NewLogWriter(&text, e.Snapshot())
	if err != nil {
		t.Fatal(err)
	}
	var step func(event engine.Event)
	step = func(event engine.Event) {
		actions := e.Step(event)
		if err := log.Append(event, actions); err != nil {
			t.Fatal(err)
		}
		at := engine.At{At: event.When()}
		for _, a := range actions {
			switch a := a.(type) {
			case engine.Place:
				if refuse(a.Tasks[0].Task) {
					step(engine.Refused{At: at, ID: a.ID, Reason: "no"})
					continue
				}
				step(engine.Done{At: at, ID: a.ID})
				for _, p := range a.Tasks {
					step(engine.Started{At: at, ID: a.Workload, Task: p.Task})
				}
			case engine.Evict:
				step(engine.Done{At: at, ID: a.ID})
				step(engine.Ended{At: at, ID: a.Workload, Task: a.Task})
			}
		}
	}
	r := &ruling{Rules: &Rules{Policy: candidate(t, policy), Start: time.UnixMicro(0).UTC()}}
	step(r.turn(0))
	for _, event := range events {
		for e.Next() <= event.When() {
			step(engine.Tick{At: engine.At{At: e.Next()}})
		}
		step(event)
	}
	out, err := ReadRecord("record", text.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// A replica that a host refuses was never there in either, and one that is adopted is. What ends by its time limit with few replicas has not done less
// work for that: with more it runs as long.
func TestShadowOfHostsAnswers(t *testing.T) {
	const s = 1_000_000
	at := func(seconds engine.Time) engine.At { return engine.At{At: seconds * s} }
	node := engine.NodeSet{Node: "n", Devices: []engine.Device{{UUID: "a", Model: "m", Memory: 1, Health: api.Healthy}, {UUID: "b", Index: 1, Model: "m", Memory: 1, Health: api.Healthy}}}
	work := engine.Workload{ID: "w", Tasks: 1, Max: 2, Devices: 1, Queue: "own", TimeLimit: 100 * s, Share: api.Share{Compute: api.Compute{Floor: api.WholeDevice, Ceiling: api.WholeDevice}}}
	whole := engine.Workload{ID: "next", Tasks: 1, Devices: 2, Queue: "own", Share: work.Share}
	refused := handRecord(t, "queue own", func(task int) bool { return task > 0 }, node, engine.Submit{At: at(1), Workload: work}, engine.Ended{At: at(51), ID: "w"})
	for _, c := range []struct {
		name   string
		record *Record
		policy string
		want   string
	}{
		{"refused", refused, "queue own", ""},
		{"refused, and never proposed", refused, "queue own limit=1", ""},
		{
			"by its limit", handRecord(t, "queue own limit=1", func(int) bool { return false }, node, engine.Submit{At: at(1), Workload: work}, engine.Submit{At: at(2), Workload: whole}, engine.Ended{At: at(101), ID: "w"},
				engine.Tick{At: at(102)}), "queue own limit=none",
			// next waits in both; with the candidate w keeps the replica that it got in the first second, for next could not start without it: until 101 s all the same.
			"w replicas: 1s on n/a, 0 evictions; 1s on n/a, 0 evictions; 0 grown and 0 shrunk, 1 and 1\nnext started: never; 101s on n/a n/b, 0 evictions",
		},
		{
			"by itself", handRecord(t, "queue own limit=1", func(int) bool { return false }, node, engine.Submit{At: at(1), Workload: work}, engine.Submit{At: at(2), Workload: whole}, engine.Ended{At: at(91), ID: "w"},
				engine.Tick{At: at(92)}), "queue own limit=none",
			// So it ends at 46 s, having done 90 s of work.
			"w replicas: 1s on n/a, 0 evictions; 1s on n/a, 0 evictions; 0 grown and 0 shrunk, 1 and 0\nnext started: never; 46s on n/a n/b, 0 evictions",
		},
	} {
		s := shadowed(t, c.record, c.policy)
		var got []string
		for _, change := range s.out.Changes {
			got = append(got, shadowText(change))
		}
		if strings.Join(got, "\n") != c.want || s.out.Refused > 0 || s.out.Live.Grown > 0 {
			t.Errorf("%s: %d refused, %d grown\n%s\nwant\n%s", c.name, s.out.Refused, s.out.Live.Grown, strings.Join(got, "\n"), c.want)
		}
	}
}
