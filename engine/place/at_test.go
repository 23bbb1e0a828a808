package place

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/engine/fleet"
)

// TestAtIsWhatWasFound: what Place found may be taken again once it was given back; as soon as one device of it has no room any more, none of it is.
func TestAtIsWhatWasFound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := fleet.New()
		for i := range rapid.IntRange(1, 3).Draw(t, "nodes") {
			var devices []fleet.Device
			for k := range rapid.IntRange(1, 3).Draw(t, "devices") {
				devices = append(devices, fleet.Device{UUID: fmt.Sprintf("n%d-%d", i, k), Index: k, Model: "a", Memory: 8 * gi, Health: api.Healthy})
			}
			if _, err := f.SetNode(fmt.Sprint("n", i), devices, []fleet.Resource{{Name: "cpu", Amount: 6}}); err != nil {
				t.Fatal(err)
			}
		}
		role := func() Request {
			return Request{
				Compute: api.Milli(rapid.SampledFrom([]int{100, 300, 600}).Draw(t, "compute")), Memory: api.Amount{Bytes: gi}, Devices: rapid.IntRange(1, 2).Draw(t, "per task"),
				Tasks: rapid.IntRange(1, 3).Draw(t, "tasks"), Resources: []fleet.Amount{{Resource: f.Resource("cpu"), Amount: 1}},
			}
		}
		r := role()
		if rapid.Bool().Draw(t, "roles") {
			r.Roles = []Request{role(), role()}
		}
		p := New(f)
		spots, ok := p.Place(&r)
		if !ok {
			return
		}
		free := func() (all []string) {
			for n := range f.Nodes {
				for _, d := range f.DevicesOf(n) {
					c, m := f.Free(d)
					all = append(all, fmt.Sprint(c, m, f.HasFree(n, []fleet.Amount{{Resource: f.Resource("cpu"), Amount: 6}})))
				}
			}
			return all
		}
		taken := free()
		for i, s := range spots {
			p.Give(r.Of(i), s)
		}
		empty := free()
		if !p.At(&r, spots) || !slices.Equal(free(), taken) {
			t.Fatalf("%v was found for %+v and is not taken again: %v, want %v", spots, r, free(), taken)
		}
		for i, s := range spots {
			p.Give(r.Of(i), s)
		}
		if !slices.Equal(free(), empty) {
			t.Fatalf("given back leaves %v, want %v", free(), empty)
		}
		last := spots[len(spots)-1].Devices
		d := last[rapid.IntRange(0, len(last)-1).Draw(t, "which")]
		f.Adjust(d, 1000, 0, 1)
		full := free()
		if p.At(&r, spots) || !slices.Equal(free(), full) {
			t.Fatalf("%v is taken with a device full: %v, want %v", spots, free(), full)
		}
	})
}

// Spots in two domains are not taken for a request that wants one, nor those that its fence or its queue rules out.
func TestAtKeepsToTheRequest(t *testing.T) {
	f := fleet.New()
	var spots []Spot
	for i := range 2 {
		device := []fleet.Device{{UUID: fmt.Sprint("d", i), Memory: 8 * gi, Health: api.Healthy}}
		if _, err := f.SetNode(fmt.Sprint("n", i), device, nil); err != nil {
			t.Fatal(err)
		}
		f.SetDomains(fmt.Sprint("n", i), []fleet.Domain{{Level: "rack", Name: fmt.Sprint("r", i)}, {Level: "room", Name: "one"}})
		d, _ := f.DeviceOf(fmt.Sprint("d", i))
		spots = append(spots, Spot{f.NodeOf(d), []fleet.DeviceID{d}})
	}
	second := func(d fleet.DeviceID) bool { return d == spots[1].Devices[0] }
	p := New(f)
	for name, of := range map[string]struct {
		request Request
		want    bool
	}{
		"anywhere":         {Request{}, true},
		"one room":         {Request{Same: "room"}, true},
		"one rack":         {Request{Same: "rack"}, false},
		"fenced off":       {Request{Fence: &Fence{Name: "second", Bars: second}}, false},
		"too much for it":  {Request{Avoid: second}, false},
		"of another model": {Request{Model: "b"}, false},
		"two of a node":    {Request{Devices: 2}, false},
	} {
		r := of.request
		r.Compute, r.Tasks, r.Devices = 500, 2, max(1, r.Devices)
		if got := p.At(&r, spots); got != of.want {
			t.Errorf("%s: it is taken: %v", name, got)
		} else if got {
			for _, s := range spots {
				p.Give(&r, s)
			}
		}
	}
}
