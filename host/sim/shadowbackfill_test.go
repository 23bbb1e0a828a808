package sim

import (
	"testing"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/engine"
)

// What was let in by predictions and evicted for running on is not let in so again under a candidate, as on a server.
func TestShadowRemembersEvictions(t *testing.T) {
	const s = 1_000_000
	at := func(seconds engine.Time) engine.At { return engine.At{At: seconds * s} }
	node := engine.NodeSet{Node: "n", Devices: []engine.Device{{UUID: "a", Model: "m", Memory: 1, Health: api.Healthy}}}
	work := func(id, user string, milli api.Milli, limit engine.Time, pre bool) engine.Workload {
		return engine.Workload{ID: id, User: user, Tasks: 1, Devices: 1, Queue: "own", TimeLimit: limit * s, Preemptible: pre, Requeue: pre, Share: api.Share{Compute: api.Compute{Floor: milli, Ceiling: api.WholeDevice}}}
	}
	var ev []engine.Event
	ev = append(ev, node)
	for i := 0; i < 6; i++ {
		id := string(rune('a' + i))
		ev = append(ev, engine.Submit{At: at(engine.Time(1 + 20*i)), Workload: work(id, "ann", 500, 0, true)})
		ev = append(ev, engine.Ended{At: at(engine.Time(11 + 20*i)), ID: id})
	}
	sub := func(t engine.Time, w engine.Workload) { ev = append(ev, engine.Submit{At: at(t), Workload: w}) }
	end := func(t engine.Time, id string) { ev = append(ev, engine.Ended{At: at(t), ID: id}) }
	sub(200, work("long1", "bob", 500, 100, false))
	sub(201, work("h1", "bob", 1000, 100, false))
	sub(202, work("long2", "bob", 500, 100, false))
	sub(203, work("h2", "bob", 1000, 100, false))
	sub(206, work("late", "ann", 500, 0, true))
	end(300, "long1")
	end(400, "h1")
	end(500, "long2")
	end(600, "h2")
	end(1300, "late")
	r := handRecord(t, "queue own", func(int) bool { return false }, ev...)
	x := shadowed(t, r, "queue own", "backfill predicted")
	if got := x.byLive["late"].mine.evictions; got != 1 {
		t.Errorf("it is evicted %d times, want once", got)
	}
}
