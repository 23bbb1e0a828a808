package engine

import (
	"testing"

	"github.com/aliquot-dev/aliquot/api"
)

// TestRests: a workload that waits rests once its host has refused it, until it is tried again, and while others are ended for it.
func TestRests(t *testing.T) {
	w := newWorld(t, Config{})
	w.step(NodeSet{w.at(), "a", devices("a", 1, "m", 8*gi), nil, nil})
	submit := func(id string, priority int32) []Action {
		one := Workload{ID: id, Class: api.Training, Tasks: 1, Devices: 1, Priority: priority, Preemptible: true}
		one.Share.Compute = api.Compute{Floor: 600, Ceiling: api.WholeDevice}
		return w.step(Submit{At: w.at(), Workload: one})
	}
	rests := func(when, id string, want bool) {
		t.Helper()
		if w.engine.Rests(id) != want {
			t.Errorf("%s: %s rests: %v, want %v", when, id, !want, want)
		}
	}
	low := submit("low", 1)[0].(Place)
	rests("being started", "low", false)
	w.step(Refused{At: w.at(), ID: low.ID, Reason: "the host cannot"})
	rests("refused", "low", true)
	w.now = w.engine.Next()
	w.step(Tick{w.at()})
	w.settle()
	rests("running", "low", false)
	submit("same", 1)
	rests("waiting", "same", false)
	evict := submit("high", 2)[0].(Evict)
	rests("while another is ended for it", "high", true)
	rests("while another is ended for another", "same", false)
	w.step(Refused{At: w.at(), ID: evict.ID, Reason: "the host cannot"})
	rests("nobody is ended for it any more", "high", false)
	rests("nobody", "nobody", false)
}
