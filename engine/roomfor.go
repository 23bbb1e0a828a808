package engine

import "github.com/aliquot-dev/aliquot/engine/fleet"

// maxRoomBehind is how many nodes RoomFor finds for a workload that is not the first in line: each takes a look at what that leaves the first.
const maxRoomBehind = 4

// RoomFor are those of some nodes on which a waiting workload of one task would be started now, in the order given, if its host let it run there and CPU,
// memory and the like were free for it beside what is: its queue, those in front of it and the devices allow it. So its host knows for whom it is of
// use to make room on a node of what the engine does not decide about. What pools lend is not looked at, nor are nodes that
// the host bars to the empty class. It changes nothing.
func (e *Engine) RoomFor(id string, nodes []string) []string {
	w, ok := e.work[id]
	if !ok || !w.waiting() || w.retryAt != 0 || w.plan != 0 || w.Tasks != 1 || len(w.Roles) > 0 {
		return nil
	}
	var room []string
	e.atTurn(w, func(w *workload) { w.Feasibility = "" }, func(p *pass, g *group) { room = p.roomAmong(w, g, nodes) })
	return room
}

// Rests says whether a waiting workload is not tried now: its host refused it a moment ago, or others are being ended for it. RoomFor and RoomTogether know of
// no room for it then, which does not say that there is none.
func (e *Engine) Rests(id string) bool {
	w, ok := e.work[id]
	return ok && w.waiting() && (w.retryAt != 0 || w.plan != 0)
}

// atTurn has it looked what a workload that waits finds at its turn, would it ask for something else. It is of no group with others then, none of which may
// run where it is asked of. Workloads that have turns before start nothing.
func (e *Engine) atTurn(w *workload, other func(*workload), look func(*pass, *group)) {
	asks, shape := w.Workload, w.shape
	e.ungroup(w)
	other(w)
	w.shape = e.shapeOf(&w.Workload)
	alone := e.groupKey(w)
	alone.who += "\x00alone"
	e.groups[alone] = &group{groupKey: alone, members: []*workload{w}}
	defer func() {
		delete(e.groups, alone)
		e.dropShape(w)
		w.Workload, w.shape = asks, shape
		e.regroup(w)
	}()
	p := pass{Engine: e}
	for _, groups := range p.parts() {
		p.head, p.reserve = nil, nil
		for order := p.newOrder(groups); order.first != nil; order.next(true) {
			if order.first == w {
				look(&p, order.group())
				return
			}
			p.look(order.first)
		}
	}
}

// roomAmong is RoomFor at the turn of a workload.
func (p *pass) roomAmong(w *workload, g *group, nodes []string) (room []string) {
	if p.bounded(w) || p.holds(w) || p.head != nil && len(p.planned) > 0 { // of what is being ended for others it is not known what they leave
		return nil
	}
	avoid := p.request(w).Avoid
	for _, name := range nodes {
		n, ok := p.fleet.Node(name)
		if !ok || p.fleet.NodeGone(n) || !p.fleet.Open(w.shape.Class, n) || w.Same != "" && p.fleet.DomainOf(n, w.Same) == "" {
			continue
		}
		free := 0
		for _, d := range p.fleet.DevicesOf(n) {
			if !p.fleet.DeviceGone(d) && p.rule(w.shape, d, byNothing, true) == byNothing && (avoid == nil || !avoid(d)) {
				free++
			}
		}
		if free < w.Devices || p.head != nil && !p.roomBehind(w, g, n) {
			continue
		}
		if room = append(room, name); p.head != nil && len(room) == maxRoomBehind {
			break
		}
	}
	return room
}

// roomBehind says whether a workload would be started on a node behind the first in line, were its resources free there.
func (p *pass) roomBehind(w *workload, g *group, n fleet.NodeID) bool {
	if p.reserve == nil {
		p.reserve = p.reserveFor(p.head) // before there is more on the node, which is not for that one
	}
	p.askedOf, p.asked = n, w
	mark := p.fleet.Begin()
	p.fleet.Give(n, w.shape.Resources)
	spots, ok := p.behindHead(w, g)
	p.fleet.Rollback(mark)
	p.asked, p.until = nil, 0
	return ok && spots[0].Node == n
}
