package engine

import (
	"slices"
	"strconv"
	"strings"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/engine/fleet"
	"github.com/aliquot-dev/aliquot/engine/place"
	"github.com/aliquot-dev/aliquot/engine/queue"
)

// workload is a submission that is waiting or holds grants. It is forgotten when its last task ended.
type workload struct {
	Workload
	seq       uint64
	came      Time  // it was submitted
	rank      int64 // its priority with what its queue adds, where its line has the higher ones first; else 0
	turn      Time  // by which it stands in line among those of its rank: see setTurn
	queue     *queue.Node
	shape     *shape
	tasks     []*task // nil: waiting
	placing   ActionID
	cancelled bool
	spared    bool // the host refused to end it: nobody takes it back any more

	retryAt Time     // while it waits: not before
	refused *refusal // of its start, by the host; nil: none since it started last

	resize *resize

	plan     ActionID // while it waits: the plan, under way or carried out, that lets it start
	noPlanAt uint64   // moves at which there was no plan for it, plus 1
}

// refusal is how often the host refused a start for what no node is to blame for, and why it refused it last; empty: not for a
// reason that says where it can start.
type refusal struct {
	times int
	why   string
}

// whyRefused is why the host refused its start last; empty: it did not.
func (w *workload) whyRefused() string {
	if w.refused == nil {
		return ""
	}
	return w.refused.why
}

// task is a task of a workload that was placed.
type task struct {
	w        *workload
	index    int
	node     fleet.NodeID
	grants   []grant // none: it is over
	started  bool
	since    Time // it started, or was placed
	evict    ActionID
	evicting bool // its end was asked for, for the reason that follows

	evictCode, evictReason string
	plan                   ActionID // that its eviction is part of; 0: none
}

// grant is a share on a device, and what the books hold for it: while it changes, the larger of old and new, and of memory no
// less than what it holds.
type grant struct {
	Grant
	device  fleet.DeviceID
	model   string // of the device, as it is booked in the queue
	compute api.Milli
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

// before is the order of the line: rank, then whose turn is earlier, then first come.
func before(a, b *workload) bool {
	if a.rank != b.rank {
		return a.rank > b.rank
	}
	return sooner(a, b)
}

// sooner is the order of the line among equals in rank.
func sooner(a, b *workload) bool {
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

func (w *workload) waiting() bool { return w.tasks == nil }

func (t *task) live() bool { return len(t.grants) > 0 }

// end is when the task's time limit is over.
func (t *task) end() Time { return after(t.since, t.w.TimeLimit) }

// shapeKey is all that decides where a workload fits.
type shapeKey struct {
	compute        api.Milli
	memory, bound  api.Amount
	model          string
	class          fleet.ClassID
	devices, tasks int
	resources      string
	side           side
}

// shape is what workloads that fit in the same places have in common, and what was last found out about it. Findings carry
// the counts of the fleet that they were true at; forgetting them changes no decision.
type shape struct {
	place.Request
	users int
	side  side

	unfitAt    uint64 // Gains at which it did not fit, plus 1
	possibleAt uint64 // Changes at which possible was found, plus 1
	possible   bool
	servesAt   uint64 // Changes at which serves was found, plus 1
	serves     []bool // by node: an empty one could hold a task
	suitsAt    uint64 // Changes at which suits was found, plus 1
	suits      []bool // by pool: see Engine.suits
}

// nothing says that the shape takes nothing that anyone could miss.
func (s *shape) nothing() bool {
	return s.Compute == 0 && s.Memory.IsZero() && len(s.Resources) == 0
}

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
}

func (w *workload) groupKey() groupKey { return groupKey{w.shape, w.queue, w.TimeLimit, w.Preemptible} }

// shapeOf finds or makes the shape of a workload and counts it as used.
func (e *Engine) shapeOf(w *Workload) *shape {
	resources := slices.Clone(w.Resources)
	slices.SortFunc(resources, func(a, b Resource) int { return strings.Compare(a.Name, b.Name) })
	var key strings.Builder
	var amounts []fleet.Amount
	for _, r := range resources {
		if r.Amount == 0 {
			continue
		}
		id := e.fleet.Resource(r.Name)
		amounts = append(amounts, fleet.Amount{Resource: id, Amount: r.Amount})
		key.WriteString(strconv.Itoa(int(id)) + "=" + strconv.FormatInt(r.Amount, 10) + ",")
	}
	k := shapeKey{w.Share.Compute.Floor, w.Share.Memory.Floor, w.Share.Memory.Bound(), w.Model, e.fleet.Class(w.Feasibility), w.Devices, w.Tasks, key.String(), e.sideOf(w)}
	s, ok := e.shapes[k]
	if !ok {
		s = &shape{Request: place.Request{
			Compute: k.compute, Memory: k.memory, Bound: k.bound, Model: k.model, Class: k.class, Devices: k.devices, Tasks: k.tasks, Resources: amounts,
		}}
		s.side = k.side
		s.Fence = e.fence(k.side)
		e.shapes[k] = s
	}
	s.users++
	return s
}

// dropShape counts a shape as used once less, and forgets it when nobody has it.
func (e *Engine) dropShape(w *workload) {
	s := w.shape
	w.shape = nil
	if s.users--; s.users > 0 {
		return
	}
	delete(e.shapes, s.key())
}

func (s *shape) key() shapeKey {
	var key []byte
	for _, a := range s.Resources {
		key = append(strconv.AppendInt(append(strconv.AppendInt(key, int64(a.Resource), 10), '='), a.Amount, 10), ',')
	}
	return shapeKey{s.Compute, s.Memory, s.Bound, s.Model, s.Class, s.Devices, s.Tasks, string(key), s.side}
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
	key := w.groupKey()
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
	key := w.groupKey()
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

// unpark lets those be tried again whose time has come.
func (e *Engine) unpark() {
	for c := e.parked.Begin(); c.Valid() && c.Value().retryAt <= e.now; c = e.parked.Begin() {
		w := c.Value()
		e.parked.Delete(w)
		if e.ahead != nil {
			e.ahead.unparked(w, w.retryAt)
		}
		e.regroup(w)
	}
}

// forget drops a workload that neither waits nor holds anything.
func (e *Engine) forget(w *workload) {
	delete(e.pending, w.placing)
	w.plan = 0
	e.dropShape(w)
	delete(e.guests, w)
	delete(e.work, w.ID)
}

// hold sets what the books hold for a grant, on its device and in its queue.
func (e *Engine) hold(w *workload, g *grant, compute api.Milli, memory api.Bytes) {
	e.fleet.Adjust(g.device, compute-g.compute, max(memory, g.used)-g.taken(), 0)
	more := queue.Amounts{int64(compute - g.compute), int64(memory - g.memory)}
	w.queue.Hold(g.model, more, !w.Preemptible, 1)
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
	for i := range t.grants {
		g := &t.grants[i]
		e.fleet.Adjust(g.device, -g.compute, -g.taken(), -1)
		t.w.queue.Hold(g.model, g.amounts(), !t.w.Preemptible, -1)
	}
	e.fleet.Give(t.node, t.w.shape.Resources)
	t.grants = nil
	e.leavePlan(t)
}

// settle enters a task, whose grants the fleet's books hold already, everywhere else.
func (e *Engine) settle(t *task) {
	for i := range t.grants {
		g := &t.grants[i]
		g.model = e.fleet.Device(g.device).Model
		t.w.queue.Hold(g.model, g.amounts(), !t.w.Preemptible, 1)
	}
	e.list(t)
	e.noteGuests(t)
}
