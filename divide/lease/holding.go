package lease

const (
	retryFirst = 500 * microsecond // one who waited and then launched nothing: twice as long each time,
	retrySteps = 7                 // up to 64 ms
	shortPause = 150 * microsecond // a pause that costs no more than giving the device away and back
	stillFor   = 200 * microsecond // who has launched nothing for so long may have launched its last for now
	recheck    = 500 * microsecond // when to look again at work that is late, without word from its processes
)

// endLease ends the lease that the grant's task holds, on all its devices.
func (r *Rule) endLease(holder *grant) {
	for _, g := range holder.task.grants {
		if g.phase == phaseOpen {
			r.endOne(g)
			g.device.next = r.now
		}
	}
}

func (r *Rule) endOne(g *grant) {
	d := g.device
	r.charge(d, r.now)
	r.settleWordNow(g, false)
	r.accrue(g, r.now)
	early := r.now < g.gate.End
	g.gate.Open, g.gate.Ungated, g.gate.Extended = false, false, false
	g.gate.End = r.now
	r.publish(g)
	g.endedAt = r.now
	g.idleSince = 0
	g.wakeLease = false
	switch {
	case g.outstanding:
		g.phase = phaseDraining
	case early: // a launch that was let through meanwhile shows a little later
		g.phase = phaseDraining
		g.busyUntil = r.now
	default:
		g.phase = phaseIdle
	}
	if d.holder == g {
		d.holder = nil
	}
}

// open gives a grant its device under a lease, which is as long from when the device should be free.
func (r *Rule) open(g *grant, length NS) {
	d := g.device
	r.charge(d, r.now)
	r.accrue(g, r.now)
	freeAt := r.now
	for _, other := range d.grants {
		if other != g && other.phase == phaseDraining && !other.overlapped {
			freeAt = max(freeAt, other.busyUntil)
		}
	}
	g.phase = phaseOpen
	g.overlapped = false
	g.owner = g.hasCredit()
	g.gate = Gate{Open: true, Lease: g.gate.Lease + 1, Start: r.now, End: freeAt + length}
	g.openAt = r.now
	g.launchedAtOpen = g.launched
	g.late, g.lateCompleted = 0, g.completed
	g.idleSince = 0
	g.wakeLease = g.waking
	g.books.Leases++
	if g.demand {
		g.countWait(r.now)
	}
	g.waking, g.yielded = false, false
	if d.lastHolder != nil && d.lastHolder != g {
		d.switches++
	}
	d.holder, d.lastHolder = g, g
	d.setAside = nil
	r.publish(g)
}

func (g *grant) countWait(now NS) {
	waited := NS(0)
	if now > g.demandSince {
		waited = now - g.demandSince
	}
	g.books.Wait += waited
	if g.waking {
		g.books.Wakes++
		g.books.WakeWorst = max(g.books.WakeWorst, waited)
	}
}

// extend lets the lease of a task go on, on all devices that it holds, as far as its buckets allow, if it is first on each of them, or nobody
// else wants that.
func (r *Rule) extend(holder *grant) bool {
	length := r.config.Lease
	for _, g := range holder.task.grants {
		if g.phase != phaseOpen {
			continue
		}
		if g != holder {
			if first := r.choose(g.device); first != nil && first != g {
				return false
			}
		}
		r.accrue(g, r.now)
		length = min(length, r.leaseLength(g))
	}
	if length == 0 {
		return false
	}
	for _, g := range holder.task.grants {
		if g.phase != phaseOpen {
			continue
		}
		r.charge(g.device, r.now)
		g.owner = g.hasCredit()
		g.wakeLease = false
		g.gate.End += length
		g.gate.Extended = true
		r.publish(g)
	}
	return true
}

// overlapAt is when undrained work of a lease that is over is overlapped: Overlap after the lease's end, or after the end that the work itself
// announced, within Patience, unless an owner who has just woken waits. A long kernel that is known is let finish: beside another it would
// only take twice as long, and nobody could say who used what.
func (r *Rule) overlapAt(g *grant) NS {
	from := g.endedAt
	if g.busyUntil > from {
		from = min(g.busyUntil, g.endedAt+r.config.Patience)
	}
	for _, other := range g.device.grants {
		if other.waking {
			from = g.endedAt
		}
	}
	return from + r.config.Overlap
}

// blocked says whether work of leases that are over keeps a device from the next, and if so when to look again at the latest.
func (r *Rule) blocked(d *device, next *grant) (again NS, blocked bool) {
	again = Never
	early := r.config.Early
	for _, g := range d.grants {
		if g.phase != phaseDraining || g.overlapped || g == next {
			continue
		}
		at := r.now + recheck
		if g.busyUntil > r.now+early {
			at = g.busyUntil - early
		} else if g.busyUntil+early >= r.now {
			continue // about to be free
		}
		again = min(again, at, r.overlapAt(g))
		blocked = true
	}
	return again, blocked
}

// worthHolding says whether it is worth waiting for a holder who has drained while others want the device: it came back soon the last time,
// and either so soon that two changes of leases would cost as much, or its floor has fallen behind.
func (r *Rule) worthHolding(g *grant) bool {
	return g.quick && (g.pause <= shortPause || g.credit >= PS(r.config.IdleCap)*perNS/2)
}

// idleDeadline is when an idle holder loses its lease.
func (r *Rule) idleDeadline(g *grant, wanted bool) NS {
	switch {
	case g.launched == g.launchedAtOpen:
		return g.openAt + r.config.Start
	case !wanted || r.worthHolding(g):
		return g.idleSince + r.config.Idle
	default:
		return g.idleSince
	}
}

// idled says whether all grants that share the holder's lease are idle past their deadlines, and when that could be; Never: one is at work.
func (r *Rule) idled(holder *grant, wanted bool) (at NS, lost bool) {
	for _, g := range holder.task.grants {
		if g.phase != phaseOpen {
			continue
		}
		if g.idleSince == 0 {
			return Never, false
		}
		at = max(at, r.idleDeadline(g, wanted))
	}
	return at, at <= r.now
}

// aboutToIdle says whether the holder's work should end within Early, nothing comes behind it and it will not come back soon then: the device
// goes to whoever waits before it idles. Not from the latency class, whose next request may come any moment. at is when to look again; while
// launches come, what is queued lasts until about then.
func (r *Rule) aboutToIdle(holder *grant, wanted bool) (at NS, soon bool) {
	if !wanted || !holder.outstanding || holder.busyUntil < r.now || holder.policy.Latency {
		return Never, false
	}
	if holder.demand || holder.launched == holder.launchedAtOpen || holder.task.isGang() || r.worthHolding(holder) {
		return Never, false
	}
	since := holder.stillSince
	if holder.coming {
		since = r.now
	}
	at = max(since+stillFor, holder.busyUntil-min(holder.busyUntil, r.config.Early))
	return at, at <= r.now
}

// loseIdle ends the lease of a holder that makes no use of it, or may not any more.
func (r *Rule) loseIdle(holder *grant) {
	for _, g := range holder.task.grants {
		switch {
		case g.phase != phaseOpen:
		case g.launched == g.launchedAtOpen:
			// Once is a busy machine; again and again is a process that is stopped, and others should not wait for it.
			g.retryAt = r.now
			if g.misses > 0 {
				g.retryAt += retryFirst << min(g.misses, retrySteps)
			}
			g.misses++
			g.retrySince = g.demandSince
		default:
			g.lostIdleAt = g.idleSince
			if r.now >= g.idleSince+r.config.Idle {
				g.quick = false
			}
			g.yielded = !g.quick // it wakes though its end is not noticed yet; one that waits after each launch only goes on
		}
	}
	r.endLease(holder)
}
