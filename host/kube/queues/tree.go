// Package queues says of a cluster's Queues which hold, and of its pods which queue each belongs to: the webhook, the controller and the scheduler
// must say the same of both. What comes in are objects; what goes out are the engine's queues, or in one sentence why not. It reads and writes
// nothing.
package queues

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/engine/queue"
	"github.com/aliquot-dev/aliquot/host/kube/api/v1alpha1"
)

// Refusal is why a Queue does not hold.
type Refusal struct {
	Reason  string // of the condition v1alpha1.Accepted
	Message string // one sentence
}

// Tree says which Queues hold, as the engine has them, parents first, and why the others do not, by name. They hold if all of them add up.
// Else those that were made first do, as many as add up: whoever would break what is promised to others already is refused. The default queue
// always holds; without a Queue of its name it has no bounds.
func Tree(all []*v1alpha1.Queue) ([]api.QueueSpec, map[string]Refusal) {
	t := tree{refused: map[string]Refusal{}, held: queue.New()}
	ordered := slices.Clone(all)
	slices.SortFunc(ordered, func(a, b *v1alpha1.Queue) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), strings.Compare(a.Name, b.Name))
	})
	for _, q := range ordered {
		spec, err := q.Engine()
		if err == nil {
			err = queue.New().CheckAll([]api.QueueSpec{alone(spec)})
		}
		if err != nil {
			t.refused[q.Name] = Refusal{v1alpha1.ReasonInvalid, err.Error()}
			continue
		}
		t.waiting = append(t.waiting, spec)
	}
	if !slices.ContainsFunc(t.waiting, func(s api.QueueSpec) bool { return s.Name == api.DefaultQueue }) {
		t.waiting = append([]api.QueueSpec{unbounded}, t.waiting...)
	}
	if err := t.held.SetAll(t.waiting); err == nil {
		return t.held.Specs(), t.refused
	}
	for t.pass() {
	}
	t.rest()
	if _, holds := t.held.Get(api.DefaultQueue); !holds {
		_ = t.held.SetAll([]api.QueueSpec{unbounded}) // under no other and without a quota, it always adds up
	}
	return t.held.Specs(), t.refused
}

// unbounded is the default queue of a cluster that says nothing of it.
var unbounded = api.QueueSpec{Name: api.DefaultQueue, Quota: api.Unlimited, MaxPriority: v1alpha1.NoMaxPriority}

// alone is a queue under no other.
func alone(spec api.QueueSpec) api.QueueSpec {
	spec.Parent = ""
	return spec
}

// tree are queues on the way into one.
type tree struct {
	held    *queue.Tree
	waiting []api.QueueSpec // in the order in which they come in
	refused map[string]Refusal
}

// pass takes in those whose parents hold; false when there are none left.
func (t *tree) pass() bool {
	before := len(t.waiting)
	t.waiting = slices.DeleteFunc(t.waiting, func(spec api.QueueSpec) bool {
		if _, holds := t.held.Get(spec.Parent); spec.Parent != "" && !holds {
			return false
		}
		if err := t.held.SetAll([]api.QueueSpec{spec}); err != nil {
			t.refused[spec.Name] = Refusal{v1alpha1.ReasonDoesNotAddUp, err.Error()}
		}
		return true
	})
	return len(t.waiting) < before
}

// rest refuses those whose parents do not hold.
func (t *tree) rest() {
	parents := map[string]string{}
	for _, spec := range t.waiting {
		parents[spec.Name] = spec.Parent
	}
	for _, spec := range t.waiting {
		t.refused[spec.Name] = t.withoutParent(spec, parents)
	}
}

// withoutParent says why a queue's parent does not hold.
func (t *tree) withoutParent(spec api.QueueSpec, parents map[string]string) Refusal {
	_, waits := parents[spec.Parent]
	_, refused := t.refused[spec.Parent]
	if !waits && !refused {
		return Refusal{v1alpha1.ReasonNoParent, fmt.Sprintf("queue %s: there is no queue %s to be its parent: make that one, or name another", spec.Name, spec.Parent)}
	}
	above := spec.Parent
	for range parents {
		if above == spec.Name {
			return Refusal{v1alpha1.ReasonCycle, fmt.Sprintf("queue %s cannot be under %s, which is under it: choose another parent for one of them", spec.Name, spec.Parent)}
		}
		above = parents[above]
	}
	return Refusal{v1alpha1.ReasonParentRefused, fmt.Sprintf("queue %s: its parent %s does not hold: see the conditions of that one", spec.Name, spec.Parent)}
}
