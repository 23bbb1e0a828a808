package place

import (
	"math"
	"slices"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/engine/fleet"
)

// want is a kind of request as it is scored: all that can be said of it before a node is looked at.
type want struct {
	cpu, memory int64 // that the node must have free; less than any has: nothing is wanted of it
	compute     int16 // of each device, in milli
	anywhere    bool  // any device with the compute serves
	light       bool  // it wants no memory
	takesCPU    int64
	takesMemory int64
	total       int64            // compute of all devices, in milli
	ranked      [maxRanked]int64 // that it takes of the ranked resources
	others      []fleet.Amount   // of the node, beside CPU and memory
	class       fleet.ClassID
	devices     int
	model       string
	of          api.Amount // memory
	fence       *Fence

	// What that means for the devices of one group, the last looked at.
	group       int32
	suits       bool
	floor, size api.Bytes
}

func (s *scored) wantOf(r *Request) want {
	w := want{
		compute: int16(r.Compute), light: r.Memory.IsZero(), anywhere: r.Memory.IsZero() && r.Model == "" && r.Fence == nil, fence: r.Fence,
		// Of what is not wanted a node may have less than nothing free.
		cpu: math.MinInt64, memory: math.MinInt64,
		total: int64(r.Compute) * int64(r.Devices), class: r.Class, devices: r.Devices, model: r.Model, of: r.Memory, group: fleet.None,
	}
	for _, a := range r.Resources {
		switch a.Resource {
		case s.terrain.cpu:
			w.cpu, w.takesCPU = a.Amount, a.Amount
		case s.terrain.memory:
			w.memory, w.takesMemory = a.Amount, a.Amount
		default:
			w.others = append(w.others, a)
		}
		if i := slices.Index(s.terrain.ranked, a.Resource); i >= 0 {
			w.ranked[i] = a.Amount
		}
	}
	return w
}

// may is false where the kind does not fit on a node for sure.
func (w *want) may(v *view) bool {
	return v.most >= w.compute && v.cpu >= w.cpu && v.memory >= w.memory
}

// serves says that a device is of the model, has the memory wanted, and is within the fence.
func (s *scored) serves(w *want, u *unit) bool {
	s.regroup(w, u)
	return w.suits && u.memory >= w.floor && (w.fence == nil || !w.fence.Bars(u.device))
}

func (s *scored) regroup(w *want, u *unit) {
	if u.group == w.group {
		return
	}
	w.group, w.size = u.group, s.fleet.Memory(u.device)
	w.floor = w.of.Of(w.size)
	w.suits = w.model == "" || s.fleet.ModelOf(u.device) == w.model
}

// choose finds the devices for a request on a node, and the score: of the best where there is a choice. The devices are left in
// s.fits, as places in the view's list. It returns false where the request does not fit.
func (s *scored) choose(w *want, v *view) (int64, bool) {
	if !w.may(v) || len(v.units) < w.devices || !s.fleet.Open(w.class, v.node) || !s.fleet.HasFree(v.node, w.others) {
		return 0, false
	}
	if w.devices > 1 || s.policy.Device == ByLeastLeft {
		return s.least(w, v)
	}
	return s.best(w, v)
}

// least takes those devices that have least left and scores them together.
func (s *scored) least(w *want, v *view) (int64, bool) {
	s.fits = s.fits[:0]
	for i := range v.units {
		if u := &v.units[i]; u.compute >= w.compute && (w.anywhere || s.serves(w, u)) {
			s.fits = append(s.fits, i)
		}
	}
	if len(s.fits) < w.devices {
		return 0, false
	}
	if len(s.fits) > w.devices {
		slices.SortStableFunc(s.fits, func(a, b int) int { return int(v.units[a].compute) - int(v.units[b].compute) })
	}
	s.fits = s.fits[:w.devices]
	return s.quantised(s.together(w, v)), true
}

func (s *scored) quantised(score int64) int64 {
	q := s.policy.Quantum
	if q <= 1 {
		return score
	}
	if score < 0 {
		return (score - q + 1) / q
	}
	return score / q
}

// after is what a node has free of its resources once a request is on it.
type after struct {
	table       table
	cpu, memory int64
}

func (s *scored) afterOf(w *want, v *view) after {
	ranked := v.ranked
	for i := range ranked {
		ranked[i] -= w.ranked[i]
	}
	return after{s.terrain.tableOf(v.profile, &ranked), v.cpu - w.takesCPU, v.memory - w.takesMemory}
}

// best scores each device for a request of one and takes the best.
func (s *scored) best(w *want, v *view) (int64, bool) {
	a := s.afterOf(w, v)
	p, gain := s.terrain.profiles[v.profile], a.table.gain()
	kept, node := partly(v.units, a.table), s.ofNode(w, v, &a)
	best, at := int64(0), -1
	for i := range v.units {
		u := &v.units[i]
		if u.compute < w.compute || !w.anywhere && !s.serves(w, u) || u.twin && s.sameBefore(w, v, i) {
			continue
		}
		f, left, wholes := int64(u.free), s.leftOf(w, u), v.whole
		if f == whole && left < whole {
			wholes--
		}
		served := kept - f*gain[u.rank] + left*gain[p.rank[left]] + int64(wholes)*whole*a.table.wholes(wholes)
		frag := (v.total-f+left)*one - served
		score := s.quantised(node + s.ofDevice(p, f, left) + s.ofChange(v.frag-frag, wholes))
		if at < 0 || score > best {
			best, at = score, i
		}
	}
	if at < 0 {
		return 0, false
	}
	s.fits = append(s.fits[:0], at)
	return best, true
}

// sameBefore says that a device before the one at i has as much free and serves, too: it scores the same.
func (s *scored) sameBefore(w *want, v *view, i int) bool {
	u := &v.units[i]
	for k := range v.units[:i] {
		if o := &v.units[k]; o.alike(u) && (w.anywhere || s.serves(w, o)) {
			return true
		}
	}
	return false
}

// leftOf is what a device has left once the request is on it, in milli.
func (s *scored) leftOf(w *want, u *unit) int64 {
	left := int64(u.compute) - int64(w.compute)
	if w.light && u.free == u.compute {
		return left
	}
	s.regroup(w, u)
	return min(left, thousandths(u.memory-w.floor, w.size, false))
}

// together scores the devices in s.fits together.
func (s *scored) together(w *want, v *view) int64 {
	a := s.afterOf(w, v)
	p := s.terrain.profiles[v.profile]
	s.rest = append(s.rest[:0], v.units...)
	wholes, total := v.whole, v.total
	for _, i := range s.fits {
		u := &s.rest[i]
		f, left := int64(u.free), s.leftOf(w, u)
		if f == whole && left < whole {
			wholes--
		}
		total += left - f
		u.free, u.rank = int16(left), p.rank[left]
	}
	frag := total*one - kept(s.rest, a.table, wholes)
	var score int64
	for _, i := range s.fits {
		score += s.ofDevice(p, int64(v.units[i].free), int64(s.rest[i].free))
	}
	return score + s.ofChange(v.frag-frag, wholes) + s.ofNode(w, v, &a)
}
