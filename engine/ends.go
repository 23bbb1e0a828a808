package engine

import (
	"fmt"
	"slices"
	"sort"

	"github.com/aliquot-dev/aliquot/engine/fleet"
	"github.com/aliquot-dev/aliquot/engine/ordered"
)

// timeLimits are the running tasks with a time limit, by its end.
type timeLimits struct {
	*ordered.List[*task]
	nodes   [][]*task     // by node, in the same order
	journal fleet.Journal // of the nodes on which one came or went
}

func newTimeLimits() timeLimits { return timeLimits{List: ordered.New(endsBefore)} }

// endsBefore says that a task's time limit is over first.
func endsBefore(a, b *task) bool {
	if x, y := a.end(), b.end(); x != y {
		return x < y
	}
	if a.w.seq != b.w.seq {
		return a.w.seq < b.w.seq
	}
	return a.index < b.index
}

// Insert enters a task, whose end must not change while it is in.
func (l *timeLimits) Insert(t *task) {
	l.List.Insert(t)
	if more := int(t.node) + 1 - len(l.nodes); more > 0 {
		l.nodes = append(l.nodes, make([][]*task, more)...)
	}
	l.nodes[t.node] = slices.Insert(l.nodes[t.node], l.place(t), t)
	l.journal.Touch(t.node)
}

// Delete takes a task out.
func (l *timeLimits) Delete(t *task) {
	if !l.List.Delete(t) {
		return
	}
	at := l.place(t)
	l.nodes[t.node] = slices.Delete(l.nodes[t.node], at, at+1)
	l.journal.Touch(t.node)
}

// place is where a task is among those of its node, or belongs.
func (l *timeLimits) place(t *task) int {
	on := l.nodes[t.node]
	return sort.Search(len(on), func(i int) bool { return !endsBefore(on[i], t) })
}

// on are the tasks on a node, by their ends.
func (l *timeLimits) on(n fleet.NodeID) []*task {
	if int(n) >= len(l.nodes) {
		return nil
	}
	return l.nodes[n]
}

// check holds what is listed by node against what is listed by end.
func (l *timeLimits) check() error {
	listed := 0
	for n, on := range l.nodes {
		listed += len(on)
		for i, t := range on {
			if int(t.node) != n || i > 0 && !endsBefore(on[i-1], t) {
				return fmt.Errorf("task %d of workload %s is not in its place among the time limits of a node", t.index, t.w.ID)
			}
		}
	}
	if listed != l.Len() {
		return fmt.Errorf("%d time limits are watched by node, and %d in all", listed, l.Len())
	}
	return nil
}
