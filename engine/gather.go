package engine

import (
	"cmp"
	"slices"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/engine/fleet"
	"github.com/aliquot-dev/aliquot/engine/ordered"
	"github.com/aliquot-dev/aliquot/engine/place"
)

// Several tasks of one shape start at the latest at the first moment at which the nodes, each by itself, can hold so many. Before that they hold too
// few, so all that they can hold then is taken: which nodes a reservation is on is no choice, but for what is left over on the last one. Which
// devices it takes there is chosen by what is free on them and nothing else, so that it is the same however often it is worked out.

// gathering is when nodes can hold more tasks of a shape.
type gathering struct {
	watch
	nodes  []gathered // by node
	spaces []space    // in one of which all tasks are to be: one for each domain of the level that they are to share, else one of all nodes
}

// gathered is what is known of a node.
type gathered struct {
	now   int // tasks that it can hold at once
	space int // none: no task goes there
	steps []step
	hold  *gatheredHold // nil: not worked out
}

// gatheredHold is what a reservation of so many tasks leaves of a node if the last that has to end is not before one on that node, and before another.
type gatheredHold struct {
	hold
	tasks       int
	from, until step
}

const none = -1

// space is nodes that count together.
type space struct {
	now   int // tasks that they can hold at once
	steps *ordered.List[step]
}

// step is when a node can hold more tasks than before.
type step struct {
	end  Time // when the last that has to be over is
	seq  uint64
	task int // whose that is
	node fleet.NodeID
	adds int
}

// stepAt is when a task is counted on to be over.
func stepAt(t *task) step { return step{end: t.out(), seq: t.w.seq, task: t.index} }

// before is the order in which tasks end. No two steps of one shape are at the same task, as long as each node's are what it has now.
func (a step) before(b step) bool {
	return cmp.Or(cmp.Compare(a.end, b.end), cmp.Compare(a.seq, b.seq), cmp.Compare(a.task, b.task)) < 0
}

// maxGatherings is of how many shapes it is remembered.
const maxGatherings = 32

// gatheringOf is the gathering of a shape, up to date.
func (e *Engine) gatheringOf(s *shape) *gathering {
	key := s.key()
	g, ok := e.gathers[key]
	if !ok {
		if len(e.gathers) >= maxGatherings {
			clear(e.gathers)
		}
		g = &gathering{}
		e.gathers[key] = g
	}
	if g.look(e, s) {
		g.begin(e, s.Same)
	}
	for _, n := range g.dirty { // all, before any is entered: a task may be on another node by now
		g.leave(n)
	}
	for _, n := range g.dirty {
		at := &g.nodes[n]
		at.now, at.steps, at.hold = 0, at.steps[:0], nil
		before := 0
		e.roomOn(s, n, s.Tasks, func(t *task, tasks int) {
			if t == nil {
				at.now = tasks
			} else {
				s := stepAt(t)
				s.node, s.adds = n, tasks-before
				at.steps = append(at.steps, s)
			}
			before = tasks
		})
		g.enter(n)
	}
	return g
}

// begin finds the spaces.
func (g *gathering) begin(e *Engine, level string) {
	g.nodes, g.spaces = make([]gathered, len(g.state)), g.spaces[:0]
	of := map[string]int{}
	for n := range g.nodes {
		g.nodes[n].space = none
	}
	for _, n := range g.dirty {
		domain := ""
		if level != "" {
			domain = e.fleet.DomainOf(n, level)
		}
		i, ok := of[domain]
		if !ok {
			i = len(g.spaces)
			of[domain] = i
			g.spaces = append(g.spaces, space{steps: ordered.New(step.before)})
		}
		g.nodes[n].space = i
	}
}

func (g *gathering) leave(n fleet.NodeID) {
	at := &g.nodes[n]
	in := &g.spaces[at.space]
	in.now -= at.now
	for _, s := range at.steps {
		in.steps.Delete(s)
	}
}

func (g *gathering) enter(n fleet.NodeID) {
	at := &g.nodes[n]
	in := &g.spaces[at.space]
	in.now += at.now
	for _, s := range at.steps {
		in.steps.Insert(s)
	}
}

// first is in which space there is room for so many tasks first, with which step, and how many more it then has room for; in is none where no
// space ever has, and atOnce where one has now.
func (g *gathering) first(tasks int) (in int, last step, over int, atOnce bool) {
	in = none
	for i := range g.spaces {
		x := &g.spaces[i]
		room := x.now
		if room >= tasks {
			return i, step{}, 0, true
		}
		for s := range x.steps.All {
			if in != none && !s.before(last) {
				break
			}
			if room += s.adds; room >= tasks {
				in, last, over = i, s, room-tasks
				break
			}
		}
	}
	return in, last, over, false
}

// reserveGathering is reserveFor of several tasks that are alike; false: that is to be found out by trying.
func (p *pass) reserveGathering(head *workload) (*reservation, bool) {
	g := p.gatheringOf(head.shape)
	in, last, _, atOnce := g.first(head.shape.Tasks)
	switch {
	case atOnce:
		return nil, false
	case in == none:
		return &reservation{}, true
	}
	return &reservation{known: true, at: max(p.now, last.end), gathers: head.shape}, true
}

// gather finds what a reservation of several tasks leaves of its nodes.
func (r *reservation) gather(e *Engine) {
	s := r.gathers
	r.gathers = nil
	g := e.gatheringOf(s)
	in, last, over, _ := g.first(s.Tasks)
	for i := range g.nodes {
		n, at := fleet.NodeID(i), &g.nodes[i]
		if at.space != in || in == none {
			continue
		}
		tasks := at.now
		for _, s := range at.steps {
			if !last.before(s) {
				tasks += s.adds
			}
		}
		if n == last.node {
			tasks -= over
		}
		if tasks == 0 {
			continue
		}
		if h := at.hold; h == nil || h.tasks != tasks || last.before(h.from) || !last.before(h.until) {
			at.hold = e.holdOn(s, n, last, tasks)
		}
		r.holds = append(r.holds, &at.hold.hold)
	}
}

// holdOn is what is left of a node once all that ends up to a step has ended there, and so many tasks of a shape, for which there is room, are on it.
func (e *Engine) holdOn(s *shape, n fleet.NodeID, last step, tasks int) *gatheredHold {
	x := e.lookAt(s, n, s.Tasks)
	h := &gatheredHold{hold: hold{node: n, free: e.freeOf(n)}, tasks: tasks, until: step{end: Never}}
	for _, t := range e.outs.on(n) {
		end := stepAt(t)
		if last.before(end) {
			h.until = end
			break
		}
		h.from = end
		x.lift(t)
		for _, a := range t.request().Resources {
			h.free[a.Resource] += a.Amount
		}
	}
	for range tasks {
		for i, f := range x.choose() {
			if i == s.Devices {
				break
			}
			f.compute -= s.Compute
			f.memory -= f.wants
			f.recount(&s.Request, x.limit)
			f.chosen = true
		}
		for _, a := range s.Resources {
			h.free[a.Resource] -= a.Amount
		}
	}
	for i := range x.devices {
		if f := &x.devices[i]; f.chosen {
			h.devices = append(h.devices, shadow{f.device, f.compute, f.memory})
		}
	}
	return h
}

// choose orders the devices that could hold a task, those first that it takes. Where one at a time is complete that is what has least left; else,
// so that a node holds as many tasks as can be, what holds most (see place.Placer.spread).
func (x *nodeRoom) choose() []*freeOn {
	x.order = x.order[:0]
	for i := range x.devices {
		if f := &x.devices[i]; f.slots > 0 {
			x.order = append(x.order, f)
		}
	}
	least := x.request.Devices == 1 || x.request.Compute > api.WholeDevice/2
	slices.SortStableFunc(x.order, func(a, b *freeOn) int {
		if least {
			return cmp.Or(cmp.Compare(a.compute, b.compute), cmp.Compare(a.memory, b.memory))
		}
		return cmp.Compare(b.slots, a.slots)
	})
	return x.order
}

// gathers says that a request is of several tasks that are alike.
func gathers(r *place.Request) bool { return r.Tasks > 1 && len(r.Roles) == 0 }
