package engine

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/aliquot-dev/aliquot/api"
)

// TestAdoptable: whether work may be started where its host found room for it goes by what is free on each device and by its queue, and changes nothing.
func TestAdoptable(t *testing.T) {
	w := newWorld(t, Config{})
	w.step(NodeSet{w.at(), "n1", devices("n1", 2, "m", 8*gi), nil, nil})
	small := api.Quota(500)
	w.step(QueueSet{w.at(), api.QueueSpec{Name: "small", Quota: api.Unlimited, Limit: api.QueueAmounts{Compute: &small}}})
	runs := Workload{ID: "runs", Class: api.Training, Tasks: 1, Devices: 1}
	runs.Share.Compute = api.Compute{Floor: 600, Ceiling: 1000}
	w.step(Submit{At: w.at(), Workload: runs})
	w.settle()
	taken := w.engine.Grants("runs")[0].Grants[0].Device
	free := map[string]string{"n1-0": "n1-1", "n1-1": "n1-0"}[taken]
	if compute, memory, known := w.engine.Free(taken); compute != 400 || memory != 8*gi || !known {
		t.Errorf("%s has %v and %v free, known %v", taken, compute, memory, known)
	}
	if _, _, known := w.engine.Free("other"); known {
		t.Error("a device is known that is not there")
	}
	before := w.engine.Snapshot()
	for name, one := range map[string]struct {
		device, queue string
		floor         api.Milli
		room, hold    string
	}{
		"on what is free":         {free, "default", 500, "", ""},
		"beside what runs":        {taken, "default", 400, "", ""},
		"more than is left":       {taken, "default", 401, "device " + taken + " has 0.40 of compute", ""},
		"on a device of nobody":   {"other", "default", 100, "other", ""},
		"up to its queue's limit": {free, "small", 500, "", ""},
		"over its queue's limit":  {free, "small", 501, "", "queue small, which has a limit of 0.5 and 0 held"},
		"in a queue of nobody":    {free, "none", 100, "", "queue none, which is not there"},
	} {
		asks := Workload{ID: "asked", Class: api.Training, Tasks: 1, Devices: 1, Queue: one.queue}
		asks.Share.Compute = api.Compute{Floor: one.floor, Ceiling: 1000}
		at := []Placing{{Node: "n1", Grants: []Grant{{UID: "asked", Device: one.device, Compute: asks.Share.Compute, Weight: 1}}}}
		room, hold := w.engine.CheckRoom(asks, at), w.engine.CheckHold(asks, at)
		if (room == nil) != (one.room == "") || room != nil && !strings.Contains(room.Error(), one.room) {
			t.Errorf("%s: of its room is said %v, want %q", name, room, one.room)
		}
		if (hold == nil) != (one.hold == "") || hold != nil && !strings.Contains(hold.Error(), one.hold) {
			t.Errorf("%s: of its queue is said %v, want %q", name, hold, one.hold)
		}
		if !bytes.Equal(w.engine.Snapshot(), before) {
			t.Fatalf("%s: asking changed the engine", name)
		}
	}
	for floor, room := range map[api.Milli]string{200: "", 201: "0.40 of compute", 500: "0.40 of compute"} { // of each of two tasks, on one device
		asks := Workload{ID: "asked", Class: api.Training, Tasks: 2, Devices: 1}
		asks.Share.Compute = api.Compute{Floor: floor, Ceiling: 1000}
		var at []Placing
		for task := range 2 {
			at = append(at, Placing{Task: task, Node: "n1", Grants: []Grant{{UID: fmt.Sprint("asked-", task), Device: taken, Compute: asks.Share.Compute, Weight: 1}}})
		}
		if err := w.engine.CheckRoom(asks, at); (err == nil) != (room == "") || err != nil && !strings.Contains(err.Error(), room) {
			t.Errorf("of the room of two of %v is said %v, want %q", floor, err, room)
		}
	}
}
