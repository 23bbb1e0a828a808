package engine

import (
	"fmt"
	"slices"
	"sort"

	"github.com/aliquot-dev/aliquot/engine/fleet"
	"github.com/aliquot-dev/aliquot/engine/ordered"
)

// outs are the running tasks of which a reservation counts on the end: being ended, with a time limit, or let in until a time (letin.go); by when that is.
type outs struct {
	*ordered.List[*task]
	nodes   [][]*task     // by node, in the same order
	journal fleet.Journal // of the nodes on which one came or went
}

func newOuts() outs { return outs{List: ordered.New(outBefore)} }

// out is when a reservation counts on a task to be over: with its time limit, or when it was let in until then and may be taken back; soon, where it is being
// ended, as plans take it, too: what comes free by that is kept for the first in line, and not let to what would have to be ended for it; Never: it does not.
func (t *task) out() Time {
	if t.evicting {
		return soon
	}
	out := Never
	if t.w.TimeLimit > 0 {
		out = t.end()
	}
	if due := t.w.due(); due < out && !t.w.isSpared() {
		return due
	}
	return out
}

// soon is before any moment at which something is over by itself.
const soon Time = 0

// outBefore says that a task is counted on to be over first.
func outBefore(a, b *task) bool {
	if x, y := a.out(), b.out(); x != y {
		return x < y
	}
	if a.w.seq != b.w.seq {
		return a.w.seq < b.w.seq
	}
	return a.index < b.index
}

// Insert enters a task if it is counted on to be over. When must not change while it is in (Engine.reorderOut).
func (l *outs) Insert(t *task) {
	if t.out() == Never {
		return
	}
	l.List.Insert(t)
	if more := int(t.node) + 1 - len(l.nodes); more > 0 {
		l.nodes = append(l.nodes, make([][]*task, more)...)
	}
	l.nodes[t.node] = slices.Insert(l.nodes[t.node], l.place(t), t)
	l.journal.Touch(t.node)
}

// Delete takes a task out, if it is in.
func (l *outs) Delete(t *task) {
	if t.out() == Never || !l.List.Delete(t) {
		return
	}
	at := l.place(t)
	l.nodes[t.node] = slices.Delete(l.nodes[t.node], at, at+1)
	l.journal.Touch(t.node)
}

// place is where a task is among those of its node, or belongs.
func (l *outs) place(t *task) int {
	on := l.nodes[t.node]
	return sort.Search(len(on), func(i int) bool { return !outBefore(on[i], t) })
}

// on are the tasks on a node, by their ends.
func (l *outs) on(n fleet.NodeID) []*task {
	if int(n) >= len(l.nodes) {
		return nil
	}
	return l.nodes[n]
}

// check holds what is listed by node against what is listed by end.
func (l *outs) check() error {
	listed := 0
	for n, on := range l.nodes {
		listed += len(on)
		for i, t := range on {
			if int(t.node) != n || i > 0 && !outBefore(on[i-1], t) {
				return fmt.Errorf("task %d of workload %s is not in its place among those of its node that are counted on to be over", t.index, t.w.ID)
			}
		}
	}
	if listed != l.Len() {
		return fmt.Errorf("%d tasks are counted on to be over by node, and %d in all", listed, l.Len())
	}
	return nil
}
