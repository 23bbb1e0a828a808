package engine

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/engine/fleet"
)

// TestModelWeightsAgainstNaive holds the engine against the naive one where queues have weights on models, and work that may go on one model alone waits for it
// in all of them.
func TestModelWeightsAgainstNaive(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		d := newDuel(t, rt)
		at := d.w.at()
		d.take(NodeSet{at, "n1", devices("n1", 3, "big", 8*gi), []Resource{{"cpu", 99}}, nil})
		d.take(NodeSet{at, "n2", devices("n2", 2, "small", 4*gi), []Resource{{"cpu", 99}}, nil})
		for _, ev := range queues(at) {
			d.take(ev)
		}
		for _, name := range []string{"org", "team", "other", "default"} {
			d.take(QueueSet{at, d.weighed(name)})
		}
		for range d.g.int("steps", 20, 60) {
			d.take(d.modelEvent())
			d.sameFair()
		}
	})
}

// sameFair holds what queues are due, overall and of each model, against what the naive engine finds.
func (d *duel) sameFair() {
	fair := map[string]naiveAmounts{}
	d.slow.allFair(fair)
	on := func(u api.QueueUse) naiveAmounts { return naiveAmounts{int64(u.Compute), int64(u.Memory), u.Devices} }
	for _, q := range d.w.engine.Queues() {
		if got, want := on(q.Fair), fair[q.Name+"@"]; got != want {
			d.Fatalf("queue %s is due %v and the naive engine says %v", q.Name, got, want)
		}
		for _, m := range q.OnModels {
			if got, want := on(m.Fair), fair[q.Name+"@"+m.Model]; got != want {
				d.Fatalf("queue %s is due %v on %s and the naive engine says %v", q.Name, got, m.Model, want)
			}
			if got, want := on(m.Use), d.slow.held(q.Name, m.Model, false, true); got != want {
				d.Fatalf("queue %s holds %v on %s and the naive engine says %v", q.Name, got, m.Model, want)
			}
		}
	}
}

// weighed is a queue with weights on models, and mostly nothing else.
func (d *duel) weighed(name string) api.QueueSpec {
	g := d.g
	q := api.QueueSpec{Name: name, Quota: api.Unlimited}
	if name == "team" {
		q.Parent = "org"
	}
	for _, model := range []string{"big", "small"} {
		m := api.QueueModel{Model: model, Weight: api.QueueWeight{All: int32(g.int("weight of model", 0, 4)), Memory: int32(g.int("memory weight of model", 0, 8) / 4)}}
		switch g.int("bounded", 0, 5) {
		case 0, 1:
			m.Limit.Compute = new(api.Quota(g.int("limit of model", 1, 4) * 500))
		case 2:
			m.Quota.Compute = new(api.Quota(g.int("quota of model", 0, 2) * 500))
		}
		q.Models = append(q.Models, m)
	}
	q.Models = slices.DeleteFunc(q.Models, func(m api.QueueModel) bool {
		return m.Weight == api.QueueWeight{} && m.Limit == api.QueueAmounts{} && m.Quota == api.QueueAmounts{}
	})
	return q
}

func (d *duel) modelEvent() Event {
	g := d.g
	d.w.now += Time(g.int("wait", 0, 3)) * 7_000_000
	open := d.w.engine.Unanswered()
	switch kind := g.int("kind", 0, 10); {
	case kind < 4 && len(open) > 0:
		return Done{d.w.at(), rapid.SampledFrom(open).Draw(d.T, "action").Action()}
	case kind < 6:
		if tasks := g.holding(); len(tasks) > 0 {
			return rapid.SampledFrom(tasks).Draw(d.T, "task")
		}
	case kind == 6:
		return QueueSet{d.w.at(), d.weighed(g.pick("queue", "org", "team", "other", "default"))}
	}
	one := g.submit()
	w := &one.Workload
	w.Feasibility, w.Model, w.Least, w.Resources, w.Roles, w.Max, w.Priority = "", g.pick("model", "big", "big", "small", ""), fleet.Least{}, nil, nil, 0, 0
	w.Share = api.Share{Compute: api.Compute{Floor: api.Milli(g.int("half", 1, 2)) * 500, Ceiling: 1000}, Memory: api.Memory{Floor: api.Amount{Part: api.Milli(g.int("part", 1, 2)) * 250}, Ceiling: api.Amount{Part: 1000}}}
	w.Queue = g.pick("of", "org", "team", "team", "org", "other", "default")
	w.Tasks, w.Devices = 1, 1+g.int("devices", 0, 5)/5
	return one
}
