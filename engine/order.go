package engine

import (
	"slices"

	"github.com/aliquot-dev/aliquot/engine/queue"
)

// branch is a part of the tree of queues in which work waits, with the first of that work. In each branch the queue goes first
// whose next start is within its quota; then the one for which a plan of reclaim is under way, behind whatever of the same queue that is: what cannot start itself
// lets nobody in before it; among equals, where the order of the queue that they are under counts priorities, and at the top, the one with the higher priority in front; then the one furthest below its
// fair share, by decayed use where that is the same (queue.Key); then by turn (before). Inside one queue it is priority, then
// the turn. A queue's order may say that those in it stand in one line: then quotas and fair shares say nothing about their turn, and priority and turn
// are by that order in all that is under it (queue.Ruler). What is in a queue with others under it stands beside these as if it were one more.
type branch struct {
	node  *queue.Node // nil: the whole tree
	own   bool        // the work of node itself
	lane  []*group    // of own: a heap
	kids  []*branch   // else: a heap
	first *workload   // nil: there is none any more
	lead  *workload   // by which the branch takes its turn: the first for which a plan is under way or was carried out, or else the first
	led   *waiter     // that one; nil: it is the first
	key   queue.Key
	keyed bool      // keys decide something
	aside bool      // but not where this one stands among those beside it: they are in one line
	ranks bool      // priorities decide among those beside it
	plans []*waiter // of own: what in the lane waits for a plan
}

// waiter is a workload that waits for a plan, and its group.
type waiter struct {
	*Engine
	w *workload
	g *group
}

// over says that a quota of a queue would be passed once what is being ended is over, as the plan took it.
func (p *waiter) over(q *queue.Node) bool {
	t := trial{pass: &pass{Engine: p.Engine}}
	for task := range p.ending {
		if task.live() && task.evicting {
			t.book(task.w, task.addUses(nil), -1)
		}
	}
	defer t.putBack(0)
	return !q.InQuota(p.w.demand())
}

// newOrder puts groups in order. Neither their order in the slice nor their members but the first matter; the slice is the order's from
// here on.
func (e *Engine) newOrder(groups []*group) *branch {
	if len(groups) > 0 && !slices.ContainsFunc(groups, func(g *group) bool { return g.queue != groups[0].queue }) { // as they mostly are
		lane := &branch{node: groups[0].queue, own: true, lane: groups}
		lane.build(false, e.policy.OneLine)
		return lane
	}
	root := &branch{}
	at := map[*queue.Node]*branch{nil: root}
	lanes := map[*queue.Node]*branch{}
	for _, g := range groups {
		lane, ok := lanes[g.queue]
		if !ok {
			lane = &branch{node: g.queue, own: true}
			lanes[g.queue] = lane
			kid, n := lane, g.queue
			for {
				b, ok := at[n]
				if !ok {
					b = &branch{node: n}
					at[n] = b
				}
				b.kids = append(b.kids, kid)
				if ok {
					break
				}
				kid, n = b, n.Parent()
			}
		}
		lane.lane = append(lane.lane, g)
	}
	keyed := len(lanes) > 1
	if keyed {
		e.divide()
		for w := range e.planned {
			for _, g := range groups {
				if g.queue == w.queue && slices.Contains(g.members, w) {
					lanes[g.queue].plans = append(lanes[g.queue].plans, &waiter{e, w, g})
				}
			}
		}
	}
	root.build(keyed, e.policy.OneLine)
	return root
}

// build puts a branch in order; oneLine says that those in it stand in one line, and a queue may say so of its own.
func (b *branch) build(keyed, oneLine bool) {
	b.keyed = keyed
	if b.node != nil {
		oneLine = b.node.Order().OneLine
	}
	for _, k := range b.kids {
		k.aside, k.ranks = oneLine, b.node == nil || ranked(b.node)
		k.build(keyed, oneLine)
	}
	for i := len(b.lane)/2 - 1; i >= 0; i-- {
		sift(b.lane, i, earlier)
	}
	for i := len(b.kids)/2 - 1; i >= 0; i-- {
		sift(b.kids, i, comesFirst)
	}
	b.refresh()
}

// refresh finds what is first in a branch, and where the branch stands.
func (b *branch) refresh() {
	switch {
	case len(b.lane) > 0:
		b.first = b.lane[0].members[0]
		b.lead, b.led = b.first, nil
		for _, p := range b.plans {
			if b.led == nil || before(p.w, b.lead) {
				b.lead, b.led = p.w, p
			}
		}
	case len(b.kids) > 0:
		b.first, b.lead, b.led = b.kids[0].first, b.kids[0].lead, b.kids[0].led
	default:
		b.first, b.lead, b.led = nil, nil, nil
	}
	switch {
	case b.first == nil || !b.keyed || b.aside || b.node == nil:
	case b.own:
		b.key = b.node.OwnKey(b.lead.demand())
	default:
		b.key = b.node.Key(b.lead.demand())
		if b.led != nil {
			b.key.Over = b.led.over(b.node)
		}
	}
}

// group is the group of the first.
func (b *branch) group() *group {
	for !b.own {
		b = b.kids[0]
	}
	return b.lane[0]
}

// next brings the order up to date after the first started, or after its group was done with.
func (b *branch) next(done bool) {
	switch {
	case b.own:
		first, g := b.first, b.lane[0]
		b.plans = slices.DeleteFunc(b.plans, func(p *waiter) bool { return p.w == first || done && p.g == g })
		if done {
			b.lane = removeFirst(b.lane)
		}
		sift(b.lane, 0, earlier)
	default:
		b.kids[0].next(done)
		if b.kids[0].first == nil {
			b.kids = removeFirst(b.kids)
		}
		sift(b.kids, 0, comesFirst)
	}
	b.refresh()
}

func removeFirst[T any](heap []T) []T {
	last := len(heap) - 1
	heap[0] = heap[last]
	return slices.Delete(heap, last, last+1)
}

// sift lets the value at i of a heap sink to its place.
func sift[T any](heap []T, i int, less func(a, b T) bool) {
	for {
		least := i
		for _, c := range [2]int{2*i + 1, 2*i + 2} {
			if c < len(heap) && less(heap[c], heap[least]) {
				least = c
			}
		}
		if least == i {
			return
		}
		heap[i], heap[least] = heap[least], heap[i]
		i = least
	}
}

func earlier(a, b *group) bool { return before(a.members[0], b.members[0]) }

func comesFirst(a, b *branch) bool {
	if a.keyed {
		if a.key.Over != b.key.Over {
			return b.key.Over // those of one line have no keys: theirs are equal
		}
		if a.lead.plan != 0 != (b.lead.plan != 0) {
			return a.lead.plan != 0 // what comes free by its plan is for it
		}
		if (a.lead.rank == b.lead.rank || !a.ranks) && !a.aside {
			if c := a.key.Compare(b.key); c != 0 {
				return c < 0
			}
		}
	}
	if !a.ranks {
		return sooner(a.lead, b.lead)
	}
	return before(a.lead, b.lead)
}

// inOrder are all that wait, in the order in which a pass would take them if none of them could start.
func (e *Engine) inOrder(yield func(*workload) bool) {
	var groups []*group
	at := map[*queue.Node]*group{}
	for w := range e.line.All {
		g, ok := at[w.queue]
		if !ok {
			g = &group{groupKey: groupKey{queue: w.queue}}
			at[w.queue] = g
			groups = append(groups, g)
		}
		g.members = append(g.members, w)
	}
	for order := e.newOrder(groups); order.first != nil; {
		if !yield(order.first) {
			return
		}
		g := order.group()
		g.members = g.members[1:]
		order.next(len(g.members) == 0)
	}
}
