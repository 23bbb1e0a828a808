package queue

import (
	"fmt"
	"slices"

	"github.com/aliquot-dev/aliquot/api"
)

// SetAll adds or changes queues, all of them or, with what is wrong, none. Only what comes out must add up: quotas may change hands in it
// in whatever order they are given.
func (t *Tree) SetAll(specs []api.QueueSpec) error {
	changed, err := t.changed(specs)
	if err != nil {
		return err
	}
	// Parents come first, so whoever is above a queue has its place already, and no queue can come under itself on the way.
	for _, spec := range changed {
		t.put(spec)
	}
	return nil
}

// CheckAll says why SetAll would refuse. It changes nothing.
func (t *Tree) CheckAll(specs []api.QueueSpec) error {
	_, err := t.changed(specs)
	return err
}

// changed are the given queues, each after its parent, if with them all queues together would add up.
func (t *Tree) changed(specs []api.QueueSpec) ([]api.QueueSpec, error) {
	given := map[string]bool{}
	for _, spec := range specs {
		if given[spec.Name] {
			return nil, fmt.Errorf("queue %s comes twice: give each queue once", spec.Name)
		}
		given[spec.Name] = true
	}
	all := slices.Clone(specs)
	for _, spec := range t.Specs() {
		if !given[spec.Name] {
			all = append(all, spec)
		}
	}
	all, err := parentsFirst(all, given)
	if err != nil {
		return nil, err
	}
	whole := New()
	for _, spec := range all {
		if err := validate(spec); err != nil {
			return nil, err
		}
		if _, ok := whole.byName[spec.Parent]; !ok && spec.Parent != "" {
			return nil, fmt.Errorf("queue %s: there is no queue %s to be its parent: make that one first", spec.Name, spec.Parent)
		}
		whole.put(spec)
	}
	for _, root := range whole.roots {
		if _, err := root.promised(); err != nil {
			return nil, err
		}
	}
	return slices.DeleteFunc(all, func(spec api.QueueSpec) bool { return !given[spec.Name] }), nil
}

// parentsFirst are queues with each after its parent, where that is one of them.
func parentsFirst(specs []api.QueueSpec, given map[string]bool) ([]api.QueueSpec, error) {
	at, parents := map[string]int{}, map[string]string{}
	for i, spec := range specs {
		at[spec.Name], parents[spec.Name] = i, spec.Parent
	}
	ordered, from := make([]api.QueueSpec, 0, len(specs)), map[string]int{} // from which one each was come to, upwards
	for i, spec := range specs {
		begin := len(ordered)
		for name := spec.Name; ; name = parents[name] {
			place, known := at[name]
			if before, been := from[name]; been && before == i {
				return nil, cycle(parents, given, name)
			} else if been || !known {
				break
			}
			from[name] = i
			ordered = append(ordered, specs[place])
		}
		slices.Reverse(ordered[begin:])
	}
	return ordered, nil
}

// cycle says which of the given queues is under itself, found upwards from a queue that is under it.
func cycle(parents map[string]string, given map[string]bool, name string) error {
	for range parents {
		name = parents[name]
	}
	for !given[name] { // one is: without them no queue was under itself
		name = parents[name]
	}
	return fmt.Errorf("queue %s cannot be under %s, which is under it or is itself: choose another parent", name, parents[name])
}
