package place

import (
	"cmp"
	"math"
	"slices"
	"strconv"

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
	changes uint64         // of the fleet, at which the terrain was worked out
	order   []fleet.NodeID // by rank
	rank    []int32        // by node
	views   []view         // by rank
	units   []unit         // of all views
	recent  recent
	at      uint64 // Touches up to which views and recent are up to date
	caches  map[string]*cache
	pages   []*page
	byLeast []*cache // of all pages, those that want the least compute of a device first
	epoch   uint64   // counts terrains
	shared  uint64   // of recent, up to which every kind asked for lately was scored anew
	filled  int      // kinds that were scored for all nodes since the terrain was worked out

	parts    map[partKey]*part
	partList []*part // by index
	smallest int16   // compute that one of them asks for
	states   map[stateKey]*state
	found    []int64
	scores   []int64
	loose    []bool // which of scores may be less
	looseBy  int64  // by how much they may be so at the most because of steps; none: it is not known, so none is
	steps    ladder
	touched  []int32
	asked    []askedKind
	fits     []int
	lowered  []lowered
	rest     []unit
	near     nearness
	draws    uint64
}

// cache is the best score of each node for one kind of request.
type cache struct {
	like  Request // without a fence: these may mean something else later
	want  want
	epoch uint64
	at    uint64 // of recent, up to which it is up to date
	asked uint64 // of recent, when it was last asked for
	best  peaks
}

// UsePolicy makes the placer go by a policy's score.
func (p *Placer) UsePolicy(policy *Policy) {
	s := &scored{fleet: p.fleet, policy: policy, epoch: p.epoch, kinds: map[string]*kind{}, caches: map[string]*cache{}, parts: map[partKey]*part{}, states: map[stateKey]*state{}, stale: true, nextLook: firstLook, steps: newLadder(steps[:])}
	s.looseBy = policy.Weights.risesBy()
	p.scored = s
	for i := range policy.Workload {
		k := p.kindOf(&policy.Workload[i])
		s.kinds[k.key] = k
	}
}

// ChangePolicy makes the placer go by another policy's score; nil: by best fit. What a policy learned of the workload seen lately the next
// one goes on with, where both learn.
func (p *Placer) ChangePolicy(policy *Policy) {
	old := p.scored
	if old != nil {
		p.epoch = old.epoch
	}
	if policy == nil {
		p.scored = nil
	} else {
		p.UsePolicy(policy)
	}
	if old == nil {
		return
	}
	learned := len(old.policy.Workload) == 0
	if s := p.scored; s != nil && learned && len(policy.Workload) == 0 {
		s.kinds, s.seen, s.nextLook = old.kinds, old.seen, old.nextLook
		return
	}
	for _, k := range old.kinds { // requests may still point to them
		k.count, k.known = 0, 0
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
	s.forgetParts()
	if !ordered {
		s.arrange()
	}
	s.recent.reset(len(s.order))
	s.lay()
	s.at, s.filled = s.fleet.Touches(), 0
}

// catchUp notes which nodes were touched.
func (s *scored) catchUp() {
	if s.at == s.fleet.Touches() {
		return
	}
	if !s.fleet.TouchedSince(s.at, s.noteTouched) {
		for _, n := range s.order {
			s.noteTouched(n)
		}
	}
	s.at = s.fleet.Touches()
}

// noteTouched notes that a node was touched, if it was.
func (s *scored) noteTouched(n fleet.NodeID) {
	if int(n) >= len(s.rank) || s.rank[n] < 0 {
		return // a node that nobody told of since: it is entered as gone
	}
	rank := s.rank[n]
	if v := &s.views[rank]; v.version != s.fleet.Version(n) {
		s.renew(v)
		s.recent.touch(rank)
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
	s.refresh(c)
	rank, ok := s.top(c)
	if !ok {
		return Spot{}, false
	}
	v := &s.views[rank]
	s.choose(&c.want, v)
	return s.spotAt(p, v, s.fits), true
}

func (s *scored) spotAt(p *Placer, v *view, at []int) Spot {
	p.near = p.near[:0]
	for _, i := range at {
		p.near = append(p.near, v.units[i].device)
	}
	if len(p.near) == 1 {
		return Spot{v.node, []fleet.DeviceID{p.near[0]}}
	}
	return p.spot(v.node, p.near)
}

// drawn draws one of the nodes that fit, and devices on it.
func (s *scored) drawn(p *Placer, r *Request) (Spot, bool) {
	w := s.wantOf(r)
	var fit []*view
	for i := range s.views {
		if _, ok := s.choose(&w, &s.views[i]); ok {
			fit = append(fit, &s.views[i])
		}
	}
	if len(fit) == 0 {
		return Spot{}, false
	}
	v := fit[s.draw(len(fit))]
	var at []int
	for i := range v.units {
		if d := v.units[i].device; p.fits(r, d) && !r.bars(d) {
			at = append(at, i)
		}
	}
	for i := range r.Devices {
		k := i + s.draw(len(at)-i)
		at[i], at[k] = at[k], at[i]
	}
	return s.spotAt(p, v, at[:r.Devices]), true
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
	if r.Busy != 0 {
		key += " using " + strconv.Itoa(int(r.Busy))
	}
	if r.Fence != nil {
		key += " within " + r.Fence.Name
	}
	c, ok := s.caches[key]
	if !ok {
		if len(s.caches) >= maxCaches {
			clear(s.caches)
			s.pages, s.byLeast = nil, nil
		}
		c = s.newCache(r)
		s.caches[key] = c
	}
	if c.epoch != s.epoch {
		if s.filled++; s.filled == someFilled {
			s.fillAll()
		}
	}
	if c.epoch != s.epoch {
		s.fill(r, c)
	}
	r.cache = c
	return c
}

// newCache makes room for the scores of one more kind, that wants so much compute of a device.
func (s *scored) newCache(r *Request) *cache {
	least := int16(r.Compute)
	last := len(s.pages) - 1
	if last < 0 || s.pages[last].size == width {
		s.pages = append(s.pages, &page{})
		last++
	}
	p := s.pages[last]
	c := &cache{want: want{least: least}, best: peaks{page: p, column: p.size}}
	c.like = Request{Compute: r.Compute, Memory: r.Memory, Model: r.Model, Least: r.Least, Class: r.Class, Devices: r.Devices, Tasks: 1, Busy: r.Busy, Resources: r.Resources}
	p.size++
	at, _ := slices.BinarySearchFunc(s.byLeast, least, func(c *cache, least int16) int { return cmp.Compare(c.want.least, least) })
	s.byLeast = slices.Insert(s.byLeast, at, c)
	return c
}

// refresh scores anew the nodes that were touched since.
func (s *scored) refresh(c *cache) {
	for rank := s.recent.newest; rank != none && s.recent.stamp[rank] > c.at; rank = s.recent.links[rank].older {
		s.rescore(c, rank)
	}
	c.at, c.asked = s.recent.clock, s.recent.clock
}

func (s *scored) rescore(c *cache, rank int32) {
	score, ok := s.choose(&c.want, &s.views[rank])
	if !ok {
		score = barred
	}
	c.best.set(int(rank), score, false)
}

// top is the node with the highest score, the first of those that are equal; false: none fits.
func (s *scored) top(c *cache) (int, bool) {
	for {
		rank, ok := c.best.first()
		if !ok || !c.best.isLoose(rank) {
			return rank, ok
		}
		s.rescore(c, int32(rank))
	}
}

const (
	someTouched = 12   // nodes from which on they are scored anew for all kinds at once: one that is touched several times until then is scored once
	fewTouched  = 64   // nodes up to which they are
	dormant     = 2048 // touches after which a kind that nobody asked for is left out of that
)

// share scores the nodes that were touched since the last time anew for all kinds that were asked for lately, once there are some: what is
// looked at of a node, and the scores of it, are then at hand. Where many were touched, each kind comes to them when it is asked for.
func (s *scored) share() {
	s.prepare()
	s.touched = s.touched[:0]
	for rank := s.recent.newest; rank != none && s.recent.stamp[rank] > s.shared; rank = s.recent.links[rank].older {
		if s.touched = append(s.touched, rank); len(s.touched) > fewTouched {
			s.shared = s.recent.clock
			return
		}
	}
	if len(s.touched) < someTouched {
		return
	}
	now := s.recent.clock
	s.asked = s.asked[:0]
	for _, c := range s.byLeast {
		if c.epoch == s.epoch && c.at >= s.shared && now-c.asked <= dormant && s.fleet.HasClass(c.want.class) {
			s.asked = append(s.asked, askedKind{c, c.at, c.want.least, int32(c.want.index)})
		}
	}
	if len(s.asked) > 0 {
		for _, rank := range s.touched {
			s.rescoreAll(rank)
		}
	}
	for _, k := range s.asked {
		k.cache.at = now
	}
	s.shared = now
}
