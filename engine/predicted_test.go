package engine

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/engine/predict"
)

const second Time = 1_000_000

// TestExpectedIsWhatComes: where everything takes exactly what is predicted, or its time limit where that is shorter, each start comes
// when it was expected, and what was not expected to start waits.
func TestExpectedIsWhatComes(t *testing.T) {
	takes := map[string]Time{"ann": 3_001 * second, "bob": 5_003 * second} // nothing has run for so long
	ends := func(t *task) Time {
		end := limitOf(t)
		if long, ok := takes[t.w.User]; ok {
			end = min(end, after(t.since, long))
		}
		return end
	}
	came := 0
	rapid.Check(t, func(rt *rapid.T) {
		w := crowdedWorld(t, rt, func(ev *Submit, g *generator) { ev.Workload.TimeLimit *= Time(g.int("longer", 0, 1)) * 2000 })
		w.engine.predictor = predict.New(predict.Config{})
		for user, long := range takes {
			for range 4 {
				w.engine.predictor.Learn(predict.Work{User: user, Name: "x", Shape: "x", Queue: "x"}, int64(long), int64(w.now))
			}
		}
		w.forgetOthers()
		before := w.engine.Snapshot()
		expected := w.engine.newLookout(w.now, nil).foresee(func(q predict.Quantiles) int64 { return q.Median })
		if !bytes.Equal(before, w.engine.Snapshot()) {
			rt.Fatalf("a forecast left a trace")
		}
		waiting := w.engine.Waiting()
		starts := w.runOut(waiting, ends)
		for _, id := range waiting {
			at, ok := starts[id]
			if !ok {
				at = Never
			}
			if expected.Start(id) != at {
				rt.Fatalf("%s was expected to start at %d and starts at %d", id, expected.Start(id), at)
			}
			came += count(ok)
		}
	})
	t.Logf("%d that waited started", came)
	if came == 0 {
		t.Errorf("nothing that waited ever started: the test has shown nothing")
	}
}

// forgetOthers leaves in the predictor what was learned of users alone.
func (w *world) forgetOthers() {
	var kept []predict.Learned
	for _, l := range w.engine.predictor.Export() {
		if l.Like == predict.SameUser {
			kept = append(kept, l)
		}
	}
	var err error
	if w.engine.predictor, err = predict.Import(predict.Config{}, kept, predict.Wide{}); err != nil {
		w.t.Fatalf("%v", err)
	}
}

// annsWorld is a world of one node with two devices, on which work of ann's runs.
func annsWorld(t *testing.T) *world {
	w := newWorld(t, Config{})
	w.step(NodeSet{At: w.at(), Node: "n1", Devices: devices("n1", 2, "big", 8*gi)})
	return w
}

func annsWork(id, name string) Workload {
	share := api.Share{Compute: api.Compute{Floor: api.WholeDevice, Ceiling: api.WholeDevice}}
	return Workload{ID: id, User: "ann", Name: name, Tasks: 1, Devices: 1, Share: share}
}

// Work that ended by itself teaches how long its like runs and what it holds; what was stopped does not.
func TestEngineLearns(t *testing.T) {
	w := annsWorld(t)
	run := func(id, name string, long Time, held api.Bytes) {
		w.step(Submit{At: w.at(), Workload: annsWork(id, name)})
		w.settle()
		grant := w.engine.Grants(id)[0].Grants[0].UID
		w.step(Usage{w.at(), []GrantUsage{{grant, held}}})
		w.step(Usage{w.at(), []GrantUsage{{grant, held / 2}}})
		w.now += long
		w.finish(id)
	}
	for i := range 4 {
		run(fmt.Sprint("train", i), "train", Time(60+i)*second, api.Bytes(i+1)*gi)
	}
	w.step(Submit{At: w.at(), Workload: annsWork("stopped", "train")})
	w.settle()
	w.now += 9 * second
	w.step(Cancel{w.at(), "stopped", "enough"})
	w.settle()

	next := annsWork("next", "train")
	if got, ok := w.engine.Predict(&next); !ok || got != (predict.Quantiles{Low: int64(60 * second), Median: int64(62 * second), High: int64(63 * second), Like: predict.SameName, Samples: 4}) {
		t.Errorf("it is predicted to run %+v %v", got, ok)
	}
	other := annsWork("other", "")
	if got, ok := w.engine.Predict(&other); !ok || got.Like != predict.SameShape {
		t.Errorf("work without a name is predicted as %s: %+v %v", got.Like, got, ok)
	}
}

// A gang runs from its first start to its last end.
func TestGangIsLearnedWhole(t *testing.T) {
	w := annsWorld(t)
	for i := range 4 {
		gang := annsWork(fmt.Sprint("gang", i), "gang")
		gang.Tasks = 2
		place := w.step(Submit{At: w.at(), Workload: gang})[0].(Place)
		w.step(Done{w.at(), place.ID})
		for task := range 2 {
			w.now += second
			w.step(Started{w.at(), gang.ID, task})
		}
		for task := range 2 {
			w.now += 10 * second
			w.step(Ended{w.at(), gang.ID, task, nil})
		}
	}
	next := annsWork("next", "gang")
	next.Tasks = 2
	if got, ok := w.engine.Predict(&next); !ok || got.Low != int64(21*second) || got.High != int64(21*second) {
		t.Errorf("a gang that ran for 21 s is predicted to run %+v %v", got, ok)
	}
}

// What the host tells of the past counts as if it had been seen, and gives a start where no time limit does.
func TestPastGivesAnEstimate(t *testing.T) {
	w := annsWorld(t)
	past := make([]Past, 4)
	for i := range past {
		past[i] = Past{Workload: annsWork(fmt.Sprint("past", i), "train"), Ago: Time(40-i) * second, Ran: Time(60+10*i) * second}
	}
	w.step(Learn{w.at(), past})
	w.step(Adopt{At: w.at(), Workload: annsWork("a", "train"), Ran: 20 * second, Tasks: []Placing{{Node: "n1", Grants: []Grant{{
		UID: "a.0.0", Device: "n1-0", Compute: api.Compute{Floor: 1000, Ceiling: 1000}, Ceiling: 8 * gi, Weight: 1000,
	}}}}})
	w.step(Submit{At: w.at(), Workload: annsWork("b", "train")})
	w.settle()
	w.step(Submit{At: w.at(), Workload: annsWork("c", "train")})
	got := w.engine.Estimate(w.engine.Outlook(w.now), "c")
	if got.Expected != 60*second || got.From != 40*second || got.To != 70*second || got.Latest != Never || got.Unknown != UnknownEndless {
		t.Errorf("a runs for 20 s of 60 to 90, and what waits for its end is estimated to start at %+v", got)
	}
	w.now += 75 * second // longer than any: nothing tells how long it goes on, and b has run for as long as most
	if got := w.engine.Estimate(w.engine.Outlook(w.now), "c"); got.Expected != Never {
		t.Errorf("what waits for work that has outrun all that was learned is expected at %+v", got)
	}
}

func TestLearnAndAdoptRefuse(t *testing.T) {
	w := annsWorld(t)
	good := Past{Workload: annsWork("a", ""), Ago: 1, Ran: 1}
	change := func(of func(*Past)) []Past {
		bad := good
		of(&bad)
		return []Past{bad}
	}
	for what, past := range map[string][]Past{
		"run for -1": change(func(p *Past) { p.Ran = -1 }),
		"ended -1":   change(func(p *Past) { p.Ago = -1 }),
		"ended 922":  change(func(p *Past) { p.Ago = Never }), // and what would pass an integer
		"run for 92": change(func(p *Past) { p.Ran = Never }),
		"in front":   append(change(func(*Past) {}), change(func(p *Past) { p.Ago = 2 })...),
		"floor":      change(func(p *Past) { p.Workload.Share.Compute.Floor = 2000 }),
	} {
		before := w.engine.predictor.Export()
		out := w.step(Learn{w.at(), past})
		if len(out) != 1 || !strings.Contains(out[0].(Reject).Reason, what) || len(w.engine.predictor.Export()) != len(before) {
			t.Errorf("%s: %+v", what, out)
		}
	}
	for _, long := range []Time{-1, Never} {
		if out := w.step(Submit{At: w.at(), Workload: annsWork("a", ""), Waited: long}); len(out) != 1 || !strings.Contains(out[0].(Reject).Reason, fmt.Sprint("waited for ", int64(long))) {
			t.Errorf("%+v", out)
		}
		if out := w.step(Adopt{At: w.at(), Workload: annsWork("a", ""), Ran: long, Tasks: []Placing{{Node: "n1", Grants: []Grant{{UID: "x", Device: "n1-0"}}}}}); len(out) != 1 || !strings.Contains(out[0].(Reject).Reason, fmt.Sprint("run for ", int64(long))) {
			t.Errorf("%+v", out)
		}
	}
}

// What is learned late, of what ended before something that was learned already, leaves a state that can be restored.
func TestPastLearnedLate(t *testing.T) {
	w := annsWorld(t)
	w.now = 100 * second
	for _, ago := range []Time{1, 50 * second, 2} {
		if out := w.step(Learn{w.at(), []Past{{Workload: annsWork("past", "train"), Ago: ago, Ran: second}}}); len(out) != 0 {
			t.Fatalf("%+v", out)
		}
	}
	again, err := Restore(w.engine.Snapshot())
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(again.Snapshot(), w.engine.Snapshot()) {
		t.Error("the state is another when it is restored")
	}
}

// The turn of a workload is when it came and so many times what it is predicted to run, by its time limit at the most.
func TestTurn(t *testing.T) {
	w := annsWorld(t)
	w.step(QueueSet{w.at(), api.QueueSpec{Name: "lab", Quota: api.Unlimited, ShortestFirst: 2500}})
	past := make([]Past, 4)
	for i := range past {
		past[i] = Past{Workload: annsWork(fmt.Sprint("past", i), "train"), Ago: 1, Ran: 60 * second}
	}
	w.step(Learn{w.at(), past})
	w.now = 7 * second
	for i := range 2 {
		w.step(Submit{At: w.at(), Workload: annsWork(fmt.Sprint("runs", i), "")})
	}
	w.settle()
	turn := func(id, user string, limit Time, queue string, want Time) {
		t.Helper()
		one := annsWork(id, "train")
		one.User, one.TimeLimit, one.Queue = user, limit, queue
		w.step(Submit{At: w.at(), Workload: one})
		if got := w.engine.work[id].turn; got != want {
			t.Errorf("the turn of %s is %d, want %d", id, got, want)
		}
	}
	turn("predicted", "ann", 0, "lab", 7*second+150*second)
	turn("limited", "ann", 10*second, "lab", 7*second+25*second)
	turn("first come", "ann", 0, "", 7*second)
	turn("of all", "bob", 0, "lab", 7*second+150*second)
	w.engine.predictor = predict.New(predict.Config{})
	turn("unknown", "bob", 0, "lab", 7*second)
	turn("unknown with a limit", "bob", 4*second, "lab", 7*second+10*second)
	turn("for ever", "bob", Never-1, "lab", 7*second+Never/2500*2500/1000)
	w.step(Submit{At: w.at(), Workload: annsWork("waited", ""), Waited: 3 * second})
	if got := w.engine.work["waited"].came; got != 7*second {
		t.Errorf("what was submitted last came before others, at %d", got)
	}
	w.now = 9 * second
	w.step(Submit{At: w.at(), Workload: annsWork("waited 1 s", ""), Waited: second})
	if got := w.engine.work["waited 1 s"].came; got != 8*second {
		t.Errorf("what has waited for 1 s at 9 came at %d", got)
	}
	w.step(QueueSet{w.at(), api.QueueSpec{Name: "lab", Quota: api.Unlimited}})
	w.firstCome(t)
}

// firstCome holds the turns of all that wait against when they came.
func (w *world) firstCome(t *testing.T) {
	t.Helper()
	for id, one := range w.engine.work {
		if one.waiting() && one.turn != one.came {
			t.Errorf("first come again, the turn of %s, which came at %d, is %d", id, one.came, one.turn)
		}
	}
}

// Where queues stand in one line the order of the topmost says whose turn it is, whoever says otherwise below it, and what waits stands in line
// anew when that changes: what it says, where it is, or that it is one line.
func TestTurnInOneLine(t *testing.T) {
	w := annsWorld(t)
	set := func(name, parent, order string) {
		t.Helper()
		q := api.QueueSpec{Name: name, Parent: parent, Quota: api.Unlimited}
		var err error
		if q.Order, q.ShortestFirst, err = api.ParseOrder(order); err != nil {
			t.Fatal(err)
		}
		w.step(QueueSet{w.at(), q})
	}
	turn := func(rank int64, want Time) {
		t.Helper()
		if one := w.engine.work["one"]; one.rank != rank || one.turn != want {
			t.Errorf("its rank is %d and its turn %d, want %d and %d", one.rank, one.turn, rank, want)
		}
	}
	set("lab", "", "shortest:2")
	set("group", "lab", "fifo")
	set("team", "group", "fair+priority:1s")
	for i := range 2 {
		w.step(Submit{At: w.at(), Workload: annsWork(fmt.Sprint("runs", i), "")})
	}
	w.settle()
	w.now = 7 * second
	one := annsWork("one", "")
	one.Queue, one.Priority, one.TimeLimit = "team", 3, 10*second
	w.step(Submit{At: w.at(), Workload: one})
	turn(0, 27*second)
	set("lab", "", "priority")
	turn(3, 7*second)
	set("group", "lab", "fair+priority:2s")
	turn(3, 7*second)
	set("lab", "", "fair")
	turn(0, 4*second) // by its own
	set("group", "lab", "priority:2s")
	turn(0, second)
	set("group", "", "priority:2s")
	set("lab", "", "fifo")
	turn(0, second)
	w.step(PolicySet{w.at(), Policy{Queues: []api.QueueSpec{{Name: "group", Parent: "lab", Quota: api.Unlimited}}}})
	turn(0, 7*second)
	w.firstCome(t)
}

// What is predicted of a workload when it starts is judged when it ends, also by an engine that was restored meanwhile; what was stopped says nothing.
func TestIntervalsFollowWhatEnds(t *testing.T) {
	w := annsWorld(t)
	run := func(id string, long Time, stop bool) {
		w.step(Submit{At: w.at(), Workload: annsWork(id, "train")})
		w.settle()
		w.now += long
		restored, err := Restore(w.engine.Snapshot())
		if err != nil {
			t.Fatal(err)
		}
		if w.engine = restored; stop {
			w.step(Cancel{w.at(), id, "enough"})
			w.settle()
			return
		}
		w.finish(id)
	}
	for i := range 5 { // the fifth is predicted, and as long
		run(fmt.Sprint("train", i), 60*second, false)
	}
	if of := w.engine.predictor.Wide()[predict.SameName]; of.Of != 1 || of.High >= 0 || of.Low >= 0 {
		t.Fatalf("after one that was as long as predicted: %+v", of)
	}
	run("stopped", 600*second, true)
	run("long", 600*second, false)
	widened := w.engine.predictor.Wide()
	if of := widened[predict.SameName]; of.Of != 2 || of.High <= 0 || of.Low >= 0 {
		t.Errorf("after one that was longer than predicted: %+v", widened)
	}
	for i := range 60 {
		run(fmt.Sprint("again", i), 60*second, false)
	}
	next := annsWork("next", "train")
	if got, ok := w.engine.Predict(&next); !ok || got.Low != int64(60*second) || got.High != int64(60*second) {
		t.Errorf("after 60 that were as long as predicted it is predicted to run %+v %v", got, ok)
	}
}
