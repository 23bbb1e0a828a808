package place

import (
	"math"
	"slices"

	"github.com/aliquot-dev/aliquot/engine/fleet"
)

// want is a kind of request as it is scored: all that can be said of it before a node is looked at.
type want struct {
	*part
	alone                            bool  // one device is wanted, which hangs on the part alone where the node serves the same others afterwards
	least                            int16 // compute that a device must have free, in milli
	cpu, memory                      int64 // that the node must have free; less than any has: nothing is wanted of it
	total                            int64 // compute of all devices, in milli
	devices                          int
	ranked                           [maxRanked]int64 // that it takes of the ranked resources
	others                           []fleet.Amount   // of the node, beside CPU and memory
	class                            fleet.ClassID
	totalIn, cpuIn, memoryIn, feedIn ratio // what it takes, in the units of features
	holdIn                           ratio
}

func (s *scored) wantOf(r *Request) want {
	w := want{
		part: s.partOf(r), least: int16(r.Compute),
		// Of what is not wanted a node may have less than nothing free.
		cpu: math.MinInt64, memory: math.MinInt64,
		total: int64(r.Compute) * int64(r.Devices), class: r.Class, devices: r.Devices,
	}
	var cpu, memory int64
	for _, a := range r.Resources {
		switch a.Resource {
		case s.terrain.cpu:
			w.cpu, cpu = a.Amount, a.Amount
		case s.terrain.memory:
			w.memory, memory = a.Amount, a.Amount
		default:
			w.others = append(w.others, a)
		}
		if i := slices.Index(s.terrain.ranked, a.Resource); i >= 0 {
			w.ranked[i] = a.Amount
		}
	}
	w.alone = w.devices == 1 && w.fence == nil && s.policy.Device == ByScore && s.policy.Quantum <= 1
	w.totalIn, w.cpuIn, w.memoryIn, w.feedIn = s.terrain.ratios(w.total, cpu, memory)
	w.holdIn = s.terrain.feedsOf(memory)
	return w
}

// may is false where the kind does not fit on a node for sure.
func (w *want) may(v *view) bool {
	return v.most >= w.least && v.cpu >= w.cpu && v.memory >= w.memory
}

// open says that the kind may use a node, which has free what the kind wants beside CPU and memory.
func (s *scored) open(w *want, v *view) bool {
	return s.fleet.Open(w.class, v.node) && (len(w.others) == 0 || s.fleet.HasFree(v.node, w.others))
}

// choose finds the devices for a request on a node, and the score: of the best where there is a choice. The devices are left in
// s.fits, as places in the view's list. It returns false where the request does not fit.
func (s *scored) choose(w *want, v *view) (int64, bool) {
	if !w.may(v) || len(v.units) < w.devices || !s.open(w, v) {
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
		if u := &v.units[i]; u.compute >= w.compute && (w.anywhere || s.serves(w.part, u)) {
			s.fits = append(s.fits, i)
		}
	}
	if len(s.fits) < w.devices {
		return 0, false
	}
	if len(s.fits) > w.devices {
		slices.SortStableFunc(s.fits, func(a, b int) int { return int(v.units[a].compute) - int(v.units[b].compute) })
		if w.devices > 1 && s.near.counts(&s.policy.Weights) {
			return s.nearest(w, v), true
		}
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

// tableAfter is the table of a node once a request is on it.
func (s *scored) tableAfter(w *want, v *view) table {
	ranked := v.ranked
	for i := range ranked {
		ranked[i] -= w.ranked[i]
	}
	at, _ := s.terrain.situation(v.profile, &ranked)
	return s.terrain.tableAt(v.profile, at)
}

// best takes the device with the highest score for a request of one.
func (s *scored) best(w *want, v *view) (int64, bool) {
	var score int64
	var at int
	if s.policy.Quantum <= 1 && v.keeps(w) {
		if score, at = s.pickKept(w.part, v); at != none {
			score += s.ofNode(w, v)
		}
	} else {
		tab := s.tableAfter(w, v)
		score, at = s.pick(w.part, v, tab, v.frag-v.total*one+partly(v.units, tab), s.ofNode(w, v))
	}
	if at == none {
		return 0, false
	}
	s.fits = append(s.fits[:0], at)
	return score, true
}

// together scores the devices in s.fits together.
func (s *scored) together(w *want, v *view) int64 {
	tab := s.tableAfter(w, v)
	p := s.terrain.profiles[v.profile]
	s.rest = append(s.rest[:0], v.units...)
	wholes, total := v.whole, v.total
	for _, i := range s.fits {
		u := &s.rest[i]
		f, left := int64(u.free), s.leftOf(w.part, u)
		if f == whole && left < whole {
			wholes--
		}
		total += left - f
		u.free, u.rank = int16(left), p.rank[left]
	}
	frag := total*one - kept(s.rest, tab, wholes)
	var score int64
	for _, i := range s.fits {
		score += s.priceOf(&v.units[i]) + s.ofDevice(p, int64(v.units[i].free), int64(s.rest[i].free)) + s.ofUse(w.part, &v.units[i])
	}
	return score + s.ofPairs(v) + s.ofChange(v.frag-frag) + s.ofWholes(wholes) + s.ofNode(w, v)
}
