package engine

import (
	"testing"

	"github.com/aliquot-dev/aliquot/api"
)

// TestEstimateHearsOfALateStart: a task's time limit counts from when it started, which the books know nothing of: what waits for it is
// told the later time at once, and what waits elsewhere no other.
func TestEstimateHearsOfALateStart(t *testing.T) {
	w := newWorld(t, Config{})
	for _, name := range []string{"n0", "n1"} {
		w.step(NodeSet{Node: name, Devices: devices(name, 1, "m", 8*gi)})
	}
	whole := Workload{Queue: "default", Tasks: 1, Devices: 1, Share: api.Share{Compute: api.Compute{Floor: api.WholeDevice, Ceiling: api.WholeDevice}}}
	submit := func(id string, limit Time) {
		w.step(Submit{At: w.at(), Workload: whole.with(id, limit)})
	}
	submit("a", 10*second)
	submit("b", 12*second)
	submit("c", 10*second)
	estimate := func(want Time) {
		t.Helper()
		if got := w.engine.Why("c").Estimate; got != want {
			t.Errorf("it starts at %d at the latest, want %d", got, want)
		}
	}
	estimate(10 * second)
	for _, a := range w.engine.Unanswered() {
		w.step(Done{w.at(), a.Action()})
	}
	w.now += 5 * second
	w.step(Started{w.at(), "b", 0}) // until 17 s
	estimate(10 * second)
	w.step(Started{w.at(), "a", 0})
	estimate(15 * second)
	w.finish("b")
	w.settle()
	if why := w.engine.Why("c"); why.Code != WhyHolds {
		t.Errorf("it waits: %+v", why)
	}
}

func (w Workload) with(id string, limit Time) Workload {
	w.ID, w.TimeLimit = id, limit
	return w
}
