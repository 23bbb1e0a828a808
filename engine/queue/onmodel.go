package queue

import (
	"slices"

	"github.com/aliquot-dev/aliquot/divide"
)

// Where queues have weights on a model of device, what the fleet has of that model is divided among them apart, by the same rule as the whole fleet is
// (Divide): their quotas and limits on it, its weights, and what they hold on it and what waits and may go on no other. Beside each other they then stand, with
// work that may go on that model alone, by what they hold of it and are due of it. Where no queue has such weights nothing is divided by model.

// weighs says that a queue has weights on a model of its own.
func (b *bound) weighs() bool { return b.weight != Amounts{} }

// weightOn is a queue's weight for a resource on a model: of its own for that, or else its overall one.
func (n *Node) weightOn(b *bound, r Resource) int64 {
	if b.weight[r] > 0 {
		return b.weight[r]
	}
	return n.weight[r]
}

// guaranteeOn is what a queue is guaranteed on a model: its quota on it, or else those of the queues under it.
func (n *Node) guaranteeOn(model string, r Resource) (sum int64) {
	if q := n.bound(model).quota[r]; q != Unbounded {
		return q
	}
	for _, c := range n.children {
		sum += c.guaranteeOn(model, r)
	}
	return sum
}

// weigh notes on which models queues have weights, and under which queues.
func (t *Tree) weigh() {
	t.weighed, t.weighedTop = nil, nil
	for _, n := range t.byName {
		n.weighedUnder = nil
	}
	for _, n := range t.All() {
		for i := range n.bounds {
			if b := &n.bounds[i]; b.weighs() {
				under := &t.weighedTop
				if n.parent != nil {
					under = &n.parent.weighedUnder
				}
				*under, t.weighed = with(*under, b.model), with(t.weighed, b.model)
			}
		}
	}
}

// with is an ordered list with one more in it.
func with(list []string, one string) []string {
	if at, there := slices.BinarySearch(list, one); !there {
		return slices.Insert(list, at, one)
	}
	return list
}

// WeighedBeside are the models on which a queue or one beside it has weights, in order, as of the last Divide. The caller must not change them.
func (n *Node) WeighedBeside() []string {
	if n.parent == nil {
		return n.tree.weighedTop
	}
	return n.parent.weighedUnder
}

// divideOn divides what there is of a model among the queues under one parent, whose account on it is over; nil: they are under none. What changed is
// divided anew, or all.
func (t *Tree) divideOn(model string, due Amounts, nodes []*Node, over *bound, all bool) {
	claims := make([]divide.Share, 0, len(nodes)+1)
	fair, own, size := make([]Amounts, len(nodes)+1), bound{}, t.sizes[model]
	if over != nil {
		own.held, own.wish = over.held, over.wish
	}
	for _, n := range nodes {
		b := n.bound(model)
		own.held, own.wish = own.held.Plus(b.held, -1), own.wish.plus(b.wish, -1)
	}
	for r := range resources {
		claims = claims[:0]
		for _, n := range nodes {
			b := n.bound(model)
			limit := min(ceiling(b.limit[r]), ceiling(n.bounds[0].limit[r]))
			claims = append(claims, divide.Share{
				Floor: min(n.guaranteeOn(model, r), limit), Ceiling: limit, Weight: n.weightOn(b, r), Demand: demand(b.held, b.wish, size, r),
			})
		}
		if over != nil {
			claims = append(claims, divide.Share{Ceiling: ceiling(Unbounded), Weight: 1, Demand: demand(own.held, own.wish, size, r)})
		}
		for i, part := range divide.Divide(due[r], claims) {
			fair[i][r] = part
		}
	}
	if over != nil {
		over.ownFair = fair[len(nodes)]
	}
	for i, n := range nodes {
		b := n.bound(model)
		if !n.dirty && !all && b.fair == fair[i] {
			continue
		}
		if b.fair = fair[i]; len(n.children) > 0 {
			t.divideOn(model, b.fair, n.children, b, all)
		}
	}
}

// heldByItself is what the work of a queue itself holds on a model.
func (n *Node) heldByItself(model string) Amounts {
	held := n.bound(model).held
	for _, c := range n.children {
		held = held.Plus(c.bound(model).held, -1)
	}
	return held
}

// On is what a queue and those under it hold on a model of WeighedBeside, and are due of it.
func (n *Node) On(model string) (held, fair Amounts) {
	b := n.bound(model)
	return b.held, b.fair
}
