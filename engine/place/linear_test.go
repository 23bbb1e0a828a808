package place

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/engine/fleet"
)

// linear finds the best spot for one task as it is defined: every node in the fixed order is scored, by a placer that knows nothing
// of before, and the first of the best is taken.
func linear(f *fleet.Fleet, policy *Policy, seen *Seen, r *Request) (Spot, bool) {
	p := New(f)
	p.UsePolicy(policy)
	p.SetSeen(seen)
	s := p.scored
	s.prepare()
	w, best, at := s.wantOf(r), int64(0), (*view)(nil)
	for i := range s.views {
		if score, ok := s.choose(&w, &s.views[i]); ok && (at == nil || score > best) {
			best, at = score, &s.views[i]
		}
	}
	if at == nil {
		return Spot{}, false
	}
	s.choose(&w, at)
	return s.spotAt(p, at, s.fits), true
}

// TestFastIsLinear holds what is kept of scores, bounds and touched nodes against the linear search, on fleets of more nodes than one
// fan has, over placements, departures, plans taken back, changes of nodes and of fences, and so many touches that the fleet forgot some.
func TestFastIsLinear(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := fleet.New()
		nodes := rapid.IntRange(1, 100).Draw(t, "nodes")
		set := func(i, cpu int) {
			var devices []fleet.Device
			for k := range 1 + i%3 {
				devices = append(devices, fleet.Device{UUID: fmt.Sprintf("n%d-%d", i, k), Index: k, Model: "ab"[i%2 : i%2+1], Memory: 8 * gi, Health: api.Healthy})
			}
			if _, err := f.SetNode(fmt.Sprintf("n%d", i), devices, []fleet.Resource{{Name: "cpu", Amount: int64(cpu)}, {Name: "memory", Amount: 64}}); err != nil {
				t.Fatal(err)
			}
		}
		for i := range nodes {
			set(i, 3+i%7)
		}
		policy := mixed()
		if rapid.Bool().Draw(t, "default weights") {
			policy = Default()
		}
		p := New(f)
		p.UsePolicy(&policy)
		var requests []*Request
		shift := 0
		for range rapid.IntRange(1, 20).Draw(t, "kinds") { // more than one page has
			r := drawRequest(t, f)
			r.Tasks, r.Fence = 1, drawFence(t, &shift)
			requests = append(requests, r)
		}
		type placed struct {
			r *Request
			s Spot
		}
		var running []placed
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			switch what := rapid.IntRange(0, 11).Draw(t, "what"); {
			case what < 3 && len(running) > 0:
				i := rapid.IntRange(0, len(running)-1).Draw(t, "which")
				p.Give(running[i].r, running[i].s)
				running = slices.Delete(running, i, i+1)
				continue
			case what == 3:
				set(rapid.IntRange(0, nodes-1).Draw(t, "node"), rapid.IntRange(0, 9).Draw(t, "cpu"))
				continue
			case what == 4: // a plan that is taken back
				mark := f.Begin()
				many := *requests[0]
				many.Tasks = rapid.IntRange(1, 20).Draw(t, "tasks")
				p.Place(&many)
				f.Rollback(mark)
				continue
			case what == 6:
				shift++
				p.Refence()
				continue
			case what == 5:
				d := f.DevicesOf(0)[0]
				for range 9000 { // more touches than the fleet remembers
					f.Adjust(d, 1, 0, 1)
					f.Adjust(d, -1, 0, -1)
				}
				continue
			}
			r := rapid.SampledFrom(requests).Draw(t, "request")
			p.Saw(r)
			bare := Request{Compute: r.Compute, Memory: r.Memory, Model: r.Model, Devices: r.Devices, Tasks: 1, Resources: r.Resources, Fence: r.Fence}
			want, ok := linear(f, &policy, p.Seen(), &bare)
			got, found := p.Place(r)
			if ok != found || found && (want.Node != got[0].Node || !slices.Equal(want.Devices, got[0].Devices)) {
				t.Fatalf("%+v: placed at %v, by the linear search at %v", bare, got, want)
			}
			if found {
				running = append(running, placed{r, got[0]})
			}
		}
	})
}

// A node that came again with less CPU than is taken of it still takes what wants no CPU.
func TestLessThanNothingFree(t *testing.T) {
	f := fleet.New()
	device := []fleet.Device{{UUID: "d", Model: "a", Memory: 8 * gi, Health: api.Healthy}}
	for _, cpu := range []int64{8, 2} {
		if _, err := f.SetNode("n", device, []fleet.Resource{{Name: "cpu", Amount: cpu}}); err != nil {
			t.Fatal(err)
		}
		f.Take(0, []fleet.Amount{{Resource: f.Resource("cpu"), Amount: 2}})
	}
	policy := Default()
	p := New(f)
	p.UsePolicy(&policy)
	r := &Request{Compute: 250, Devices: 1, Tasks: 1}
	p.Saw(r)
	if _, ok := p.Place(r); !ok {
		t.Error("it does not fit")
	}
}
