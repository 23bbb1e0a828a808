package place

import (
	"cmp"
	"slices"

	"github.com/aliquot-dev/aliquot/engine/fleet"
)

// Each yields what is asked for by tasks that are alike: the request itself, or each of its roles.
func (r *Request) Each(yield func(*Request) bool) {
	if len(r.Roles) == 0 {
		yield(r)
		return
	}
	for i := range r.Roles {
		if !yield(&r.Roles[i]) {
			return
		}
	}
}

// Any says that something holds of the request, or of one of its roles.
func (r *Request) Any(holds func(*Request) bool) bool {
	for one := range r.Each {
		if holds(one) {
			return true
		}
	}
	return false
}

// Of is what a task asks for, by its number: those of the first role come first.
func (r *Request) Of(task int) *Request {
	for i := range r.Roles {
		if task < r.Roles[i].Tasks {
			return &r.Roles[i]
		}
		task -= r.Roles[i].Tasks
	}
	return r
}

// All is how many tasks there are in all roles.
func (r *Request) All() int {
	sum := 0
	for one := range r.Each {
		sum += one.Tasks
	}
	return sum
}

// role is what a role asks for, kept off what the whole request is kept off.
func (r *Request) role(i int) *Request {
	one := &r.Roles[i]
	if r.Avoid == nil && r.Fence == one.Fence {
		return one
	}
	one = one.Within(r.Fence)
	one.Avoid = r.Avoid
	return one
}

// inRoles finds a spot for every task of every role and takes it, or takes nothing. The roles are taken one after the other, those that take
// most first; where that leaves no room for one, in every other order. So what fits in some order is found; that one role gives way to another
// in part is not looked for.
func (p *Placer) inRoles(r *Request) ([]Spot, bool) {
	sorted, order := largestFirst(r.Roles), make([]int, len(r.Roles))
	for i := range order {
		order[i] = i
	}
	for {
		spots, placed := p.inOrder(r, sorted, order)
		if placed == len(order) {
			return spots, true
		}
		if placed == 0 || !nextOrder(order) { // it alone does not fit
			return nil, false
		}
	}
}

// largestFirst are the places of roles by what a task takes, the most first.
func largestFirst(roles []Request) []int {
	sorted := make([]int, len(roles))
	for i := range sorted {
		sorted[i] = i
	}
	slices.SortStableFunc(sorted, func(a, b int) int {
		x, y := &roles[a], &roles[b]
		return cmp.Or(cmp.Compare(y.Compute, x.Compute), cmp.Compare(y.Devices, x.Devices))
	})
	return sorted
}

// inOrder places roles in an order and says how many found room. Unless all did, it takes nothing.
func (p *Placer) inOrder(r *Request, sorted, order []int) ([]Spot, int) {
	found := make([][]Spot, len(order))
	mark := p.fleet.Begin()
	for k, i := range order {
		spots, ok := p.place(r.role(sorted[i]))
		if !ok {
			p.fleet.Rollback(mark)
			return nil, k
		}
		found[sorted[i]] = spots
	}
	p.fleet.Commit(mark)
	return slices.Concat(found...), len(order)
}

// nextOrder makes the next one of an order, as in a dictionary; false: it was the last.
func nextOrder(order []int) bool {
	i := len(order) - 2
	for i >= 0 && order[i] > order[i+1] {
		i--
	}
	if i < 0 {
		return false
	}
	k := len(order) - 1
	for order[k] < order[i] {
		k--
	}
	order[i], order[k] = order[k], order[i]
	slices.Reverse(order[i+1:])
	return true
}

// possibleInRoles says that all roles would fit together if nothing were taken: by best fit, whatever the policy, so that the answer hangs on nothing
// but what the fleet is. The books are as they were when it is over.
func (p *Placer) possibleInRoles(r *Request) bool {
	for i := range r.Roles {
		if !p.Possible(r.role(i)) {
			return false
		}
	}
	mark := p.fleet.Begin()
	defer p.fleet.Rollback(mark)
	for n := range p.fleet.Nodes {
		for _, d := range p.fleet.DevicesOf(n) {
			b := p.fleet.BookOf(d)
			p.fleet.Adjust(d, -b.Compute, -b.Memory, -b.Grants)
		}
		for i := range p.fleet.Resources() {
			id := fleet.ResourceID(i)
			if taken := p.fleet.Taken(n, id); taken != 0 {
				p.fleet.Give(n, []fleet.Amount{{Resource: id, Amount: taken}})
			}
		}
	}
	scored := p.scored
	p.scored = nil
	_, ok := p.Place(r)
	p.scored = scored
	return ok
}
