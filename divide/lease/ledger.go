package lease

// lendable is what can be taken from a grant's floor: what that has gathered beyond the credit that its owner may still use, or the whole of it
// where nothing else is left to take from.
func (g *grant) lendable(whole bool) NS {
	keep := PS(0)
	if !whole {
		keep = max(g.credit, 0)
	}
	return NS(max(g.floorAccount-keep, 0) / perNS)
}

// takeFloors takes up to an amount from the floors of all but one in proportion to what each has, and books it as lent or as reserved and
// idle. It returns what it took.
func (r *Rule) takeFloors(d *device, except *grant, whole bool, amount NS, lent bool) NS {
	have, sum := r.have[:0], NS(0)
	for _, g := range d.grants {
		part := NS(0)
		if g != except {
			part = g.lendable(whole)
		}
		have = append(have, part)
		sum += part
	}
	r.have = have
	amount = min(amount, sum)
	if amount == 0 {
		return 0
	}
	// Cumulative shares, so that the parts add up to the amount exactly and none is more than its grant has.
	before, given := NS(0), NS(0)
	for i, g := range d.grants {
		before += have[i]
		until := mulDiv(amount, before, sum)
		part := until - given
		given = until
		g.floorAccount -= PS(part) * perNS
		if lent {
			g.books.Rows.Lent += part
		} else {
			g.books.Rows.ReservedIdle += part
		}
	}
	return amount
}

func (d *device) takeUnreserved(amount NS) NS {
	amount = min(amount, NS(max(d.freeAccount, 0)/perNS))
	d.freeAccount -= PS(amount) * perNS
	return amount
}

// settleBurst books use under borrowers' leases: first from the grant's own idle floor, then from what nobody reserved, then from others' idle
// floors. A ceiling at the floor leaves no burst: what its bucket let it have ahead of its floor is its own, which the floor then owes.
func (r *Rule) settleBurst(d *device, g *grant) {
	left := g.burstPending
	g.burstPending = 0
	own := g.lendable(false)
	if own >= left || g.policy.Ceiling <= g.policy.Floor {
		own = left
	}
	g.floorAccount -= PS(own) * perNS
	g.books.Rows.Own += own
	left -= own

	unreserved := d.takeUnreserved(left)
	left -= unreserved
	lent := r.takeFloors(d, g, false, left, true)
	left -= lent
	more := r.takeFloors(d, g, true, left, true)
	left -= more
	d.freeAccount -= PS(left) * perNS // owed by those in debt; comes back as they repay
	g.books.Rows.BurstFree += unreserved + left
	g.books.Rows.BurstLent += lent + more
}

// settleIdle books idle time: from what nobody reserved, then from idle floors.
func (r *Rule) settleIdle(d *device) {
	left := d.idlePending
	d.idlePending = 0
	unreserved := d.takeUnreserved(left)
	left -= unreserved
	left -= r.takeFloors(d, nil, false, left, false)
	left -= r.takeFloors(d, nil, true, left, false)
	d.freeAccount -= PS(left) * perNS
	d.unreservedIdle += unreserved + left
}

// fillAccounts lets the accounts of a device grow. Floors never add up to more than the device; if limits say so they count in the order of the
// grants until it is full.
func (d *device) fillAccounts(time NS) {
	room := milli
	for _, g := range d.grants {
		floor := min(g.policy.Floor, room)
		g.floorAccount += psOf(floor, time)
		room -= floor
	}
	d.freeAccount += psOf(room, time)
}

// settleUnheard charges a grant what it has measured since of time that it was not charged for, if the device has idled for so long since.
func (r *Rule) settleUnheard(g *grant) {
	seen := r.observe(g)
	left := seen.MeasuredNS - min(seen.MeasuredNS, g.measured)
	part := min(left, g.unheard, g.device.idlePending)
	g.device.idlePending -= part
	g.measured += part
	g.use(part)
	g.unheard = (g.unheard - part) / 2 // that may be heard of at the next settling, if ever
	if !seen.Outstanding && part == left {
		g.unheard = 0
	}
}

// Settle books all time of a device up to now: then its rows and those of its grants add up. It decides nothing.
func (r *Rule) Settle(slot DeviceSlot, now NS) {
	d := r.devices[slot]
	r.now = now // words are weighed by it
	r.charge(d, now)
	for _, g := range d.grants {
		if g.unsettled > 0 {
			r.settleWordNow(g, true) // what is settled as idle is not charged later
		}
	}
	if now <= d.settledAt {
		return
	}
	for _, g := range d.grants {
		if g.unheard > 0 {
			r.settleUnheard(g)
		}
	}
	time := now - d.settledAt
	d.settledAt = now
	for _, g := range d.grants {
		r.accrue(g, now)
	}
	d.down += d.downPending
	d.fillAccounts(time - d.downPending)
	d.downPending = 0
	for _, g := range d.grants {
		r.settleBurst(d, g)
	}
	r.settleIdle(d)
}
