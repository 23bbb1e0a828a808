package engine

import "github.com/aliquot-dev/aliquot/engine/place"

// startsSoon is a workload behind the head for which a plan was made, and what it leaves of the nodes that it will have. A plan takes what is being ended for
// ended, for a workload that waits for a limit of its queue as for one that waits for room. Until that is so, others would be let in on the room that was
// made, and would be ended for it again.
type startsSoon struct {
	w *workload
	r *reservation
}

// behindHead finds where a workload may start behind the head, and those that start soon. The books hold what it found.
func (p *pass) behindHead(w *workload, g *group) ([]place.Spot, bool) {
	if spots, ok := p.besideSoons(w, g); ok {
		return spots, true
	}
	if w.plan != 0 && p.planHolds(w) {
		p.keepsRoom(w)
	}
	return nil, false
}

// besideSoons is backfill that leaves those that start soon their room.
func (p *pass) besideSoons(w *workload, g *group) ([]place.Spot, bool) {
	if len(p.soons) == 0 {
		return p.backfill(w, g)
	}
	mark := p.fleet.Begin()
	if spots, ok := p.backfill(w, g); ok && p.leavesSoons(w, spots) {
		p.fleet.Commit(mark)
		return spots, true
	}
	p.fleet.Rollback(mark)
	p.until = 0
	return nil, false
}

// planHolds says that a plan for a workload is under way, or that one which was carried out is enough once what is being ended is over. One that is not is forgotten.
func (p *pass) planHolds(w *workload) bool {
	if p.plans[w.plan] != nil {
		return true
	}
	t := trial{pass: p, w: w}
	mark := p.fleet.Begin()
	t.assumePlans()
	ok := t.fits()
	t.putBack(0)
	p.fleet.Rollback(mark)
	if !ok {
		p.setPlan(w, 0)
	}
	return ok
}

// keepsRoom has a workload for which there is a plan hold others back: it is the head, or, behind one, starts soon.
func (p *pass) keepsRoom(w *workload) {
	switch {
	case w.plan == 0:
	case p.head == nil:
		p.head = w
	default:
		if r := p.reserveSoon(w); r != nil {
			p.soons = append(p.soons, startsSoon{w, r})
		}
	}
}

// reserveSoon is what is left of the nodes of a workload beside the head and those that start soon, once what is being ended is over; nil: it has no room then.
func (p *pass) reserveSoon(w *workload) *reservation {
	mark := p.fleet.Begin()
	defer p.fleet.Rollback(mark)
	for t := range p.ending {
		if t.live() && t.evicting {
			p.lift(t)
		}
	}
	p.placer.Place(p.request(p.head)) // if it fits
	for _, s := range p.soons {
		p.placer.Place(p.request(s.w))
	}
	spots, ok := p.placer.Place(p.request(w))
	if !ok {
		return nil
	}
	r := &reservation{known: true, at: p.now}
	r.record(p.Engine, spots)
	return r
}

// leavesSoons takes a workload's spots off what those that start soon leave, if that is so much.
func (p *pass) leavesSoons(w *workload, spots []place.Spot) bool {
	if w.shape.nothing() {
		return true
	}
	for _, s := range p.soons {
		if !s.r.spares(p.Engine, w, spots) {
			return false
		}
	}
	return true
}
