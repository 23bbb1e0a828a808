package engine

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/aliquot-dev/aliquot/api"
)

// day is a fleet with work on it, a workload that has to wait, and what comes behind it.
type day struct {
	nodes  []NodeSet
	first  []planned // before the head
	head   planned
	behind []planned

	predicted bool // policies let work in by predictions
	past      []Past
	late      int // how many were evicted for the head in the last run
}

// planned is a workload, when it comes and how long it really runs (0: for ever).
type planned struct {
	Workload
	comes, runs Time
}

func drawDay(t *rapid.T, exact bool) day {
	var d day
	for i := range rapid.IntRange(1, 3).Draw(t, "nodes") {
		name := fmt.Sprintf("n%d", i)
		d.nodes = append(d.nodes, NodeSet{
			Node: name, Devices: devices(name, rapid.IntRange(1, 3).Draw(t, "devices"), "m", 8*gi), Resources: []Resource{{"cpu", 8}},
		})
	}
	draw := func(id string, comes Time) planned {
		g := &generator{t: t}
		p := planned{comes: comes, Workload: Workload{
			ID: id, Queue: "default", Tasks: rapid.SampledFrom([]int{1, 1, 1, 2, 3}).Draw(t, "tasks"), Devices: rapid.SampledFrom([]int{1, 1, 1, 2}).Draw(t, "devices"), Share: g.share(),
			TimeLimit: Time(rapid.IntRange(0, 20).Draw(t, "limit")) * 1_000_000,
		}}
		if rapid.Bool().Draw(t, "resources") {
			p.Resources = []Resource{{"cpu", int64(rapid.IntRange(1, 5).Draw(t, "cpu"))}}
		}
		if p.runs = p.TimeLimit; !exact && p.TimeLimit > 0 {
			p.runs = Time(rapid.Int64Range(1, int64(p.TimeLimit)).Draw(t, "runs"))
		}
		return p
	}
	for i := range rapid.IntRange(1, 10).Draw(t, "first") {
		d.first = append(d.first, draw(fmt.Sprintf("first%d", i), 0))
	}
	d.head = draw("head", 0)
	d.head.Share.Compute = api.Compute{Floor: api.Milli(rapid.SampledFrom([]int{400, 600, 800, 1000}).Draw(t, "floor")), Ceiling: 1000}
	for i := range rapid.IntRange(1, 15).Draw(t, "behind") {
		d.behind = append(d.behind, draw(fmt.Sprintf("behind%d", i), Time(rapid.IntRange(0, 20).Draw(t, "comes"))*1_000_000))
	}
	return d
}

// run lives the day until the head starts, and returns when: Never if everything that ends has ended and it still waits. each is
// called after every moment at which the head still waits.
func (d *day) run(t *rapid.T, config Config, each func(*Engine)) (started Time) {
	e := New(config)
	for _, n := range d.nodes {
		e.Step(n)
	}
	d.late = 0
	e.Step(PolicySet{Policy: Policy{Predicted: d.predicted}})
	e.Step(Learn{Past: d.past})
	plans := map[string]planned{}
	ends := map[string]Time{}
	started = Never
	live := func(ev Event) {
		queue := []Event{ev}
		for len(queue) > 0 {
			at := At{queue[0].When()}
			for _, a := range e.Step(queue[0]) {
				if evict, ok := a.(Evict); ok && evict.Code == EvictBackfill {
					d.late++
					delete(ends, evict.Workload)
					queue = append(queue, Done{at, evict.ID}, Ended{at, evict.Workload, evict.Task, nil})
					continue
				}
				p, ok := a.(Place)
				if !ok {
					t.Fatalf("unexpected %+v", a)
				}
				queue = append(queue, Done{at, p.ID})
				for _, task := range p.Tasks {
					queue = append(queue, Started{at, p.Workload, task.Task})
				}
				ends[p.Workload] = Never
				if runs := plans[p.Workload].runs; runs > 0 {
					ends[p.Workload] = at.At + runs
				}
				if p.Workload == "head" {
					started = at.At
				}
			}
			queue = queue[1:]
		}
	}
	for _, p := range d.first {
		plans[p.ID] = p
		live(Submit{At: At{}, Workload: p.Workload})
		if e.Phase(p.ID) == api.Waiting { // the head is to be first in line
			live(Cancel{At{}, p.ID, "does not fit"})
		}
	}
	plans["head"] = d.head
	live(Submit{At: At{}, Workload: d.head.Workload})
	behind := append([]planned{}, d.behind...)
	for started == Never {
		each(e)
		next, id, coming := e.Next(), "", -1
		for _, p := range append(append([]planned{}, d.first...), d.behind...) { // in a fixed order
			if at, ok := ends[p.ID]; ok && at < next {
				next, id = at, p.ID
			}
		}
		for i, p := range behind {
			if p.comes < next {
				next, coming = p.comes, i
			}
		}
		switch {
		case next == Never:
			return Never
		case id == "" && coming < 0:
			live(Tick{At{next}})
		case coming >= 0:
			p := behind[coming]
			behind = append(behind[:coming], behind[coming+1:]...)
			plans[p.ID] = p
			live(Submit{At: At{next}, Workload: p.Workload})
		default:
			delete(ends, id)
			for task := range plans[id].Tasks {
				live(Ended{At{next}, id, task, nil})
			}
		}
	}
	return started
}

// TestBackfillDelaysNobody: where everything runs exactly as long as its limit, or for ever without one, the first in line starts no
// later than if nothing behind it had been started before it.
func TestBackfillDelaysNobody(t *testing.T) {
	filled := 0
	rapid.Check(t, func(t *rapid.T) {
		d := drawDay(t, true)
		before := func(count *int) func(*Engine) {
			return func(e *Engine) {
				*count = 0
				for i := range d.behind {
					if e.Phase(fmt.Sprintf("behind%d", i)) == api.Running {
						*count++
					}
				}
			}
		}
		var with, without int
		a := d.run(t, Config{}, before(&with))
		b := d.run(t, Config{NoBackfill: true}, before(&without))
		if a > b {
			t.Fatalf("the head starts at %d with backfill and at %d without", a, b)
		}
		if with > without {
			filled++
		}
	})
	if filled == 0 {
		t.Errorf("nothing was ever started before the first in line: the test has shown nothing")
	}
}

// TestPromiseIsKept: whenever work ends before its limit, the time that Why gives the first in line never moves back, and is kept.
func TestPromiseIsKept(t *testing.T) {
	promised := 0
	rapid.Check(t, func(t *rapid.T) {
		d := drawDay(t, false)
		promise := Never
		started := d.run(t, Config{}, func(e *Engine) {
			why := e.Why("head")
			if why.Estimate > promise {
				t.Fatalf("at %d the head was promised %d and now %d", e.Now(), promise, why.Estimate)
			}
			promise = why.Estimate
		})
		if started > promise {
			t.Fatalf("the head was promised %d and starts at %d", promise, started)
		}
		if promise != Never {
			promised++
		}
	})
	if promised == 0 {
		t.Errorf("no start was ever promised: the test has shown nothing")
	}
}
