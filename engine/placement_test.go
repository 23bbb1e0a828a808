package engine

import (
	"fmt"
	"reflect"
	"testing"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/engine/place"
)

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
