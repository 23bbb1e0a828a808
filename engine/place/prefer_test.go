package place

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/engine/fleet"
)

// TestPreferred holds where tasks go against a search of each rank: to the first that has room, by any policy, and to no node that their class may
// not use; and what a preference leaves unplaced is what would not fit without one.
func TestPreferred(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := fleet.New()
		classes := []fleet.ClassID{f.Class("any"), f.Class("better"), f.Class("best")}
		nodes := rapid.IntRange(2, 5).Draw(t, "nodes")
		for i := range nodes {
			name := fmt.Sprint("n", i)
			devices := []fleet.Device{{UUID: name, Memory: 8 * gi, Health: api.Healthy}, {UUID: name + "-1", Index: 1, Memory: 8 * gi, Health: api.Healthy}}
			if _, err := f.SetNode(name, devices, []fleet.Resource{{Name: "cpu", Amount: 8}}); err != nil {
				t.Fatal(err)
			}
			for _, class := range classes[:rapid.IntRange(0, len(classes)).Draw(t, "rank")] {
				f.Allow(class, name)
			}
		}
		f.Prefer(classes[0], classes[1])
		f.Prefer(classes[1], classes[2])
		p := New(f)
		if policy := Default(); rapid.Bool().Draw(t, "scored") {
			p.UsePolicy(&policy)
		}
		for range 3 * nodes {
			r := &Request{
				Compute: api.Milli(rapid.SampledFrom([]int{250, 500, 1000}).Draw(t, "compute")), Class: classes[0],
				Devices: rapid.IntRange(1, 2).Draw(t, "devices"), Tasks: 1,
			}
			want := -1
			for k, class := range classes {
				if search(f, r.of(class), p, 1) {
					want = k
				}
			}
			spots, ok := p.Place(r)
			if ok != (want >= 0) {
				t.Fatalf("%+v: found is %v, and rank %d has room", r, ok, want)
			}
			if ok && !f.Open(classes[want], spots[0].Node) {
				t.Fatalf("%+v is on %s, and rank %d has room", r, f.NodeName(spots[0].Node), want)
			}
		}
	})
}

// A node that refuses a class is refused by what the class prefers, too, so that the others of these still come first.
func TestPreferredRefused(t *testing.T) {
	f := fleet.New()
	for i := range 3 {
		if _, err := f.SetNode(fmt.Sprint("n", i), []fleet.Device{{UUID: fmt.Sprint("d", i), Memory: 8 * gi, Health: api.Healthy}}, nil); err != nil {
			t.Fatal(err)
		}
	}
	anywhere, near := f.Class("any"), f.Class("near")
	for i := range 3 {
		f.Allow(anywhere, fmt.Sprint("n", i))
	}
	f.Allow(near, "n1")
	f.Allow(near, "n2")
	if !f.Prefer(anywhere, near) || f.Prefer(near, anywhere) || f.Prefer(near, near) {
		t.Fatal("a class may be preferred by what it prefers, or not at all")
	}
	p, r := New(f), &Request{Compute: 500, Class: anywhere, Devices: 1, Tasks: 1}
	place := func(want string) {
		t.Helper()
		spots, ok := p.Place(r)
		if !ok || f.NodeName(spots[0].Node) != want {
			t.Fatalf("%v, not on %s", spots, want)
		}
		p.Give(r, spots[0])
	}
	place("n1")
	refused, _ := f.Node("n1")
	f.Refuse(anywhere, refused, "no")
	place("n2")
	f.ForgetRefusals(anywhere)
	place("n1")
	f.Bar(anywhere, "n1", "no")
	place("n0") // and not on n1, which is preferred and barred
	f.Prefer(anywhere, fleet.Alike)
	place("n0")
}
