package engine

import (
	"fmt"
	"reflect"
	"testing"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/engine/place"
)

// What a class prefers is where its work goes while there is room, also after a refusal; and classes that would prefer each other are rejected.
func TestPreferredClass(t *testing.T) {
	e := New(Config{})
	for _, name := range []string{"a", "b", "c"} {
		e.Step(NodeSet{At{}, name, devices(name, 1, "h100", 40*gi), nil, nil})
	}
	e.Step(Feasibility{Class: "near", Allowed: []string{"b", "c"}})
	e.Step(Feasibility{Class: "zone", Allowed: []string{"a", "b", "c"}, Prefer: "near"})
	before := e.Snapshot()
	for _, wrong := range []Feasibility{{Class: "near", Prefer: "zone"}, {Class: "new", Prefer: "new"}} {
		actions := e.Step(wrong)
		if _, is := actions[0].(Reject); !is || len(actions) != 1 {
			t.Errorf("%+v gives %+v, and is no order of classes", wrong, actions)
		}
	}
	if after, err := Restore(before); err != nil || !reflect.DeepEqual(after.fleet.Export(), e.fleet.Export()) {
		t.Errorf("what was rejected has changed the fleet, or it is not restored (%v)", err)
	}
	for i, want := range []string{"c", "b", "a"} {
		w := Workload{ID: fmt.Sprint("w", i), Queue: "default", Tasks: 1, Devices: 1, Class: api.Training, Feasibility: "zone"}
		w.Share.Compute = api.Compute{Floor: api.WholeDevice, Ceiling: api.WholeDevice}
		p := e.Step(Submit{Workload: w})[0].(Place)
		if i == 0 { // b does not take the first, which comes again at once
			if p.Tasks[0].Node != "b" {
				t.Errorf("the first is placed on %s", p.Tasks[0].Node)
			}
			p = e.Step(Refused{ID: p.ID, Node: "b", Reason: "no"})[0].(Place)
			e.Step(Feasibility{Class: "zone", Prefer: "near"}) // which forgets refusals
		}
		e.Step(Done{ID: p.ID})
		if on := p.Tasks[0].Node; on != want {
			t.Errorf("%s is placed on %s, not %s", w.ID, on, want)
		}
	}
}

// An engine that places by score answers as one restored from its snapshot does, whatever has come before, and keeps its books.
func TestScoredPlacementIsRestored(t *testing.T) {
	policy := place.Default()
	e := New(Config{Placement: &policy})
	for i := range 12 {
		e.Step(NodeSet{At{}, fmt.Sprintf("node%02d", i), devices(fmt.Sprintf("node%02d", i), 4, []string{"a100", "h100"}[i%2], 40*gi), []Resource{{"cpu", 64_000}}, nil})
	}
	random := uint64(1)
	draw := func(n int) int {
		random = random*6364136223846793005 + 1442695040888963407
		return int(random>>33) % n
	}
	both := []*Engine{e}
	var running []string
	step := func(event Event) []Action {
		actions := both[0].Step(event)
		for _, other := range both[1:] {
			if got := other.Step(event); !reflect.DeepEqual(got, actions) {
				t.Fatalf("%+v: the restored engine answers %+v, the one before it %+v", event, got, actions)
			}
		}
		return actions
	}
	placed := 0
	for i := range 600 {
		if i%150 == 149 {
			restored, err := Restore(both[0].Snapshot())
			if err != nil {
				t.Fatal(err)
			}
			both = []*Engine{both[0], restored}
		}
		if len(running) > 30 {
			k := draw(len(running))
			id := running[k]
			running = append(running[:k], running[k+1:]...)
			for _, a := range step(Ended{At{Time(i)}, id, 0, nil}) {
				t.Fatalf("unexpected %+v", a)
			}
		}
		w := Workload{ID: fmt.Sprintf("w%d", i), Queue: "default", Tasks: 1, Devices: 1, Class: api.Training, Resources: []Resource{{"cpu", int64(1000 * (1 + draw(6)))}}}
		floor := api.Milli(100 * (1 + draw(10)))
		if floor == api.WholeDevice {
			w.Devices = 1 + draw(2)
		}
		w.Share.Compute = api.Compute{Floor: floor, Ceiling: api.WholeDevice}
		actions := step(Submit{At: At{Time(i)}, Workload: w})
		if len(actions) == 0 {
			step(Cancel{At{Time(i)}, w.ID, ""})
			continue
		}
		p := actions[0].(Place)
		step(Done{At{Time(i)}, p.ID})
		step(Started{At{Time(i)}, w.ID, 0})
		running = append(running, w.ID)
		placed++
		for _, x := range both {
			if err := x.CheckInvariants(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if placed < 300 {
		t.Errorf("only %d of 600 were placed: the test shows little", placed)
	}
}

// A class that a placement's workload names is used, also where another placement holds now: the first one may hold again.
func TestClassesOfPlacementsStay(t *testing.T) {
	of := func(class string) *place.Policy {
		policy := place.FGD([]place.Popular{{Compute: 500, Devices: 1, Class: class, Count: 1}})
		return &policy
	}
	w := newWorld(t, Config{Placement: of("zone")})
	w.step(NodeSet{At: w.at(), Node: "a", Devices: devices("a", 1, "m", 8*gi)})
	w.step(Feasibility{At: w.at(), Class: "zone", Allowed: []string{"a"}})
	w.step(FeasibilityGone{w.at(), []string{"zone"}})
	w.step(PolicySet{w.at(), Policy{Placement: of("other")}})
	w.step(Feasibility{At: w.at(), Class: "other", Allowed: []string{"a"}})
	w.step(FeasibilityGone{w.at(), []string{"zone", "other"}})
	for i, class := range []string{"zone", "other"} {
		share := api.Share{Compute: api.Compute{Floor: 500, Ceiling: 500}}
		submit := Submit{At: w.at(), Workload: Workload{ID: class, Queue: "default", Tasks: 1, Devices: 1, Class: api.Training, Feasibility: class, Share: share}}
		if actions := w.step(submit); len(actions) != 1 || actions[0].Action() != ActionID(i+1) {
			t.Errorf("work of class %s gets\n%s", class, show(actions))
		}
	}
	w.step(PolicySet{w.at(), Policy{}})
	w.finish("zone")
	w.finish("other")
	w.step(FeasibilityGone{w.at(), []string{"zone", "other"}})
	if known := w.engine.Classes(); known != 2 {
		t.Errorf("%d classes are known, and are to be the empty one and zone", known)
	}
}
