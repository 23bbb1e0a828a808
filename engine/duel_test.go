package engine

import (
	"math"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/engine/fleet"
	"github.com/aliquot-dev/aliquot/engine/predict"
)

// duel is an engine beside one that looks at everything each time.
type duel struct {
	*rapid.T
	w    *world
	slow *naive
	g    *generator
}

func newDuel(t *testing.T, rt *rapid.T) *duel {
	d := &duel{T: rt, w: newWorld(t, Config{}), slow: newNaive()}
	d.w.t = rt
	d.g = &generator{t: rt, world: d.w, tame: true}
	return d
}

// take has both decide about an event: the same.
func (d *duel) take(ev Event) {
	d.Helper()
	if n, ok := ev.(NodeSet); ok { // the naive engine keeps the slice
		n.Devices = slices.Clone(n.Devices)
		ev = n
	}
	actions := d.w.step(ev)
	d.slow.used, d.slow.turn, d.slow.likely = usedIn(d.w.engine), turnIn(d.w.engine), likelyIn(d.w.engine)
	got := brief(actions)
	_, one := ev.(QueueSet)
	_, several := ev.(PolicySet)
	if (one || several) && strings.HasPrefix(got, "reject ") { // the engine says why, too
		_, rest, _ := strings.Cut(got, "\n")
		got = "reject\n" + rest
	}
	if want := d.slow.step(ev); got != want {
		d.Fatalf("after %T %+v the engine gives\n%sand the naive one\n%s", ev, ev, got, want)
	}
	d.slow.placedAs(actions)
	d.sameUse()
}

// TestAgainstNaive holds the engine against one that looks at everything each time: the same actions after every event.
func TestAgainstNaive(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		d := newDuel(t, rt)
		for _, ev := range queues(d.w.at()) {
			d.take(ev)
		}
		d.take(d.g.node())
		for range d.g.int("steps", 20, 120) {
			ev := d.g.event()
			if n, ok := ev.(NodeSet); ok && tooSmall(d.w, n) {
				continue
			}
			d.take(ev)
		}
	})
}

// TestReclaimAgainstNaive is the same where much is borrowed and much is wanted back, so that plans take several.
func TestReclaimAgainstNaive(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		d := newDuel(t, rt)
		at := d.w.at()
		for i, name := range []string{"n1", "n2"} {
			d.take(NodeSet{at, name, devices(name, 2+i, "big", 8*gi), []Resource{{"cpu", 9}}, nil})
		}
		limit := rapid.SampledFrom([]*api.Quota{nil, new(api.Quota(4000))}).Draw(rt, "limit")
		d.take(QueueSet{at, api.QueueSpec{Name: "org", Quota: 4000, Limit: api.QueueAmounts{Compute: limit}, Order: d.g.order(), MinRun: d.g.minRun()}})
		d.take(QueueSet{at, api.QueueSpec{Name: "team", Parent: "org", Quota: 3000, Order: d.g.order(), MinRun: d.g.minRun()}})
		d.take(QueueSet{at, api.QueueSpec{Name: "other", Quota: *d.g.quota(), MinRun: d.g.minRun()}})
		if d.g.int("pools", 0, 2) == 0 {
			d.take(PolicySet{at, Policy{Pools: d.g.pools()}})
		}
		for range d.g.int("steps", 20, 60) {
			d.take(d.reclaimEvent())
		}
	})
}

func (d *duel) reclaimEvent() Event {
	g := d.g
	d.w.now += Time(g.int("wait", 0, 3)) * 7_000_000
	at := d.w.at()
	open := d.w.engine.Unanswered()
	switch kind := g.int("kind", 0, 10); {
	case kind < 4 && len(open) > 0:
		return Done{at, rapid.SampledFrom(open).Draw(d.T, "action").Action()}
	case kind < 6:
		if tasks := g.holding(); len(tasks) > 0 {
			return rapid.SampledFrom(tasks).Draw(d.T, "task")
		}
	case kind == 10:
		if ev := g.checkpoint(at); ev.ID != "" {
			return ev
		}
	case kind == 6:
		owner := g.submit()
		w := &owner.Workload
		w.Queue, w.Feasibility, w.Model, w.Least, w.Resources = g.pick("owner", "org", "team"), "", "", fleet.Least{}, nil
		w.Share = api.Share{Compute: api.Compute{Floor: 1000, Ceiling: 1000}}
		w.Tasks, w.Devices, w.Max = g.int("tasks", 1, 2), g.int("devices", 1, 2), 0
		return owner
	}
	guest := g.submit()
	w := &guest.Workload
	w.Queue, w.Feasibility, w.Model, w.Least, w.Resources, w.Preemptible = g.pick("guest", "other", "default", "team", "other"), "", "", fleet.Least{}, nil, g.int("firm", 0, 7) > 0
	w.Share = api.Share{Compute: api.Compute{Floor: api.Milli(g.int("half", 1, 2)) * 500, Ceiling: 1000}}
	w.Tasks, w.Devices = 1+g.int("gang", 0, 4)/4, 1
	if w.Max = 0; g.int("elastic", 0, 1) == 0 {
		w.Max, w.Roles = w.Tasks+g.int("more", 1, 3), nil
	}
	return guest
}

// turnIn is the turn of the workloads of an engine.
func turnIn(e *Engine) func(string) Time {
	return func(id string) Time {
		if w, ok := e.work[id]; ok {
			return w.turn
		}
		return 0
	}
}

// likelyIn is what an engine predicts of work that waits, where it tells that by work that is alike.
func likelyIn(e *Engine) func(*Workload) (Time, bool) {
	return func(w *Workload) (Time, bool) {
		q, ok := e.Predict(w)
		return Time(q.High), ok && q.Like <= predict.SameShape
	}
}

// sameUse holds the use of queues against what the naive engine found in floats, within a hundredth and a millisecond of two devices.
func (d *duel) sameUse() {
	for name, want := range d.slow.lived {
		if _, there := d.slow.queues[strings.TrimSuffix(name, "/")]; !there {
			delete(d.slow.lived, name)
		} else if got := float64(d.slow.used(name)); math.Abs(got-want) > want/100+2000 {
			d.Fatalf("queue %s used %v thousandths of a device for a millisecond, want %v", name, got, want)
		}
	}
}

// usedIn is the decayed use of the queues of an engine, by which the naive one goes: it finds its own in floats, and ties decide.
func usedIn(e *Engine) func(string) int64 {
	return func(name string) int64 {
		q, _ := e.queues.Get(strings.TrimSuffix(name, "/"))
		if strings.HasSuffix(name, "/") {
			return q.Own.Used(e.queues)
		}
		return q.All.Used(e.queues)
	}
}
