package engine

import (
	"testing"

	"github.com/aliquot-dev/aliquot/api"
)

// A grant is found by its UID whatever that says: those that the engine made, and adopted ones with the names of others' or none of its own.
func TestGrantsByUID(t *testing.T) {
	e := New(Config{})
	e.Step(NodeSet{Node: "n", Devices: []Device{{UUID: "d", Memory: 80 << 30, Health: api.Healthy}}})
	share := api.Share{Compute: api.Compute{Floor: 100, Ceiling: 1000}}
	held := map[string]string{} // by UID: the workload
	w := Workload{ID: "a.0", Queue: "default", Tasks: 1, Devices: 1, Share: share}
	for _, a := range e.Step(Submit{Workload: w}) {
		held[a.(Place).Tasks[0].Grants[0].UID] = w.ID
	}
	for id, uid := range map[string]string{"b": "a.0.0.0-7", "c": "a.0.0.0-", "d": "d.0.0-9", "a": "a.0.0-1", "e": "e.0.1-1", "f": "f.00.0-1", "g": "g.+0.0-1", "h": "plain", "i": "i.0.99999999999999999999-1"} {
		w.ID = id
		grant := Grant{UID: uid, Device: "d", Compute: share.Compute, Weight: 100}
		for _, a := range e.Step(Adopt{Workload: w, Tasks: []Placing{{Node: "n", Grants: []Grant{grant}}}}) {
			t.Errorf("adopting %s with grant %s is answered with %+v", id, uid, a)
		}
		held[uid] = id
	}
	if len(held) != 10 {
		t.Errorf("%d grants are held, want 10: %v", len(held), held)
	}
	for uid, id := range held {
		if g := e.grantOf(uid); g == nil || g.UID != uid || g != &e.work[id].tasks[0].grants[0] {
			t.Errorf("grant %s of workload %s is found as %+v", uid, id, g)
		}
		w.ID = "z"
		again := e.Step(Adopt{Workload: w, Tasks: []Placing{{Node: "n", Grants: []Grant{{UID: uid, Device: "d", Compute: share.Compute, Weight: 100}}}}})
		if len(again) != 1 || again[0].(Reject).Code != "invalid" {
			t.Errorf("a second grant %s is answered with %+v", uid, again)
		}
	}
	if err := e.CheckInvariants(); err != nil {
		t.Error(err)
	}
	for uid, id := range held {
		e.Step(Ended{ID: id})
		if g := e.grantOf(uid); g != nil {
			t.Errorf("grant %s is found after its end: %+v", uid, g)
		}
	}
	if len(e.foreign) != 0 {
		t.Errorf("%v are still listed", e.foreign)
	}
}
