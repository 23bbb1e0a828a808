package lease

const (
	measuredLate = 50 * millisecond // a program measures its launches within so long, and hears of their ends
	measuredMost = second           // what a program measured beyond the clock is not carried for ever
)

// use takes device time off what the grant's lease is paid from.
func (g *grant) use(time NS) {
	g.books.Held += time
	g.bucket -= PS(time) * perNS
	if g.owner {
		g.credit -= PS(time) * perNS
		g.floorAccount -= PS(time) * perNS
		g.books.Rows.Own += time
		return
	}
	g.burstPending += time
	g.vtime += uint64(time) * perNS / uint64(g.policy.Weight)
}

// measuredUse is what an ungated grant has measured since it was last asked, no more than the clock says.
func (r *Rule) measuredUse(g *grant, time NS) NS {
	seen := r.observe(g)
	if seen.MeasuredNS <= g.measured {
		return 0
	}
	use := min(seen.MeasuredNS-g.measured, time)
	g.measured += use
	if seen.MeasuredNS-g.measured > measuredMost {
		g.measured = seen.MeasuredNS - measuredMost
	}
	return use
}

// charge charges the time of a device up to now.
func (r *Rule) charge(d *device, now NS) {
	if now <= d.chargedAt {
		return
	}
	from := d.chargedAt
	time := now - from
	d.chargedAt = now
	switch {
	case d.state == DeviceDown:
		d.downPending += time
	case len(d.grants) == 1 && d.grants[0].phase == phaseUngated:
		g := d.grants[0]
		use := r.measuredUse(g, time)
		g.owner = false
		g.use(use)
		d.idlePending += time - use
	default:
		for from < now {
			from = r.chargeSpan(d, from, now)
		}
	}
}

// chargeSpan charges time from which nothing changes in who is to be charged, and returns where it ends.
func (r *Rule) chargeSpan(d *device, from, until NS) NS {
	who, to := r.chargeable(d, from, until)
	if to <= from {
		to = until // never backwards, whatever a tenant announced
	}
	time := to - from
	if len(who) == 0 {
		d.idlePending += time
		return to
	}
	last := who[len(who)-1]
	holds := last == d.holder
	if len(who) == 1 && (holds || d.holder == nil && last.phase == phaseDraining) && !last.policy.Clock {
		if rival := d.rivalOf(last); rival == rivalNobody || holds && rival == rivalBorrower && last.owner {
			d.idlePending += time
			last.unsettled += time
			if rival == rivalBorrower {
				last.unsettledWanted += time
			}
			return to
		}
	}
	if len(who) > 1 && holds {
		part := r.holderPart(last, time/NS(len(who)))
		who = who[:len(who)-1]
		d.pay(last, part)
		time -= part
	}
	for i, g := range who {
		use := time / NS(len(who))
		if NS(i) < time%NS(len(who)) {
			use++
		}
		spared := d.spared(g, use)
		g.spared += spared
		d.idlePending += spared
		d.pay(g, use-spared)
	}
	return to
}

// chargeable says who is charged from a time on: every overlapped one that still runs, and of the others the one whose lease ended first and
// has not drained, or else the holder; both once the former is later than it said. Until is when that may change, if before it was.
func (r *Rule) chargeable(d *device, from, until NS) ([]*grant, NS) {
	who, holder := r.who[:0], d.holder
	var first *grant
	for _, g := range d.grants {
		switch {
		case g.phase != phaseDraining || !g.outstanding:
		case g.overlapped:
			who = append(who, g)
		case first == nil || g.endedAt < first.endedAt:
			first = g
		}
	}
	if first != nil {
		who = append(who, first)
	}
	// Holding costs only where it keeps another from running: not while others' work runs anyway.
	if holder != nil && (holder.idleSince == 0 || len(who) == 0) {
		if first == nil || from >= first.busyUntil {
			who = append(who, holder)
		} else {
			until = min(until, first.busyUntil)
		}
	}
	r.who = who
	return who, until
}

// holderPart is the holder's part of time that it shares with work that has outlived its lease: no more than it says it launched, the rest
// falls to those at fault.
func (r *Rule) holderPart(g *grant, part NS) NS {
	seen := r.observe(g)
	if seen.Outstanding || g.policy.Clock {
		return part
	}
	part = min(part, seen.LaunchedNS-min(seen.LaunchedNS, g.paid))
	g.paid += part
	return part
}

// rival is who waits for what a grant has.
type rival uint8

const (
	rivalNobody rival = iota
	rivalBorrower
	rivalOwner
)

func (d *device) rivalOf(has *grant) rival {
	most := rivalNobody
	for _, g := range d.grants {
		if g == has || !g.demand || g.barred {
			continue
		}
		if g.hasCredit() {
			return rivalOwner
		}
		most = rivalBorrower
	}
	return most
}

// mayHaveRun remembers that so much time was not charged in which a grant may have run, if it is charged by its word.
func (r *Rule) mayHaveRun(g *grant, time NS) {
	if !g.policy.Clock {
		g.unheard = min(g.unheard+time, r.config.Settle)
	}
}

// settleWordNow charges a grant for what it held by its word, before that changes; all of it, or all but what may turn out to have ended.
func (r *Rule) settleWordNow(g *grant, all bool) {
	r.settleWord(g, r.observe(g), all)
}

// settleWord charges a grant for what it held at nobody's cost, or at that of borrowers, by its word: launches at their learned durations, or
// what it has measured where that is more, never more than it held. At borrowers' cost it may hold for half of what it used; beyond that
// holding is charged.
func (r *Rule) settleWord(g *grant, seen *Observation, all bool) {
	held, wanted := g.unsettled, g.unsettledWanted
	g.unsettled, g.unsettledWanted = 0, 0
	if held == 0 {
		return
	}
	// What should have run by now of all that was launched.
	left := seen.BusyUntil - min(seen.BusyUntil, r.now)
	ran := seen.LaunchedNS - min(left, seen.OutstandingNS)
	unpaid := ran - min(ran, g.paid)
	said := max(unpaid, seen.MeasuredNS-min(seen.MeasuredNS, g.measured))

	late := seen.Outstanding && seen.BusyUntil <= r.now
	since := g.settledWordAt
	g.settledWordAt = r.now
	switch over := r.now - min(r.now, max(since, seen.BusyUntil)); {
	case late && seen.BusyUntil == 0:
		said = held // work of which nothing is known has run all the time
	case late && !all && wanted == 0 && r.now < seen.BusyUntil+measuredLate:
		// It may have ended unheard, where its program has no CPU: that time is kept for later.
		g.unsettled = min(over, held)
		g.settledWordAt = r.now - g.unsettled
		held -= g.unsettled
	case late:
		said = max(said, unpaid+over) // work that has not ended when it should have goes on
	}
	part := min(held, said)
	rest := held - part
	g.countPaid(part, unpaid, late, seen)
	g.mayHold = min(g.mayHold+part/2, r.config.Lease)
	wanted = min(wanted, rest)
	if seen.Outstanding {
		r.mayHaveRun(g, rest-wanted)
	}
	free := min(wanted, g.mayHold)
	g.mayHold -= free
	r.chargePause(g, free)
	part = min(part+wanted-free, g.device.idlePending)
	g.device.idlePending -= part
	g.use(part)
}

// chargePause takes what a grant held at borrowers' cost off what it gets above its floor, so that they lose nothing as long as it gets that: its
// turn among them comes later, by two leases at most, and its ceiling allows less, unless its floor has fallen behind.
func (r *Rule) chargePause(g *grant, pause NS) {
	if g.vtime < g.device.vmin+r.arrears(g, 2) {
		g.vtime += uint64(pause) * perNS / uint64(g.policy.Weight)
	}
	if g.policy.Ceiling > g.policy.Floor && g.credit < PS(r.config.IdleCap)*perNS*4/5 {
		g.bucket -= PS(pause) * perNS
	}
}

// countPaid remembers what of the grant's word has been charged. What is heard of late was paid for already.
func (g *grant) countPaid(part, unpaid NS, late bool, seen *Observation) {
	if late {
		g.paid += part
	} else {
		g.paid += min(part, unpaid)
	}
	g.paid = min(g.paid, seen.LaunchedNS+measuredLate)
	g.measured += part
	if !late {
		g.measured = min(g.measured, seen.MeasuredNS+measuredLate)
	}
}
