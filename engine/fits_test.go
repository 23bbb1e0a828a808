package engine

import (
	"bytes"
	"testing"

	"github.com/aliquot-dev/aliquot/api"
)

// TestFits: whether work would fit if nothing else ran is asked of all its roles together, whatever runs now, and changes nothing.
func TestFits(t *testing.T) {
	w := newWorld(t, Config{})
	w.step(NodeSet{w.at(), "n1", devices("n1", 2, "m", 8*gi), nil, nil})
	of := func(tasks int, compute api.Milli) Workload {
		one := Workload{ID: "asked", Class: api.Training, Tasks: tasks, Devices: 1}
		one.Share.Compute = api.Compute{Floor: compute, Ceiling: api.WholeDevice}
		return one
	}
	runs := of(2, 1000)
	runs.ID = "runs"
	w.step(Submit{At: w.at(), Workload: runs})
	w.settle()
	beside := func(one Workload, tasks int, compute api.Milli) Workload {
		role := of(tasks, compute)
		one.Roles = []Role{{Name: "worker", Tasks: role.Tasks, Devices: 1, Share: role.Share}}
		return one
	}
	before := w.engine.Snapshot()
	for name, one := range map[string]struct {
		asks Workload
		want bool
	}{
		"both devices":                {of(2, 1000), true},
		"one more than there are":     {of(3, 1000), false},
		"many beside each other":      {of(4, 500), true},
		"a role that has room":        {beside(of(1, 1000), 2, 500), true},
		"roles that fit, but not all": {beside(of(1, 1000), 3, 500), false},
	} {
		if got := w.engine.Fits(one.asks); got != one.want {
			t.Errorf("%s: it fits: %v", name, got)
		}
		if !bytes.Equal(w.engine.Snapshot(), before) {
			t.Fatalf("%s: asking changed the engine", name)
		}
	}
}
