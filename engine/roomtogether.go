package engine

import (
	"fmt"
	"slices"

	"github.com/aliquot-dev/aliquot/engine/fleet"
	"github.com/aliquot-dev/aliquot/engine/place"
)

// Opening is a node on which the host of a waiting workload would let some of its tasks run, did it make room there of what the engine does not decide about.
type Opening struct {
	Node  string
	Tasks []int      // by role, the workload's own tasks first: how many of them may run there at the most
	Freed []Resource // of the node, that would be free there beside what is
}

// RoomTogether are nodes, by task, on which all tasks of a waiting workload would be started now, if its host let so many of each role run on some nodes
// and these had so much more free: its queue, those in front of it and the devices allow it. Nodes that are no openings are as they are. So its host knows where
// it is of use to make room for a gang; nil: nowhere. What pools lend is not looked at, nor are nodes that the host bars to the empty class. It changes
// nothing.
func (e *Engine) RoomTogether(id string, openings []Opening) (nodes []string) {
	w, ok := e.work[id]
	if !ok || !w.waiting() || w.retryAt != 0 || w.plan != 0 {
		return nil
	}
	e.lookAhead(e.now, func(*ahead) {
		only := e.turnstiles(w, e.opened(openings))
		e.atTurn(w, func(w *workload) { passThrough(w, only) }, func(p *pass, g *group) {
			w.shape.gated = true
			if p.bounded(w) || p.holds(w) || p.head != nil && len(p.planned) > 0 { // of what is being ended for others it is not known what they leave
				return
			}
			for _, spot := range p.amongOpenings(w, g, openings) {
				nodes = append(nodes, e.fleet.NodeName(spot.Node))
			}
		})
	})
	return nodes
}

// turnstiles are resources, one for each role of a workload, of which nodes have free as many as tasks of it may run there. Nobody else asks for them.
func (e *Engine) turnstiles(w *workload, may func(asks *place.Request, role int, n fleet.NodeID) int) (names []string) {
	role := 0
	for asks := range w.shape.Each {
		names = append(names, fmt.Sprintf("\x00role %d", role))
		id := e.fleet.Resource(names[role])
		for n := range e.fleet.Nodes {
			if tasks := may(asks, role, n); tasks > 0 {
				e.fleet.Give(n, []fleet.Amount{{Resource: id, Amount: int64(tasks)}})
			}
		}
		role++
	}
	return names
}

// opened is how many tasks of a role may run on a node: where it is no opening, all or none, as the host has it.
func (e *Engine) opened(openings []Opening) func(asks *place.Request, role int, n fleet.NodeID) int {
	at := map[string]int{}
	for i, o := range openings {
		at[o.Node] = i
	}
	return func(asks *place.Request, role int, n fleet.NodeID) int {
		if i, is := at[e.fleet.NodeName(n)]; is {
			return openings[i].Tasks[role]
		}
		if e.fleet.Open(asks.Class, n) {
			return asks.Tasks
		}
		return 0
	}
}

// passThrough has the tasks of a workload ask for one of the turnstile of their role, in place of what its host says of nodes.
func passThrough(w *workload, only []string) {
	one := func(resources []Resource, role int) []Resource {
		return append(slices.Clone(resources), Resource{only[role], 1})
	}
	w.Feasibility, w.Resources, w.Roles = "", one(w.Resources, 0), cloneRoles(w.Roles)
	for i := range w.Roles {
		w.Roles[i].Feasibility, w.Roles[i].Resources = "", one(w.Roles[i].Resources, i+1)
	}
}

// amongOpenings is RoomTogether at the turn of a workload.
func (p *pass) amongOpenings(w *workload, g *group, openings []Opening) []place.Spot {
	if p.head != nil && p.reserve == nil {
		p.reserve = p.reserveFor(p.head) // before there is more on the nodes, which is not for that one
	}
	for _, o := range openings {
		if n, known := p.fleet.Node(o.Node); known {
			p.fleet.Give(n, p.amountsOf(o.Freed))
		}
	}
	find := p.behindHead
	if p.head == nil {
		find = func(w *workload, _ *group) ([]place.Spot, bool) { return p.fit(w) }
	}
	spots, _ := find(w, g)
	return spots
}
