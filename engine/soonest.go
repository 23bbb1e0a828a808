package engine

import (
	"math"
	"slices"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/engine/fleet"
	"github.com/aliquot-dev/aliquot/engine/place"
)

// A node can hold so many tasks of a shape from the moment on at which enough of what runs there has ended, and what happens on one node changes
// these moments of that one alone. So for each shape they are remembered, and brought up to date where something came, went or got another time
// limit since. What waits as one task starts at the latest at the soonest of them; what waits as several, see gather.go.

// watch tells for one shape on which nodes something changed.
type watch struct {
	changes        uint64 // of the fleet, plus 1
	touched, ended uint64 // so much of the journals of its books and of the tasks that are counted on to be over is taken in
	state          []nodeState
	dirty          []fleet.NodeID
}

// nodeState is what is to be done about a node.
type nodeState int8

const (
	upToDate nodeState = iota
	toLookAt
	servesNot // as long as the fleet does not change: too few of its devices are fit for the shape
)

// look finds the nodes that are to be looked at. It is true where that is all that serve, and nothing is known any more.
func (x *watch) look(e *Engine, s *shape) (anew bool) {
	x.dirty = x.dirty[:0]
	if anew = x.changes != e.fleet.Changes()+1; anew {
		*x = watch{changes: e.fleet.Changes() + 1, state: make([]nodeState, e.fleet.Slots())}
		for n := range e.fleet.Nodes {
			if e.nodeServes(s, n) {
				x.note(n)
			}
		}
		for n := range x.state {
			if x.state[n] == upToDate {
				x.state[n] = servesNot
			}
		}
	} else if !e.fleet.TouchedSince(x.touched, x.note) || !e.outs.journal.Since(x.ended, x.note) {
		for n := range e.fleet.Nodes {
			x.note(n)
		}
	}
	x.touched, x.ended = e.fleet.Touches(), e.outs.journal.Touches()
	for _, n := range x.dirty {
		x.state[n] = upToDate
	}
	return anew
}

// note has a node looked at.
func (x *watch) note(n fleet.NodeID) {
	if int(n) < len(x.state) && x.state[n] == upToDate {
		x.state[n] = toLookAt
		x.dirty = append(x.dirty, n)
	}
}

// soonest is from when on each node could hold one task of a shape: when so many tasks there are counted on to be over.
type soonest struct {
	watch
	at   []Time       // by node: atOnce, when the last that has to be over is, or Never
	last []*task      // whose that is
	best fleet.NodeID // the first of all
}

// atOnce is when a node has room now: before anything ends.
const atOnce Time = math.MinInt64

// maxSoonest is of how many shapes it is remembered.
const maxSoonest = 512

// soonestOf is the soonest of a shape, up to date.
func (e *Engine) soonestOf(s *shape) *soonest {
	key := s.key()
	x, ok := e.soonest[key]
	if !ok {
		if len(e.soonest) >= maxSoonest {
			clear(e.soonest)
		}
		x = &soonest{}
		e.soonest[key] = x
	}
	if x.look(e, s) {
		x.at, x.last, x.best = slices.Repeat([]Time{Never}, len(x.state)), make([]*task, len(x.state)), 0
	}
	worse := false
	for _, n := range x.dirty {
		at, last := x.at[n], x.last[n]
		x.at[n], x.last[n] = Never, nil
		e.roomOn(s, n, 1, func(t *task, _ int) {
			if x.at[n], x.last[n] = atOnce, t; t != nil {
				x.at[n] = t.out()
			}
		})
		worse = worse || n == x.best && (x.at[n] > at || x.at[n] == at && x.last[n] != last)
		if !worse && x.before(n, x.best) {
			x.best = n
		}
	}
	if worse {
		for n := range x.at {
			if x.before(fleet.NodeID(n), x.best) {
				x.best = fleet.NodeID(n)
			}
		}
	}
	return x
}

// before says that one node can hold a task before another, or as soon and first in the order of what has to end.
func (x *soonest) before(n, o fleet.NodeID) bool {
	if x.at[n] != x.at[o] {
		return x.at[n] < x.at[o]
	}
	return x.last[n] != nil && x.last[o] != nil && x.last[n] != x.last[o] && outBefore(x.last[n], x.last[o])
}

// freeOn is what is free on a device of a node that is looked at.
type freeOn struct {
	device  fleet.DeviceID
	serves  bool
	chosen  bool // for a task that is not there yet
	slots   int  // so many tasks it could hold
	compute api.Milli
	memory  api.Bytes
	wants   api.Bytes // the memory that is asked for there
}

// recount works out how many tasks a device could hold, no more than limit, and says whether that changed.
func (f *freeOn) recount(r *place.Request, limit int) bool {
	before := f.slots
	if f.slots = 0; f.serves && f.compute >= r.Compute && f.memory >= f.wants {
		f.slots = limit
		if r.Compute > 0 && limit > 1 {
			f.slots = min(f.slots, int(f.compute/r.Compute))
		}
		if f.wants > 0 && limit > 1 {
			f.slots = int(min(api.Bytes(f.slots), f.memory/f.wants))
		}
	}
	return f.slots != before
}

// nodeRoom is what is free on a node while one looks ahead at it.
type nodeRoom struct {
	request *place.Request
	limit   int // no more tasks than that are of interest
	devices []freeOn
	free    []int64 // of the resources that the request names, in their order
	counts  []int   // room for tasks
	order   []*freeOn
}

// lookAt is the room on a node as it is. It is the engine's own, until it is next called.
func (e *Engine) lookAt(s *shape, n fleet.NodeID, limit int) *nodeRoom {
	x, r := &e.onNode, &s.Request
	x.request, x.limit, x.devices, x.free = r, limit, x.devices[:0], x.free[:0]
	for _, d := range e.fleet.DevicesOf(n) {
		f := freeOn{device: d}
		if f.serves = e.servedBy(s, d); f.serves {
			f.compute, f.memory = e.fleet.Free(d)
			f.wants = r.Memory.Of(e.fleet.Memory(d))
			f.recount(r, limit)
		}
		x.devices = append(x.devices, f)
	}
	for _, a := range r.Resources {
		x.free = append(x.free, e.fleet.Capacity(n, a.Resource)-e.fleet.Taken(n, a.Resource))
	}
	return x
}

// lift takes a task off, and says whether more may fit then.
func (x *nodeRoom) lift(t *task) (more bool) {
	for i := range t.grants {
		g := &t.grants[i]
		k := int(g.device - x.devices[0].device) // most have the numbers behind each other
		if k < 0 || k >= len(x.devices) || x.devices[k].device != g.device {
			k = slices.IndexFunc(x.devices, func(f freeOn) bool { return f.device == g.device })
		}
		if k < 0 || !x.devices[k].serves {
			continue
		}
		f := &x.devices[k]
		f.compute += g.compute
		f.memory += g.taken()
		more = f.recount(x.request, x.limit) || more
	}
	for _, a := range t.request().Resources {
		for i, b := range x.request.Resources {
			if a.Resource == b.Resource {
				x.free[i] += a.Amount
				more = true
			}
		}
	}
	return more
}

// tasks is how many tasks fit.
func (x *nodeRoom) tasks() int {
	limit := int64(x.limit)
	for i, a := range x.request.Resources {
		if a.Amount > 0 && x.free[i] < a.Amount*limit {
			limit = max(0, x.free[i]/a.Amount)
		}
	}
	x.counts = x.counts[:0]
	for i := range x.devices {
		if k := x.devices[i].slots; k > 0 {
			x.counts = append(x.counts, k)
		}
	}
	return place.TasksOn(x.counts, x.request.Devices, int(limit))
}

// roomOn tells how many tasks of a shape a node could hold, but no more than limit: now, with a nil task, if it is any, and from each
// task on that is counted on to be over with which they become more.
func (e *Engine) roomOn(s *shape, n fleet.NodeID, limit int, tell func(last *task, tasks int)) {
	x := e.lookAt(s, n, limit)
	count := x.tasks()
	if count > 0 {
		tell(nil, count)
	}
	for _, t := range e.outs.on(n) {
		if count >= limit {
			return
		}
		if !x.lift(t) {
			continue
		}
		if k := x.tasks(); k > count {
			count = k
			tell(t, count)
		}
	}
}

// reserveSoonest is reserveFor of what waits as one task; false: that is to be found out by trying.
func (p *pass) reserveSoonest(head *workload) (*reservation, bool) {
	e := p.Engine
	x := e.soonestOf(head.shape)
	if len(x.at) == 0 || x.at[x.best] == Never {
		return &reservation{}, true
	}
	if x.at[x.best] == atOnce {
		return nil, false
	}
	last := x.last[x.best]
	mark := e.fleet.Begin()
	defer e.fleet.Rollback(mark)
	for _, t := range e.outs.on(x.best) {
		e.lift(t)
		if t == last {
			break
		}
	}
	spots, ok := e.placer.Place(p.request(head))
	if !ok {
		return nil, false
	}
	r := &reservation{known: true, at: max(e.now, last.out())}
	r.record(e, spots)
	return r, true
}
