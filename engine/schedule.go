package engine

import (
	"strconv"

	"github.com/aliquot-dev/aliquot/engine/fleet"
	"github.com/aliquot-dev/aliquot/engine/place"
	"github.com/aliquot-dev/aliquot/engine/queue"
)

// pass goes once through the line and starts what may start.
//
// The first that has quota and could run somewhere but does not fit now is the head. Everything behind it starts only where that
// provably does not delay the head (reserve.go). What waits only for its queue's quota holds nobody back but those behind it under
// the same quota: they would take what comes free there, and it would wait for ever. What could never run as things are
// holds nobody back.
type pass struct {
	*Engine
	head    *workload
	reserve *reservation
	closed  []*queue.Node // the quotas that someone in front waits for
	closers []*workload   // and who
}

// schedule makes one pass. Groups come in the order of their first members; within a pass room and quota only shrink, so a group
// whose first member may not start is done with.
func (e *Engine) schedule() {
	if len(e.groups) == 0 {
		return
	}
	p := pass{Engine: e}
	e.heap = e.heap[:0]
	for _, g := range e.groups { // any order: the heap's order is total
		e.heap = append(e.heap, g)
	}
	for i := len(e.heap)/2 - 1; i >= 0; i-- {
		e.sift(i)
	}
	for len(e.heap) > 0 {
		g := e.heap[0]
		w := g.members[0]
		spots, ok := p.try(w, g)
		if ok {
			e.start(w, spots)
		}
		if !ok || len(g.members) == 0 {
			last := len(e.heap) - 1
			e.heap[0] = e.heap[last]
			e.heap[last] = nil
			e.heap = e.heap[:last]
		}
		e.sift(0)
	}
}

func (e *Engine) sift(i int) {
	for {
		least := i
		for _, c := range [2]int{2*i + 1, 2*i + 2} {
			if c < len(e.heap) && before(e.heap[c].members[0], e.heap[least].members[0]) {
				least = c
			}
		}
		if least == i {
			return
		}
		e.heap[i], e.heap[least] = e.heap[least], e.heap[i]
		i = least
	}
}

// verdict is why a workload does not start.
type verdict int8

const (
	mayStart verdict = iota
	impossible
	largerThanQuota
	behindInQueue
	overQuota
	noRoom      // the head
	behindFirst // room, or not, but behind the head
)

// judge says what stands before a workload, apart from the head, and enters it among those who hold others back.
func (p *pass) judge(w *workload) (verdict, *queue.Node) {
	if !p.possible(w.shape) {
		return impossible, nil
	}
	demand := w.demand()
	if q := w.queue.Smaller(demand); q != nil {
		return largerThanQuota, q
	}
	if demand > 0 {
		for i, q := range p.closed {
			if w.queue.Within(q) {
				return behindInQueue, p.closed[i]
			}
		}
	}
	if q := w.queue.Over(demand); q != nil {
		p.closed = append(p.closed, q)
		p.closers = append(p.closers, w)
		return overQuota, q
	}
	return mayStart, nil
}

// try finds where a workload may start now. The books hold what it found.
func (p *pass) try(w *workload, g *group) ([]place.Spot, bool) {
	if v, _ := p.judge(w); v != mayStart {
		return nil, false
	}
	if p.head != nil {
		return p.backfill(w, g)
	}
	spots, ok := p.fit(w.shape)
	if !ok {
		p.head = w
	}
	return spots, ok
}

// fit places a shape, or remembers that it does not fit.
func (e *Engine) fit(s *shape) ([]place.Spot, bool) {
	if s.unfitAt == e.fleet.Gains()+1 {
		return nil, false
	}
	spots, ok := e.placer.Place(&s.Request)
	if !ok {
		s.unfitAt = e.fleet.Gains() + 1
	}
	return spots, ok
}

// possible says that a shape would fit if nothing else ran.
func (e *Engine) possible(s *shape) bool {
	if s.possibleAt != e.fleet.Changes()+1 {
		s.possible, s.possibleAt = e.placer.Possible(&s.Request), e.fleet.Changes()+1
	}
	return s.possible
}

// start proposes a workload at its spots, which the fleet's books hold already.
func (e *Engine) start(w *workload, spots []place.Spot) {
	e.dequeue(w)
	w.queue.Holds++
	w.tasks = make([]*task, len(spots))
	tasks := make([]task, len(spots))
	action := Place{ID: e.id(), Workload: w.ID, Tasks: make([]Placing, len(spots))}
	for i, s := range spots {
		t := &tasks[i]
		*t = task{w: w, index: i, node: s.Node, since: e.now, grants: make([]grant, len(s.Devices))}
		for k, d := range s.Devices {
			t.grants[k] = e.grantOn(w, action.ID, i, k, d)
		}
		w.tasks[i] = t
		e.settle(t)
		action.Tasks[i] = e.placing(t)
	}
	w.placing = action.ID
	e.pending[action.ID] = &proposal{w: w, kind: placeProposal}
	e.out = append(e.out, action)
}

// grantOn is the grant of a workload's share on a device.
func (e *Engine) grantOn(w *workload, action ActionID, task, n int, d fleet.DeviceID) grant {
	uid := w.ID + "." + strconv.Itoa(task) + "." + strconv.Itoa(n) + "-" + strconv.FormatUint(uint64(action), 10)
	dev := e.fleet.Device(d)
	floor, ceiling := w.Share.Memory.On(dev.Memory)
	return grant{
		Grant: Grant{
			UID: uid, Device: dev.UUID, Compute: w.Share.Compute, Floor: floor, Ceiling: ceiling, Weight: w.Share.EffectiveWeight(),
		},
		device: d, compute: w.Share.Compute.Floor, memory: floor,
	}
}

// placing is where a task is.
func (e *Engine) placing(t *task) Placing {
	p := Placing{Task: t.index, Node: e.fleet.NodeName(t.node), Grants: make([]Grant, len(t.grants))}
	for i := range t.grants {
		p.Grants[i] = t.grants[i].Grant
	}
	return p
}
