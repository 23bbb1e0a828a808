package engine

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/aliquot-dev/aliquot/api"
)

// inUse is how many devices hold something.
func inUse(e *Engine) (n int) {
	for _, d := range e.Devices() {
		if len(d.Grants) > 0 {
			n++
		}
	}
	return n
}

// scattered is a fleet on which work was started and some of it has ended.
func scattered(t *testing.T, rt *rapid.T) *world {
	w := newWorld(t, Config{})
	w.t = rt
	for n := range rapid.IntRange(1, 3).Draw(rt, "nodes") {
		w.step(NodeSet{w.at(), fmt.Sprint("n", n), devices(fmt.Sprint("n", n), rapid.IntRange(1, 4).Draw(rt, "devices"), "m", 8*gi), []Resource{{"cpu", 8}}, nil})
	}
	for i := range rapid.IntRange(1, 14).Draw(rt, "workloads") {
		one := Workload{
			ID: fmt.Sprint("w", i), Class: api.Training, Tasks: rapid.SampledFrom([]int{1, 1, 1, 2, 3}).Draw(rt, "tasks of it"), Devices: rapid.SampledFrom([]int{1, 1, 1, 2}).Draw(rt, "of"),
			Preemptible: rapid.IntRange(0, 4).Draw(rt, "firm") > 0, Requeue: rapid.IntRange(0, 6).Draw(rt, "lost") > 0,
		}
		one.Share.Compute = api.Compute{Floor: api.Milli(100 * rapid.IntRange(0, 10).Draw(rt, "floor")), Ceiling: api.WholeDevice}
		if memory := rapid.IntRange(0, 4).Draw(rt, "memory"); memory > 0 {
			one.Share.Memory.Floor = api.Amount{Bytes: api.Bytes(memory) * gi}
			one.Share.Memory.Ceiling = one.Share.Memory.Floor
		}
		if cpu := rapid.IntRange(0, 3).Draw(rt, "cpu"); cpu > 0 {
			one.Resources = []Resource{{"cpu", int64(cpu)}}
		}
		w.now += second
		w.step(Submit{At: w.at(), Workload: one})
		w.settle()
	}
	for _, id := range w.engine.Waiting() {
		w.step(Cancel{w.at(), id, "nobody waits here"})
	}
	for _, one := range w.engine.byID() {
		if rapid.IntRange(0, 1).Draw(rt, "ends") == 0 {
			w.finish(one.ID)
		}
	}
	return w
}

// TestMovesLowerFragmentation: where nobody else comes and goes, each plan leaves fewer devices in use than before, whatever the order in which
// what it moves comes again; nothing is moved twice within an hour, no more is moved in any hour than the policy says, and in the end nothing is.
func TestMovesLowerFragmentation(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := scattered(t, rt)
		rule := &Defragment{MovesPerHour: int32(rapid.IntRange(1, 6).Draw(rt, "moves")), MinRun: Time(rapid.IntRange(0, 20).Draw(rt, "run")) * 60 * second}
		used, plans, names := inUse(w.engine), 0, map[string]string{}
		var moved []Time
		last := map[string]Time{}
		actions := w.step(PolicySet{w.at(), Policy{Defragment: rule}})
		for {
			var ids []string
			for _, a := range actions {
				evict, ok := a.(Evict)
				if !ok || evict.Code != EvictMove {
					rt.Fatalf("it decides %s", show(actions))
				}
				if slices.Contains(ids, evict.Workload) { // another task of a gang
					continue
				}
				ids = append(ids, evict.Workload)
				first := firstName(names, evict.Workload)
				if at, again := last[first]; again && w.now-at < movesOver {
					rt.Fatalf("%s is moved at %d and was at %d", first, w.now, at)
				}
				last[first] = w.now
				moved = append(moved, w.now)
			}
			in := slices.DeleteFunc(slices.Clone(moved), func(at Time) bool { return at+movesOver <= w.now })
			if len(in) > int(rule.MovesPerHour) {
				rt.Fatalf("%d are moved in an hour, and %d may be", len(in), rule.MovesPerHour)
			}
			if len(ids) > 0 {
				plans++
				comeAgain(rt, w, ids, names)
				if now := inUse(w.engine); now >= used {
					rt.Fatalf("plan %d moves %v, and %d devices are in use where %d were:\n%s", plans, ids, now, used, showBooks(w.engine))
				} else {
					used = now
				}
			}
			if w.engine.Next() == Never {
				break
			}
			w.now = max(w.now, w.engine.Next())
			actions = w.step(Tick{w.at()})
		}
	})
}

// comeAgain ends what is to be moved and submits it again, in any order: all of it starts.
func comeAgain(rt *rapid.T, w *world, ids []string, names map[string]string) {
	again := map[string]Workload{}
	for _, id := range ids {
		one, _ := w.engine.Workload(id)
		one.ID += "+"
		names[one.ID] = id
		again[id] = one
	}
	w.settle()
	for _, id := range rapid.Permutation(ids).Draw(rt, "order") {
		w.step(Submit{At: w.at(), Workload: again[id], Was: id})
		if w.settle(); w.engine.Phase(again[id].ID) != api.Running {
			rt.Fatalf("%s was moved and is %s:\n%s", id, w.engine.Phase(again[id].ID), showBooks(w.engine))
		}
	}
}

func firstName(names map[string]string, id string) string {
	for names[id] != "" {
		id = names[id]
	}
	return id
}

// TestMovesForTheFirst: once what is moved for the first in line has ended, that starts, and what was moved starts again elsewhere.
func TestMovesForTheFirst(t *testing.T) {
	found := false
	rapid.Check(t, func(rt *rapid.T) {
		w := scattered(t, rt)
		share := api.Share{Compute: api.Compute{Floor: 1000, Ceiling: 1000}}
		for of := 1; w.engine.Why("first").Code != WhyNoRoom; of++ { // the least that does not fit
			if of > 4 {
				return
			}
			w.finish("first")
			w.step(Submit{At: w.at(), Workload: Workload{ID: "first", Class: api.Training, Tasks: 1, Devices: of, Share: share}})
			w.settle()
		}
		var ids []string
		for _, a := range w.step(PolicySet{w.at(), Policy{Defragment: &Defragment{MovesPerHour: 100}}}) {
			if id := a.(Evict).Workload; !slices.Contains(ids, id) {
				ids = append(ids, id)
			}
		}
		if len(ids) == 0 {
			return
		}
		found = true
		if why := w.engine.Why("first"); why.Code != WhyReclaim {
			rt.Fatalf("it waits for %+v", why)
		}
		comeAgain(rt, w, ids, map[string]string{})
		if phase := w.engine.Phase("first"); phase != api.Running {
			rt.Fatalf("%v are moved for it, and it is %s:\n%s", ids, phase, showBooks(w.engine))
		}
	})
	if !found {
		t.Error("nothing was ever moved for the first in line")
	}
}

// TestMovesOfTasksInTurn: while the tasks of a gang that is moved for the first in line end one after another, that does not start where the gang is to go.
func TestMovesOfTasksInTurn(t *testing.T) {
	w := newWorld(t, Config{})
	n1, n2 := devices("n1", 3, "m", 8*gi), devices("n2", 4, "m", 8*gi)
	w.step(NodeSet{w.at(), "n1", n1, []Resource{{"cpu", 8}}, nil})
	w.step(NodeSet{w.at(), "n2", n2, []Resource{{"cpu", 8}}, nil})
	runs := func(one Workload, floor api.Milli, on ...Device) {
		one.Class, one.Share.Compute = api.Training, api.Compute{Floor: floor, Ceiling: api.WholeDevice}
		one.Devices = 1
		var tasks []Placing
		for i, d := range on {
			node, _, _ := strings.Cut(d.UUID, "-")
			tasks = append(tasks, Placing{i, node, []Grant{{UID: fmt.Sprint(one.ID, ".", i), Device: d.UUID, Compute: one.Share.Compute, Weight: 100}}})
		}
		one.Tasks = len(on)
		if rejected := w.step(Adopt{At: w.at(), Workload: one, Tasks: tasks}); len(rejected) > 0 {
			t.Fatal(show(rejected))
		}
	}
	runs(Workload{ID: "stays", Resources: []Resource{{"cpu", 3}}}, 400, n2[3]) // what is left is not enough for the gang
	runs(Workload{ID: "holds no compute"}, 0, n1[0])                           // the first goes where devices are empty
	runs(Workload{ID: "gang", Resources: []Resource{{"cpu", 2}}, Preemptible: true, Requeue: true}, 900, n1[0], n2[0], n2[1])
	w.step(Submit{At: w.at(), Workload: Workload{ID: "first", Class: api.Training, Tasks: 1, Devices: 3, Share: api.Share{Compute: api.Compute{Floor: 1000, Ceiling: 1000}}}})
	if why := w.engine.Why("first"); why.Code != WhyNoRoom {
		t.Fatalf("it waits for %+v", why)
	}
	if moved := w.step(PolicySet{w.at(), Policy{Defragment: &Defragment{MovesPerHour: 100}}}); len(moved) != 3 {
		t.Fatalf("the gang of three is not moved, but %s", show(moved))
	}
	again, _ := w.engine.Workload("gang")
	again.ID = "gang+"
	w.settle()
	w.step(Submit{At: w.at(), Workload: again, Was: "gang"})
	w.settle()
	for _, id := range []string{"first", "gang+"} {
		if phase := w.engine.Phase(id); phase != api.Running {
			t.Errorf("%s is %s:\n%s", id, phase, showBooks(w.engine))
		}
	}
}

// TestMovesBeforeEvictions: where a policy moves work, what a queue takes back is moved if that does: then all of it runs on elsewhere
// beside the owner.
func TestMovesBeforeEvictions(t *testing.T) {
	codes := map[string]int{}
	rapid.Check(t, func(rt *rapid.T) {
		for range 3 { // one in twenty moves work
			codes[ownerWaits(t, rt)]++
		}
	})
	if codes[EvictMove] == 0 || codes[EvictReclaim] == 0 {
		t.Errorf("plans of these codes were seen: %v", codes)
	}
}

// ownerWaits submits work of a queue that owns all of a fleet until some has to wait, and checks what is moved for that. It returns for what work there is evicted; empty: none is.
func ownerWaits(t *testing.T, rt *rapid.T) (code string) {
	w := scattered(t, rt)
	w.step(QueueSet{w.at(), api.QueueSpec{Name: "owner", Quota: 12000}})
	w.step(PolicySet{w.at(), Policy{
		Defragment: &Defragment{MovesPerHour: 100, Free: 1, MinRun: 3600 * second}, Queues: []api.QueueSpec{{Name: "owner", Quota: 12000}, {Name: "default"}},
	}})
	w.settle()
	w.now += 3600 * second
	share := api.Share{Compute: api.Compute{Floor: 1000, Ceiling: 1000}}
	for i := range 6 {
		code = ""
		var ids []string
		id := fmt.Sprint("owner", i)
		for _, a := range w.step(Submit{At: w.at(), Workload: Workload{
			ID: id, Class: api.Training, Tasks: rapid.IntRange(1, 2).Draw(rt, "tasks"), Devices: rapid.IntRange(1, 3).Draw(rt, "of"), Share: share, Queue: "owner",
		}}) {
			evict, ok := a.(Evict)
			if !ok {
				continue
			}
			if code != "" && evict.Code != code {
				rt.Fatalf("one plan evicts for %s and for %s", code, evict.Code)
			}
			if code = evict.Code; !slices.Contains(ids, evict.Workload) {
				ids = append(ids, evict.Workload)
			}
		}
		if w.engine.Phase(id) != api.Waiting {
			w.settle()
			continue
		}
		if w.engine.Why(id).Code != WhyReclaim { // what is moved, if anything, leaves a device free
			return ""
		}
		if code == EvictMove {
			comeAgain(rt, w, ids, map[string]string{})
			if phase := w.engine.Phase(id); phase != api.Running {
				rt.Fatalf("%v are moved for it, and it is %s:\n%s", ids, phase, showBooks(w.engine))
			}
		}
		return code
	}
	return ""
}
