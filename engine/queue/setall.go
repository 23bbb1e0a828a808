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
	given, parents := map[string]bool{}, map[string]string{}
	for _, spec := range specs {
		if given[spec.Name] {
			return nil, fmt.Errorf("queue %s comes twice: give each queue once", spec.Name)
		}
		given[spec.Name] = true
	}
	left := slices.Clone(specs)
	for _, spec := range t.Specs() {
		if !given[spec.Name] {
			left = append(left, spec)
		}
	}
	for _, spec := range left {
		parents[spec.Name] = spec.Parent
	}
	// A tree that is built from above is refused if, and only if, something in what it comes to does not add up.
	whole, done := New(), map[string]bool{}
	var changed []api.QueueSpec
	for len(left) > 0 {
		var later []api.QueueSpec
		for _, spec := range left {
			if _, known := parents[spec.Parent]; known && !done[spec.Parent] {
				later = append(later, spec)
				continue
			}
			if err := whole.Set(spec); err != nil {
				return nil, err
			}
			if done[spec.Name] = true; given[spec.Name] {
				changed = append(changed, spec)
			}
		}
		if len(later) == len(left) {
			return nil, cycle(parents, given, left[0].Name)
		}
		left = later
	}
	return changed, nil
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
