package place

// At takes spots that were found before for the same request, one for each task, if all of them still have room and may be used; else it takes nothing.
func (p *Placer) At(r *Request, spots []Spot) bool {
	mark := p.fleet.Begin()
	for i, s := range spots {
		one := r.Of(i)
		if r.Same != "" && p.fleet.DomainOf(s.Node, r.Same) != p.fleet.DomainOf(spots[0].Node, r.Same) || !p.hasRoomAt(r, one, s) {
			p.fleet.Rollback(mark)
			return false
		}
		p.take(one, s, 1)
	}
	p.fleet.Commit(mark)
	return true
}

// hasRoomAt says that a spot has room for a task that asks for one of what the request does.
func (p *Placer) hasRoomAt(r, one *Request, s Spot) bool {
	if !p.fleet.Open(r.Class, s.Node) || !p.fleet.HasFree(s.Node, one.Resources) || len(s.Devices) != one.Devices {
		return false
	}
	for _, d := range s.Devices {
		if p.fleet.NodeOf(d) != s.Node || !p.fits(one, d) || !p.deviceOK(r, d) || !one.inBound(p.fleet.Memory(d)) {
			return false
		}
	}
	return true
}
