package engine

import (
	"slices"

	"github.com/aliquot-dev/aliquot/engine/fleet"
	"github.com/aliquot-dev/aliquot/engine/place"
	"github.com/aliquot-dev/aliquot/engine/queue"
)

// pass goes once through the line and starts what may start.
//
// The first that has quota and could run somewhere but does not fit now is the head, unless nobody is to be evicted for it: such a one
// holds nobody back, and takes nothing that comes free for another. Everything behind the head starts only where that provably does not
// delay it (reserve.go). What waits only for a quota or limit of its queue holds nobody back but those
// behind it under the same one: they would take what comes free there, and it would wait for ever. What could never run as
// things are holds nobody back.
type pass struct {
	*Engine
	head     *workload
	reserve  *reservation
	soons    []startsSoon // those behind the head that start as soon as what is being ended is over
	closed   []closure    // the quotas and limits that someone in front waits for
	timely   bool         // whether more starts may hang on the time alone
	wanted   []bool       // by pool: one waits for room there whom it is for; nil: none does
	heads    []*workload  // where there are pools: the first of each part of the line that waits for room
	short    []*workload  // that wait for room, of each group the first
	deferred bool         // one waits that takes no room of plans
	until    Time         // by which what was just let in by a prediction is to be over; 0: nothing was
	asked    *workload    // it is asked of one node alone whether this one would start there; nil: it is not
	askedOf  fleet.NodeID
}

// closure is a quota or limit that a workload waits for.
type closure struct {
	queue.Refusal
	w *workload
}

// schedule makes passes until nothing starts any more. With work of one queue only that is one: in a pass room and quota only
// shrink. With several, what starts changes whose turn is next.
//
// What was adopted grows not before the next event, or a tick: more may be adopted that runs on what looks idle.
func (e *Engine) schedule(grow bool) {
	e.shed()
	if len(e.groups) == 0 && len(e.elastics) == 0 { // nothing may start or grow
		e.ungrown = false
		return
	}
	p := pass{Engine: e}
	for p.walkAll() {
		p = pass{Engine: e}
	}
	if e.ungrown = !grow && len(e.elastics) > 0; e.ungrown {
		e.settled = false
		return
	}
	p.grow()
}

// walkAll makes one pass and says whether another might start more. Groups come in the order of their first members; a group whose
// first member may not start is done with.
func (p *pass) walkAll() bool {
	e := p.Engine
	if len(e.groups) == 0 {
		return false
	}
	began, keyed, again := false, false, false
	for _, groups := range e.parts() {
		p.head, p.reserve, p.soons = nil, nil, nil
		order := e.newOrder(groups)
		started := p.walk(order)
		if p.head != nil {
			p.heads = append(p.heads, p.head)
		}
		began, keyed, again = began || started, keyed || order.keyed, again || started && order.keyed
	}
	began = p.lend() || began
	e.settled = !began && !keyed && !p.timely
	return again || began && p.deferred
}

// walk goes through what is in order and starts what may start. It says whether anything did.
func (p *pass) walk(order *branch) (started bool) {
	for order.first != nil {
		w, g := order.first, order.group()
		spots, ok := p.try(w, g)
		if ok {
			if p.until != 0 {
				p.letIn(w, p.until)
				p.until = 0
			}
			p.start(w, spots)
			started = true
		}
		order.next(!ok || len(g.members) == 0)
	}
	return started
}

// lineGroups are the groups in any order: the order that is made of them is total.
func (e *Engine) lineGroups() []*group {
	groups := make([]*group, 0, len(e.groups))
	for _, g := range e.groups {
		groups = append(groups, g)
	}
	return groups
}

// verdict is why a workload does not start.
type verdict int8

const (
	mayStart verdict = iota
	impossible
	largerThanQuota
	behindInQueue
	overQuota
	overOnModel // on every device where it fits
	noRoom      // the head
	behindFirst // room, or not, but behind the head
)

// judge says what stands before a workload, apart from the head, and enters it among those who hold others back.
func (p *pass) judge(w *workload) (verdict, queue.Refusal) {
	if !p.possible(w.shape) {
		return impossible, queue.Refusal{}
	}
	demand := w.demand()
	if r, no := w.queue.Smaller(demand); no {
		return largerThanQuota, r
	}
	for i := range p.closed {
		if c := &p.closed[i].Refusal; c.Concerns(w.queue, demand) {
			return behindInQueue, *c
		}
	}
	if r, no := w.queue.Over(demand); no {
		p.closed = append(p.closed, closure{r, w})
		return overQuota, r
	}
	return mayStart, queue.Refusal{}
}

// try finds where a workload may start now. The books hold what it found.
func (p *pass) try(w *workload, g *group) ([]place.Spot, bool) {
	switch v, r := p.judge(w); {
	case v == overQuota && (r.Limit || w.plan != 0):
		p.reclaim(w)
		p.keepsRoom(w)
		return nil, false
	case v != mayStart:
		return nil, false
	case p.holds(w):
		p.deferred = true
		p.wants(w, true)
		return nil, false
	}
	if p.head != nil {
		spots, ok := p.behindHead(w, g)
		p.wants(w, !ok)
		return spots, ok
	}
	spots, ok := p.fit(w)
	p.wants(w, !ok)
	if p.ahead != nil {
		delete(p.ahead.promises, w) // of an earlier pass, in which it was behind another
	}
	if !ok && !p.closedByModel(w) && !w.Patient {
		p.head = w
		p.reclaim(w)
	}
	return spots, ok
}

// holds says that a workload for which nobody is evicted would take what comes free for another.
func (p *pass) holds(w *workload) bool { return w.Patient && len(p.planned) > 0 }

// request is a workload's request, kept off the devices on which it would pass a quota or limit.
func (p *pass) request(w *workload) *place.Request {
	demand := w.demand()
	depends, asked := w.queue.Depends(demand), p.asked == w
	if !depends && !asked {
		return p.requestOfUse(w)
	}
	request := *p.requestOfUse(w)
	request.Avoid = func(d fleet.DeviceID) bool {
		switch {
		case asked && p.fleet.NodeOf(d) != p.askedOf:
			return true
		case !depends:
			return false
		}
		dev := p.fleet.Device(d)
		_, no := w.queue.Over(demand.On(dev.Model, dev.Memory))
		return no
	}
	return &request
}

// closedByModel says that a workload which does not fit would, but for quotas or limits that count on some devices only, and
// enters it among those who hold others back under these.
func (p *pass) closedByModel(w *workload) bool {
	demand := w.demand()
	if !w.queue.Depends(demand) {
		return false
	}
	mark := p.fleet.Begin()
	_, ok := p.placer.Place(&w.shape.Request)
	p.fleet.Rollback(mark)
	if !ok {
		return false
	}
	for n := range p.fleet.Nodes {
		for _, d := range p.fleet.DevicesOf(n) {
			dev := p.fleet.Device(d)
			on := demand.On(dev.Model, dev.Memory)
			if _, never := w.queue.Smaller(on); never || !p.servedBy(w.shape, d) {
				continue
			}
			r, no := w.queue.Over(on)
			if no && !slices.ContainsFunc(p.closed, func(c closure) bool { return c.Refusal == r }) {
				p.closed = append(p.closed, closure{r, w})
			}
		}
	}
	return true
}

// fit places a workload, or remembers of its shape that it does not fit.
func (p *pass) fit(w *workload) ([]place.Spot, bool) {
	s := w.shape
	if s.unfitAt == p.fleet.Gains()+1 {
		return nil, false
	}
	if w.rare != nil && len(w.rare.to) > 0 {
		if spots, ok := p.fitMoved(w); ok {
			return spots, true
		}
	}
	request := p.request(w)
	if kept := p.keptForMoved(w); len(kept) > 0 {
		off, over := *request, request.Avoid
		off.Avoid = func(d fleet.DeviceID) bool { return kept[p.fleet.NodeOf(d)] || over != nil && over(d) }
		request = &off
	}
	spots, ok := p.placer.Place(request)
	if !ok && request.Avoid == nil {
		s.unfitAt = p.fleet.Gains() + 1
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
	e.moves++
	e.setPlan(w, 0)
	w.queue.Holds++
	e.runs(w)
	e.proposeStart(w, spots)
	if e.ahead != nil {
		e.ahead.started(w)
	}
}

// newTasks has a workload have a task for each spot, and returns them. What most have, one task with one grant, is made in one go.
func (w *workload) newTasks(spots []place.Spot) []task {
	if len(spots) == 1 && len(spots[0].Devices) == 1 {
		one := &struct {
			all    [1]*task
			task   [1]task
			grants [1]grant
		}{}
		one.all[0], one.task[0].grants = &one.task[0], one.grants[:]
		w.tasks = one.all[:]
		return one.task[:]
	}
	tasks := make([]task, len(spots))
	w.tasks = make([]*task, len(spots))
	for i := range tasks {
		w.tasks[i] = &tasks[i]
		tasks[i].grants = make([]grant, len(spots[i].Devices))
	}
	return tasks
}

// proposeStart places the tasks of a workload, or of a further replica.
func (e *Engine) proposeStart(w *workload, spots []place.Spot) {
	tasks := w.newTasks(spots)
	action := Place{ID: e.id(), Workload: w.ID, Tasks: make([]Placing, len(spots)), Due: w.rarely().due}
	busy := e.busyOf(w)
	for i, s := range spots {
		t := &tasks[i]
		*t = task{w: w, index: i, node: s.Node, since: e.now, grants: t.grants}
		for k, d := range s.Devices {
			t.grants[k] = e.grantOn(w, action.ID, t.number(), k, d)
			t.grants[k].busy = busy
		}
		e.settle(t)
		action.Tasks[i] = e.placing(t)
	}
	e.noteRise(w)
	w.placing = action.ID
	e.pending[action.ID] = &proposal{w: w, kind: placeProposal}
	e.out = append(e.out, action)
}

// grantOn is the grant of a task's share on a device.
func (e *Engine) grantOn(w *workload, action ActionID, task, n int, d fleet.DeviceID) grant {
	share := w.shareOf(task - int(w.first))
	floor, ceiling := share.Memory.On(e.fleet.Memory(d))
	return grant{
		Grant: Grant{
			UID: uidOf(w.ID, task, n, action), Device: e.fleet.UUIDOf(d), Compute: share.Compute, Floor: floor, Ceiling: ceiling, Weight: share.EffectiveWeight(),
		},
		device: d, compute: share.Compute.Floor, memory: floor,
	}
}

// placing is where a task is.
func (e *Engine) placing(t *task) Placing {
	p := Placing{Task: t.number(), Node: e.fleet.NodeName(t.node), Grants: make([]Grant, len(t.grants))}
	for i := range t.grants {
		p.Grants[i] = t.grants[i].Grant
	}
	return p
}
