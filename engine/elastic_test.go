package engine

import (
	"bytes"
	"slices"
	"testing"

	"github.com/aliquot-dev/aliquot/api"
)

// elasticWorld is an engine with a node of so many devices and one elastic workload, w, that has settled.
func elasticWorld(t *testing.T, devices int, w Workload) *world {
	t.Helper()
	x := newWorld(t, Config{})
	ev := NodeSet{At: x.at(), Node: "n1", Resources: []Resource{{"cpu", 9}}}
	for i := range devices {
		ev.Devices = append(ev.Devices, Device{UUID: "n1-" + string(rune('0'+i)), Index: i, Model: "big", Memory: 8 * gi, Health: api.Healthy})
	}
	x.step(ev)
	x.step(Submit{At: x.at(), Workload: w})
	x.settle()
	return x
}

func wholes(id string, tasks, most int) Workload {
	return Workload{ID: id, Queue: "default", Tasks: tasks, Max: most, Devices: 1, Share: api.Share{Compute: api.Compute{Floor: 1000, Ceiling: 1000}}}
}

// TestElasticAdopted: what a host finds running after a restart has the replicas, with their numbers, that it had.
func TestElasticAdopted(t *testing.T) {
	before := elasticWorld(t, 4, wholes("e", 2, 5))
	before.step(Ended{before.at(), "e", 2, nil}) // of its own accord: it grows no more
	grants := before.engine.Grants("e")
	after := newWorld(t, Config{FirstAction: 100})
	after.step(NodeSet{At: after.at(), Node: "n1", Devices: devices("n1", 5, "big", 8*gi), Resources: []Resource{{"cpu", 9}}})
	if got := after.step(Adopt{At: after.at(), Workload: wholes("e", 2, 5), Tasks: grants}); len(got) != 0 || after.engine.Next() != after.now {
		t.Fatalf("it grew before all may have been adopted, or wants no tick to grow:\n%s", show(got))
	}
	if got := show(after.step(Tick{after.at()})); got != "100 place e: [2 n1] e.2.0-100 on n1-2 (1.00, 0, weight 1000)\n101 place e: [4 n1] e.4.0-101 on n1-4 (1.00, 0, weight 1000)\n" {
		t.Fatalf("adopted with replicas 0, 1 and 3 it is to grow by 2 and 4:\n%s", got)
	}
	if now, sure, most := after.engine.Replicas("e"); now != 5 || sure != 2 || most != 5 {
		t.Fatalf("it has %d of %d..%d replicas, not 5 of 2..5", now, sure, most)
	}
	if got := after.step(Adopt{At: after.at(), Workload: wholes("f", 2, 3), Tasks: []Placing{{3, "n1", grants[0].Grants}}}); len(got) != 1 || got[0].(Reject).Code != "invalid" {
		t.Fatalf("a replica over the most was adopted: %s", show(got))
	}
}

// TestElasticLostFirst: one of the first replicas that is lost is not replaced, for it was to start whole or not at all.
func TestElasticLostFirst(t *testing.T) {
	x := elasticWorld(t, 3, wholes("e", 2, 3))
	x.step(DeviceHealth{x.at(), "n1", "n1-0", api.Down, "fell off"})
	x.settle()
	actions := x.step(NodeSet{At: x.at(), Node: "n2", Devices: devices("n2", 2, "big", 8*gi), Resources: []Resource{{"cpu", 9}}})
	if now, _, _ := x.engine.Replicas("e"); len(actions) != 0 || now != 2 {
		t.Fatalf("it has %d replicas and the engine wants\n%s", now, show(actions))
	}
}

// TestElasticAhead: plans and forecasts that start and end replicas leave nothing behind, and a plan says who gives way.
func TestElasticAhead(t *testing.T) {
	e := wholes("e", 1, 4)
	e.TimeLimit = 10 * second
	x := elasticWorld(t, 4, e)
	before := string(x.engine.Snapshot())
	plan := x.engine.PlanSubmit(Usage{At: x.at()}, wholes("w", 2, 3))
	if len(plan.Evict) != 2 || plan.Evict[0].Code != EvictShrink || plan.Evict[0].Task != 3 || plan.Evict[1].Task != 2 {
		t.Fatalf("replicas 3 and 2 give way, the last started first: %+v", plan.Evict)
	}
	x.engine.Outlook(x.now)
	if got := string(x.engine.Snapshot()); got != before {
		t.Fatalf("looking ahead changed\n%s\nto\n%s", before, got)
	}
	if err := x.engine.CheckInvariants(); err != nil {
		t.Fatal(err)
	}
	x.step(Submit{At: x.at(), Workload: wholes("w", 2, 3)})
	x.settle()
	if !slices.Equal(x.engine.Waiting(), []string{}) {
		t.Fatalf("%v wait", x.engine.Waiting())
	}
}

// Looking further ahead than a host wants a workload left alone leaves it alone.
func TestForecastOfTheRefused(t *testing.T) {
	w := newWorld(t, Config{})
	w.step(NodeSet{At: w.at(), Node: "n1", Devices: devices("n1", 1, "big", 8*gi)})
	w.step(QueueSet{w.at(), api.QueueSpec{Name: "owner", Quota: 1000}})
	submit := func(one Workload) []Action {
		one.Tasks, one.Devices, one.TimeLimit, one.Share = 1, 1, 300*second, api.Share{Compute: api.Compute{Floor: api.WholeDevice, Ceiling: api.WholeDevice}}
		return w.step(Submit{At: w.at(), Workload: one})
	}
	submit(Workload{ID: "guest", Preemptible: true})
	w.settle()
	evict := submit(Workload{ID: "owner", Queue: "owner"})
	w.step(Refused{At: w.at(), ID: evict[0].Action(), Reason: "not now", Retry: 30 * second})
	before := w.engine.Snapshot()
	if start := w.engine.Forecast(w.now).Start("owner"); start != 30*second {
		t.Errorf("it is forecast to start at %d, want 30 s", start)
	}
	if after := w.engine.Snapshot(); !bytes.Equal(before, after) {
		t.Errorf("the state was\n%s\nand is\n%s", before, after)
	}
}

// An elastic workload is forecast to start when its first tasks do, not when it grows, which it does as the last in line starts.
func TestForecastOfGrowing(t *testing.T) {
	w := newWorld(t, Config{})
	w.step(NodeSet{At: w.at(), Node: "n1", Devices: devices("n1", 2, "big", 8*gi)})
	submit := func(one Workload, floor api.Milli, limit Time) {
		one.Tasks, one.Devices, one.TimeLimit = 1, 1, limit*second
		one.Share = api.Share{Compute: api.Compute{Floor: floor, Ceiling: api.WholeDevice}}
		w.step(Submit{At: w.at(), Workload: one})
		w.settle()
	}
	submit(Workload{ID: "short"}, api.WholeDevice, 60)
	submit(Workload{ID: "long"}, api.WholeDevice, 100)
	submit(Workload{ID: "grows", Max: 2}, 500, 300)
	submit(Workload{ID: "last"}, api.WholeDevice, 300)
	f := w.engine.Forecast(w.now)
	if f.Start("grows") != 60*second || f.Start("last") != 100*second {
		t.Errorf("they are forecast to start at %d and %d, want 60 and 100 s", f.Start("grows"), f.Start("last"))
	}
}
