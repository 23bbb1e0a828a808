package place

import (
	"cmp"
	"math"
	"slices"

	"github.com/aliquot-dev/aliquot/engine/fleet"
)

const (
	barred    = math.MinInt64 // the score of a node on which a request does not fit
	maxCaches = 512           // kinds of request whose scores are kept
)

// scored is a placer's part that goes by score.
type scored struct {
	fleet  *fleet.Fleet
	policy *Policy

	kinds    map[string]*kind
	seen     int64
	nextLook int64
	stale    bool // the terrain is older than the last look

	terrain *terrain
	changes uint64 // of the fleet, at which the terrain was worked out
	views   []view
	order   []fleet.NodeID // by rank
	rank    []int32        // by node
	caches  map[string]*cache
	epoch   uint64 // counts terrains

	fits  []int
	rest  []int16
	draws uint64
}

// cache is the best score of each node for one kind of request, as the leaves of a tree in which each is the larger of its two
// below. So the best node is found in a walk down, the first in the fixed order of those that are equal.
type cache struct {
	epoch   uint64
	at      uint64   // Touches up to which it is up to date
	version []uint32 // by rank: of the node when it was scored
	leaves  int
	tree    []int64
}

// UsePolicy makes the placer go by a policy's score.
func (p *Placer) UsePolicy(policy *Policy) {
	s := &scored{fleet: p.fleet, policy: policy, kinds: map[string]*kind{}, caches: map[string]*cache{}, stale: true, nextLook: firstLook}
	p.scored = s
	for i := range policy.Workload {
		k := p.kindOf(&policy.Workload[i])
		s.kinds[k.key] = k
	}
}

// prepare brings the terrain up to date.
func (s *scored) prepare() {
	if !s.stale && s.terrain != nil && s.changes == s.fleet.Changes() {
		return
	}
	ordered := s.changes == s.fleet.Changes() && s.order != nil
	s.terrain = s.survey()
	s.changes, s.stale = s.fleet.Changes(), false
	s.epoch++
	s.views = slices.Grow(s.views[:0], s.fleet.Slots())[:s.fleet.Slots()]
	for n := range s.views {
		s.views[n] = view{version: s.fleet.Version(fleet.NodeID(n)) - 1}
	}
	if !ordered {
		s.arrange()
	}
}

// arrange makes the fixed random order of the nodes: by a hash of name and seed.
func (s *scored) arrange() {
	s.order = s.order[:0]
	hash := make([]uint64, s.fleet.Slots())
	for n := range s.fleet.Nodes {
		if s.fleet.NodeGone(n) {
			continue
		}
		h := mix(s.policy.Seed + 0x9e3779b97f4a7c15)
		for _, c := range []byte(s.fleet.NodeName(n)) {
			h = mix(h ^ uint64(c))
		}
		hash[n] = h
		s.order = append(s.order, n)
	}
	slices.SortStableFunc(s.order, func(a, b fleet.NodeID) int { return cmp.Compare(hash[a], hash[b]) })
	s.rank = make([]int32, s.fleet.Slots())
	for i := range s.rank {
		s.rank[i] = fleet.None
	}
	for i, n := range s.order {
		s.rank[n] = int32(i)
	}
}

// mix is the finisher of splitmix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014).
func mix(x uint64) uint64 {
	x ^= x >> 30
	x *= 0xbf58476d1ce4e5b9
	x ^= x >> 27
	x *= 0x94d049bb133111eb
	return x ^ x>>31
}

// one finds the best spot for one task.
func (s *scored) one(p *Placer, r *Request) (Spot, bool) {
	s.prepare()
	if s.policy.Device == ByDraw {
		return s.drawn(p, r)
	}
	c := s.cacheOf(r)
	s.refresh(r, c)
	if c.tree[1] == barred {
		return Spot{}, false
	}
	i := 1
	for i < c.leaves {
		if i *= 2; c.tree[i] != c.tree[1] {
			i++
		}
	}
	n := s.order[i-c.leaves]
	_, at, _ := s.choose(r, n)
	return s.spotAt(p, n, at), true
}

func (s *scored) spotAt(p *Placer, n fleet.NodeID, at []int) Spot {
	p.near = p.near[:0]
	for _, i := range at {
		p.near = append(p.near, s.views[n].ids[i])
	}
	if len(p.near) == 1 {
		return Spot{n, []fleet.DeviceID{p.near[0]}}
	}
	return p.spot(n, p.near)
}

// drawn draws one of the nodes that fit, and devices on it.
func (s *scored) drawn(p *Placer, r *Request) (Spot, bool) {
	var fit []fleet.NodeID
	for _, n := range s.order {
		if _, _, ok := s.choose(r, n); ok {
			fit = append(fit, n)
		}
	}
	if len(fit) == 0 {
		return Spot{}, false
	}
	n := fit[s.draw(len(fit))]
	v := s.viewOf(n)
	var at []int
	for i, d := range v.ids {
		if p.fits(r, d) {
			at = append(at, i)
		}
	}
	for i := range r.Devices {
		k := i + s.draw(len(at)-i)
		at[i], at[k] = at[k], at[i]
	}
	return s.spotAt(p, n, at[:r.Devices]), true
}

func (s *scored) draw(n int) int {
	s.draws += 0x9e3779b97f4a7c15
	return int(mix(s.policy.Seed^mix(s.draws)) >> 1 % uint64(n))
}

// cacheOf finds or makes the cache of a request's kind.
func (s *scored) cacheOf(r *Request) *cache {
	if r.cache != nil && r.cache.epoch == s.epoch {
		return r.cache
	}
	key := keyOf(r)
	c, ok := s.caches[key]
	if !ok {
		if len(s.caches) >= maxCaches {
			clear(s.caches)
		}
		c = &cache{}
		s.caches[key] = c
	}
	if c.epoch != s.epoch {
		s.fill(r, c)
	}
	r.cache = c
	return c
}

// fill scores every node.
func (s *scored) fill(r *Request, c *cache) {
	c.leaves = 1
	for c.leaves < len(s.order) {
		c.leaves *= 2
	}
	c.epoch, c.at = s.epoch, s.fleet.Touches()
	c.version = slices.Grow(c.version[:0], len(s.order))[:len(s.order)]
	c.tree = slices.Grow(c.tree[:0], 2*c.leaves)[:2*c.leaves]
	for i := range c.leaves {
		c.tree[c.leaves+i] = barred
		if i < len(s.order) {
			c.version[i] = s.fleet.Version(s.order[i])
			c.tree[c.leaves+i] = s.scoreOf(r, s.order[i])
		}
	}
	for i := c.leaves - 1; i > 0; i-- {
		c.tree[i] = max(c.tree[2*i], c.tree[2*i+1])
	}
	if c.leaves == 1 {
		c.tree[0] = barred
	}
}

func (s *scored) scoreOf(r *Request, n fleet.NodeID) int64 {
	if score, _, ok := s.choose(r, n); ok {
		return score
	}
	return barred
}

// refresh scores anew the nodes that were touched since.
func (s *scored) refresh(r *Request, c *cache) {
	if !s.fleet.TouchedSince(c.at, func(n fleet.NodeID) { s.rescore(r, c, n) }) {
		for _, n := range s.order {
			s.rescore(r, c, n)
		}
	}
	c.at = s.fleet.Touches()
}

func (s *scored) rescore(r *Request, c *cache, n fleet.NodeID) {
	if int(n) >= len(s.rank) {
		return // a node that nobody told of since: it is entered as gone
	}
	rank := s.rank[n]
	if rank < 0 || c.version[rank] == s.fleet.Version(n) {
		return
	}
	c.version[rank] = s.fleet.Version(n)
	score := s.scoreOf(r, n)
	i := c.leaves + int(rank)
	if c.tree[i] == score {
		return
	}
	c.tree[i] = score
	for i > 1 {
		i /= 2
		larger := max(c.tree[2*i], c.tree[2*i+1])
		if c.tree[i] == larger {
			return
		}
		c.tree[i] = larger
	}
}
