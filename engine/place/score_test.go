package place

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/engine/fleet"
)

// mixed is a policy in which every feature counts.
func mixed() Policy {
	p := Policy{Name: "mixed", Seed: 7}
	for f := range p.Weights {
		p.Weights[f] = int32(1 + f*37%11)
	}
	return p
}

// drawFleet makes a small fleet of two models, some of it taken.
func drawFleet(t *rapid.T) *fleet.Fleet {
	f := fleet.New()
	for i := range rapid.IntRange(1, 5).Draw(t, "nodes") {
		var devices []fleet.Device
		model := rapid.SampledFrom([]string{"a", "b"}).Draw(t, "model")
		for k := range rapid.IntRange(1, 3).Draw(t, "devices") {
			devices = append(devices, fleet.Device{
				UUID: fmt.Sprintf("n%d-%d", i, k), Index: k, Model: model, Memory: 8 * gi, Health: api.Healthy,
				Traits: fleet.Traits{Capability: int32(80 + 5*(i%2)), Bandwidth: 900, Cost: int32(10 + i), Idle: 30, Peak: int32(300 + 50*i), Latency: int32(i % 3)}, Link: fmt.Sprint(k / 2),
			})
		}
		capacity := []fleet.Resource{{Name: "cpu", Amount: int64(rapid.IntRange(0, 9).Draw(t, "cpu"))}, {Name: "memory", Amount: 64}}
		if _, err := f.SetNode(fmt.Sprintf("n%d", i), devices, capacity); err != nil {
			t.Fatal(err)
		}
	}
	return f
}

func drawRequest(t *rapid.T, f *fleet.Fleet) *Request {
	r := &Request{
		Compute: api.Milli(rapid.SampledFrom([]int{0, 250, 300, 500, 810, 1000}).Draw(t, "compute")), Tasks: rapid.IntRange(1, 2).Draw(t, "tasks"),
		Memory:  api.Amount{Bytes: api.Bytes(rapid.SampledFrom([]int{0, 0, 3}).Draw(t, "memory")) * gi},
		Model:   rapid.SampledFrom([]string{"", "", "a"}).Draw(t, "model"),
		Least:   rapid.SampledFrom([]fleet.Least{{}, {}, {}, {Capability: 85}, {Bandwidth: 600}, {Latency: 1}}).Draw(t, "least"),
		Devices: rapid.IntRange(1, 3).Draw(t, "per task"),
		Busy:    api.Milli(rapid.SampledFrom([]int{0, 0, 300, 700}).Draw(t, "busy")),
	}
	if c := rapid.IntRange(0, 4).Draw(t, "cpu"); c > 0 {
		r.Resources = []fleet.Amount{{Resource: f.Resource("cpu"), Amount: int64(c)}}
	}
	if m := rapid.IntRange(-6, 30).Draw(t, "memory of the node"); m > 0 {
		r.Resources = append(r.Resources, fleet.Amount{Resource: f.Resource("memory"), Amount: int64(m)})
	}
	return r
}

// drawFence rules out every other device, which ones by a number that may change; or nothing.
func drawFence(t *rapid.T, shift *int) *Fence {
	which := rapid.IntRange(0, 3).Draw(t, "fence")
	if which > 1 {
		return nil
	}
	return &Fence{Name: fmt.Sprint(which), Bars: func(d fleet.DeviceID) bool { return (int(d)+which+*shift)%2 == 0 }}
}

// TestScoresKeptAreScoresNow holds the node that the kept scores choose against one that knows nothing yet, over random
// placements, departures and plans taken back.
func TestScoresKeptAreScoresNow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := drawFleet(t)
		policy := mixed()
		p := New(f)
		p.UsePolicy(&policy)
		var requests []*Request
		for range rapid.IntRange(1, 4).Draw(t, "kinds") {
			r := drawRequest(t, f)
			r.Fence = drawFence(t, new(int))
			requests = append(requests, r)
		}
		type placed struct {
			r     *Request
			spots []Spot
		}
		var running []placed
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			if len(running) > 0 && rapid.IntRange(0, 3).Draw(t, "end") == 0 {
				for _, s := range running[0].spots {
					p.Give(running[0].r, s)
					p.uses(running[0].r, s, -1)
				}
				running = running[1:]
				continue
			}
			r := rapid.SampledFrom(requests).Draw(t, "request")
			p.Saw(r)
			fresh := New(f)
			fresh.UsePolicy(&policy)
			fresh.SetSeen(p.Seen())
			copied := Request{Compute: r.Compute, Memory: r.Memory, Model: r.Model, Least: r.Least, Devices: r.Devices, Tasks: r.Tasks, Resources: r.Resources, Fence: r.Fence, Busy: r.Busy}
			mark := f.Begin()
			want, ok := fresh.Place(&copied)
			f.Rollback(mark)
			got, found := p.Place(r)
			if ok != found || !slices.EqualFunc(want, got, func(a, b Spot) bool { return a.Node == b.Node && slices.Equal(a.Devices, b.Devices) }) {
				t.Fatalf("%+v: kept scores choose %v, scores made anew %v", r, got, want)
			}
			if found {
				running = append(running, placed{r, got})
				for _, s := range got {
					p.uses(r, s, 1)
				}
			}
		}
	})
}

// TestScoredFindsWhatThereIs: whatever the weights, a place is found exactly if there is one.
func TestScoredFindsWhatThereIs(t *testing.T) {
	for _, policy := range []Policy{mixed(), Default(), BestFit(), Random(), FGD([]Popular{{Compute: 250, Devices: 1, Count: 1}})} {
		t.Run(policy.Name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				f := drawFleet(t)
				for n := range f.Nodes {
					for _, d := range f.DevicesOf(n) {
						if c := rapid.IntRange(0, 4).Draw(t, "taken"); c > 0 {
							f.Adjust(d, api.Milli(c)*200, api.Bytes(c)*gi/2, 1)
						}
					}
				}
				p := New(f)
				p.UsePolicy(&policy)
				r := drawRequest(t, f)
				r.Fence = drawFence(t, new(int))
				p.Saw(r)
				want := search(f, r, New(f), r.Tasks)
				spots, got := p.Place(r)
				if got != want {
					t.Fatalf("%+v: found is %v, want %v", r, got, want)
				}
				for _, s := range spots {
					for _, d := range s.Devices {
						if c, m := f.Free(d); c < 0 || m < 0 || f.NodeOf(d) != s.Node {
							t.Fatalf("spot %+v does not fit", s)
						}
					}
				}
			})
		})
	}
}

// TestFragmentationIsItsDefinition holds the sums over tables against the definition, kind by kind and device by device.
func TestFragmentationIsItsDefinition(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := drawFleet(t)
		policy := mixed()
		p := New(f)
		p.UsePolicy(&policy)
		for range 20 {
			r := drawRequest(t, f)
			if r.Compute != api.WholeDevice {
				r.Devices = 1
			}
			p.Saw(r)
		}
		for n := range f.Nodes {
			for _, d := range f.DevicesOf(n) {
				f.Adjust(d, api.Milli(rapid.IntRange(0, 10).Draw(t, "taken"))*100, 0, 1)
			}
		}
		s := p.scored
		s.look()
		s.prepare()
		for n := range f.Nodes {
			if got, want := s.views[s.rank[n]].frag, slowFragmentation(s, n); got != want {
				t.Fatalf("node %s: fragmentation %d, by its definition %d", f.NodeName(n), got, want)
			}
		}
	})
}

func slowFragmentation(s *scored, n fleet.NodeID) int64 {
	var sum int64
	for i, k := range s.terrain.popular {
		var total, small, enough int64
		for _, d := range s.fleet.DevicesOf(n) {
			compute, memory := s.fleet.Free(d)
			free := min(int64(compute), thousandths(memory, s.fleet.Memory(d), false))
			need := max(int64(k.Compute), thousandths(k.Memory.Bytes, s.fleet.Memory(d), true))
			total += free
			if free < need {
				small += free
			} else {
				enough++
			}
		}
		runs := enough >= int64(k.Devices) && s.fleet.HasFree(n, k.Resources) && k.Least.Met(s.fleet.TraitsOf(s.fleet.DevicesOf(n)[0])) && (k.Model == "" || k.Model == s.fleet.ModelOf(s.fleet.DevicesOf(n)[0]))
		if runs && (k.Compute > 0 || !k.Memory.IsZero()) {
			sum += s.terrain.share[i] * small
		} else {
			sum += s.terrain.share[i] * total
		}
	}
	return sum
}

func TestStepIsTheSigmoid(t *testing.T) {
	ladder := newLadder(steps[:])
	for milli := int64(-9000); milli <= 9000; milli += 7 {
		want := int64(100 / (1 + math.Exp(-float64(milli)/1000)))
		if got := step(&ladder, milli*one); got != want {
			t.Errorf("a decrease of %d milli is step %d, want %d", milli, got, want)
		}
	}
}

func TestPolicyText(t *testing.T) {
	policy := Default()
	text, err := json.Marshal(policy)
	if err != nil {
		t.Fatal(err)
	}
	var back Policy
	if err := json.Unmarshal(text, &back); err != nil || back.Weights != policy.Weights {
		t.Errorf("%s is read as %+v: %v", text, back, err)
	}
	for text, want := range map[string]string{
		`{"weights":{"luck":1}}`:                      "luck",
		`{"weights":{"exact":"much"}}`:                "whole numbers",
		`{"name":"x","weights":{"exact":2000000}}`:    "weight of exact",
		`{"name":"x","device":"first"}`:               "device rule",
		`{"name":"x","quantum":-1}`:                   "quantum",
		`{"name":"x","workload":[{"compute":"0.1"}]}`: "kind 1",
	} {
		var p Policy
		err := json.Unmarshal([]byte(text), &p)
		if err == nil {
			err = p.Validate()
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want something about %q", text, err, want)
		}
	}
	for _, allowed := range []Popular{
		{Count: 1, Devices: 1},
		{Count: 1, Devices: 1, Compute: api.WholeDevice},
		{Count: 1, Devices: 1, Memory: api.Amount{Part: api.WholeDevice}},
		{Count: 1, Devices: 1, Memory: api.Amount{Bytes: 1}},
	} {
		p := Policy{Workload: []Popular{allowed}}
		if err := p.Validate(); err != nil {
			t.Errorf("%+v: %v", allowed, err)
		}
	}
}

// TestRisesBy holds by how much the score of a change rises at the most where fragmentation falls by less against changes that are drawn.
func TestRisesBy(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		weight := rapid.Int32Range(-MaxWeight, MaxWeight)
		s := &scored{policy: &Policy{}, steps: newLadder(steps[:])}
		w := &s.policy.Weights
		w[Fragmentation] = weight.Draw(t, "fragmentation")
		w[FragmentationStep] = rapid.OneOf(weight, rapid.Int32Range(-700, 700)).Draw(t, "step")
		by := w.risesBy()
		if by == none {
			return
		}
		device := whole * one
		less := rapid.Int64Range(-9*device, 9*device).Draw(t, "less")
		more := less + rapid.OneOf(rapid.Int64Range(0, 9*device), rapid.Int64Range(0, device/100)).Draw(t, "by")
		if a, b := s.ofChange(less), s.ofChange(more); a > b+by {
			t.Fatalf("with %d and %d a fall by %d scores %d, one by %d %d, which is more than %d less", w[Fragmentation], w[FragmentationStep], less, a, more, b, by)
		}
	})
}
