// Package queue is the tree of queues: who may hold how much. What comes in are queues with their quotas and what is held in
// their name; what goes out is whether so much more may be held, and which queue says no. Quota is compute held as floors, in
// thousandths of a device, summed over the subtree. The package knows nothing of devices and of the order of work.
package queue

import (
	"fmt"
	"slices"

	"github.com/aliquot-dev/aliquot/api"
)

// Node is one queue.
type Node struct {
	Name    string
	Quota   api.Quota
	Held    int64 // thousandths, subtree included
	Holds   int   // workloads that hold grants in this queue itself
	Waiting int   // workloads that wait in this queue itself

	parent   *Node
	children []*Node // by name
}

// Parent is the queue above, or nil.
func (n *Node) Parent() *Node { return n.parent }

// Within says that n is q or below it.
func (n *Node) Within(q *Node) bool {
	for ; n != nil; n = n.parent {
		if n == q {
			return true
		}
	}
	return false
}

// Hold books so much more, or less, up to the root.
func (n *Node) Hold(milli int64) {
	for ; n != nil; n = n.parent {
		n.Held += milli
	}
}

// Over is the first queue from n up whose quota would be passed if so much more were held; nil if it may be. Nothing more is
// never too much, even where the quota was lowered under what is held.
func (n *Node) Over(milli int64) *Node {
	if milli <= 0 {
		return nil
	}
	for ; n != nil; n = n.parent {
		if n.Quota != api.Unlimited && n.Held+milli > int64(n.Quota) {
			return n
		}
	}
	return nil
}

// Smaller is the first queue from n up whose whole quota is less than so much; nil if there is none.
func (n *Node) Smaller(milli int64) *Node {
	if milli <= 0 {
		return nil
	}
	for ; n != nil; n = n.parent {
		if n.Quota != api.Unlimited && milli > int64(n.Quota) {
			return n
		}
	}
	return nil
}

// Tree is all queues. The zero Tree is not usable.
type Tree struct {
	byName map[string]*Node
}

// New returns a tree with the default queue, without a quota.
func New() *Tree {
	return &Tree{byName: map[string]*Node{api.DefaultQueue: {Name: api.DefaultQueue, Quota: api.Unlimited}}}
}

// Get finds a queue. The empty name is the default queue.
func (t *Tree) Get(name string) (*Node, bool) {
	if name == "" {
		name = api.DefaultQueue
	}
	n, ok := t.byName[name]
	return n, ok
}

// Set adds or changes a queue. What is held and waits there stays, and moves along with it under a new parent.
func (t *Tree) Set(spec api.QueueSpec) error {
	if spec.Name == "" {
		return fmt.Errorf("a queue without a name cannot be set: give it one")
	}
	if spec.Quota < api.Unlimited {
		return fmt.Errorf("queue %s: a quota of %d thousandths is less than nothing: give a number of devices, or none", spec.Name, int64(spec.Quota))
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
	if n == nil {
		n = &Node{Name: spec.Name}
		t.byName[spec.Name] = n
		parent.adopt(n)
	} else if n.parent != parent {
		n.parent.Hold(-n.Held)
		n.parent.disown(n)
		parent.adopt(n)
		n.parent.Hold(n.Held)
	}
	n.Quota = spec.Quota
	return nil
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
	n.parent.disown(n)
	delete(t.byName, name)
	return nil
}

// Spec is a queue as it was set.
func (n *Node) Spec() api.QueueSpec {
	spec := api.QueueSpec{Name: n.Name, Quota: n.Quota}
	if n.parent != nil {
		spec.Parent = n.parent.Name
	}
	return spec
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

// Specs are the queues as they were set, each after its parent.
func (t *Tree) Specs() []api.QueueSpec {
	specs := make([]api.QueueSpec, 0, len(t.byName))
	var add func(n *Node)
	add = func(n *Node) {
		specs = append(specs, n.Spec())
		for _, c := range n.children {
			add(c)
		}
	}
	for _, n := range t.All() {
		if n.parent == nil {
			add(n)
		}
	}
	return specs
}

func (n *Node) adopt(child *Node) {
	child.parent = n
	if n == nil {
		return
	}
	i, _ := slices.BinarySearchFunc(n.children, child, byName)
	n.children = slices.Insert(n.children, i, child)
}

func (n *Node) disown(child *Node) {
	if n != nil {
		n.children = slices.DeleteFunc(n.children, func(c *Node) bool { return c == child })
	}
}

func byName(a, b *Node) int {
	switch {
	case a.Name < b.Name:
		return -1
	case a.Name > b.Name:
		return 1
	}
	return 0
}
