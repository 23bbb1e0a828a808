package engine

import (
	"slices"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/engine/fleet"
	"github.com/aliquot-dev/aliquot/engine/predict"
	"github.com/aliquot-dev/aliquot/engine/queue"
)

// workload is a submission that is waiting or holds grants. It is forgotten when its last task ended.
type workload struct {
	Workload
	seq       uint64
	came      Time  // it was submitted
	rank      int64 // its priority with what its queue adds, where its line has the higher ones first; else 0
	level     int8  // while it waits: see Engine.levelOf
	turn      Time  // by which it stands in line among those of its rank: see setTurn
	queue     *queue.Node
	shape     *shape
	tasks     []*task // nil: waiting
	placing   ActionID
	cancelled bool
	spared    bool  // the host refused to end it: nobody takes it back any more
	lifted    bool  // a further replica that a trial took out
	first     int32 // number of its first task: 0, but of a further replica

	retryAt Time     // while it waits: not before
	refused *refusal // of its start, by the host; nil: none since it started last

	resize *resize

	said     *predict.Quantiles // of how long it runs, when its first task began; nil: nothing was
	rare     *rare              // nil: nothing of it
	replicas *replicas          // of one that was placed and is elastic; else nil
	base     *workload          // of a further replica: the workload that it is of; else nil

	plan     ActionID // while it waits: the plan, under way or carried out, that lets it start
	noPlanAt uint64   // moves at which there was no plan for it, plus 1
}

// task is a task of a workload that was placed.
type task struct {
	w        *workload
	index    int
	grants   []grant // none: it is over
	since    Time    // it started, or was placed
	evict    ActionID
	plan     ActionID // that its eviction is part of; 0: none
	why      *evicted // its end was asked for; what it is then is not changed, but for another
	node     fleet.NodeID
	started  bool
	evicting bool // its end was asked for
}

// rare is what is kept of the few workloads that were moved and came back, that the host refused to end for now, that saved what they have done, or of
// which some tasks are over and others not.
type rare struct {
	stays       Time     // it is not moved again before
	to          []string // devices that it had room on when it was moved
	sparedUntil Time     // nobody takes it back before; 0: the host did not refuse to end it
	disrupted   []Time   // when it was evicted for others, under other IDs, the last first
	had         Time     // µs of a whole device that it was served before, under other IDs
	saved       *Time    // what it had done by then is saved; nil: nothing is
	due         Time     // it was let in by a prediction and is to be over by then; 0: it was not
	used        savedUse // of the tasks that are over, as far as that is known
}

// rarely is what is kept of a workload beside what all have, to be read.
func (w *workload) rarely() rare {
	if w.rare == nil {
		return rare{}
	}
	return *w.rare
}

// setRarely changes it.
func (w *workload) setRarely(change func(r *rare)) {
	r := w.rarely()
	change(&r)
	w.rare = &r
}

// evicted is why a task's end was asked for.
type evicted struct{ code, reason string }

// evictCode is why the task's end was asked for; empty: it was not.
func (t *task) evictCode() string {
	if t.why == nil {
		return ""
	}
	return t.why.code
}

func (t *task) evictReason() string {
	if t.why == nil {
		return ""
	}
	return t.why.reason
}

// grant is a share on a device, and what the books hold for it: while it changes, the larger of old and new, and of memory no
// less than what it holds.
type grant struct {
	Grant
	device  fleet.DeviceID
	model   string // of the device, as it is booked in the queue
	compute api.Milli
	busy    api.Milli // that it is predicted to use, by the policy that weighs that; else 0
	memory  api.Bytes // for its floor
	used    api.Bytes // what it holds, as last said
}

// taken is the memory that the books hold for a grant.
func (g *grant) taken() api.Bytes { return max(g.memory, g.used) }

// above is the memory that it holds above its floor.
func (g *grant) above() api.Bytes { return g.taken() - g.memory }

// grantAt is where a grant is found.
type grantAt struct {
	t *task
	i int
}

// proposal is an action that the host has not answered.
type proposal struct {
	w    *workload
	task int // of Evict and Resize
	kind proposalKind
}

type proposalKind int8

const (
	placeProposal proposalKind = iota
	evictProposal
	resizeProposal
)

// before is the order of the line: rank, then who was served less where that counts, then whose turn is earlier, then first come.
func before(a, b *workload) bool {
	if a.rank != b.rank {
		return a.rank > b.rank
	}
	return sooner(a, b)
}

// sooner is the order of the line among equals in rank.
func sooner(a, b *workload) bool {
	if a.level != b.level {
		return a.level < b.level
	}
	if a.turn != b.turn {
		return a.turn < b.turn
	}
	return a.seq < b.seq
}

// ranked says that the priority of a queue's work goes before everything else in the line that it stands in, and preempts.
func ranked(q *queue.Node) bool {
	o := q.Ruler().Order()
	return !o.NoPriority && o.PriorityWorth == 0
}

// setRank gives a workload the rank that its priority has in its line.
func (w *workload) setRank() {
	if w.rank = 0; ranked(w.queue) {
		w.rank = w.priority()
	}
}

// counted is a workload's priority, or 0 where none counts in its line.
func (w *workload) counted() int32 {
	if w.queue.Ruler().Order().NoPriority {
		return 0
	}
	return w.Priority
}

// priority is what counts in line: its own, and what its queue and those above add to it.
func (w *workload) priority() int64 { return int64(w.Priority) + w.queue.Priority() }

// setTurn gives a workload that comes into the line its rank and its turn: when it came; where the order that rules it says what a step of
// priority is worth, so much earlier for each; and where that lets the shortest go first, as many times later as it says as the workload is
// predicted to run. All age alike, so their order stands while they wait. What nothing is predicted of counts by its time limit, and without one as
// taking no time: somebody has to run it for the first time.
func (e *Engine) setTurn(w *workload) {
	w.setRank()
	w.level = e.levelOf(w)
	w.turn = w.came
	ruler := w.queue.Ruler()
	if o := ruler.Order(); o.PriorityWorth > 0 && !o.NoPriority {
		worth := Time(o.PriorityWorth / 1000) // ns to µs
		steps := min(max(Time(w.priority()), -maxPast/max(worth, 1)), maxPast/max(worth, 1))
		w.turn = after(w.came, -steps*worth) // what came last came less than 2^62 before the earliest time
	}
	factor := Time(ruler.ShortestFirst())
	if factor == 0 {
		return
	}
	long := w.TimeLimit
	if q, ok := e.Predict(&w.Workload); ok {
		if long = Time(q.Median); w.TimeLimit > 0 {
			long = min(long, w.TimeLimit)
		}
	}
	w.turn = after(w.turn, min(long, Never/factor)*factor/Time(api.WholeDevice))
}

func (w *workload) waiting() bool { return w.tasks == nil && w.base == nil }

func (t *task) live() bool { return len(t.grants) > 0 }

// stays says that it holds something, and is not being ended.
func (t *task) stays() bool { return t.live() && !t.evicting }

// end is when the task's time limit is over.
func (t *task) end() Time { return after(t.since, t.w.TimeLimit) }

// group is those in line that are the same in all that decides whether they may start now. When the first of a group may not, the
// others may not either.
type group struct {
	groupKey
	members []*workload // in order

	// Found out in a pass: held back by this first in line, of which no start is known, while the fleet stood like this.
	behind      *workload
	behindShape *shape
	behindGains uint64
	behindAt    uint64
}

type groupKey struct {
	shape       *shape
	queue       *queue.Node
	limit       Time
	preemptible bool
	patient     bool
	who         string // see toldApartBy
}

func (e *Engine) groupKey(w *workload) groupKey {
	return groupKey{w.shape, w.queue, w.TimeLimit, w.Preemptible, w.Patient, e.toldApartBy(w)}
}

// enqueue puts a workload in line, at the place that its priority and its coming give it.
func (e *Engine) enqueue(w *workload) {
	e.setTurn(w)
	e.line.Insert(w)
	w.queue.Waiting++
	w.queue.Want(w.demand(), 1)
	if w.retryAt > e.now {
		e.parked.Insert(w)
		return
	}
	e.regroup(w)
}

func (e *Engine) regroup(w *workload) {
	w.retryAt = 0
	key := e.groupKey(w)
	g, ok := e.groups[key]
	if !ok {
		g = &group{groupKey: key}
		e.groups[key] = g
	}
	i, _ := slices.BinarySearchFunc(g.members, w, compare)
	g.members = slices.Insert(g.members, i, w)
}

// dequeue takes a workload out of the line.
func (e *Engine) dequeue(w *workload) {
	e.line.Delete(w)
	w.queue.Waiting--
	w.queue.Want(w.demand(), -1)
	if w.retryAt > 0 {
		e.parked.Delete(w)
		w.retryAt = 0
		return
	}
	e.ungroup(w)
}

// ungroup takes a workload out of its group.
func (e *Engine) ungroup(w *workload) {
	key := e.groupKey(w)
	g := e.groups[key]
	i, _ := slices.BinarySearchFunc(g.members, w, compare)
	if i == 0 {
		g.members[0] = nil
		g.members = g.members[1:]
	} else {
		g.members = slices.Delete(g.members, i, i+1)
	}
	if len(g.members) == 0 {
		delete(e.groups, key)
	}
}

func compare(a, b *workload) int {
	switch {
	case a == b:
		return 0
	case before(a, b):
		return -1
	}
	return 1
}

// unpark lets those be tried again, or taken back, whose time has come.
func (e *Engine) unpark() {
	e.unspare()
	if e.guarded <= e.now {
		e.guarded = Never
		e.moves++
	}
	if e.due <= e.now {
		e.nextDue()
		e.moves++
	}
	for c := e.parked.Begin(); c.Valid() && c.Value().retryAt <= e.now; c = e.parked.Begin() {
		w := c.Value()
		e.parked.Delete(w)
		if e.ahead != nil {
			e.ahead.unparked(w, w.retryAt)
		}
		if w.waiting() {
			e.regroup(w)
		} else {
			w.retryAt = 0 // it may grow again
		}
	}
}

// forget drops a workload that neither waits nor holds anything.
func (e *Engine) forget(w *workload) {
	delete(e.pending, w.placing)
	e.planFor(w, 0)
	e.dropShape(w)
	delete(e.guests, w)
	delete(e.sparing, w)
	e.notEarly(w)
	if w.base != nil {
		e.leaveReplica(w)
		return
	}
	if e.elastics[w] && w.retryAt > 0 {
		e.parked.Delete(w)
	}
	e.stops(w)
	delete(e.work, w.ID)
}

// hold sets what the books hold for a grant, on its device and in its queue.
func (e *Engine) hold(w *workload, g *grant, compute api.Milli, memory api.Bytes) {
	e.fleet.Adjust(g.device, compute-g.compute, max(memory, g.used)-g.taken(), 0)
	more := queue.Amounts{int64(compute - g.compute), int64(memory - g.memory)}
	w.queue.Hold(g.model, more, w.kind(), 1)
	e.countAbove(g, -1)
	g.compute, g.memory = compute, memory
	e.countAbove(g, 1)
}

// release gives everything back that a task holds.
func (e *Engine) release(t *task) {
	e.unlist(t)
	e.giveBack(t)
	e.fleet.Collect(t.node)
}

// giveBack takes a task that is in no list any more out of the books and the queues.
func (e *Engine) giveBack(t *task) {
	e.unbook(t)
	e.fleet.Give(t.node, t.request().Resources)
	t.grants = nil
	e.leavePlan(t)
}

// unbook takes the grants of a task that is in no list any more out of the books and the queues.
func (e *Engine) unbook(t *task) {
	for i := range t.grants {
		g := &t.grants[i]
		e.fleet.Adjust(g.device, -g.compute, -g.taken(), -1)
		e.addBusy(g, -1)
		t.w.queue.Hold(g.model, g.amounts(), t.w.kind(), -1)
	}
}

// settle enters a task, whose grants the fleet's books hold already, everywhere else.
func (e *Engine) settle(t *task) {
	for i := range t.grants {
		g := &t.grants[i]
		g.model = e.fleet.ModelOf(g.device)
		e.addBusy(g, 1)
		t.w.queue.Hold(g.model, g.amounts(), t.w.kind(), 1)
	}
	e.list(t)
	e.noteGuests(t)
}

// holders are the tasks with a grant on each device, by DeviceID, in no order.
type holders [][]*task

// on are the tasks with a grant on a device. The slice changes with the next that comes or goes.
func (h holders) on(d fleet.DeviceID) []*task {
	if int(d) >= len(h) {
		return nil
	}
	return h[d]
}

func (h *holders) add(d fleet.DeviceID, t *task) {
	if more := int(d) + 1 - len(*h); more > 0 {
		*h = append(*h, make(holders, more)...)
	}
	(*h)[d] = append((*h)[d], t)
}

func (h holders) remove(d fleet.DeviceID, t *task) {
	h[d] = slices.DeleteFunc(h.on(d), func(o *task) bool { return o == t })
}
