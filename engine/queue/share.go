package queue

import (
	"maps"
	"math/bits"
	"slices"

	"github.com/aliquot-dev/aliquot/divide"
)

// Divide finds the fair share of every queue in a fleet of this size: at each level what the parent is due is divided among its
// children by the rule of package divide, for each resource by itself. The floor of a queue is its quota, the ceiling its limit,
// its weight divides what is over the quotas, and no queue is due more than it holds and wants. Work that is in a queue with
// others under it counts as one more of these, without a quota and with weight 1. Where queues have weights on models, so is what the
// fleet has of each of these, which of says. It costs what changed since it was last called, and nothing if nothing did.
func (t *Tree) Divide(size Amounts, of func(model string) Amounts) {
	all := t.size != size
	if t.reweighed {
		t.weigh()
		t.reweighed, t.sizes, all = false, map[string]Amounts{}, true
	}
	for _, model := range t.weighed {
		if on := of(model); t.sizes[model] != on {
			t.sizes, all = maps.Clone(t.sizes), true // what Save keeps stays
			t.sizes[model] = on
		}
	}
	if !t.dirty && !all {
		return
	}
	t.dirty, t.size = false, size
	for _, model := range t.weighed { // before what changed is forgotten
		t.divideOn(model, t.sizes[model], t.roots, nil, all)
	}
	t.divide(size, t.roots, nil, all)
}

func (t *Tree) divide(due Amounts, nodes []*Node, own *account, all bool) {
	claims := make([]divide.Share, 0, len(nodes)+1)
	for r := range resources {
		claims = claims[:0]
		for _, n := range nodes {
			claims = append(claims, divide.Share{
				Floor: min(n.guarantee(r), ceiling(n.bounds[0].limit[r])), Ceiling: ceiling(n.bounds[0].limit[r]),
				Weight: n.weight[r], Demand: demand(n.All.Held, n.All.wish, t.size, r),
			})
		}
		if own != nil {
			claims = append(claims, divide.Share{Ceiling: ceiling(Unbounded), Weight: 1, Demand: demand(own.Held, own.wish, t.size, r)})
		}
		for i, fair := range divide.Divide(due[r], claims) {
			if i == len(nodes) {
				own.Fair[r] = fair
			} else if n := nodes[i]; n.All.Fair[r] != fair {
				n.All.Fair[r] = fair
				n.dirty = true
			}
		}
	}
	for _, n := range nodes {
		if !n.dirty && !all {
			continue
		}
		n.dirty = false
		if len(n.children) == 0 {
			n.Own.Fair = n.All.Fair
		} else {
			t.divide(n.All.Fair, n.children, &n.Own, all)
		}
	}
}

// guarantee is what a queue is guaranteed overall.
func (n *Node) guarantee(r Resource) int64 {
	if q := n.bounds[0].quota[r]; q != Unbounded {
		return q
	}
	sum := int64(0)
	for _, c := range n.children {
		sum += c.guarantee(r)
	}
	return max(sum, modelSum(n.bounds, r))
}

// demand is what is held and wanted in a fleet of this size; a part of a device's memory counts as that part of the mean device.
func demand(held Amounts, w wish, size Amounts, r Resource) int64 {
	sum := held[r] + w.wants[r]
	if r == Memory && w.parts > 0 && size[Devices] > 0 {
		sum += scale(size[Memory]/size[Devices], w.parts, 1000)
	}
	if sum < 0 || sum > most {
		return most // so much is wanted that no fleet has it
	}
	return sum
}

// Key is where a queue stands among those beside it: the one that comes first is to have the next start.
type Key struct {
	// Over: what it would start next is not within a quota of its own.
	Over bool
	// Held and Fair are dominant shares: of all resources the largest part of the fleet, in units of 2^-32.
	Held, Fair uint64
	// Used is its decayed use, to be compared by Weight.
	Used   uint64
	Weight int64
}

// Key is where a queue stands with this demand first in it. Where it or a queue beside it has weights on the one model that the demand may go on, that is by
// what it holds of that model and is due of it.
func (n *Node) Key(d Demand) Key {
	k := n.All.key(n.tree)
	k.Over, k.Weight = !n.InQuota(d), n.weight[Compute]
	if d.Model != "" && slices.Contains(n.WeighedBeside(), d.Model) {
		b, size := n.bound(d.Model), n.tree.sizes[d.Model]
		k.Held, k.Fair = dominant(b.held, size), dominant(b.fair, size)
	}
	return k
}

// OwnKey is where the work of a queue itself stands among the queues under it, in the same way.
func (n *Node) OwnKey(d Demand) Key {
	k := n.Own.key(n.tree)
	k.Over, k.Weight = true, 1
	if d.Model != "" && slices.Contains(n.weighedUnder, d.Model) {
		size := n.tree.sizes[d.Model]
		k.Held, k.Fair = dominant(n.heldByItself(d.Model), size), dominant(n.bound(d.Model).ownFair, size)
	}
	return k
}

func (a *account) key(t *Tree) Key {
	return Key{Held: dominant(a.Held, t.size), Fair: dominant(a.Fair, t.size), Used: uint64(a.Used(t))}
}

// dominant is the largest part of the fleet among all resources (the dominant share of Ghodsi et al., NSDI 2011).
func dominant(a, size Amounts) (part uint64) {
	for r := range resources {
		if size[r] > 0 && a[r] > 0 {
			part = max(part, uint64(scale(1<<32, a[r], size[r])))
		}
	}
	return part
}

// Compare says which of two keys comes first. The one that is furthest below its fair share does: whose dominant share is the
// smallest part of its fair one. What is due nothing comes last; equals go by their decayed use for their weight.
func (k Key) Compare(o Key) int {
	if k.Fair == 0 || o.Fair == 0 {
		if (k.Fair == 0) != (o.Fair == 0) {
			if k.Fair == 0 {
				return 1
			}
			return -1
		}
	} else if c := products(k.Held, o.Fair, o.Held, k.Fair); c != 0 {
		return c
	}
	return products(k.Used, uint64(o.Weight), o.Used, uint64(k.Weight))
}

// products compares a × b with c × d without overflow.
func products(a, b, c, d uint64) int {
	high1, low1 := bits.Mul64(a, b)
	high2, low2 := bits.Mul64(c, d)
	switch {
	case high1 < high2 || high1 == high2 && low1 < low2:
		return -1
	case high1 > high2 || low1 > low2:
		return 1
	}
	return 0
}

// scale is a × b / c rounded down, none of them negative, held to 2^55.
func scale(a, b, c int64) int64 { return scaleTo(a, b, c, most) }

// scaleTo is a × b / c rounded down, none of them negative, held to the limit.
func scaleTo(a, b, c, limit int64) int64 {
	high, low := bits.Mul64(uint64(a), uint64(b))
	if high >= uint64(c) {
		return limit
	}
	q, _ := bits.Div64(high, low, uint64(c))
	return int64(min(q, uint64(limit)))
}
