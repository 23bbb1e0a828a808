// Package queue is the tree of queues: who is guaranteed how much, who may hold how much, and whose turn is next. What comes in
// are queues with quota, limit and weight, and what is held and wanted in their name; what goes out is whether so much more
// may be held and which queue says no, the fair share of each queue, and what it borrows. Amounts are compute held as floors,
// memory floors and the number of shares, summed over the subtree, overall and for each model of device. The package knows
// nothing of devices and of workloads.
package queue

import (
	"fmt"
	"slices"
	"strings"

	"github.com/aliquot-dev/aliquot/api"
)

// Tree is all queues. The zero Tree is not usable.
type Tree struct {
	Now int64 // µs; the caller moves it on before it books anything

	byName map[string]*Node
	roots  []*Node // by name
	dirty  bool    // something changed since the last Divide
	size   Amounts // as of the last Divide

	reweighed           bool               // weights on models may have changed since the last Divide
	weighed, weighedTop []string           // models on which queues have weights, all and those under none, in order, as of the last Divide
	sizes               map[string]Amounts // what the fleet has of these, as of the last Divide

	halfLife int64 // µs, in which use counts half
}

// New returns a tree with the default queue, without a quota.
func New() *Tree {
	t := &Tree{byName: map[string]*Node{}, halfLife: week}
	if err := t.Set(api.QueueSpec{Name: api.DefaultQueue, Quota: api.Unlimited}); err != nil {
		panic("queue: the default queue cannot be made: " + err.Error()) // a defect, not a condition
	}
	return t
}

// Get finds a queue. The empty name is the default queue.
func (t *Tree) Get(name string) (*Node, bool) {
	if name == "" {
		name = api.DefaultQueue
	}
	n, ok := t.byName[name]
	return n, ok
}

// Set adds or changes a queue. What is held and waits there stays, and moves along with it under a new parent. Quotas that add up
// to more than the parent's are refused, and nothing changes.
func (t *Tree) Set(spec api.QueueSpec) error {
	if err := validate(spec); err != nil {
		return err
	}
	var parent *Node
	n := t.byName[spec.Name]
	if spec.Parent != "" {
		var ok bool
		if parent, ok = t.byName[spec.Parent]; !ok {
			return fmt.Errorf("queue %s: there is no queue %s to be its parent: make that one first", spec.Name, spec.Parent)
		}
		if n != nil && parent.Within(n) {
			return fmt.Errorf("queue %s cannot be under %s, which is under it or is itself: choose another parent", spec.Name, spec.Parent)
		}
	}
	if err := t.fits(n, parent, spec); err != nil {
		return err
	}
	t.put(spec)
	return nil
}

// put enters a queue that is right, under a parent that is there.
func (t *Tree) put(spec api.QueueSpec) {
	n, parent := t.byName[spec.Name], t.byName[spec.Parent]
	if n == nil {
		n = &Node{Name: spec.Name, tree: t, bounds: []bound{{}}}
		t.byName[spec.Name] = n
		t.adopt(parent, n)
	} else if n.parent != parent {
		n.carry(-1)
		t.disown(n)
		t.adopt(parent, n)
		n.carry(1)
	}
	n.setBounds(spec)
	n.touch()
}

// carry takes all that a queue holds and wants out of those above it, or puts it into them.
func (n *Node) carry(times int64) {
	for q := n.parent; q != nil; q = q.parent {
		q.All.settle(n.tree)
		q.All.Held = q.All.Held.Plus(n.All.Held, times)
		q.All.wish = q.All.plus(n.All.wish, times)
		for i := range n.bounds {
			b := &n.bounds[i]
			to := q.bound(b.model)
			to.held, to.firm, to.burst = to.held.Plus(b.held, times), to.firm.Plus(b.firm, times), to.burst.Plus(b.burst, times)
			to.wish = to.plus(b.wish, times)
		}
	}
}

// setBounds enters quotas, limits and weights. What counts against them stays.
func (n *Node) setBounds(spec api.QueueSpec) {
	spec = cloned(spec)
	n.spec, n.weight = spec, weightsOf(spec.Weight, 1)
	for i := range n.bounds {
		b := &n.bounds[i]
		b.quota, b.limit, b.weight = unbounded, unbounded, Amounts{}
	}
	for _, b := range boundsOf(spec) {
		to := n.bound(b.model)
		to.quota, to.limit, to.weight = b.quota, b.limit, b.weight
	}
	n.tree.reweighed = true
	if spec.HoursSpent {
		n.bounds[0].limit[Compute] = 0 // what holds more already keeps it
	}
}

// cloned is a specification that shares nothing with the caller's.
func cloned(spec api.QueueSpec) api.QueueSpec {
	spec.QuotaMemory, spec.QuotaDevices = clone(spec.QuotaMemory), clone(spec.QuotaDevices)
	spec.Limit = cloneAmounts(spec.Limit)
	spec.PriorityUntil = clone(spec.PriorityUntil)
	spec.Models = slices.Clone(spec.Models)
	slices.SortFunc(spec.Models, func(a, b api.QueueModel) int { return strings.Compare(a.Model, b.Model) })
	for i := range spec.Models {
		m := &spec.Models[i]
		m.Quota, m.Limit = cloneAmounts(m.Quota), cloneAmounts(m.Limit)
	}
	return spec
}

func cloneAmounts(a api.QueueAmounts) api.QueueAmounts {
	return api.QueueAmounts{Compute: clone(a.Compute), Memory: clone(a.Memory), Devices: clone(a.Devices)}
}

func clone[T any](p *T) *T {
	if p == nil {
		return nil
	}
	v := *p
	return &v
}

// Remove removes a queue that holds nothing, that nothing waits in and that no queue is under.
func (t *Tree) Remove(name string) error {
	n, ok := t.byName[name]
	switch {
	case !ok:
		return fmt.Errorf("there is no queue %s", name)
	case name == api.DefaultQueue:
		return fmt.Errorf("the queue %s cannot be removed: work that names no queue goes there", name)
	case len(n.children) > 0:
		return fmt.Errorf("queue %s cannot be removed while %s is under it: remove that one first", name, n.children[0].Name)
	case n.Holds > 0:
		return fmt.Errorf("queue %s cannot be removed while work of it runs (%d): stop it or wait", name, n.Holds)
	case n.Waiting > 0:
		return fmt.Errorf("queue %s cannot be removed while work waits in it (%d): stop or move it", name, n.Waiting)
	}
	t.disown(n)
	delete(t.byName, name)
	t.dirty, t.reweighed = true, true
	return nil
}

// All are the queues by name.
func (t *Tree) All() []*Node {
	all := make([]*Node, 0, len(t.byName))
	for _, n := range t.byName {
		all = append(all, n)
	}
	slices.SortFunc(all, byName)
	return all
}

// Roots are the queues that are under none, by name. The caller must not change the slice.
func (t *Tree) Roots() []*Node { return t.roots }

// Specs are the queues as they were set, each after its parent.
func (t *Tree) Specs() []api.QueueSpec {
	specs := make([]api.QueueSpec, 0, len(t.byName))
	var add func(nodes []*Node)
	add = func(nodes []*Node) {
		for _, n := range nodes {
			specs = append(specs, n.spec)
			add(n.children)
		}
	}
	add(t.roots)
	return specs
}

// siblings is the list that the children of a queue are in.
func (t *Tree) siblings(parent *Node) *[]*Node {
	if parent == nil {
		return &t.roots
	}
	parent.touch()
	return &parent.children
}

func (t *Tree) adopt(parent, child *Node) {
	child.parent = parent
	list := t.siblings(parent)
	i, _ := slices.BinarySearchFunc(*list, child, byName)
	*list = slices.Insert(*list, i, child)
}

func (t *Tree) disown(child *Node) {
	list := t.siblings(child.parent)
	*list = slices.DeleteFunc(*list, func(c *Node) bool { return c == child })
}

func byName(a, b *Node) int { return strings.Compare(a.Name, b.Name) }
