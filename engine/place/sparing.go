package place

import "github.com/aliquot-dev/aliquot/engine/fleet"

// lowered is a node whose score was taken down for a while.
type lowered struct {
	rank  int
	score int64
}

// fewLowered is how many nodes are looked at that would be better without what is avoided.
const fewLowered = 64

// spares says that sparing finds the best: of several devices, and of those of which that with least left is taken, fewer may score more.
func (s *scored) spares(r *Request) bool { return r.Devices == 1 && s.policy.Device == ByScore }

// sparing is one for a request of one device that is kept off some by more than what it asks for. No node scores more than it would without that, so the
// best is looked at first, and put back behind the others where it scores less, until one stays the best. It gives up where too many do not.
func (s *scored) sparing(p *Placer, r *Request) (spot Spot, ok bool) {
	s.prepare()
	c := s.cacheOf(r)
	s.refresh(c)
	part, want := *c.want.part, c.want
	part.anywhere, part.fence = false, &Fence{Bars: func(d fleet.DeviceID) bool { return !p.deviceOK(r, d) }}
	want.part, want.alone = &part, false
	s.lowered = s.lowered[:0]
	for len(s.lowered) < fewLowered {
		rank, some := s.top(c)
		if !some {
			break
		}
		v, before := &s.views[rank], *c.best.score(rank)
		score, fits := s.choose(&want, v)
		if fits && score >= before {
			spot, ok = s.spotAt(p, v, s.fits), true
			break
		}
		if !fits {
			score = barred
		}
		s.lowered = append(s.lowered, lowered{rank, before})
		c.best.set(rank, score, false)
	}
	for _, l := range s.lowered {
		c.best.set(l.rank, l.score, false)
	}
	return spot, ok
}
