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
	briefs  []brief        // by rank
	recent  recent
	at      uint64 // Touches up to which briefs and recent are up to date
	caches  map[string]*cache
	epoch   uint64 // counts terrains

	fits  []int
	rest  []int16
	draws uint64
}

// brief is what rules most nodes out, kept close together.
type brief struct {
	cpu, memory int64
	most        int16
}

// cache is the best score of each node for one kind of request.
type cache struct {
	epoch       uint64
	at          uint64 // of recent, up to which it is up to date
	cpu, memory int64  // that the kind wants of the node
	compute     int16  // of each device
	best        peaks
	in          []uint64 // by rank, one bit each: the kind fits there
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
		s.catchUp()
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
	s.recent.reset(len(s.order))
	s.briefs = slices.Grow(s.briefs[:0], len(s.order))[:len(s.order)]
	for _, n := range s.order {
		s.renewBrief(n)
	}
	s.at = s.fleet.Touches()
}

// catchUp notes which nodes were touched.
func (s *scored) catchUp() {
	if s.at == s.fleet.Touches() {
		return
	}
	if !s.fleet.TouchedSince(s.at, s.renewBrief) {
		for _, n := range s.order {
			s.renewBrief(n)
		}
	}
	s.at = s.fleet.Touches()
}

// renewBrief notes that a node was touched, if it was.
func (s *scored) renewBrief(n fleet.NodeID) {
	if int(n) >= len(s.rank) || s.rank[n] < 0 {
		return // a node that nobody told of since: it is entered as gone
	}
	if s.views[n].version == s.fleet.Version(n) {
		return
	}
	v, rank := s.viewOf(n), s.rank[n]
	s.briefs[rank] = brief{v.cpu, v.memory, v.most}
	s.recent.touch(rank)
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
	rank, ok := c.best.first()
	if !ok {
		return Spot{}, false
	}
	n := s.order[rank]
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
	c.epoch, c.at = s.epoch, s.recent.clock
	// Of what is not wanted a node may have less than nothing free.
	c.compute, c.cpu, c.memory = int16(r.Compute), math.MinInt64, math.MinInt64
	for _, w := range r.Resources {
		switch w.Resource {
		case s.terrain.cpu:
			c.cpu = w.Amount
		case s.terrain.memory:
			c.memory = w.Amount
		}
	}
	c.best.reset(len(s.order))
	c.in = slices.Grow(c.in[:0], len(s.order)/64+1)[:len(s.order)/64+1]
	clear(c.in)
	for rank, n := range s.order {
		if c.mayFit(&s.briefs[rank]) {
			if score := s.scoreOf(r, n); score != barred {
				c.in[rank/64] |= 1 << (rank % 64)
				c.best.leaves()[rank] = score
			}
		}
	}
	c.best.build()
}

// mayFit is false where the kind does not fit on a node for sure.
func (c *cache) mayFit(b *brief) bool {
	return b.most >= c.compute && b.cpu >= c.cpu && b.memory >= c.memory
}

func (s *scored) scoreOf(r *Request, n fleet.NodeID) int64 {
	if score, _, ok := s.choose(r, n); ok {
		return score
	}
	return barred
}

// refresh scores anew the nodes that were touched since.
func (s *scored) refresh(r *Request, c *cache) {
	for rank := s.recent.newest; rank != none && s.recent.stamp[rank] > c.at; rank = s.recent.links[rank].older {
		s.rescore(r, c, rank)
	}
	c.at = s.recent.clock
}

func (s *scored) rescore(r *Request, c *cache, rank int32) {
	word, bit := &c.in[rank/64], uint64(1)<<(rank%64)
	score := int64(barred)
	if c.mayFit(&s.briefs[rank]) {
		score = s.scoreOf(r, s.order[rank])
	}
	switch {
	case score != barred:
		*word |= bit
	case *word&bit == 0:
		return
	default:
		*word &^= bit
	}
	c.best.set(int(rank), score)
}
