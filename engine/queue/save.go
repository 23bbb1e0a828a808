package queue

import "slices"

// Save remembers all that is held, wanted, used and due, and returns what puts it back. Between the two no queue may be set or
// removed. It costs a copy of every queue.
func (t *Tree) Save() (putBack func()) {
	tree := *t
	nodes := make([]Node, 0, len(t.byName))
	at := make([]*Node, 0, len(t.byName))
	for _, n := range t.byName {
		copied := *n
		copied.bounds = slices.Clone(n.bounds)
		nodes, at = append(nodes, copied), append(at, n)
	}
	return func() {
		for i, n := range at {
			*n = nodes[i]
		}
		*t = tree
	}
}
