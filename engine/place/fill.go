package place

import (
	"math"
	"slices"
	"sort"
)

// someFilled is how many kinds are asked for after the terrain changed before all that were asked for lately are scored at once.
const someFilled = 4

// fill scores every node for a kind.
func (s *scored) fill(r *Request, c *cache) {
	c.want = s.wantOf(r)
	s.begin(c)
	c.asked = s.recent.clock
	for rank := range s.views {
		if score, ok := s.choose(&c.want, &s.views[rank]); ok {
			c.best.put(rank, score, false)
		}
	}
	c.best.build()
}

// begin has every node be barred for a kind.
func (s *scored) begin(c *cache) {
	c.epoch, c.at = s.epoch, s.recent.clock
	if c.best.page.epoch != s.epoch {
		c.best.page.reset(len(s.views), s.epoch)
	}
	c.best.reset(len(s.views))
}

// fillAll scores every node for all kinds that were asked for lately and are within no fence: what is looked at of a node is then at hand for each.
func (s *scored) fillAll() {
	epoch, now := s.epoch, s.recent.clock
	s.asked = s.asked[:0]
	for _, c := range s.byLeast {
		if c.epoch == s.epoch || now-c.asked > dormant || c.want.part == nil || c.want.fence != nil || !s.fleet.HasClass(c.like.Class) {
			continue
		}
		want := s.wantOf(&c.like)
		if s.epoch != epoch { // there are too many parts: those before are forgotten
			return
		}
		c.want = want
		s.asked = append(s.asked, askedKind{c, 0, want.least, int32(want.index)})
	}
	for _, k := range s.asked {
		s.begin(k.cache)
	}
	for rank := range s.views {
		for i, score := range s.scoresOn(&s.views[rank], s.asked, math.MaxUint64) {
			s.asked[i].best.put(rank, score, s.loose[i])
		}
	}
	for _, k := range s.asked {
		k.best.build()
	}
}

// scoresOn is what a node scores for kinds that are in the order of the compute they want, for as many of these as it may have that; barred: one does not
// fit, or was scored since the node was touched. It is good until it is next called.
//
// Where s.loose says so the node scores no more than that: with the kind on it it would serve fewer others than it does now, so that more of what it has free
// would be a fragment. How much it scores is worked out when it looks best (top).
func (s *scored) scoresOn(v *view, asked []askedKind, touched uint64) []int64 {
	found, wholes := s.bestOf(v), s.ofWholes(v.whole)
	few := sort.Search(len(asked), func(i int) bool { return asked[i].least > v.had })
	s.scores = allBarred(s.scores, few)
	s.loose = slices.Grow(s.loose[:0], few)[:few]
	clear(s.loose)
	for i := range s.scores {
		k := &asked[i]
		if found[k.part] == barred || touched <= k.at {
			continue
		}
		switch w := &k.want; {
		case !w.alone || s.looseBy == none && !v.keeps(w):
			if score, ok := s.choose(w, v); ok {
				s.scores[i] = score
			}
		case v.cpu >= w.cpu && v.memory >= w.memory && s.open(w, v):
			s.scores[i] = found[k.part] + wholes + s.ofNode(w, v)
			if s.loose[i] = !v.keeps(w); s.loose[i] {
				s.scores[i] += s.looseBy
			}
		}
	}
	return s.scores
}
