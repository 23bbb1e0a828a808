package engine

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/aliquot-dev/aliquot/api"
)

// TestEvictionsSettle: as long as the time stands still and everything that is evicted comes again at once, evictions come to an end, whatever else is slow to
// end meanwhile: nobody loses a place that he only comes back to.
func TestEvictionsSettle(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := newWorld(t, Config{})
		w.t = rt
		g := &generator{t: rt, world: w}
		events := []Event{
			NodeSet{w.at(), "n1", devices("n1", g.int("devices", 2, 5), "big", 8*gi), []Resource{{"cpu", 8}}, nil},
			QueueSet{w.at(), api.QueueSpec{Name: "a", Quota: api.Unlimited}},
			QueueSet{w.at(), api.QueueSpec{Name: "b", Quota: api.Unlimited}},
		}
		for _, name := range []string{"a", "b"} {
			spec := api.QueueSpec{Name: name, Quota: api.Unlimited}
			if g.int("quota", 0, 2) == 0 {
				spec.Quota = api.Quota(1000 * g.int("devices guaranteed", 0, 4))
			}
			if g.int("limit", 0, 1) == 0 {
				limit := api.Quota(1000 * g.int("devices at most", 1, 4))
				spec.Limit.Compute = &limit
			}
			if g.int("ordered", 0, 3) == 0 {
				spec.Order = g.order()
			}
			events = append(events, QueueSet{w.at(), spec})
		}
		if g.int("policy", 0, 3) == 0 {
			events = append(events, PolicySet{w.at(), Policy{Predicted: true}})
		}
		for _, ev := range events {
			w.step(ev)
		}
		host := hostAtOnce{g: g, stays: map[string]bool{}}
		for range g.int("submissions", 3, 14) {
			host.carryOut(w.step(Submit{At: w.at(), Workload: host.work()}))
			if ids := running(w.engine); len(ids) > 0 && g.int("ends", 0, 4) == 0 {
				id := rapid.SampledFrom(ids).Draw(rt, "ended")
				host.stays[id] = g.int("slowly", 0, 1) == 1
				host.carryOut(w.step(Cancel{w.at(), id, "no more wanted"}))
			}
			w.now += Time(g.int("later", 0, 2)) * second / 4
			host.carryOut(w.step(Tick{w.at()}))
		}
	})
}

// running are the workloads that hold something.
func running(e *Engine) (ids []string) {
	for _, w := range e.byID() {
		if !w.waiting() && w.base == nil {
			ids = append(ids, w.ID)
		}
	}
	return ids
}

// hostAtOnce carries out what an engine decides at once, has what is evicted for others come again, and leaves what was cancelled and stays as it is.
type hostAtOnce struct {
	g     *generator
	stays map[string]bool
}

// work is of whole devices, most of it such that gives way and comes again, with time limits far apart.
func (h *hostAtOnce) work() Workload {
	g := h.g
	g.next++
	one := Workload{
		ID: fmt.Sprintf("w%d", g.next), Queue: g.pick("queue", "a", "a", "b"), Class: api.Training, Tasks: 1, Devices: 1, Priority: int32(g.int("priority", 0, 2)),
		TimeLimit: rapid.SampledFrom([]Time{0, 10, 600, 36_000}).Draw(g.t, "limit") * second, Preemptible: g.int("preemptible", 0, 3) > 0, Requeue: true,
	}
	one.Share.Compute = api.Compute{Floor: api.WholeDevice, Ceiling: api.WholeDevice}
	switch g.int("size", 0, 3) {
	case 0:
		one.Tasks = g.int("tasks", 2, 4)
	case 1:
		one.Devices = g.int("of", 1, 4)
	}
	return one
}

// carryOut is over when the engine decides nothing more.
func (h *hostAtOnce) carryOut(actions []Action) {
	w, evictions := h.g.world, 0
	most := 20 * (1 + len(running(w.engine)) + len(w.engine.Waiting()))
	for len(actions) > 0 {
		a := actions[0]
		actions = actions[1:]
		do := func(ev Event) { actions = append(actions, w.step(ev)...) }
		switch a := a.(type) {
		case Place:
			do(Done{w.at(), a.ID})
			for _, t := range a.Tasks {
				if slices.ContainsFunc(w.engine.Grants(a.Workload), func(p Placing) bool { return p.Task == t.Task }) {
					do(Started{w.at(), a.Workload, t.Task})
				}
			}
		case Resize:
			do(Done{w.at(), a.ID})
		case Evict:
			if h.stays[a.Workload] {
				continue
			}
			if evictions++; evictions > most {
				h.g.t.Fatalf("%d evictions at one moment, and no end: the last is of %s, %s: %s", evictions, a.Workload, a.Code, a.Reason)
			}
			one, _ := w.engine.Workload(a.Workload)
			do(Done{w.at(), a.ID})
			do(Ended{At: w.at(), ID: a.Workload, Task: a.Task})
			if one.Requeue && a.Code != EvictCancelled && w.engine.Phase(a.Workload) == api.Ended {
				was := one.ID
				h.g.next++
				one.ID = fmt.Sprintf("w%d", h.g.next)
				do(Submit{At: w.at(), Workload: one, Was: was})
			}
		}
	}
}
