package engine

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/aliquot-dev/aliquot/api"
)

// TestPredictedAgainstNaive holds the engine against the naive one where much is predicted, and much of it wrongly.
func TestPredictedAgainstNaive(t *testing.T) {
	letIn, late := 0, 0
	rapid.Check(t, func(rt *rapid.T) {
		d := newDuel(t, rt)
		at := d.w.at()
		for i, name := range []string{"n1", "n2"} {
			d.take(NodeSet{at, name, devices(name, 1+i, "big", 8*gi), []Resource{{"cpu", 9}}, nil})
		}
		d.take(PolicySet{at, Policy{Predicted: true, Queues: []api.QueueSpec{
			{Name: "team", Quota: *d.g.quota(), Order: d.g.order(), MinRun: d.g.minRun()}, {Name: "other", Quota: api.Unlimited},
		}}})
		like := d.early()
		past := Learn{At: at}
		for range 4 {
			past.Past = append(past.Past, Past{Workload: like, Ran: Time(d.g.int("ran", 0, 3)) * second})
		}
		d.take(past)
		count := func() {
			letIn += len(d.w.engine.early)
			for _, a := range d.w.engine.Unanswered() {
				if evict, ok := a.(Evict); ok && evict.Code == EvictBackfill {
					late++
				}
			}
		}
		if d.g.int("staged", 0, 2) > 0 {
			d.stage(like)
			count()
			for range d.g.int("passing", 1, 3) * 4 {
				d.w.now += second
				if over := d.overLimit(); over != nil {
					d.take(*over)
				} else {
					d.take(Tick{d.w.at()})
				}
				count()
			}
		}
		for range d.g.int("steps", 20, 100) {
			d.take(d.predictedEvent(like))
			count()
		}
	})
	if letIn == 0 || late == 0 {
		t.Errorf("%d times something was there that was let in, and %d times it was overdue and in the way: the test has shown too little", letIn, late)
	}
}

// early is preemptible work of one user, all alike.
func (d *duel) early() Workload {
	return Workload{
		User: "ann", Name: "short", Queue: d.g.pick("queue", "other", "team"), Class: api.Batch, Tasks: 1, Devices: 1, Preemptible: true,
		Share: api.Share{Compute: api.Compute{Floor: 400, Ceiling: 1000}},
	}
}

// stage has each device half taken for some time, one wait for a whole one, and what is predicted to be short come behind it.
func (d *duel) stage(like Workload) {
	at := d.w.at()
	come := func(change func(w *Workload)) {
		w := like
		d.g.next++
		w.ID = fmt.Sprintf("w%d", d.g.next)
		change(&w)
		d.take(Submit{At: at, Workload: w})
	}
	for range 3 {
		come(func(w *Workload) {
			w.User, w.Preemptible, w.Queue, w.TimeLimit = "bob", false, "other", Time(d.g.int("limit", 5, 9))*second
			w.Share.Compute.Floor = 600 // so that no two are on one device
		})
	}
	come(func(w *Workload) {
		w.User, w.Preemptible, w.Queue, w.Priority, w.Share.Compute.Floor = "cy", false, "other", 1, 1000
	})
	for range 4 { // two fit beside it
		come(func(w *Workload) { w.Queue = "other" })
	}
	for open := d.w.engine.Unanswered(); len(open) > 0; open = d.w.engine.Unanswered() {
		d.take(Done{at, open[0].Action()})
	}
}

// overLimit is the end of the first task whose time limit is over, which a host ends; nil: there is none.
func (d *duel) overLimit() *Ended {
	if t, end := (limits{d.w.engine}).next(); t != nil && end <= d.w.now {
		return &Ended{d.w.at(), t.w.ID, t.number(), nil}
	}
	return nil
}

// predictedEvent is mostly an answer, then work with a time limit that leaves room on its devices, work that needs a whole one and what is predicted to be short.
func (d *duel) predictedEvent(like Workload) Event {
	g := d.g
	open := d.w.engine.Unanswered()
	if len(open) > 0 && g.int("answer", 0, 3) > 0 {
		return g.answer(d.w.at(), rapid.SampledFrom(open).Draw(d.T, "action"))
	}
	if over := d.overLimit(); over != nil {
		return *over
	}
	d.w.now += Time(g.int("wait", 0, 4)) * second
	at := d.w.at()
	s := Submit{At: at, Workload: like}
	w := &s.Workload
	g.next++
	w.ID = fmt.Sprintf("w%d", g.next)
	switch kind := g.int("kind", 0, 15); {
	case kind < 1:
		if tasks := g.holding(); len(tasks) > 0 {
			return rapid.SampledFrom(tasks).Draw(d.T, "task")
		}
	case kind < 5:
		return Tick{at}
	case kind == 5:
		return PolicySet{at, Policy{Predicted: g.int("predicted", 0, 5) > 0}}
	case kind < 10:
		w.User, w.Preemptible, w.TimeLimit = "bob", g.int("preemptible", 0, 3) == 0, Time(g.int("limit", 3, 12))*second
	case kind < 12:
		w.User, w.Preemptible, w.TimeLimit, w.Queue = "cy", g.int("preemptible", 0, 1) == 0, Time(g.int("limit", 0, 8))*second, g.pick("whose", "other", "team")
		w.Share.Compute.Floor, w.Devices, w.Priority = 1000, g.int("devices", 1, 2), int32(g.int("priority", 0, 1))
	}
	if g.int("evicted before", 0, 3) == 0 {
		s.Disrupted = g.disrupted()
	}
	return s
}

// TestPredictedDelaysNobody: however long what is let in by predictions really runs, the first in line starts no later than if nothing behind it had been
// started before it, where all else runs as long as its limit, or for ever without one, and what is evicted ends at once.
func TestPredictedDelaysNobody(t *testing.T) {
	letIn, late := 0, 0
	rapid.Check(t, func(rt *rapid.T) {
		d := drawDay(rt, true)
		for i := range d.behind {
			p := &d.behind[i]
			if p.Preemptible = rapid.IntRange(0, 3).Draw(rt, "preemptible") > 0; !p.Preemptible {
				continue
			}
			p.User, p.TimeLimit, p.runs, p.comes = "ann", 0, Time(rapid.IntRange(0, 30).Draw(rt, "runs"))*second, p.comes/4
			p.Devices, p.Share.Compute.Floor, p.Share.Memory = 1, 250, api.Memory{}
			for range 4 {
				d.past = append(d.past, Past{Workload: p.Workload, Ran: Time(rapid.IntRange(1, 4).Draw(rt, "ran")) * second})
			}
		}
		d.predicted = true
		a := d.run(rt, Config{}, func(e *Engine) { letIn += len(e.early) })
		late += d.late
		b := d.run(rt, Config{NoBackfill: true}, func(*Engine) {})
		if a > b {
			rt.Fatalf("the head starts at %d with backfill and at %d without", a, b)
		}
	})
	if letIn == 0 || late == 0 {
		t.Errorf("%d times something was there that was let in, and %d were evicted for the first in line: the test has shown too little", letIn, late)
	}
}
