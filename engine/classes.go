package engine

import (
	"slices"

	"github.com/aliquot-dev/aliquot/engine/fleet"
	"github.com/aliquot-dev/aliquot/engine/place"
)

func (e *Engine) feasibility(ev Feasibility) bool {
	if slices.Contains(ev.Allowed, "") || slices.ContainsFunc(ev.Barred, func(b NodeReason) bool { return b.Node == "" }) {
		return e.reject("", "invalid", "class %q: a node without a name can be neither allowed nor barred", ev.Class)
	}
	if ev.Prefer != "" && ev.Prefer == ev.Class {
		return e.reject("", "invalid", "class %q: it is to prefer itself: name another class, or none", ev.Class)
	}
	for _, b := range ev.Barred {
		if slices.Contains(ev.Allowed, b.Node) {
			return e.reject("", "invalid", "class %q: node %s is both allowed and barred", ev.Class, b.Node)
		}
	}
	id, prefer := e.fleet.Class(ev.Class), fleet.Alike
	if ev.Prefer != "" {
		prefer = e.fleet.Class(ev.Prefer)
	}
	if !e.fleet.Prefer(id, prefer) { // then both were known before
		return e.reject("", "invalid", "class %q: it is to prefer class %q, which prefers it in turn: name one that does not", ev.Class, ev.Prefer)
	}
	for _, n := range ev.Allowed {
		e.fleet.Allow(id, n)
	}
	for _, b := range ev.Barred {
		e.fleet.Bar(id, b.Node, b.Code)
	}
	e.fleet.ForgetRefusals(id)
	return true
}

// feasibilityGone forgets classes. Nothing may start by that.
func (e *Engine) feasibilityGone(ev FeasibilityGone) bool {
	named := map[fleet.ClassID]bool{}
	for _, name := range ev.Classes {
		if id, ok := e.fleet.ClassOf(name); ok {
			named[id] = true
		}
	}
	e.unclass(named)
	stays := e.classesThatStay(named)
	var gone []fleet.ClassID
	for id := range e.fleet.KnownClasses {
		if !stays[id] {
			gone = append(gone, id)
		}
	}
	if len(gone) > 0 {
		e.placer.ForgetClasses(gone)
		e.fleet.ForgetClasses(gone)
	}
	return false
}

// unclass makes workloads that run be of the empty class, with all their roles, where a class of theirs is among some and nobody asks any more where they
// may run: they do not grow, are not moved, and who evicts them submits another.
func (e *Engine) unclass(named map[fleet.ClassID]bool) {
	of := func(r *place.Request) bool { return r.Class != 0 && named[r.Class] }
	for _, w := range e.work {
		if w.waiting() || w.placing != 0 || w.base != nil || w.elastic() || w.Requeue || !w.shape.Any(of) {
			continue
		}
		e.dropShape(w)
		w.Feasibility, w.Roles = "", cloneRoles(w.Roles)
		for i := range w.Roles {
			w.Roles[i].Feasibility = ""
		}
		w.shape = e.shapeOf(&w.Workload)
	}
}

// classesThatStay are the classes that are not to be forgotten, or are used all the same.
func (e *Engine) classesThatStay(named map[fleet.ClassID]bool) map[fleet.ClassID]bool {
	stays := map[fleet.ClassID]bool{}
	stay := func(id fleet.ClassID) {
		for ; id != fleet.Alike && !stays[id]; id = e.fleet.Preferred(id) {
			stays[id] = true
		}
	}
	stay(0)
	for _, s := range e.shapes {
		for r := range s.Each {
			stay(r.Class)
		}
	}
	for _, p := range []*place.Policy{e.config.Placement, e.placement()} {
		if p == nil {
			continue
		}
		for i := range p.Workload {
			if id, ok := e.fleet.ClassOf(p.Workload[i].Class); ok {
				stay(id)
			}
		}
	}
	for id := range e.fleet.KnownClasses {
		if !named[id] {
			stay(id)
		}
	}
	return stays
}

// Classes is how many feasibility classes are known: those that were named and not forgotten, and the empty one.
func (e *Engine) Classes() int { return e.fleet.Classes() }
