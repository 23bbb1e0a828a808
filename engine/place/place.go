// Package place finds where a workload fits: every task on one node, on distinct devices with room for its floors, all tasks or
// none. What comes in are a fleet and a request; what goes out are places. The books are changed only by what was found, so a
// plan can be tried on the live fleet and taken back. It never decides whose turn it is.
//
// The preference is best fit: the device with a grant on it that has the least left goes first, so that whole devices stay
// whole; a request for whole devices takes untouched ones, and several of them from the node with the fewest that has enough,
// so that whole nodes stay whole. Nodes go by name and devices by index where nothing else decides.
package place

import (
	"slices"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/engine/fleet"
)

// Request is what must fit: only floors count.
type Request struct {
	Compute   api.Milli
	Memory    api.Amount
	Bound     api.Amount // rules out devices on which Memory is more than this; zero: none, see api.Memory.Bound
	Model     string     // empty: any
	Least     fleet.Least
	Class     fleet.ClassID
	Devices   int // per task, distinct, on one node
	Tasks     int
	Same      string                    // the level of the topology within one domain of which all tasks must be; empty: none
	Prefer    string                    // and within one domain of which they are where that can be
	Busy      api.Milli                 // that a task is predicted to use of each device, for the feature Interference
	Resources []fleet.Amount            // of the node, per task
	Avoid     func(fleet.DeviceID) bool // rules devices out that are too much for its queue now; nil: none
	Fence     *Fence                    // rules devices out of pools that are not for it; nil: none

	// Roles are several kinds of tasks that are placed all or none, of which the fields above are the first: nil: there is one kind. Of each
	// Same, Prefer, Class, Avoid and Fence are those above.
	Roles []Request

	kind  *kind // of the workload seen lately
	rooms *roomCount
	all   *roomCount // of all nodes together
	cache *cache     // of its scores
	once  bool       // there will be no other like it: room is not counted for it
	again bool       // room was looked for before
}

// Fence rules devices out for good, not by what is taken of them.
type Fence struct {
	Name string // of what it rules out: fences of one name rule out the same, until Refence
	Bars func(fleet.DeviceID) bool
}

// Within is a request with another fence.
func (r Request) Within(f *Fence) *Request {
	r.Fence, r.cache = f, nil
	return &r
}

// Using is a request that is predicted to use so much of each device.
func (r Request) Using(busy api.Milli) *Request {
	r.Busy, r.cache = busy, nil
	if r.Roles = slices.Clone(r.Roles); len(r.Roles) > 0 {
		for i := range r.Roles {
			r.Roles[i] = *r.Roles[i].Using(busy)
		}
	}
	return &r
}

// bars says that the request's fence rules a device out.
func (r *Request) bars(d fleet.DeviceID) bool { return r.Fence != nil && r.Fence.Bars(d) }

// Refence has what fences rule out looked up again, after that changed.
func (p *Placer) Refence() {
	if p.scored != nil {
		p.scored.stale = true
	}
}

// Spot is where one task goes.
type Spot struct {
	Node    fleet.NodeID
	Devices []fleet.DeviceID // by index
}

// fewMembers is up to how many nodes of a class are looked at one by one instead of walking the whole fleet in order.
const fewMembers = 32

// Placer finds places in one fleet. It holds nothing but memory to use again.
type Placer struct {
	fleet  *fleet.Fleet
	needs  []fleet.Need
	near   []fleet.DeviceID
	count  map[fleet.NodeID][]fleet.DeviceID
	counts []int

	scored *scored // nil: best fit
	epoch  uint64  // of the policies before: no scores of theirs pass for those of the one now
}

// New returns a placer for a fleet.
func New(f *fleet.Fleet) *Placer {
	return &Placer{fleet: f, count: map[fleet.NodeID][]fleet.DeviceID{}}
}

// Place finds a spot for every task and takes it, or says that there is none and takes nothing. It finds one if there is one. What the tasks are
// predicted to use counts for each other, and is not booked when it is over.
func (p *Placer) Place(r *Request) ([]Spot, bool) {
	spots, ok := p.place(r)
	if ok && r.Busy != 0 {
		for i, s := range spots {
			p.uses(r.Of(i), s, -1)
		}
	}
	return spots, ok
}

// place is Place with what the tasks are predicted to use booked.
func (p *Placer) place(r *Request) ([]Spot, bool) {
	if r.Same != "" {
		return p.together(r, r.Same)
	}
	if r.Prefer != "" && r.All() > 1 {
		if spots, ok := p.together(r, r.Prefer); ok {
			return spots, true
		}
	}
	if len(r.Roles) > 0 {
		return p.inRoles(r)
	}
	if r.Tasks > 1 && !p.enough(r) {
		return nil, false
	}
	if p.scored != nil && r.Tasks == 1 && !p.fleet.Trying() {
		p.scored.share()
	}
	spots := make([]Spot, 0, r.Tasks)
	mark := p.fleet.Begin()
	for range r.Tasks {
		spot, ok := p.one(r)
		if !ok {
			break
		}
		p.take(r, spot, 1)
		p.uses(r, spot, 1)
		spots = append(spots, spot)
	}
	if len(spots) == r.Tasks {
		p.fleet.Commit(mark)
		return spots, true
	}
	p.fleet.Rollback(mark)
	if r.Tasks == 1 || r.Devices == 1 || r.Compute > api.WholeDevice/2 {
		return nil, false // one at a time is then complete: whatever is chosen for a task, the next loses no more than that
	}
	spots, ok := p.spread(r)
	for _, s := range spots {
		p.uses(r, s, 1)
	}
	return spots, ok
}

// Take books a spot.
func (p *Placer) Take(r *Request, s Spot) { p.take(r, s, 1) }

// Give books a spot back.
func (p *Placer) Give(r *Request, s Spot) { p.take(r, s, -1) }

func (p *Placer) take(r *Request, s Spot, sign int32) {
	for _, d := range s.Devices {
		p.fleet.Adjust(d, r.Compute*api.Milli(sign), r.Memory.Of(p.fleet.Memory(d))*api.Bytes(sign), sign)
	}
	if sign > 0 {
		p.fleet.Take(s.Node, r.Resources)
	} else {
		p.fleet.Give(s.Node, r.Resources)
	}
}

// uses books what a task is predicted to use on its spot, or books it back.
func (p *Placer) uses(r *Request, s Spot, sign api.Milli) {
	if r.Busy == 0 {
		return
	}
	for _, d := range s.Devices {
		p.fleet.AddBusy(d, sign*r.Busy)
	}
}

// one finds the best spot for one task: on the nodes that its class prefers, if one of them has room.
func (p *Placer) one(r *Request) (Spot, bool) {
	if class := p.fleet.Preferred(r.Class); class != fleet.Alike {
		if spot, ok := p.one(r.of(class)); ok && p.fleet.Open(r.Class, spot.Node) {
			return spot, true
		}
	}
	return p.anywhere(r)
}

// of is a request of another class.
func (r *Request) of(class fleet.ClassID) *Request {
	one := *r
	one.Class, one.cache = class, nil
	return &one
}

// anywhere finds the best spot for one task on the nodes that its class may use.
func (p *Placer) anywhere(r *Request) (Spot, bool) {
	spot, ok := p.best(r)
	if ok {
		spot = p.nearer(r, spot)
	}
	return spot, ok
}

// best is anywhere, with the first of devices that are as good.
func (p *Placer) best(r *Request) (spot Spot, ok bool) {
	if p.scored != nil && r.Avoid == nil && r.Bound.IsZero() {
		return p.scored.one(p, r)
	}
	spot, ok = p.bestFit(r)
	if ok && p.scored != nil && p.scored.spares(r) { // that there is none is known at less cost like this
		if best, ok := p.scored.sparing(p, r); ok {
			return best, true
		}
	}
	return spot, ok
}

// bestFit finds what fits best.
func (p *Placer) bestFit(r *Request) (spot Spot, ok bool) {
	whole := r.Compute == api.WholeDevice
	p.needs = p.fleet.Needs(p.needs[:0], r.Model, r.Least, r.Memory)
	if len(p.needs) == 0 {
		return Spot{}, false
	}
	if m := p.fleet.Members(r.Class); m != nil && m.Len() <= fewMembers {
		return p.among(r, whole)
	}
	if whole && r.Devices > 1 {
		if spot, ok := p.wholeNode(r); ok {
			return spot, true
		}
	}
	if r.Devices == 1 {
		p.fleet.Walk(p.needs, r.Compute, whole, func(d fleet.DeviceID) bool {
			if n := p.fleet.NodeOf(d); p.nodeOK(r, n) && p.deviceOK(r, d) {
				spot, ok = Spot{n, []fleet.DeviceID{d}}, true
			}
			return !ok
		})
		return spot, ok
	}
	clear(p.count)
	p.fleet.Walk(p.needs, r.Compute, whole, func(d fleet.DeviceID) bool {
		spot, ok = p.gather(r, d)
		return !ok
	})
	return spot, ok
}

// gather adds a device to those found on its node, and says whether the node now has enough. So the node is chosen whose last
// device comes first in the order.
func (p *Placer) gather(r *Request, d fleet.DeviceID) (Spot, bool) {
	n := p.fleet.NodeOf(d)
	if !p.nodeOK(r, n) || !p.deviceOK(r, d) {
		return Spot{}, false
	}
	p.count[n] = append(p.count[n], d)
	if len(p.count[n]) < r.Devices {
		return Spot{}, false
	}
	return p.spot(n, p.count[n]), true
}

// among looks at the few nodes of a class one by one.
func (p *Placer) among(r *Request, whole bool) (Spot, bool) {
	if whole && r.Devices > 1 {
		best, least := Spot{}, 0
		for n := range p.fleet.Members(r.Class).All {
			if got, spare := p.untouched(r, n); got != nil && (best.Devices == nil || spare < least) {
				best, least = p.spot(n, got), spare
			}
		}
		if best.Devices != nil {
			return best, true
		}
	}
	p.near = p.near[:0]
	for n := range p.fleet.Members(r.Class).All {
		for _, d := range p.fleet.DevicesOf(n) {
			if p.fits(r, d) {
				p.near = append(p.near, d)
			}
		}
	}
	slices.SortFunc(p.near, func(a, b fleet.DeviceID) int {
		if p.fleet.LessLeft(a, b, whole) {
			return -1
		}
		return 1 // they are distinct and the order is total
	})
	clear(p.count)
	for _, d := range p.near {
		if spot, ok := p.gather(r, d); ok {
			return spot, true
		}
	}
	return Spot{}, false
}

// wholeNode finds enough untouched devices on the node with the fewest.
func (p *Placer) wholeNode(r *Request) (spot Spot, ok bool) {
	p.fleet.WithUntouched(r.Devices, func(n fleet.NodeID) bool {
		if got, _ := p.untouched(r, n); got != nil {
			spot, ok = p.spot(n, got), true
		}
		return !ok
	})
	return spot, ok
}

// untouched are the first untouched devices of a node that would serve, if they are enough, and how many more the node has in all.
func (p *Placer) untouched(r *Request, n fleet.NodeID) (got []fleet.DeviceID, spare int) {
	if !p.nodeOK(r, n) {
		return nil, 0
	}
	p.near = p.near[:0]
	all := 0
	for _, d := range p.fleet.DevicesOf(n) {
		if p.fleet.BookOf(d).Grants > 0 || !p.fleet.Fits(d, 0, 0) {
			continue
		}
		all++
		if p.fits(r, d) && p.deviceOK(r, d) {
			p.near = append(p.near, d)
		}
	}
	if len(p.near) < r.Devices {
		return nil, 0
	}
	return p.near[:r.Devices], all - r.Devices
}

func (p *Placer) spot(n fleet.NodeID, devices []fleet.DeviceID) Spot {
	s := Spot{n, make([]fleet.DeviceID, 0, len(devices))}
	for _, d := range p.fleet.DevicesOf(n) {
		if slices.Contains(devices, d) {
			s.Devices = append(s.Devices, d)
		}
	}
	return s
}

func (p *Placer) nodeOK(r *Request, n fleet.NodeID) bool {
	return p.fleet.Open(r.Class, n) && p.fleet.HasFree(n, r.Resources)
}

func (p *Placer) deviceOK(r *Request, d fleet.DeviceID) bool {
	return (r.Avoid == nil || !r.Avoid(d)) && !r.bars(d) && r.inBound(p.fleet.Memory(d))
}

// Suits says that a device with so much memory has what is asked for, and that it is within its bound there.
func (r *Request) Suits(memory api.Bytes) bool {
	return r.Memory.Of(memory) <= memory && r.inBound(memory)
}

// inBound says that the memory asked for is within its bound on a device with so much.
func (r *Request) inBound(memory api.Bytes) bool {
	return r.Bound.IsZero() || r.Memory.Of(memory) <= r.Bound.Of(memory)
}

// fits says that a device serves the request and has room for it now.
func (p *Placer) fits(r *Request, d fleet.DeviceID) bool {
	return p.fleet.Fits(d, r.Compute, r.Memory.Of(p.fleet.Memory(d))) && p.fleet.Is(d, r.Model, r.Least)
}
