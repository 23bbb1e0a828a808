package engine

import (
	"slices"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/engine/fleet"
	"github.com/aliquot-dev/aliquot/engine/place"
)

// shapeKey is all that decides where a workload fits.
type shapeKey struct {
	compute        api.Milli
	memory, bound  api.Amount
	model          string
	least          fleet.Least
	class          fleet.ClassID
	devices, tasks int
	resources      string
	side           side
	same, prefer   string
	roles          string
}

// shape is what workloads that fit in the same places have in common, and what was last found out about it. Findings carry
// the counts of the fleet that they were true at; forgetting them changes no decision.
type shape struct {
	place.Request
	users     int
	side      side
	roles     string         // what its roles ask for
	predicted string         // what predictions call it; empty: not worked out yet
	using     *place.Request // itself, with what it was last predicted to use; nil: nothing yet
	named     []Resource     // the resources of the first of its workloads, which those that name the same share
	gated     bool           // each of its roles asks for a turnstile, too (roomtogether.go), which nobody could miss

	unfitAt    uint64 // Gains at which it did not fit, plus 1
	possibleAt uint64 // Changes at which possible was found, plus 1
	possible   bool
	servesAt   uint64   // Changes at which serves was found, plus 1
	serves     []bool   // by node: an empty one could hold a task
	servedAt   uint64   // Changes at which served was found, plus 1
	served     []answer // by device: see Engine.servedBy
	allAt      uint64   // Changes at which all was found, plus 1
	all        bool     // see Engine.allServe
	suitsAt    uint64   // Changes at which suits was found, plus 1
	suits      []bool   // by pool: see Engine.suits
}

// nothing says that the shape takes nothing that anyone could miss.
func (s *shape) nothing() bool {
	unmissed := 0
	if s.gated {
		unmissed = 1
	}
	return !s.Any(func(r *place.Request) bool { return r.Compute > 0 || !r.Memory.IsZero() || len(r.Resources) > unmissed })
}

// shapeOf finds or makes the shape of a workload and counts it as used.
func (e *Engine) shapeOf(w *Workload) *shape {
	resources := e.resourcesKey(w.Resources)
	k := shapeKey{w.Share.Compute.Floor, w.Share.Memory.Floor, w.Share.Memory.Bound(), w.Model, w.Least, e.fleet.Class(w.Feasibility), w.Devices, w.Tasks, resources, e.sideOf(w), w.Same, w.Prefer, e.rolesKey(w)}
	s, ok := e.shapes[k]
	if !ok {
		s = &shape{Request: place.Request{
			Compute: k.compute, Memory: k.memory, Bound: k.bound, Model: k.model, Least: k.least, Class: k.class, Devices: k.devices, Tasks: k.tasks, Resources: e.amountsOf(w.Resources), Same: k.same, Prefer: k.prefer,
		}}
		s.side = k.side
		s.Fence, s.roles = e.fence(k.side), k.roles
		e.addRoles(s, w)
		e.shapes[k] = s
	}
	s.users++
	return s
}

// shareNames has a workload keep no list of resources of its own where one of its shape has the same, and else one that nobody else changes.
func (w *workload) shareNames() {
	s := w.shape
	if len(s.named) > 0 && slices.Equal(s.named, w.Resources) {
		w.Resources = s.named
		return
	}
	w.Resources = slices.Clone(w.Resources)
	if len(s.named) == 0 {
		s.named = w.Resources
	}
}

// dropShape counts a shape as used once less, and forgets it when nobody has it.
func (e *Engine) dropShape(w *workload) {
	s := w.shape
	w.shape = nil
	if s.users--; s.users > 0 {
		return
	}
	delete(e.shapes, s.key())
}

func (s *shape) key() shapeKey {
	var room [128]byte
	key := room[:0]
	for _, a := range s.Resources {
		key = appendAmount(key, a)
	}
	return shapeKey{s.Compute, s.Memory, s.Bound, s.Model, s.Least, s.Class, s.Devices, s.Tasks, string(key), s.side, s.Same, s.Prefer, s.roles}
}
