package engine

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestTallyIsACount holds the tally that is kept of each shape, and the reasons kept with it, against a count of all devices, and the places in line against the line,
// over whatever happens to an engine.
func TestTallyIsACount(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := newWorld(t, Config{})
		w.t = rt
		g := &generator{t: rt, world: w}
		for _, ev := range append(queues(w.at()), g.node()) {
			w.step(ev)
		}
		for range g.int("steps", 10, 60) {
			w.step(g.event())
			for _, s := range w.engine.shapes {
				want := w.engine.tallyAll(s)
				if got := w.engine.tallyOf(s); !slices.Equal(got, want) {
					rt.Fatalf("%+v: the tally is %v, and the count %v", s.Request, got, want)
				}
				p := pass{Engine: w.engine}
				for _, r := range []ruling{byRefusal, byDrain, byHealth} {
					if got, want := p.reasons(s, r), p.reasonsAll(s, r); got != want {
						rt.Fatalf("%+v: the reasons that are kept of ruling %d are %q, and those of the devices %q", s.Request, r, got, want)
					}
				}
			}
			for i, id := range w.engine.Waiting() {
				if at := w.engine.Why(id).Place; at != i+1 {
					rt.Fatalf("workload %s has place %d in line, and is number %d there", id, at, i+1)
				}
			}
		}
	})
}
