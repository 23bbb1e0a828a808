package place

import (
	"slices"

	"github.com/aliquot-dev/aliquot/engine/fleet"
)

// view is what scores look at of a node, kept close together.
type view struct {
	version uint32
	ids     []fleet.DeviceID // that take grants, by index
	compute []int16          // free of each, in milli
	free    []int16          // the lesser of compute and memory free of each, in milli
	total   int64            // of free
	whole   int              // devices wholly free
	most    int16            // compute free of the device that has most
	ranked  [maxRanked]int64 // free of the ranked resources
	cpu     int64            // free
	memory  int64            // free
	frag    int64            // fragmentation, in milli times one
}

// viewOf brings the view of a node up to date.
func (s *scored) viewOf(n fleet.NodeID) *view {
	v := &s.views[n]
	if version := s.fleet.Version(n); v.version != version {
		s.renew(n, v)
		v.version = version
	}
	return v
}

func (s *scored) renew(n fleet.NodeID, v *view) {
	f, t := s.fleet, s.terrain
	if v.ids == nil {
		for _, d := range f.DevicesOf(n) {
			if f.Placeable(d) {
				v.ids = append(v.ids, d)
			}
		}
		v.compute, v.free = make([]int16, len(v.ids)), make([]int16, len(v.ids))
	}
	v.total, v.whole, v.most = 0, 0, -1
	for i, d := range v.ids {
		compute, memory := f.Free(d)
		v.compute[i] = int16(max(-1, compute))
		v.free[i] = int16(min(max(0, int64(compute)), thousandths(memory, f.Memory(d), false)))
		v.most = max(v.most, v.compute[i])
		v.total += int64(v.free[i])
		if int64(v.free[i]) == whole {
			v.whole++
		}
	}
	for i, r := range t.ranked {
		v.ranked[i] = f.Capacity(n, r) - f.Taken(n, r)
	}
	v.cpu = f.Capacity(n, t.cpu) - f.Taken(n, t.cpu)
	v.memory = f.Capacity(n, t.memory) - f.Taken(n, t.memory)
	v.frag = v.total*one - s.served(n, v.free, v.whole, t.tableOf(t.profile[n], &v.ranked))
}

// served is what of a node's free devices popular kinds could use, weighed by their shares: its fragmentation is all that is free
// less this.
//
// Fragmentation of a node for a kind is all its free devices where the kind cannot run or wants none, else what is free on those
// devices that have less than the kind needs (Weng et al., USENIX ATC'23, section 4).
func (s *scored) served(n fleet.NodeID, free []int16, wholes int, tab *table) int64 {
	rank := &s.terrain.profiles[s.terrain.profile[n]].rank
	var sum int64
	for _, f := range free {
		sum += int64(f) * tab.gain[rank[f]]
	}
	return sum + int64(wholes)*whole*tab.whole[min(wholes, maxWhole)]
}

// hasFree says that a node has the resources wanted free.
func (s *scored) hasFree(n fleet.NodeID, v *view, r *Request) bool {
	for _, w := range r.Resources {
		free := v.cpu
		switch w.Resource {
		case s.terrain.cpu:
		case s.terrain.memory:
			free = v.memory
		default:
			free = s.fleet.Capacity(n, w.Resource) - s.fleet.Taken(n, w.Resource)
		}
		if free < w.Amount {
			return false
		}
	}
	return true
}

// choose finds the devices for a request on a node, and the score: of the best where there is a choice. The devices are places in
// the view's lists. It returns false where the request does not fit.
func (s *scored) choose(r *Request, n fleet.NodeID) (int64, []int, bool) {
	f := s.fleet
	v := s.viewOf(n)
	if len(v.ids) < r.Devices || v.most < int16(r.Compute) || !f.Open(r.Class, n) || !s.hasFree(n, v, r) {
		return 0, nil, false
	}
	s.fits = s.fits[:0]
	exact := r.Memory.IsZero() && r.Model == ""
	for i, c := range v.compute {
		if int16(r.Compute) > c {
			continue
		}
		if d := v.ids[i]; exact || f.Fits(d, r.Compute, r.Memory.Of(f.Memory(d))) && (r.Model == "" || f.ModelOf(d) == r.Model) {
			s.fits = append(s.fits, i)
		}
	}
	if len(s.fits) < r.Devices {
		return 0, nil, false
	}
	if r.Devices > 1 || s.policy.Device == ByLeastLeft {
		if len(s.fits) > r.Devices {
			slices.SortStableFunc(s.fits, func(a, b int) int { return int(v.compute[a]) - int(v.compute[b]) })
		}
		s.fits = s.fits[:r.Devices]
		return s.quantised(s.several(r, n, v)), s.fits, true
	}
	return s.best(r, n, v)
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
	table       *table
	cpu, memory int64
}

func (s *scored) afterOf(r *Request, n fleet.NodeID, v *view) after {
	t := s.terrain
	a := after{cpu: v.cpu, memory: v.memory}
	ranked := v.ranked
	for _, w := range r.Resources {
		for i, id := range t.ranked {
			if id == w.Resource {
				ranked[i] -= w.Amount
			}
		}
		switch w.Resource {
		case t.cpu:
			a.cpu -= w.Amount
		case t.memory:
			a.memory -= w.Amount
		}
	}
	a.table = t.tableOf(t.profile[n], &ranked)
	return a
}

// best scores each device for a request of one and takes the best.
func (s *scored) best(r *Request, n fleet.NodeID, v *view) (int64, []int, bool) {
	a := s.afterOf(r, n, v)
	p := s.terrain.profiles[s.terrain.profile[n]]
	var kept int64 // served afterwards, without whole devices and the device chosen
	for _, f := range v.free {
		kept += int64(f) * a.table.gain[p.rank[f]]
	}
	node := s.ofNode(r, n, v, &a)
	best, at := int64(0), -1
	for k, i := range s.fits {
		if k > 0 && s.sameBefore(v, k) {
			continue
		}
		f := int64(v.free[i])
		left := s.leftOf(r, v, i)
		wholes := v.whole
		if f == whole && left < whole {
			wholes--
		}
		served := kept - f*a.table.gain[p.rank[f]] + left*a.table.gain[p.rank[left]]
		served += int64(wholes) * whole * a.table.whole[min(wholes, maxWhole)]
		frag := (v.total-f+left)*one - served
		score := s.quantised(node + s.ofDevice(p, f, left) + s.ofChange(v.frag-frag, wholes))
		if at < 0 || score > best {
			best, at = score, i
		}
	}
	s.fits = append(s.fits[:0], at)
	return best, s.fits, true
}

// sameBefore says that one of the devices before has as much free: it scores the same.
func (s *scored) sameBefore(v *view, k int) bool {
	i := s.fits[k]
	for _, o := range s.fits[:k] {
		if v.free[o] == v.free[i] && v.compute[o] == v.compute[i] {
			return true
		}
	}
	return false
}

// leftOf is what a device has left once the request is on it, in milli.
func (s *scored) leftOf(r *Request, v *view, i int) int64 {
	left := int64(v.compute[i]) - int64(r.Compute)
	if v.free[i] == v.compute[i] && r.Memory.IsZero() {
		return left
	}
	d := v.ids[i]
	_, memory := s.fleet.Free(d)
	of := s.fleet.Memory(d)
	return min(left, thousandths(memory-r.Memory.Of(of), of, false))
}

// several scores the devices in s.fits together.
func (s *scored) several(r *Request, n fleet.NodeID, v *view) int64 {
	a := s.afterOf(r, n, v)
	p := s.terrain.profiles[s.terrain.profile[n]]
	s.rest = append(s.rest[:0], v.free...)
	wholes, total := v.whole, v.total
	var score int64
	for _, i := range s.fits {
		f, left := int64(v.free[i]), s.leftOf(r, v, i)
		if f == whole && left < whole {
			wholes--
		}
		total += left - f
		s.rest[i] = int16(left)
	}
	frag := total*one - s.served(n, s.rest, wholes, a.table)
	for _, i := range s.fits {
		score += s.ofDevice(p, int64(v.free[i]), int64(s.rest[i]))
	}
	return score + s.ofChange(v.frag-frag, wholes) + s.ofNode(r, n, v, &a)
}
