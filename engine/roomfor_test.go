package engine

import (
	"bytes"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/aliquot-dev/aliquot/api"
)

// TestRoomFor: for whom room is of use on a node that its host bars goes by what is free on the devices there, by its queue and by who is in front, and
// asking changes nothing.
func TestRoomFor(t *testing.T) {
	w := newWorld(t, Config{})
	cpu := func(of int64) []Resource { return []Resource{{"cpu", of}} }
	for _, name := range []string{"full", "half", "free"} {
		w.step(NodeSet{w.at(), name, devices(name, 1, "m", 8*gi), cpu(1), nil}) // what the host's own take is not there for the engine
	}
	w.step(NodeSet{w.at(), "none", nil, cpu(8), nil})
	w.step(QueueSet{w.at(), api.QueueSpec{Name: "small", Quota: api.Unlimited, Limit: api.QueueAmounts{Compute: new(api.Quota(500))}}})
	of := func(id string, compute api.Milli, change func(*Workload)) string {
		one := Workload{ID: id, Class: api.Training, Tasks: 1, Devices: 1}
		one.Share.Compute = api.Compute{Floor: compute, Ceiling: api.WholeDevice}
		change(&one)
		w.step(Submit{At: w.at(), Workload: one})
		return id
	}
	on := func(node string) func(*Workload) {
		return func(one *Workload) {
			one.Feasibility = "only " + node
			w.step(Feasibility{At: w.at(), Class: one.Feasibility, Allowed: []string{node}})
		}
	}
	of("a", 1000, on("full"))
	of("b", 500, on("half"))
	w.settle()
	barred := func(change func(*Workload)) func(*Workload) {
		return func(one *Workload) {
			one.Feasibility, one.Resources = "barred", cpu(4)
			change(one)
		}
	}
	all := []string{"none", "half", "gone", "full", "free"}
	check := func(name, id string, want ...string) {
		t.Helper()
		before := w.engine.Snapshot()
		if got := w.engine.RoomFor(id, all); !slices.Equal(got, want) {
			t.Errorf("%s: on %q, want %q", name, got, want)
		}
		if err := w.engine.CheckInvariants(); err != nil || !bytes.Equal(w.engine.Snapshot(), before) {
			t.Fatalf("%s: asking changed the engine: %v", name, err)
		}
	}
	check("what devices have free", of("c", 500, barred(func(*Workload) {})), "half", "free")
	check("a whole device", of("d", 1000, barred(func(*Workload) {})), "free")
	check("more devices than a node has", of("e", 100, barred(func(one *Workload) { one.Devices = 2 })))
	check("its queue's limit", of("f", 501, barred(func(one *Workload) { one.Queue = "small" })))
	check("within it", of("g", 500, barred(func(one *Workload) { one.Queue = "small" })), "half", "free")
	check("several tasks", of("h", 100, barred(func(one *Workload) { one.Tasks = 2 })))
	check("what runs", "a")
	check("nobody", "nobody")
	check("behind one that waits for a node alone", func() string { of("first", 1000, on("full")); return "c" }(), "half", "free")
	check("behind one that may be on all", func() string {
		of("second", 1000, func(one *Workload) { one.Priority, one.Devices = 9, 1; on("half")(one) })
		return "c"
	}(), "free")
}

// startsOn says whether a workload that waits is started once it may use a node alone, in a pool that is for it.
func (w *world) startsOn(id, node string) bool {
	twin, err := Restore(w.engine.Snapshot())
	if err != nil {
		w.t.Fatalf("restore: %v", err)
	}
	one := twin.work[id]
	twin.ungroup(one)
	one.Feasibility = "asked"
	twin.fleet.Allow(twin.fleet.Class("asked"), node)
	one.shape = twin.shapeOf(&one.Workload)
	twin.regroup(one)
	twin.settled = false
	return slices.ContainsFunc(twin.Step(Tick{w.at()}), func(a Action) bool {
		place, is := a.(Place)
		return is && place.Workload == id && !twin.isGuest(one.tasks[0])
	})
}

// TestRoomForIsStarted: a workload is started on a node alone that its host lets it use if and only if there is said to be room for it there.
func TestRoomForIsStarted(t *testing.T) {
	found, none, behind := 0, 0, 0
	rapid.Check(t, func(rt *rapid.T) {
		w := crowdedWorld(t, rt, func(s *Submit, _ *generator) {
			s.Workload.Resources = nil
			if s.Workload.Tasks == 1 && len(s.Workload.Roles) == 0 {
				s.Workload.Feasibility = "barred"
			}
		})
		for _, id := range w.engine.Waiting() {
			one := w.engine.work[id]
			if one.Feasibility != "barred" || len(w.engine.planned) > 0 || one.retryAt != 0 {
				continue
			}
			for n := range w.engine.fleet.Nodes {
				node := w.engine.fleet.NodeName(n)
				if !w.engine.fleet.Open(0, n) {
					continue
				}
				said, starts := len(w.engine.RoomFor(id, []string{node})) > 0, w.startsOn(id, node)
				if said != starts {
					rt.Fatalf("of %s on %s it is said that there is room: %v; it starts: %v", id, node, said, starts)
				}
				switch {
				case !said:
					none++
				case len(w.engine.Waiting()) > 0 && w.engine.Waiting()[0] != id:
					behind++
				default:
					found++
				}
			}
		}
	})
	if found == 0 || none == 0 || behind == 0 {
		t.Errorf("of those first in line %d have room, of those behind %d, and %d have none", found, behind, none)
	}
}
