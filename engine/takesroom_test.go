package engine

import (
	"bytes"
	"testing"

	"github.com/aliquot-dev/aliquot/api"
)

// TestTakesRoom: grants take a waiting workload's room where it has some without them and none with them, on its nodes alone and whatever else it lacks;
// asking changes nothing.
func TestTakesRoom(t *testing.T) {
	w := newWorld(t, Config{})
	for _, name := range []string{"a", "b"} {
		w.step(NodeSet{w.at(), name, devices(name, 1, "m", 8*gi), []Resource{{"cpu", 1}}, nil})
	}
	submit := func(id string, compute api.Milli, tasks int, change func(*Workload)) {
		one := Workload{ID: id, Class: api.Training, Tasks: tasks, Devices: 1, Feasibility: "barred", Resources: []Resource{{"cpu", 4}}}
		one.Share.Compute = api.Compute{Floor: compute, Ceiling: api.WholeDevice}
		change(&one)
		w.step(Submit{At: w.at(), Workload: one})
	}
	same := func(*Workload) {}
	submit("runs", 300, 1, func(one *Workload) { one.Resources, one.Feasibility = nil, "" })
	w.settle()
	on := w.engine.Grants("runs")[0]
	other := map[string]string{"a": "b", "b": "a"}[on.Node]
	submit("half", 500, 1, same)
	submit("most", 800, 1, same)
	submit("both", 800, 2, same)
	submit("pair", 500, 2, same)
	submit("roles", 400, 1, func(one *Workload) {
		one.Roles = []Role{{Name: "leads", Tasks: 1, Devices: 1, Share: api.Share{Compute: api.Compute{Floor: 300, Ceiling: 1000}}, Feasibility: "barred"}}
	})
	grant := func(node string, compute api.Milli) []Grant {
		for _, d := range w.engine.Devices() {
			if d.Node == node {
				return []Grant{{Device: d.UUID, Compute: api.Compute{Floor: compute, Ceiling: 1000}}}
			}
		}
		t.Fatalf("node %s has no device", node)
		return nil
	}
	for _, test := range []struct {
		name, id string
		nodes    []string
		grants   []Grant
		held     bool
		want     bool
	}{
		{"both fit", "half", []string{on.Node}, grant(on.Node, 200), false, false},
		{"one of them", "half", []string{on.Node}, grant(on.Node, 201), false, true},
		{"elsewhere", "half", []string{on.Node}, grant(other, 1000), false, false},
		{"it has no room anyway", "most", []string{on.Node}, grant(on.Node, 100), false, false},
		{"what is held is in its way", "most", []string{on.Node}, on.Grants, true, true},
		{"what is held is not", "half", []string{on.Node}, on.Grants, true, false},
		{"a gang", "both", []string{"a", "b"}, on.Grants, true, true},
		{"a gang, of which each has its own node", "pair", []string{"a", "b"}, grant(on.Node, 300), false, true},
		{"and room is left there", "pair", []string{"a", "b"}, grant(on.Node, 200), false, false},
		{"a gang with roles", "roles", []string{on.Node, on.Node}, grant(on.Node, 1), false, true},
		{"who runs", "runs", []string{on.Node}, on.Grants, true, false},
		{"nobody", "nobody", []string{on.Node}, on.Grants, true, false},
	} {
		before := w.engine.Snapshot()
		if got := w.engine.TakesRoom(test.id, test.nodes, test.grants, test.held); got != test.want {
			t.Errorf("%s: %v, want %v", test.name, got, test.want)
		}
		if err := w.engine.CheckInvariants(); err != nil || !bytes.Equal(w.engine.Snapshot(), before) {
			t.Fatalf("%s: asking changed the engine: %v", test.name, err)
		}
	}
}
