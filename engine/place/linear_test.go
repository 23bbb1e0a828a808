package place

import (
	"cmp"
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
	best, spot, found := int64(0), Spot{}, false
	for i := range s.views {
		v := &s.views[i]
		if !f.Open(r.Class, v.node) || !f.HasFree(v.node, r.Resources) {
			continue
		}
		for _, at := range choices(p, r, v) {
			if score := plainly(p, r, v, at); !found || score > best {
				best, spot, found = score, s.spotAt(p, v, at), true
			}
		}
	}
	return spot, found
}

// choices are the devices that may be taken on a node, as places in the view: one of those that fit, or those that have least left, or where it
// counts those that are near each other.
func choices(p *Placer, r *Request, v *view) (all [][]int) {
	var fit []int
	for i := range v.units {
		if d := v.units[i].device; p.fits(r, d) && p.deviceOK(r, d) {
			fit = append(fit, i)
		}
	}
	if r.Devices == 1 {
		for _, i := range fit {
			all = append(all, []int{i})
		}
		return all
	}
	if len(fit) < r.Devices {
		return nil
	}
	slices.SortStableFunc(fit, func(a, b int) int { return int(v.units[a].compute) - int(v.units[b].compute) })
	w := &p.scored.policy.Weights
	if len(fit) == r.Devices || w[Linked] == 0 && w[SameNUMA] == 0 {
		return [][]int{fit[:r.Devices]}
	}
	near := func(i int, of []int) (sum int64) {
		for _, j := range of {
			if linked, local := nearIn(p.fleet, v, i, j); i != j {
				sum += int64(w[Linked])*linked + int64(w[SameNUMA])*local
			}
		}
		return sum
	}
	among := map[int]int64{}
	for _, i := range fit {
		among[i] = near(i, fit)
	}
	slices.SortStableFunc(fit, func(a, b int) int { return cmp.Compare(among[a], among[b]) })
	for _, first := range fit {
		for _, sociable := range []bool{false, true} {
			taken := []int{first}
			for len(taken) < r.Devices {
				left := slices.DeleteFunc(slices.Clone(fit), func(i int) bool { return slices.Contains(taken, i) })
				taken = append(taken, slices.MaxFunc(left, func(a, b int) int {
					c := cmp.Compare(near(a, taken), near(b, taken))
					if c == 0 && sociable {
						c = cmp.Compare(among[a], among[b])
					}
					return c
				}))
			}
			all = append(all, taken)
		}
	}
	return all
}

// nearIn is 1 and 1 where two devices of a view are linked and at one memory node.
func nearIn(f *fleet.Fleet, v *view, i, j int) (linked, local int64) {
	a, b := f.Device(v.units[i].device), f.Device(v.units[j].device)
	if a.Link != "" && a.Link == b.Link {
		linked = 1
	}
	if a.NUMA != "" && a.NUMA == b.NUMA {
		local = 1
	}
	return linked, local
}

// chosen is the part of a score that rests on what devices are, on where nothing is yet, and on how near the devices are to each other.
func chosen(p *Placer, v *view, at []int) int64 {
	f, w := p.fleet, &p.scored.policy.Weights
	var cost, bandwidth, capability, size, rise, slowest int64 = 1, 1, 1, 1, 1, 1 // the most of any
	for n := range f.Nodes {
		for _, d := range f.DevicesOf(n) {
			of := f.Device(d)
			cost, bandwidth, capability = max(cost, int64(of.Traits.Cost)), max(bandwidth, int64(of.Traits.Bandwidth)), max(capability, int64(of.Traits.Capability))
			size, slowest = max(size, int64(of.Memory>>10)), max(slowest, int64(of.Traits.Latency))
			if of.Traits.Idle > 0 {
				rise = max(rise, int64(of.Traits.Peak-of.Traits.Idle))
			}
		}
	}
	var score int64
	for _, i := range at {
		of := f.Device(v.units[i].device)
		score -= int64(w[Cost])*(int64(of.Traits.Cost)*1000/cost) + int64(w[Bandwidth])*(int64(of.Traits.Bandwidth)*1000/bandwidth)
		score -= int64(w[Capability])*(int64(of.Traits.Capability)*1000/capability) + int64(w[DeviceMemory])*(int64(of.Memory>>10)*1000/size)
		if class := int64(of.Traits.Latency); class > 0 {
			score -= int64(w[Latency]) * ((slowest + 1 - class) * 1000 / slowest)
		}
		if of.Traits.Idle > 0 && f.BookOf(v.units[i].device).Grants == 0 {
			score -= int64(w[Power]) * (int64(of.Traits.Peak-of.Traits.Idle) * 1000 / rise)
		}
	}
	asleep := true
	for _, d := range f.DevicesOf(v.node) {
		asleep = asleep && f.BookOf(d).Grants == 0
	}
	if asleep {
		score -= 1000 * int64(w[Wake])
	}
	if pairs := int64(len(at) * (len(at) - 1) / 2); pairs > 0 {
		var linked, local int64
		for k, i := range at {
			for _, j := range at[:k] {
				link, numa := nearIn(f, v, i, j)
				linked, local = linked+link, local+numa
			}
		}
		score += int64(w[Linked])*(linked*1000/pairs) + int64(w[SameNUMA])*(local*1000/pairs)
	}
	return score
}

// plainly is the score of a request on devices of a node as its features are defined: by what the node is now, and what it is with the
// request on it.
func plainly(p *Placer, r *Request, v *view, at []int) int64 {
	s, t, w := p.scored, p.scored.terrain, &p.scored.policy.Weights
	after := *v
	after.units = slices.Clone(v.units)
	mark := p.fleet.Begin()
	p.Take(r, s.spotAt(p, v, at))
	s.renew(&after)
	p.fleet.Rollback(mark)
	score := -int64(w[Whole])*int64(after.whole) - int64(w[Fitness])*t.profiles[v.profile].pull
	for _, i := range at {
		before, left := int64(v.units[i].free), int64(after.units[i].free)
		score += t.profiles[v.profile].worth[before] - t.profiles[v.profile].worth[left] - int64(w[Remainder])*left
		if left == 0 {
			score += 1000 * int64(w[Exact])
		} else if before == whole && left < whole {
			score -= 1000 * int64(w[Untouched])
		}
	}
	for _, i := range at {
		score -= int64(w[Interference]) * max(0, int64(p.fleet.BookOf(v.units[i].device).Busy+r.Busy)-1000)
	}
	decrease := v.frag - after.frag
	score += int64(w[Fragmentation])*(decrease>>12) + int64(w[FragmentationStep])*step(&s.steps, decrease)
	left := v.total - int64(r.Compute)*int64(r.Devices)
	score -= int64(w[NodeDevices])*(left*1000/t.maxDevices) + int64(w[NodeCPU])*(after.cpu*1000/t.maxCPU)
	score -= int64(w[NodeMemory]) * (after.memory / max(1, t.maxMemory/1000))
	if t.cpuWanted > 0 && t.gpuWanted > 0 {
		fed, feeds := v.cpu*t.gpuWanted/t.cpuWanted, after.cpu*t.gpuWanted/t.cpuWanted
		score += int64(w[StrandedDevice]) * (max(0, v.total-fed) - max(0, left-feeds))
		score += int64(w[StrandedCPU]) * (max(0, fed-v.total) - max(0, feeds-left))
	}
	if t.memoryWanted > 0 && t.gpuWanted > 0 {
		holds, held := after.memory*t.gpuWanted/t.memoryWanted, v.memory*t.gpuWanted/t.memoryWanted
		score += int64(w[StrandedMemory]) * (max(0, held-v.total) - max(0, holds-left))
	}
	return s.quantised(score + chosen(p, v, at))
}

// TestPeaksAreTheLargest holds the walk down to the largest score against a look at all, on so few nodes that one fan has them and on so many
// that the levels are three.
func TestPeaksAreTheLargest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.SampledFrom([]int{1, 15, 17, 300, 5000}).Draw(t, "nodes")
		kinds := []peaks{{page: &page{}}, {column: width - 1}}
		kinds[1].page = kinds[0].page
		kinds[0].page.reset(n, 1)
		scores := [2][]int64{allBarred(nil, n), allBarred(nil, n)}
		for k := range kinds {
			kinds[k].reset(n)
			*kinds[k].score(n / 2), scores[k][n/2] = int64(k), int64(k)
			kinds[k].build()
		}
		places := rapid.IntRange(0, n-1)
		for range rapid.IntRange(1, 200).Draw(t, "changes") {
			i, k := places.Draw(t, "place"), rapid.IntRange(0, 1).Draw(t, "kind")
			score := rapid.SampledFrom([]int64{barred, -3, 0, 1, 2, 9}).Draw(t, "score")
			kinds[k].set(i, score, false)
			scores[k][i] = score
			if rapid.Bool().Draw(t, "not yet") {
				continue
			}
			want := slices.Max(scores[k])
			at, ok := kinds[k].first()
			if ok != (want != barred) || ok && at != slices.Index(scores[k], want) {
				t.Fatalf("the largest of kind %d is said to be at %d (%v); it is %d at %d", k, at, ok, want, slices.Index(scores[k], want))
			}
		}
	})
}

// TestFastIsLinear holds what is kept of scores, bounds and touched nodes against the linear search, on fleets of more nodes than one
// fan has, over placements, departures, plans taken back, changes of nodes and of fences, and so many touches that the fleet forgot some.
func TestFastIsLinear(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := fleet.New()
		nodes := rapid.IntRange(1, fewLowered+6).Draw(t, "nodes")
		set := func(i, cpu int) {
			var devices []fleet.Device
			for k := range 1 + i%5 {
				one := fleet.Device{UUID: fmt.Sprintf("n%d-%d", i, k), Index: k, Model: "ab"[i%2 : i%2+1], Memory: 8 * gi, Health: api.Healthy}
				if k < 4 {
					one.Traits = fleet.Traits{Capability: int32(75 + 5*(i%4)), Bandwidth: int32(300 * (1 + i%3)), Cost: int32(10 + i%2), Idle: 20, Peak: int32(70 + i%3), Latency: int32(i % 4)}
				}
				if i%5 == 4 || i%3 == 2 {
					one.Link, one.NUMA = fmt.Sprint(k/2), fmt.Sprint(k%2)
				}
				devices = append(devices, one)
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
		policy.Quantum = int64(rapid.SampledFrom([]int{0, 0, 20}).Draw(t, "quantum"))
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
			r    *Request
			s    Spot
			seen *Seen // when it was
		}
		var running []placed
		for range rapid.IntRange(1, 250).Draw(t, "steps") {
			switch what := rapid.IntRange(0, 11).Draw(t, "what"); {
			case what < 3 && len(running) > 0:
				i := rapid.IntRange(0, len(running)-1).Draw(t, "which")
				p.Give(running[i].r, running[i].s)
				p.uses(running[i].r, running[i].s, -1)
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
			// Several are placed before any is looked at, for the linear search touches all nodes.
			batch := make([]placed, 0, 8)
			place := func(r *Request) {
				one := placed{r: r, seen: p.Seen()}
				if got, ok := p.Place(r); ok {
					one.s = got[0]
					p.uses(r, one.s, 1)
				}
				batch = append(batch, one)
			}
			for range rapid.IntRange(1, 3).Draw(t, "at once") {
				r := rapid.SampledFrom(requests).Draw(t, "request")
				p.Saw(r)
				if r.Devices == 1 && nodes <= fewLowered && rapid.Bool().Draw(t, "avoids") { // of several devices fewer to choose from may be better ones
					odd := fleet.DeviceID(rapid.IntRange(1, 5).Draw(t, "avoided"))
					kept := *r
					kept.Avoid = func(d fleet.DeviceID) bool { return d%odd == 0 }
					kept.Bound = rapid.SampledFrom([]api.Amount{{}, {Bytes: 2 * gi}}).Draw(t, "bound")
					place(&kept)
				}
				place(r)
			}
			for _, one := range slices.Backward(batch) {
				r := one.r
				if one.s.Devices != nil {
					p.Give(r, one.s)
					p.uses(r, one.s, -1)
				}
				bare := Request{
					Compute: r.Compute, Memory: r.Memory, Bound: r.Bound, Model: r.Model, Least: r.Least, Devices: r.Devices, Tasks: 1, Resources: r.Resources,
					Fence: r.Fence, Busy: r.Busy, Avoid: r.Avoid,
				}
				want, _ := linear(f, &policy, one.seen, &bare)
				if want.Devices != nil {
					want = p.nearer(&bare, want) // which decides between what scores the same: TestLinkedOfEqualOnes
				}
				if want.Node != one.s.Node || !slices.Equal(want.Devices, one.s.Devices) {
					t.Fatalf("%+v: placed at %v, by the linear search at %v", bare, one.s, want)
				}
			}
			for _, one := range batch {
				if one.s.Devices != nil {
					p.Take(one.r, one.s)
					p.uses(one.r, one.s, 1)
					running = append(running, one)
				}
			}
		}
	})
}

// More kinds than are kept, and more states of devices, are placed as the first ones are.
func TestMoreKindsThanAreKept(t *testing.T) {
	f := fleet.New()
	for i := range 5 {
		devices := []fleet.Device{{UUID: fmt.Sprintf("n%d", i), Model: "a", Memory: 8 * gi, Health: api.Healthy}}
		if _, err := f.SetNode(fmt.Sprintf("n%d", i), devices, []fleet.Resource{{Name: "cpu", Amount: int64(8 + i)}}); err != nil {
			t.Fatal(err)
		}
	}
	policy := Default()
	policy.Workload = []Popular{{Compute: 300, Devices: 1, Count: 2}, {Compute: 500, Devices: 1, Count: 1}} // no look begins anew
	p := New(f)
	p.UsePolicy(&policy)
	requests := make([]*Request, 2*maxCaches)
	for i := range requests {
		requests[i] = &Request{Compute: api.Milli(1 + i%900), Memory: api.Amount{Bytes: api.Bytes(i%37) << 24}, Devices: 1, Tasks: 1, Busy: api.Milli(i % 2 * 400)}
	}
	var running []Spot
	var of []*Request
	for step := range 2 * maxStates {
		r := requests[step*389%len(requests)]
		want, ok := linear(f, &policy, nil, r.Within(nil))
		got, found := p.Place(r)
		if ok != found || found && (want.Node != got[0].Node || !slices.Equal(want.Devices, got[0].Devices)) {
			t.Fatalf("step %d: %+v is placed at %v, by the linear search at %v", step, r, got, want)
		}
		if found {
			running, of = append(running, got[0]), append(of, r)
		}
		for len(running) > 8 || !found && len(running) > 0 {
			p.Give(of[0], running[0])
			running, of, found = running[1:], of[1:], true
		}
	}
	if len(p.scored.states) > maxStates || len(p.scored.parts) > maxCaches {
		t.Errorf("%d states and %d parts are kept", len(p.scored.states), len(p.scored.parts))
	}
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

// Tasks that are placed together count for each other, in one role and between roles, and what they are predicted to use is booked by nobody when it is
// over.
func TestTasksThatAreBusyTogether(t *testing.T) {
	policy := Policy{Name: "apart", Weights: Weights{Interference: 10, Remainder: 1}}
	for name, r := range map[string]*Request{
		"tasks":   {Compute: 100, Devices: 1, Tasks: 3, Busy: 600},
		"domain":  {Compute: 100, Devices: 1, Tasks: 3, Busy: 600, Same: "rack"},
		"devices": {Compute: 100, Devices: 3, Tasks: 1, Busy: 600},
		"roles":   (Request{Compute: 100, Devices: 1, Tasks: 2, Roles: []Request{{Compute: 100, Devices: 1, Tasks: 2}, {Compute: 50, Devices: 1, Tasks: 1}}}).Using(600),
	} {
		f := fleet.New()
		var devices []fleet.Device
		for k := range 4 {
			devices = append(devices, fleet.Device{UUID: fmt.Sprint("n-", k), Index: k, Model: "a", Memory: 8 * gi, Health: api.Healthy})
		}
		if _, err := f.SetNode("n", devices, nil); err != nil {
			t.Fatal(err)
		}
		f.SetDomains("n", []fleet.Domain{{Level: "rack", Name: "r"}})
		f.AddBusy(f.DevicesOf(0)[1], 500)
		p := New(f)
		p.UsePolicy(&policy)
		spots, ok := p.Place(r)
		on := map[fleet.DeviceID]int{}
		for _, s := range spots {
			for _, d := range s.Devices {
				on[d]++
			}
		}
		if !ok || len(on) != 3 || on[f.DevicesOf(0)[1]] > 0 && name != "devices" { // of several devices those are taken that have least left
			t.Errorf("%s: placed at %v, so many on each device: %v", name, spots, on)
		}
		for i, d := range f.DevicesOf(0) {
			if got, want := f.BookOf(d).Busy, []api.Milli{0, 500, 0, 0}[i]; got != want {
				t.Errorf("%s: device %d is booked with use of %d, want %d", name, i, got, want)
			}
		}
	}
}

// Two devices with the same free, by the lesser of compute and memory, are told apart by what a memory floor leaves of them.
func TestAlikeButForMemory(t *testing.T) {
	f := fleet.New()
	devices := []fleet.Device{{UUID: "a", Memory: 8 * gi, Health: api.Healthy}, {UUID: "b", Index: 1, Memory: 8 * gi, Health: api.Healthy}}
	if _, err := f.SetNode("n", devices, nil); err != nil {
		t.Fatal(err)
	}
	f.Adjust(f.DevicesOf(0)[0], 500, 0, 1)
	f.Adjust(f.DevicesOf(0)[1], 500, 3*gi, 1)
	for _, quantum := range []int64{0, 2} {
		p := New(f)
		p.UsePolicy(&Policy{Name: "least left", Weights: Weights{Remainder: 1}, Quantum: quantum})
		r := &Request{Memory: api.Amount{Bytes: 3 * gi}, Devices: 1, Tasks: 1}
		spots, ok := p.Place(r)
		if !ok || f.UUIDOf(spots[0].Devices[0]) != "b" { // of which it leaves 250 thousandths, of the other 500
			t.Errorf("quantum %d: placed at %v", quantum, spots)
		}
		p.Give(r, spots[0])
	}
}
