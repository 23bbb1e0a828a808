package place

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/engine/fleet"
)

const gi = api.Bytes(1) << 30

// search tries every choice of devices for every task.
func search(f *fleet.Fleet, r *Request, p *Placer, tasks int) bool {
	if tasks == 0 {
		return true
	}
	for n := range f.Nodes {
		if !f.Open(r.Class, n) || !f.HasFree(n, r.Resources) {
			continue
		}
		devices := f.DevicesOf(n)
		for set := range 1 << len(devices) {
			var chosen []fleet.DeviceID
			ok := true
			for i, d := range devices {
				if set>>i&1 == 1 {
					chosen = append(chosen, d)
					c, m := f.Free(d)
					ok = ok && f.Placeable(d) && !r.bars(d) && c >= r.Compute && m >= r.Memory.Of(f.Memory(d)) &&
						(r.Bound.IsZero() || r.Memory.Of(f.Memory(d)) <= r.Bound.Of(f.Memory(d))) && (r.Model == "" || f.Device(d).Model == r.Model) &&
						f.Device(d).Traits.Capability >= r.Least.Capability && f.Device(d).Traits.Bandwidth >= r.Least.Bandwidth &&
						(r.Least.Latency == 0 || f.Device(d).Traits.Latency >= 1 && f.Device(d).Traits.Latency <= r.Least.Latency)
				}
			}
			if !ok || len(chosen) != r.Devices {
				continue
			}
			mark := f.Begin()
			p.Take(r, Spot{n, chosen})
			found := search(f, r, p, tasks-1)
			f.Rollback(mark)
			if found {
				return true
			}
		}
	}
	return false
}

// TestFindsWhatThereIs holds Place against a search through everything: it finds a place exactly if there is one, and what it
// found fits. Possible is the same on an empty fleet.
func TestFindsWhatThereIs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := fleet.New()
		cpu := f.Resource("cpu")
		for i := range rapid.IntRange(1, 2).Draw(t, "nodes") {
			var devices []fleet.Device
			for k := range rapid.IntRange(1, 3).Draw(t, "devices") {
				devices = append(devices, fleet.Device{
					UUID: fmt.Sprintf("n%d-%d", i, k), Index: k, Model: rapid.SampledFrom([]string{"a", "b"}).Draw(t, "model"),
					Memory: api.Bytes(rapid.IntRange(4, 8).Draw(t, "size")) * gi, Health: api.Healthy, Traits: fleet.Traits{Capability: int32(70 + 10*k), Latency: rapid.Int32Range(0, 3).Draw(t, "class")},
				})
			}
			capacity := []fleet.Resource{{Name: "cpu", Amount: int64(rapid.IntRange(0, 9).Draw(t, "cpu"))}}
			if _, err := f.SetNode(fmt.Sprintf("n%d", i), devices, capacity); err != nil {
				t.Fatal(err)
			}
		}
		r := &Request{
			Compute: api.Milli(rapid.SampledFrom([]int{0, 250, 300, 500, 1000}).Draw(t, "compute")),
			Memory:  api.Amount{Bytes: api.Bytes(rapid.IntRange(0, 5).Draw(t, "memory")) * gi},
			Model:   rapid.SampledFrom([]string{"", "", "a"}).Draw(t, "model"),
			Least:   fleet.Least{Capability: rapid.SampledFrom([]int32{0, 0, 80}).Draw(t, "least"), Latency: rapid.SampledFrom([]int32{0, 0, 1, 2}).Draw(t, "slowest")},
			Devices: rapid.IntRange(1, 3).Draw(t, "per task"), Tasks: rapid.IntRange(1, 4).Draw(t, "tasks"),
		}
		if part := rapid.IntRange(0, 3).Draw(t, "bound"); part > 0 {
			r.Bound = api.Amount{Part: api.Milli(part) * 250}
		}
		if c := rapid.IntRange(0, 4).Draw(t, "cpu"); c > 0 {
			r.Resources = []fleet.Amount{{Resource: cpu, Amount: int64(c)}}
		}
		p := New(f)
		if want, got := search(f, r, p, r.Tasks), p.Possible(r); got != want {
			t.Fatalf("on an empty fleet possible is %v, want %v", got, want)
		}
		for n := range f.Nodes {
			for _, d := range f.DevicesOf(n) {
				if c := rapid.IntRange(0, 4).Draw(t, "taken"); c > 0 {
					f.Adjust(d, api.Milli(c)*200, api.Bytes(c)*gi/2, 1)
				}
			}
		}
		want := search(f, r, p, r.Tasks)
		spots, got := p.Place(r)
		if got != want {
			t.Fatalf("%+v: found is %v, want %v", r, got, want)
		}
		if err := f.CheckIndex(); err != nil {
			t.Fatal(err)
		}
		for _, s := range spots {
			for i, d := range s.Devices {
				if c, m := f.Free(d); c < 0 || m < 0 || f.NodeOf(d) != s.Node || i > 0 && s.Devices[i-1] == d {
					t.Fatalf("spot %+v does not fit", s)
				}
			}
			if !f.HasFree(s.Node, []fleet.Amount{{Resource: cpu}}) {
				t.Fatalf("spot %+v takes more CPU than there is", s)
			}
		}
	})
}

// What was found for a request by one policy is not taken for another's, either where best fit came between.
func TestScoresOfAnotherPolicy(t *testing.T) {
	f := fleet.New()
	for i := range 2 {
		device := []fleet.Device{{UUID: fmt.Sprint("d", i), Memory: 8 * gi, Health: api.Healthy}}
		if _, err := f.SetNode(fmt.Sprint("n", i), device, []fleet.Resource{{Name: "cpu", Amount: int64(4 + i)}}); err != nil {
			t.Fatal(err)
		}
	}
	most, least := Policy{Name: "most", Weights: Weights{NodeCPU: -1}}, Policy{Name: "least", Weights: Weights{NodeCPU: 1}}
	r, p := &Request{Compute: 500, Devices: 1, Tasks: 1}, New(f)
	for i, policy := range []*Policy{&most, &least, nil, &most, nil, &least} {
		p.ChangePolicy(policy)
		want := 0
		if policy == &most {
			want = 1
		}
		spots, ok := p.Place(r)
		if !ok || f.NodeName(spots[0].Node) != fmt.Sprint("n", want) {
			t.Errorf("policy %d places at %v, not on n%d", i, spots, want)
		}
		p.Give(r, spots[0])
	}
}
