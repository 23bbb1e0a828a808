package engine

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/aliquot-dev/aliquot/api"
)

// TestRoomTogether: where room is of use for a gang goes by how many of its tasks may run where, by what would be free there, by its devices, its queue and
// by who is in front; asking changes nothing.
func TestRoomTogether(t *testing.T) {
	w := newWorld(t, Config{})
	cpu := func(of int64) []Resource { return []Resource{{"cpu", of}} }
	for _, name := range []string{"a", "b", "open"} {
		w.step(NodeSet{w.at(), name, devices(name, 1, "m", 8*gi), cpu(1), nil})
	}
	w.step(QueueSet{w.at(), api.QueueSpec{Name: "small", Quota: api.Unlimited, Limit: api.QueueAmounts{Compute: new(api.Quota(900))}}})
	w.step(Feasibility{At: w.at(), Class: "barred", Allowed: []string{"open"}})
	of := func(id string, tasks int, compute api.Milli, change func(*Workload)) string {
		one := Workload{ID: id, Class: api.Training, Tasks: tasks, Devices: 1, Feasibility: "barred", Resources: cpu(4)}
		one.Share.Compute = api.Compute{Floor: compute, Ceiling: api.WholeDevice}
		change(&one)
		w.step(Submit{At: w.at(), Workload: one})
		return id
	}
	same := func(*Workload) {}
	on := func(node string, freed int64, tasks ...int) Opening { return Opening{node, tasks, cpu(freed)} }
	leads := func(one *Workload) {
		one.Roles = []Role{{Name: "leads", Tasks: 1, Devices: 1, Share: api.Share{Compute: api.Compute{Floor: 100, Ceiling: 1000}}, Resources: cpu(1), Feasibility: "barred"}}
	}
	two := of("two", 2, 500, same)
	led := of("led", 2, 600, leads)
	check := func(name, id string, openings []Opening, want ...string) {
		t.Helper()
		before := w.engine.Snapshot()
		if got := w.engine.RoomTogether(id, openings); !slices.Equal(got, want) {
			t.Errorf("%s: on %q, want %q", name, got, want)
		}
		if err := w.engine.CheckInvariants(); err != nil || !bytes.Equal(w.engine.Snapshot(), before) {
			t.Fatalf("%s: asking changed the engine: %v", name, err)
		}
	}
	check("two on one node", two, []Opening{on("a", 8, 2)}, "a", "a")
	check("one on each", two, []Opening{on("a", 8, 1), on("b", 8, 1)}, "a", "b")
	check("no room of the node for both", two, []Opening{on("a", 4, 2), on("b", 4, 2)}, "a", "b")
	check("one node is too few", two, []Opening{on("a", 8, 1)})
	check("too little there", two, []Opening{on("a", 3, 2), on("b", 2, 2)})
	check("none", two, nil)
	check("one that is as it is has no room", two, []Opening{on("a", 4, 2)})
	check("one that is not to be used", led, []Opening{on("a", 4, 1, 0), on("b", 4, 1, 0), on("open", 0, 0, 0)})
	check("a leader where it may run", led, []Opening{on("a", 4, 1, 0), on("b", 4, 1, 0)}, "a", "b", "open")
	check("a leader beside its worker", led, []Opening{on("a", 8, 1, 0), on("b", 8, 1, 1), on("open", 0, 0, 0)}, "a", "b", "b")
	check("its queue's limit", of("limited", 2, 500, func(one *Workload) { one.Queue = "small" }), []Opening{on("a", 8, 2)})
	w.step(Feasibility{At: w.at(), Class: "its", Allowed: []string{"a"}})
	its := func(priority int32) func(*Workload) {
		return func(one *Workload) { one.Priority, one.Feasibility, one.Resources = priority, "its", nil }
	}
	of("holds", 1, 500, its(0))
	w.settle()
	of("first", 1, 1000, its(9))
	small := of("small", 2, 200, same)
	check("behind another that could have it", small, []Opening{on("a", 8, 2), on("open", 0, 0)})
	check("behind one that waits elsewhere", two, []Opening{on("b", 8, 2)}, "b", "b")
	nothing := of("nothing", 2, 0, func(one *Workload) { one.Feasibility, one.Resources = "nowhere", nil })
	check("behind another that misses nothing", nothing, []Opening{on("a", 0, 2)}, "a", "a")
	check("what runs", "holds", []Opening{on("a", 8, 1)})
	check("nobody", "nobody", []Opening{on("a", 8, 1)})
}

// startsAmong says whether a workload that waits is started once its roles may use nodes alone, in a pool that is for it.
func (w *world) startsAmong(id string, openings []Opening) bool {
	twin, err := Restore(w.engine.Snapshot())
	if err != nil {
		w.t.Fatalf("restore: %v", err)
	}
	one := twin.work[id]
	twin.ungroup(one)
	class := func(role int) string {
		name := fmt.Sprint("asked", role)
		for _, o := range openings {
			if o.Tasks[role] > 0 {
				twin.fleet.Allow(twin.fleet.Class(name), o.Node)
			}
		}
		return name
	}
	one.Feasibility, one.Roles = class(0), cloneRoles(one.Roles)
	for i := range one.Roles {
		one.Roles[i].Feasibility = class(i + 1)
	}
	one.shape = twin.shapeOf(&one.Workload)
	twin.regroup(one)
	twin.settled = false
	return slices.ContainsFunc(twin.Step(Tick{w.at()}), func(a Action) bool {
		place, is := a.(Place)
		return is && place.Workload == id && !twin.isGuest(one.tasks[0])
	})
}

// TestRoomTogetherIsStarted: all tasks of a workload are started on nodes that its host lets them use if and only if there is said to be room for them
// there, and on those alone that are said.
func TestRoomTogetherIsStarted(t *testing.T) {
	found, none, behind, roles := 0, 0, 0, 0
	rapid.Check(t, func(rt *rapid.T) {
		w := crowdedWorld(t, rt, func(s *Submit, g *generator) {
			one := &s.Workload
			if one.Max > one.Tasks || g.int("barred", 0, 2) == 0 {
				return
			}
			one.Resources, one.Feasibility = nil, "barred"
			if len(one.Roles) == 0 && g.int("led", 0, 1) == 0 {
				one.Max = 0
				one.Roles = []Role{{Name: "leads", Tasks: 1, Devices: 1, Share: api.Share{Compute: api.Compute{Floor: 100, Ceiling: api.WholeDevice}}}}
			}
			for i := range one.Roles {
				one.Roles[i].Resources, one.Roles[i].Feasibility = nil, "barred"
			}
		})
		g := &generator{t: rt, world: w}
		for _, id := range w.engine.Waiting() {
			one := w.engine.work[id]
			if one.Feasibility != "barred" || len(w.engine.planned) > 0 || one.retryAt != 0 {
				continue
			}
			var openings, said []Opening
			for n := range w.engine.fleet.Nodes {
				if !w.engine.fleet.Open(0, n) {
					continue
				}
				o := Opening{Node: w.engine.fleet.NodeName(n)}
				for r := range one.shape.Each {
					o.Tasks = append(o.Tasks, min(1, g.int("may", 0, 3))*r.Tasks)
				}
				openings = append(openings, o)
			}
			nodes, starts := w.engine.RoomTogether(id, openings), w.startsAmong(id, openings)
			if nodes != nil != starts {
				rt.Fatalf("of %s on %v it is said that there is room: %q; it starts: %v", id, openings, nodes, starts)
			}
			if nodes == nil {
				none++
				continue
			}
			for i, node := range nodes {
				o := Opening{Node: node, Tasks: make([]int, len(openings[0].Tasks))}
				o.Tasks[one.roleOf(i)] = one.AllTasks()
				said = append(said, o)
			}
			if !w.startsAmong(id, said) {
				rt.Fatalf("of %s it is said that there is room on %q, and it does not start there", id, nodes)
			}
			if w.engine.Waiting()[0] == id {
				found++
			} else {
				behind++
			}
			if len(one.Roles) > 0 {
				roles++
			}
		}
	})
	if none == 0 || behind == 0 || roles == 0 { // who is first and has room has mostly started already
		t.Errorf("of those first in line %d have room, of those behind %d, of those with roles %d, and %d have none", found, behind, roles, none)
	}
}
