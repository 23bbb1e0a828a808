package lease

// awayAfter is for how long a grant must pause to have been away.
const awayAfter = 20 * millisecond

// listen hears what a grant's processes say and draws the conclusions that need no decision.
func (r *Rule) listen(g *grant) {
	r.accrue(g, r.now)
	silent, stopped := r.silent(g, r.now), r.silent(g, r.now-min(r.now, r.config.Patience))
	seen := r.observe(g)
	if seen.Waiting || seen.Outstanding || seen.Launched != g.launched {
		g.used = true
	}
	if g.lookedAt == 0 {
		g.measured = seen.MeasuredNS // before that another arbiter charged it
	}
	// Launched without a lease, as one may that had passed the gate when that closed.
	unleased := g.phase == phaseIdle || g.phase == phaseDraining && !g.outstanding
	if unleased && seen.Launched != g.launched && g.lookedAt != 0 {
		r.mayHaveRun(g, r.now-g.lookedAt)
	}
	g.lookedAt = r.now
	if g.phase == phaseOpen || g.phase == phaseDraining {
		r.settleWord(g, seen, false)
	}
	if g.phase == phaseOpen {
		r.hearHolder(g, seen)
	}
	if seen.Waiting && (!g.demand || seen.WaitSince != g.demandSince) {
		r.hearWait(g, seen)
	}
	if !seen.Waiting {
		g.waking = false
	}
	g.demand = seen.Waiting
	g.coming = seen.Coming
	if seen.Launched != g.launched {
		g.stillSince = r.now
	}
	g.launched = seen.Launched
	g.outstanding = seen.Outstanding
	r.hearDrain(g)
	g.completed = seen.Completed
	g.outstandingNS = seen.OutstandingNS
	g.paid = max(g.paid, seen.LaunchedNS-seen.OutstandingNS)
	if g.phase == phaseIdle {
		// What ran within its lease and was measured after it is charged in the next; no more than that, and what may have run unseen.
		least := seen.MeasuredNS - min(seen.MeasuredNS, r.config.Lease+g.unheard)
		g.measured = min(max(g.measured, least), seen.MeasuredNS)
	}
	g.hearEnd(seen)
	if !silent || r.silent(g, r.now) {
		return
	}
	// What it was charged meanwhile, and others admit, is not owed to it either; nor to anybody where it was stopped and not late alone.
	if stopped {
		r.revived(g)
	} else {
		g.claim = max(g.claim, 0)
	}
}

func (r *Rule) hearHolder(g *grant, seen *Observation) {
	launched := seen.Launched != g.launched
	if !seen.Outstanding && !seen.Coming && !launched {
		if g.idleSince == 0 {
			g.idleSince = r.now
		}
		return
	}
	if g.idleSince != 0 && g.launched != g.launchedAtOpen {
		g.quick = true
		g.pause = r.now - g.idleSince
	}
	if launched {
		g.retryAt, g.misses = 0, 0
	}
	g.idleSince = 0
	if !seen.Outstanding && !seen.Coming {
		g.idleSince = r.now // launched and already drained
	}
}

// hearWait hears of a new wait. One that paused between two batches keeps what its vtime is behind by, up to two leases; one that was away
// starts level. Who comes back with credit is an owner who wakes.
func (r *Rule) hearWait(g *grant, seen *Observation) {
	g.demandSince = seen.WaitSince
	if g.retrySince != g.demandSince {
		g.retryAt = 0
	}
	if g.lostIdleAt != 0 && g.demandSince < g.lostIdleAt+r.config.Idle {
		g.quick = true
		g.pause = g.demandSince - min(g.demandSince, g.lostIdleAt)
	}
	g.lostIdleAt = 0
	if g.phase != phaseIdle && !g.yielded {
		return
	}
	lag := uint64(0)
	if r.now < g.endedAt+awayAfter {
		lag = r.arrears(g, 2)
	}
	if g.vtime+lag < g.device.vmin {
		g.vtime = g.device.vmin - lag
	}
	if g.hasCredit() {
		g.waking = true
		g.wokeAt = r.now
	}
}

// hearDrain notices that work of a lease that is over has ended, and work without a lease: it paced itself while no arbiter was there, or
// slipped through a revocation.
func (r *Rule) hearDrain(g *grant) {
	switch {
	case g.phase == phaseDraining && !g.outstanding && g.endedAt < r.now:
		g.phase = phaseIdle
		g.overlapped = false
		g.device.handoff = true
	case g.phase == phaseIdle && g.outstanding:
		g.phase = phaseDraining
		g.owner = g.policy.Floor > 0
		g.endedAt = r.now
		g.overlapped = false
	}
}

// hearEnd hears when the grant's work should end. Work that was let through while its predecessor's still ran was estimated from its launch;
// until its first part has ended that is too early by what was left of the predecessor's. A lease that is over launches nothing, so its last
// word stands and a later one is not believed.
func (g *grant) hearEnd(seen *Observation) {
	until := seen.BusyUntil
	if until != 0 && g.late != 0 && seen.Completed == g.lateCompleted {
		until += g.late
	}
	if g.phase != phaseDraining || g.busyUntil == 0 || until < g.busyUntil {
		g.busyUntil = until
	}
}

// handOff: the device has just become its holder's, whose work so starts only now.
func (r *Rule) handOff(d *device) {
	d.handoff = false
	g := d.holder
	if g == nil || !g.outstanding || g.completed != g.lateCompleted {
		return
	}
	end := r.now + g.outstandingNS
	if g.busyUntil == 0 || g.busyUntil >= end {
		return
	}
	g.late = min(end-g.busyUntil, r.config.Overlap)
	g.busyUntil += g.late
}
