package queue

import (
	"slices"
	"strings"

	"github.com/aliquot-dev/aliquot/api"
)

// Node is one queue.
type Node struct {
	Name    string
	Holds   int // workloads that hold grants in this queue itself
	Waiting int // workloads that wait in this queue itself

	All account // of the queue and all queues under it
	Own account // of the queue itself, without those under it

	spec     api.QueueSpec
	bounds   []bound // the first is overall, the others by model
	weight   Amounts
	tree     *Tree
	parent   *Node
	children []*Node // by name
	dirty    bool    // what its children have to divide, or want of it, changed

	weighedUnder []string // models on which queues right under it have weights, in order, as of the last Divide
}

// account is what a part of the tree holds, wants and is due.
type account struct {
	Held Amounts
	Fair Amounts // as of the last Divide

	wish

	used   int64 // see Used
	usedAt int64 // µs
}

// wish is what waits, as far as it is known before a device is chosen.
type wish struct {
	wants Amounts
	parts int64 // further memory, in thousandths of devices
}

func (w wish) plus(more wish, times int64) wish {
	return wish{w.wants.Plus(more.wants, times), w.parts + more.parts*times}
}

// Parent is the queue above, or nil.
func (n *Node) Parent() *Node { return n.parent }

// Children are the queues under it by name. The caller must not change the slice.
func (n *Node) Children() []*Node { return n.children }

// Spec is the queue as it was set. The caller must not change what it points to.
func (n *Node) Spec() api.QueueSpec { return n.spec }

// ShortestFirst is by how much what is predicted to be shorter goes first in it.
func (n *Node) ShortestFirst() api.Milli { return n.spec.ShortestFirst }

// Order is what else counts in its line.
func (n *Node) Order() api.QueueOrder { return n.spec.Order }

// Ruler is the queue whose order says where the work of n itself stands: the topmost of n and those above it that has what is under it stand in
// one line, and n itself where none has.
func (n *Node) Ruler() *Node {
	ruler := n
	for q := n; q != nil; q = q.parent {
		if q.spec.Order.OneLine {
			ruler = q
		}
	}
	return ruler
}

// Priority is what is added to the priorities of its work: what it says, and what each of those above it does.
func (n *Node) Priority() (sum int64) {
	for q := n; q != nil; q = q.parent {
		sum += int64(q.spec.Priority)
	}
	return sum
}

// MinRun is how long its work runs before it is evicted for other work, in µs: as long as it says, or the one above it that says longest.
func (n *Node) MinRun() (longest int64) {
	for q := n; q != nil; q = q.parent {
		longest = max(longest, int64(q.spec.MinRun/1000))
	}
	return longest
}

// Disruptions are the budgets of its work, its own and of those above it: how often a workload may be evicted for others in any so many µs.
func (n *Node) Disruptions(yield func(most int, per int64) bool) {
	for q := n; q != nil; q = q.parent {
		if b := q.spec.Disruptions; !b.IsZero() && !yield(int(b.Most), int64(b.Per/1000)) {
			return
		}
	}
}

// Within says that n is q or below it.
func (n *Node) Within(q *Node) bool {
	for ; n != nil; n = n.parent {
		if n == q {
			return true
		}
	}
	return false
}

// Hold books what is held on a device of this model, up to the root; times is negative to give it back.
func (n *Node) Hold(model string, amounts Amounts, kind Kind, times int64) {
	n.Own.settle(n.tree)
	n.Own.Held = n.Own.Held.Plus(amounts, times)
	for q := n; q != nil; q = q.parent {
		q.All.settle(n.tree)
		q.All.Held = q.All.Held.Plus(amounts, times)
		q.book(model, amounts, kind, times)
	}
	n.touch()
}

// Pretend books against the bounds only, for a look ahead that the caller takes back before the time goes on.
func (n *Node) Pretend(model string, amounts Amounts, kind Kind, times int64) {
	for ; n != nil; n = n.parent {
		n.All.Held = n.All.Held.Plus(amounts, times)
		n.book(model, amounts, kind, times)
	}
}

func (n *Node) book(model string, amounts Amounts, kind Kind, times int64) {
	n.bounds[0].add(amounts, kind, times)
	if model != "" {
		n.bound(model).add(amounts, kind, times)
	}
}

func (b *bound) add(amounts Amounts, kind Kind, times int64) {
	b.held = b.held.Plus(amounts, times)
	switch kind {
	case Firm:
		b.firm = b.firm.Plus(amounts, times)
	case Burst:
		b.burst = b.burst.Plus(amounts, times)
	}
}

// sure is what is held of a resource without burst: what a quota is compared with.
func (b *bound) sure(r Resource) int64 { return b.held[r] - b.burst[r] }

// bound finds or makes the bound for a model.
func (n *Node) bound(model string) *bound {
	if model == "" {
		return &n.bounds[0]
	}
	i, ok := slices.BinarySearchFunc(n.bounds[1:], model, func(b bound, m string) int { return strings.Compare(b.model, m) })
	if !ok {
		n.bounds = slices.Insert(n.bounds, i+1, bound{model: model, quota: unbounded, limit: unbounded})
	}
	return &n.bounds[i+1]
}

// Want books what waits, up to the root; times is negative when it no longer waits.
func (n *Node) Want(d Demand, times int64) {
	more := wish{d.Amounts, d.Parts()}
	n.Own.wish = n.Own.plus(more, times)
	for q := n; q != nil; q = q.parent {
		q.All.wish = q.All.plus(more, times)
		if d.Model != "" {
			b := q.bound(d.Model)
			b.wish = b.plus(more, times)
		}
	}
	n.touch()
}

// touch has the fair shares on the way up found anew.
func (n *Node) touch() {
	n.tree.dirty = true
	for ; n != nil; n = n.parent {
		n.dirty = true
	}
}

// Over is the first quota or limit from n up that has no room for a demand; false: it may be held.
func (n *Node) Over(d Demand) (Refusal, bool) { return n.refusal(d, false) }

// Smaller is the first quota or limit from n up that is less than a demand; false: there is none.
func (n *Node) Smaller(d Demand) (Refusal, bool) { return n.refusal(d, true) }

func (n *Node) refusal(d Demand, alone bool) (Refusal, bool) {
	for ; n != nil; n = n.parent {
		for i := range n.bounds {
			b := &n.bounds[i]
			if i > 0 && (b.model != d.Model || !b.set()) {
				continue
			}
			if r, limit, no := b.refuses(d, alone); no {
				return Refusal{n, b.model, r, limit}, true
			}
		}
	}
	return Refusal{}, false
}

// Depends says that it depends on the devices chosen whether a demand fits: on their models or their memory.
func (n *Node) Depends(d Demand) bool {
	for ; n != nil; n = n.parent {
		for i := range n.bounds {
			b := &n.bounds[i]
			if i > 0 && d.Model == "" && b.set() {
				return true
			}
			if d.Part > 0 && (i == 0 || b.model == d.Model) && (b.quota[Memory] != Unbounded || b.limit[Memory] != Unbounded) {
				return true
			}
		}
	}
	return false
}

// InQuota says that a queue has a quota and would, with a demand held beside what it holds, be within it. Where the demand names
// a model for which the queue has a quota, that one decides, too. Burst is in no quota.
func (n *Node) InQuota(d Demand) bool {
	return !d.Burst && n.guarantees(d.Model) && n.Spares(d)
}

func (n *Node) guarantees(model string) bool {
	return slices.ContainsFunc(n.bounds, func(b bound) bool { return b.quota != unbounded && (b.model == "" || b.model == model) })
}

// Spares says that no quota of the queue itself would be passed with a demand held beside what it holds, as far as it has any.
func (n *Node) Spares(d Demand) bool {
	for i := range n.bounds {
		b := &n.bounds[i]
		if i > 0 && b.model != d.Model {
			continue
		}
		for r := range resources {
			if b.quota[r] != Unbounded && d.Amounts[r] > 0 && b.sure(r)+d.Amounts[r] > b.quota[r] {
				return false
			}
		}
	}
	return true
}

// Borrows says that a queue holds more than it is guaranteed, so that what it holds on devices of this model may be taken back.
// A quota for the model decides where there is one, else the one overall; without any, all is borrowed.
func (n *Node) Borrows(model string) bool {
	b := &n.bounds[0]
	for i := range n.bounds {
		if n.bounds[i].model == model && n.bounds[i].quota != unbounded {
			b = &n.bounds[i]
		}
	}
	if b.quota == unbounded {
		return true
	}
	for r := range resources {
		if b.quota[r] != Unbounded && b.sure(r) > b.quota[r] {
			return true
		}
	}
	return false
}

// Exceeds is the first limit from n up that is passed already in something of which so much is held on devices of this model; false: there is none.
func (n *Node) Exceeds(model string, amounts Amounts) (Refusal, bool) {
	for ; n != nil; n = n.parent {
		for i := range n.bounds {
			b := &n.bounds[i]
			if i > 0 && b.model != model {
				continue
			}
			for r := range resources {
				if b.limit[r] != Unbounded && amounts[r] > 0 && b.held[r] > b.limit[r] {
					return Refusal{n, b.model, r, true}, true
				}
			}
		}
	}
	return Refusal{}, false
}

// Wants is what waits in a queue and those under it, and beside it the memory that is known only with the devices, in
// thousandths of devices.
func (n *Node) Wants() (Amounts, int64) { return n.All.wants, n.All.parts }

// WantsOn is the same of what may go on devices of this model alone.
func (n *Node) WantsOn(model string) (Amounts, int64) {
	b := n.bound(model)
	return b.wants, b.parts
}

// Models are the models for which the queue has quotas, limits or weights, or that work in it ever held or asked for, in order.
func (n *Node) Models() []string {
	models := make([]string, 0, len(n.bounds))
	for _, b := range n.bounds[1:] {
		models = append(models, b.model)
	}
	return models
}

// Count is what counts against a limit, and of that what counts against a quota, on one model; the empty one: overall.
func (n *Node) Count(model string) (held, firm Amounts) {
	b := n.bound(model)
	return b.held, b.firm
}

// Burst is what of that is burst.
func (n *Node) Burst(model string) Amounts { return n.bound(model).burst }
