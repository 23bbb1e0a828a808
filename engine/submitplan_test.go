package engine

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/engine/place"
)

// checkPlan plans a submission and holds the plan to what an engine restored from a snapshot then does, and the engine itself to
// what it was before.
func (w *world) checkPlan(news []GrantUsage, s Submit) SubmitPlan {
	w.t.Helper()
	before := w.engine.Snapshot()
	plan := w.engine.PlanSubmit(Usage{s.At, news}, s.Workload)
	if after := w.engine.Snapshot(); !bytes.Equal(before, after) {
		w.t.Fatalf("a plan of %+v left a trace: %s", s.Workload, firstDifference(after, before))
	}
	if err := w.engine.CheckInvariants(); err != nil {
		w.t.Fatalf("after a plan of %+v: %v", s.Workload, err)
	}
	twin, err := Restore(before)
	if err != nil {
		w.t.Fatalf("restore: %v", err)
	}
	twin.Step(Usage{s.At, news})
	if got, want := show(plan.Actions), show(twin.Step(s)); got != want {
		w.t.Fatalf("the plan of %+v is\n%sand what is done is\n%s", s.Workload, got, want)
	}
	phase := twin.Phase(s.Workload.ID)
	if plan.Rejected != nil {
		return plan
	}
	if (plan.Place != nil) != (phase != api.Waiting) {
		w.t.Fatalf("by the plan %s starts: %v, and it is %s", s.Workload.ID, plan.Place != nil, phase)
	}
	if plan.Place == nil {
		if got, want := showWhy(plan.Why), showWhy(twin.Why(s.Workload.ID)); got != want {
			w.t.Fatalf("by the plan %s waits:\n%sand it waits:\n%s", s.Workload.ID, got, want)
		}
	}
	if p := plan.Promise; p != nil {
		// Of several queues another may be first in line next.
		was, is := w.engine.Why(p.First).Estimate, twin.Why(p.First)
		if w.engine.Now() == twin.Now() && len(news) == 0 && len(plan.Actions) == 1 && is.Code == WhyNoRoom && is.Estimate > was {
			w.t.Fatalf("%s is started with promise %+v, and the first in line may start at %d and no longer at %d", s.Workload.ID, *p, is.Estimate, was)
		}
	}
	return plan
}

// follow takes an event in, and holds the engine to one that was restored just before and never planned.
func (w *world) follow(event Event) {
	w.t.Helper()
	twin, err := Restore(w.engine.Snapshot())
	if err != nil {
		w.t.Fatalf("restore: %v", err)
	}
	if got, want := show(w.engine.Step(event)), show(twin.Step(event)); got != want {
		w.t.Fatalf("after plans %T gives\n%sand without\n%s", event, got, want)
	}
	if a, b := w.engine.Snapshot(), twin.Snapshot(); !bytes.Equal(a, b) {
		w.t.Fatalf("after plans and %T: %s", event, firstDifference(a, b))
	}
}

// shown is what the plans of a test came to.
type shown struct{ promised, evicting, started, delayed int }

func (s *shown) all() bool { return s.promised > 0 && s.evicting > 0 && s.started > 0 && s.delayed > 0 }

// TestPlanIsWhatSubmitDoes: at any state a plan of any submission leaves no trace, and says what the submission does. The world goes on
// with the engine that planned and holds it, step by step, to one that never did. Its worlds are such that it sees plans of each kind, whatever is drawn.
func TestPlanIsWhatSubmitDoes(t *testing.T) {
	var seen shown
	rapid.Check(t, func(rt *rapid.T) { planInAWorld(t, rt, &seen) })
	t.Logf("%+v", seen)
	if !seen.all() {
		t.Errorf("%+v: the test has shown too little", seen)
	}
}

func planInAWorld(t *testing.T, rt *rapid.T, seen *shown) {
	w := newWorld(t, Config{Placement: drawPolicy(rt)})
	w.t = rt
	g := &generator{t: rt, world: w}
	for _, ev := range queues(w.at()) {
		w.step(ev)
	}
	for _, name := range []string{"org", "other"} {
		w.step(QueueSet{w.at(), api.QueueSpec{Name: name, Quota: api.Quota(g.int("quota", 0, 2)) * 1000}})
	}
	w.step(g.node())
	for i := range g.int("borrowers", 0, 4) {
		share := api.Share{Compute: api.Compute{Floor: 600, Ceiling: api.WholeDevice}}
		w.step(Submit{At: w.at(), Workload: Workload{ID: fmt.Sprintf("borrower%d", i), Tasks: 1, Devices: 1, Share: share, Preemptible: true}})
		w.settle()
	}
	staged := ""
	if g.int("stage", 0, 1) == 1 {
		staged = w.stage()
	}
	for range g.int("steps", 20, 60) {
		event := g.event()
		submit, ok := event.(Submit)
		if !ok {
			submit = g.submit()
			submit.At.At += Time(g.int("later", 0, 3)) * 700_000
			if g.int("new names", 0, 9) == 0 {
				submit.Workload.Feasibility = "nowhere"
				submit.Workload.Resources = []Resource{{"unheard of", 1}}
			}
			model := g.pick("model of it", "", staged, staged)
			one := func(floor api.Milli, devices int) Workload {
				return Workload{ID: submit.Workload.ID, Model: model, Tasks: 1, Devices: devices, Share: api.Share{Compute: api.Compute{Floor: floor, Ceiling: api.WholeDevice}}, TimeLimit: 1_000_000}
			}
			switch g.int("is", 0, 4) {
			case 0: // what backfill is for
				submit.Workload = one(100, 1)
			case 1: // what delays others
				submit.Workload = one(1000, 2)
				submit.Workload.Priority, submit.Workload.TimeLimit = 2, 0
			}
		}
		if submit.Waited, submit.Served, submit.Disrupted = 0, 0, nil; ok { // a plan is of what comes now
			event = submit
		}
		var news []GrantUsage
		if g.int("news", 0, 3) == 0 {
			news = g.usage(submit.At).Grants
		}
		plan := w.checkPlan(news, submit)
		seen.promised += count(plan.Promise != nil)
		seen.evicting += count(len(plan.Evict) > 0)
		seen.started += count(plan.Place != nil)
		seen.delayed += count(plan.Delayed > 0)
		w.follow(event)
	}
}

// stage brings a node on which one of two devices is taken for long, and work that waits for both: what backfill is for, and what can be delayed, where all else
// is drawn. Of a higher priority, more may be taken from both. It returns the model that names it.
func (w *world) stage() string {
	const model = "stage"
	w.step(NodeSet{At: w.at(), Node: model, Devices: devices(model, 2, model, 8*gi), Resources: []Resource{{"cpu", 8}}})
	for devices := 1; devices <= 2; devices++ {
		share := api.Share{Compute: api.Compute{Floor: api.WholeDevice, Ceiling: api.WholeDevice}}
		w.step(Submit{At: w.at(), Workload: Workload{ID: fmt.Sprintf("%s%d", model, devices), Model: model, Tasks: 1, Devices: devices, Share: share, Preemptible: true, TimeLimit: 2000 * second}})
		w.settle()
	}
	return model
}

// firstDifference shows two snapshots from where they differ.
func firstDifference(a, b []byte) string {
	at := bytes.IndexByte(a, '\n') + 1 // behind the checksums
	for at < min(len(a), len(b)) && a[at] == b[at] {
		at++
	}
	from := max(0, at-80)
	return fmt.Sprintf("…%.200s… instead of …%.200s…", a[from:], b[from:])
}

func count(yes bool) int {
	if yes {
		return 1
	}
	return 0
}

// TestForecastIsWhatComes: where everything takes all of its time limit and nobody does anything, each start comes at the time that was
// forecast, and what was forecast to wait waits.
func TestForecastIsWhatComes(t *testing.T) {
	came := 0
	rapid.Check(t, func(rt *rapid.T) {
		w := crowdedWorld(t, rt, func(*Submit, *generator) {})
		before := w.engine.Snapshot()
		forecast := w.engine.Forecast(w.now)
		if !bytes.Equal(before, w.engine.Snapshot()) {
			rt.Fatalf("a forecast left a trace")
		}
		waiting := w.engine.Waiting()
		came += w.asForecast(waiting, forecast, w.runOut(waiting, limitOf))
	})
	t.Logf("%d that waited started", came)
	if came == 0 {
		t.Errorf("nothing that waited ever started: the test has shown nothing")
	}
}

// asForecast holds the starts of what waited to a forecast, and counts them.
func (w *world) asForecast(waiting []string, forecast *Forecast, starts map[string]Time) (came int) {
	for _, id := range waiting {
		if at, ok := starts[id]; !ok && forecast.Start(id) != Never || ok && forecast.Start(id) != at {
			w.t.Fatalf("%s was forecast to start at %d and starts at %d (%v)", id, forecast.Start(id), at, ok)
		} else if ok {
			came++
		}
	}
	return came
}

// TestForecastKnowsWhatComes: so it is where other policies and priorities are known to come. It goes on until a forecast that knew
// nothing of them was wrong.
func TestForecastKnowsWhatComes(t *testing.T) {
	came, otherwise := 0, 0
	for round := 0; round == 0 || round < 10 && otherwise == 0; round++ { // with -short few worlds are drawn in a round
		rapid.Check(t, func(rt *rapid.T) {
			w := crowdedWorld(t, rt, func(*Submit, *generator) {})
			g := &generator{t: rt, world: w, tame: true}
			waiting := w.engine.Waiting()
			var coming []Event
			for at := w.now; len(coming) < 4; {
				at += Time(g.int("later", 0, 6)) * 1000 * second
				if len(waiting) > 0 && g.int("of one", 0, 3) == 0 {
					coming = append(coming, Change{At: At{at}, ID: rapid.SampledFrom(waiting).Draw(rt, "one"), Priority: new(int32(g.int("priority", -1, 2)))})
				} else {
					coming = append(coming, unlearned(g.policy(At{at})))
				}
			}
			before := w.engine.Snapshot()
			forecast, blind := w.engine.Forecast(w.now, coming...), w.engine.Forecast(w.now)
			if !bytes.Equal(before, w.engine.Snapshot()) {
				rt.Fatalf("a forecast left a trace")
			}
			starts := w.runOut(waiting, limitOf, coming...)
			came += w.asForecast(waiting, forecast, starts)
			for id, at := range starts {
				otherwise += count(blind.Start(id) != at)
			}
		})
	}
	t.Logf("%d that waited started, %d of them at another time than by what held before", came, otherwise)
	if otherwise == 0 {
		t.Errorf("nothing started otherwise by what came: the test has shown nothing")
	}
}

// TestForecastOfAWindow: the first moment at which something may start that its queue does not let start now is that at which it does, and
// a plan of such work says so.
func TestForecastOfAWindow(t *testing.T) {
	w := newWorld(t, Config{})
	w.step(NodeSet{At: w.at(), Node: "n1", Devices: devices("n1", 2, "big", 8*gi)})
	team := func(limit api.Quota) PolicySet {
		return PolicySet{w.at(), Policy{Queues: []api.QueueSpec{{Name: "team", Quota: api.Unlimited, Limit: api.QueueAmounts{Compute: &limit}}}}}
	}
	w.step(team(500))
	one := func(id, queue string, limit Time) Workload {
		return Workload{ID: id, Queue: queue, Tasks: 1, Devices: 1, Share: api.Share{Compute: api.Compute{Floor: 1000, Ceiling: 1000}}, TimeLimit: limit * second}
	}
	for _, running := range []Workload{one("short", "default", 200), one("long", "default", 500)} {
		w.step(Submit{At: w.at(), Workload: running})
		w.settle()
	}
	w.step(Submit{At: w.at(), Workload: one("night", "team", 60)})
	night, day := team(1000), team(500)
	night.At.At, day.At.At = w.now+100*second, w.now+300*second
	for _, c := range []struct {
		coming                     []Event
		earliest, latest, nextTurn Time
		unknown                    string
	}{
		{nil, 0, Never, Never, UnknownNever},
		{[]Event{night}, 100 * second, 200 * second, 260 * second, ""},
		{[]Event{night, day}, 100 * second, 200 * second, 260 * second, ""},
		{[]Event{day}, 300 * second, Never, Never, UnknownNever},
	} {
		got := w.engine.Estimate(w.engine.Outlook(w.now, c.coming...), "night")
		if got.Earliest != w.now+c.earliest || got.Latest != c.latest || got.Unknown != c.unknown {
			t.Errorf("with %d to come it is estimated %+v", len(c.coming), got)
		}
		if plan := w.engine.PlanSubmit(Usage{At: w.at()}, one("next", "team", 60), c.coming...); plan.Estimate.Latest != c.nextTurn {
			t.Errorf("with %d to come what is behind it is planned %+v", len(c.coming), plan.Estimate)
		}
	}
}

// unlearned is an event that has no queue go by what work is predicted to take: what ends meanwhile teaches that, and no forecast learns.
func unlearned(ev Event) Event {
	switch ev := ev.(type) {
	case QueueSet:
		ev.Queue.ShortestFirst = 0
		return ev
	case PolicySet:
		ev.Policy.Queues = slices.Clone(ev.Policy.Queues)
		for i := range ev.Policy.Queues {
			ev.Policy.Queues[i].ShortestFirst = 0
		}
		return ev
	}
	return ev
}

// crowdedWorld is a world after some drawn events, in which much waits and everything is answered. change may make another submission
// of each drawn one.
func crowdedWorld(t *testing.T, rt *rapid.T, change func(*Submit, *generator)) *world {
	w := newWorld(t, Config{})
	w.t = rt
	g := &generator{t: rt, world: w, tame: true}
	for _, ev := range queues(w.at()) {
		w.step(ev)
	}
	w.step(g.node())
	w.step(g.node())
	for range g.int("steps", 10, 60) {
		switch ev := unlearned(g.event()).(type) {
		case Refused, NodeSet: // a node that refused is tried again when something ends there, which no forecast sees
		case Submit:
			change(&ev, g)
			w.step(ev)
		default:
			w.step(ev)
		}
	}
	g.crowd()
	w.goOn()
	return w
}

// crowd submits plain work with time limits, most of which has to wait.
func (g *generator) crowd() {
	for i := range 6 {
		floor := api.Milli(g.int("crowd", 1, 2)) * 500
		g.world.step(Submit{At: g.world.at(), Workload: Workload{
			ID: fmt.Sprint("crowd", i), User: g.pick("user", "", "ann", "bob"), Tasks: 1, Devices: 1,
			Share: api.Share{Compute: api.Compute{Floor: floor, Ceiling: api.WholeDevice}}, TimeLimit: Time(g.int("limit", 1, 4)) * 2000 * second,
		}})
	}
}

// goOn answers everything, and ends what is being ended.
func (w *world) goOn() {
	w.answerAll()
	for _, one := range w.engine.byID() {
		for _, t := range one.tasks {
			if t.live() && t.evicting {
				w.step(Ended{w.at(), one.ID, t.number(), nil})
				w.answerAll()
			}
		}
	}
}

// answerAll is settle with a tick after each round of answers.
func (w *world) answerAll() {
	for open := w.engine.Unanswered(); len(open) > 0; open = w.engine.Unanswered() {
		for _, a := range open {
			w.step(Done{w.at(), a.Action()})
			switch a := a.(type) {
			case Place:
				for _, p := range a.Tasks {
					w.step(Started{w.at(), a.Workload, p.Task})
				}
			case Evict:
				w.step(Ended{w.at(), a.Workload, a.Task, nil})
			}
		}
		w.step(Tick{w.at()})
	}
}

// limitOf is when the time limit of a task is over.
func limitOf(t *task) Time {
	if t.w.TimeLimit == 0 {
		return Never
	}
	return t.end()
}

// runOut lets everything run to its end and what is to come come, and says when those that wait started.
func (w *world) runOut(waiting []string, ends func(*task) Time, coming ...Event) map[string]Time {
	starts := map[string]Time{}
	for {
		w.step(Tick{w.at()})
		w.answerAll()
		for _, id := range waiting {
			if _, ok := starts[id]; !ok && w.engine.Phase(id) != api.Waiting {
				starts[id] = w.now
			}
		}
		end, next := Never, w.engine.Next()
		var t *task
		for _, one := range w.engine.byID() {
			for _, o := range one.tasks {
				first := t == nil || ends(o) < end || ends(o) == end && (o.w.seq < t.w.seq || o.w == t.w && o.index < t.index)
				if o.live() && ends(o) != Never && first {
					t, end = o, ends(o)
				}
			}
		}
		switch {
		case len(coming) > 0 && coming[0].When() <= min(end, next):
			w.now = max(w.now, coming[0].When())
			w.step(coming[0])
			coming = coming[1:]
		case end == Never && next == Never:
			return starts
		case end <= next:
			w.now = max(w.now, end)
			w.step(Ended{w.at(), t.w.ID, t.number(), nil})
			w.answerAll()
		default:
			w.now = max(w.now, next)
		}
	}
}

// TestEstimateSaysWhyThereIsNone names the reasons for which no start is known.
func TestEstimateSaysWhyThereIsNone(t *testing.T) {
	w := newWorld(t, Config{})
	w.step(NodeSet{At: w.at(), Node: "n1", Devices: devices("n1", 1, "big", 8*gi)})
	submit := func(id string, floor api.Milli, limit Time) {
		share := api.Share{Compute: api.Compute{Floor: floor, Ceiling: api.WholeDevice}}
		w.step(Submit{At: w.at(), Workload: Workload{ID: id, Tasks: 1, Devices: 1, Share: share, TimeLimit: limit}})
		w.settle()
	}
	submit("limited", 500, 60_000_000)
	submit("endless", 500, 0)
	submit("half", 500, 0)
	submit("whole", 1000, 0)
	f := w.engine.Outlook(w.now)
	for id, want := range map[string]string{
		"half":  "{Earliest:0 Latest:60000000 Unknown: Message: Expected:NEVER From:NEVER To:NEVER InWay:[]}",
		"whole": "{Earliest:0 Latest:NEVER Unknown:no_time_limit Message:work without a time limit is in its way Expected:NEVER From:NEVER To:NEVER InWay:[endless]}",
	} {
		got := strings.ReplaceAll(fmt.Sprintf("%+v", w.engine.Estimate(f, id)), fmt.Sprint(Never), "NEVER")
		if got != want {
			t.Errorf("%s: %s instead of %s", id, got, want)
		}
	}
}

// TestEstimateOfWhatComesBack: what waits for its queue's next period, or for what pools lend, is not said to be impossible.
func TestEstimateOfWhatComesBack(t *testing.T) {
	w := newWorld(t, Config{})
	w.step(NodeSet{At: w.at(), Node: "n1", Devices: devices("n1", 1, "big", 8*gi)})
	w.step(QueueSet{w.at(), api.QueueSpec{Name: "team", Quota: api.Unlimited, HoursSpent: true}})
	w.step(PolicySet{w.at(), Policy{Queues: []api.QueueSpec{{Name: "team", Quota: api.Unlimited, HoursSpent: true}}, Pools: []Pool{
		{Name: "training", Nodes: []string{"n1"}, Classes: []api.Class{api.Training}, Lends: true},
	}}})
	submit := func(id, queue string, class api.Class, preemptible bool) {
		share := api.Share{Compute: api.Compute{Floor: api.WholeDevice, Ceiling: api.WholeDevice}}
		w.step(Submit{At: w.at(), Workload: Workload{ID: id, Queue: queue, Class: class, Tasks: 1, Devices: 1, Share: share, Preemptible: preemptible}})
		w.settle()
	}
	submit("endless", "default", api.Training, false)
	submit("spent", "team", api.Training, false)
	submit("guest", "default", api.Inference, true)
	submit("never", "default", api.Inference, false)
	f := w.engine.Outlook(w.now)
	for id, want := range map[string]string{"spent": UnknownHours, "guest": UnknownLent, "never": UnknownNever} {
		if got := w.engine.Estimate(f, id); got.Unknown != want || got.Message == "" || got.Latest != Never {
			t.Errorf("%s: %+v, want %s", id, got, want)
		}
	}
}

// drawPolicy is best fit, or the default scores.
func drawPolicy(t *rapid.T) *place.Policy {
	if rapid.Bool().Draw(t, "best fit") {
		return nil
	}
	policy := place.Default()
	if rapid.Bool().Draw(t, "weighs use") {
		policy.Weights[place.Interference] = 300
	}
	return &policy
}
