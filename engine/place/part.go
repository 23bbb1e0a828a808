package place

import (
	"math"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/engine/fleet"
)

// part is what a request asks of each device: what is left of it beside the amounts of the node's resources. Kinds that ask the same
// of a device share one.
type part struct {
	index    int   // among all
	compute  int16 // in milli
	busy     int16 // predicted use, in milli
	anywhere bool  // any device with the compute serves
	light    bool  // it wants no memory
	model    string
	can      fleet.Least
	of       api.Amount // memory
	fence    *Fence
	groups   []ofGroup // what that means for devices, by their group
}

// partKey is what makes two parts the same. Fences of one name rule out the same.
type partKey struct {
	compute api.Milli
	busy    api.Milli
	memory  api.Amount
	model   string
	least   fleet.Least
	fenced  bool
	fence   string
}

// ofGroup is what a part means for the devices of a group, which are of one model and size.
type ofGroup struct {
	known, suits bool
	floor, size  api.Bytes
}

// partOf finds or makes the part of a request.
func (s *scored) partOf(r *Request) *part {
	key := partKey{compute: r.Compute, busy: r.Busy, memory: r.Memory, model: r.Model, least: r.Least}
	if r.Fence != nil {
		key.fenced, key.fence = true, r.Fence.Name
	}
	p, ok := s.parts[key]
	if !ok {
		if len(s.partList) >= maxCaches {
			s.forgetParts()
		}
		p = &part{
			index: len(s.partList), compute: int16(r.Compute), busy: int16(r.Busy), light: r.Memory.IsZero(),
			anywhere: r.Memory.IsZero() && r.Model == "" && r.Least == fleet.Least{} && r.Fence == nil,
			model:    r.Model, can: r.Least, of: r.Memory, fence: r.Fence,
		}
		s.parts[key] = p
		s.partList = append(s.partList, p)
		s.smallest = min(s.smallest, p.compute)
	}
	return p
}

// forgetParts begins anew with none: what was found of devices, nodes and kinds before holds no more.
func (s *scored) forgetParts() {
	clear(s.parts)
	clear(s.states)
	s.partList, s.smallest = nil, math.MaxInt16
	s.epoch++
}

// serves says that a device is of the model, has the memory wanted, and is within the fence.
func (s *scored) serves(p *part, u *unit) bool {
	return s.suits(p, u) && (p.fence == nil || !p.fence.Bars(u.device))
}

// suits says that a device is of the model and has the memory wanted.
func (s *scored) suits(p *part, u *unit) bool {
	g := s.groupOf(p, u)
	return g.suits && u.memory >= g.floor
}

// groupOf is what a part means for a device's group.
func (s *scored) groupOf(p *part, u *unit) *ofGroup {
	if int(u.group) < len(p.groups) {
		if g := &p.groups[u.group]; g.known {
			return g
		}
	}
	return s.newGroup(p, u)
}

func (s *scored) newGroup(p *part, u *unit) *ofGroup {
	if more := int(u.group) + 1 - len(p.groups); more > 0 {
		p.groups = append(p.groups, make([]ofGroup, more)...)
	}
	size := s.fleet.Memory(u.device)
	p.groups[u.group] = ofGroup{true, s.fleet.Is(u.device, p.model, p.can), p.of.Of(size), size}
	return &p.groups[u.group]
}

// pick scores each device for one request, with so much for the node, and finds the best: its score and place; none: none serves. The
// table is that of the node once the request is on it; before is by how much its fragmentation falls where only the node's resources
// are taken, less what then serves kinds that want whole devices.
func (s *scored) pick(p *part, v *view, tab table, before, node int64) (best int64, at int) {
	at = none
	for i := range v.units {
		u := &v.units[i]
		if u.compute < p.compute || !s.tries(p, v, i) {
			continue
		}
		left, wholes := s.leftOf(p, u), v.whole
		if int64(u.free) == whole && left < whole {
			wholes--
		}
		score := s.quantised(node + s.onDevice(p, v.profile, u, left, tab, before+tab.served(wholes)) + s.ofWholes(wholes))
		if at == none || score > best {
			best, at = score, i
		}
	}
	return best, at
}

// onDevice is what a device scores, of which so much is left, but for what its node has left. The table is that of the node once the request is
// on it; other is by how much its fragmentation falls for other reasons.
func (s *scored) onDevice(p *part, profile int32, u *unit, left int64, tab table, other int64) int64 {
	q, gain, f := s.terrain.profiles[profile], tab.gain(), int64(u.free)
	return s.priceOf(u) + s.ofDevice(q, f, left) + s.ofUse(p, u) + s.ofChange(other+(f-left)*one-f*gain[u.rank]+left*gain[q.rank[left]])
}

// tries says that a device with compute enough serves, and is not like one before it that does.
func (s *scored) tries(p *part, v *view, i int) bool {
	u := &v.units[i]
	return (u.twin != twins || p.fence != nil) && (p.anywhere || s.serves(p, u)) && (u.twin == noTwin || !s.sameBefore(p, v, i))
}

// sameBefore says that a device before the one at i serves, too, and scores the same: it has as much free and, where memory is wanted, as much of
// that, which else may leave more of one than of the other.
func (s *scored) sameBefore(p *part, v *view, i int) bool {
	u := &v.units[i]
	for k := range v.units[:i] {
		if o := &v.units[k]; s.alike(o, u) && (p.light || sameMemory(o, u)) && (p.anywhere || s.serves(p, o)) {
			return true
		}
	}
	return false
}

// leftOf is what a device has left once the request is on it, in milli.
func (s *scored) leftOf(p *part, u *unit) int64 {
	left := int64(u.compute) - int64(p.compute)
	if p.light && u.free == u.compute {
		return left
	}
	g := s.groupOf(p, u)
	free := u.memory - g.floor
	if size := int64(g.size >> 10); size > 0 && int64(free>>10)*whole >= left*size {
		return left // of the memory no less is left, which is seen without a division
	}
	return min(left, thousandths(free, g.size, false))
}
