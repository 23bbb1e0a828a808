package engine

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/engine/fleet"
)

// TestGatheringAgainstNaive: where gangs of shares wait for each other's time limits, the engine and one that looks at everything each time say the same
// of when each would start and what it leaves of which devices, and start the same behind the first.
func TestGatheringAgainstNaive(t *testing.T) {
	seen := map[string]int{}
	rapid.Check(t, func(rt *rapid.T) {
		d := newDuel(t, rt)
		for i := range d.g.int("nodes", 2, 3) {
			name := fmt.Sprint("n", i+1)
			node := NodeSet{At: d.w.at(), Node: name, Devices: devices(name, d.g.int("devices", 2, 4), "m", 8*gi), Resources: []Resource{{"cpu", int64(d.g.int("cpu", 3, 8))}}}
			if rack := d.g.pick("rack", "", "r1", "r1", "r2"); rack != "" {
				node.Domains = []fleet.Domain{{Level: "rack", Name: rack}}
			}
			d.take(node)
		}
		for range d.g.int("steps", 10, 50) {
			d.take(d.gangEvent())
			d.reservations(seen)
		}
	})
	for _, what := range []string{"never", "one", "several on a node", "several devices", "left over"} {
		if seen[what] == 0 {
			t.Errorf("nothing was seen that is to start with %s", what)
		}
	}
}

// gangEvent is something that happens where work is small and comes in gangs.
func (d *duel) gangEvent() Event {
	g := d.g
	d.w.now += Time(g.int("wait", 0, 2)) * second / 2
	at, open := d.w.at(), d.w.engine.Unanswered()
	switch kind := g.int("kind", 0, 9); {
	case kind < 3 && len(open) > 0:
		return Done{at, rapid.SampledFrom(open).Draw(d.T, "action").Action()}
	case kind < 5:
		if tasks := g.holding(); len(tasks) > 0 {
			return rapid.SampledFrom(tasks).Draw(d.T, "task")
		}
	}
	g.next++
	w := Workload{
		ID: fmt.Sprint("w", g.next), Queue: "default", Class: api.Training, Tasks: g.int("tasks", 1, 5), Devices: g.int("of", 1, 3),
		TimeLimit: Time(g.int("limit", 0, 9)) * second, Same: g.pick("same", "", "", "rack"),
	}
	w.Share.Compute = api.Compute{Floor: api.Milli(rapid.SampledFrom([]int{0, 200, 300, 400, 500, 700, 1000}).Draw(d.T, "floor")), Ceiling: api.WholeDevice}
	if m := g.int("memory", 0, 5); m > 2 {
		w.Share.Memory = api.Memory{Floor: api.Amount{Bytes: api.Bytes(m) * gi}, Ceiling: api.Amount{Bytes: 8 * gi}}
	}
	if cpu := g.int("cpu", 0, 3); cpu > 0 {
		w.Resources = []Resource{{"cpu", int64(cpu)}}
	}
	return Submit{At: at, Workload: w}
}

// reservations holds what the engine would reserve for each that waits against what the naive one would.
func (d *duel) reservations(seen map[string]int) {
	d.Helper()
	for _, w := range d.slow.work {
		if w.tasks != nil {
			continue
		}
		p, e := pass{Engine: d.w.engine}, d.w.engine
		got, want := p.reserveFor(e.work[w.ID]), d.slow.reserve(w)
		if got.known != want.known || got.at != want.at {
			d.Fatalf("%s is to start at %d (%v), and by the naive engine at %d (%v)", w.ID, got.at, got.known, want.at, want.known)
		}
		if got, want := got.show(e), want.show(); got != want {
			d.Fatalf("%s is to leave%s, and by the naive engine%s", w.ID, got, want)
		}
		of := map[string]int{}
		for _, s := range want.spots {
			of[s.node]++
		}
		for what, so := range map[string]bool{
			"never": !want.known, "one": w.Tasks == 1, "several on a node": len(of) > 1 && len(of) < w.Tasks,
			"several devices": w.Devices > 1 && w.Tasks > 1 && w.Share.Compute.Floor <= 500, "left over": want.over > 0,
		} {
			if so && (want.known || what == "never") {
				seen[what]++
			}
		}
	}
}

// show is what a reservation leaves.
func (r *reserved) show() (text string) {
	on := map[string][]string{}
	for _, s := range r.spots {
		for _, uuid := range s.devices {
			l := r.then.left[uuid]
			if text := fmt.Sprintf(" %s:%d,%d", uuid, l.compute, l.memory); !slices.Contains(on[s.node], text) {
				on[s.node] = append(on[s.node], text)
			}
		}
	}
	for _, node := range slices.Sorted(maps.Keys(on)) {
		text += " " + node
		for _, device := range slices.Sorted(slices.Values(on[node])) {
			text += device
		}
		if cpu := r.then.cpu[node]; cpu != 0 {
			text += fmt.Sprintf(" cpu:%d", cpu)
		}
	}
	return text
}
