package lease

const (
	revokeCheck = 50 * microsecond // a launch that was let through while its lease was revoked shows by then
	barCheck    = 20 * microsecond // a bucket that empties about as fast as it fills, as work drains, is looked at no more often
	fill        = millisecond      // the shortest lease worth giving while a device is being gathered
)

// step does what is due on one device now and sets the time when something is due next.
func (r *Rule) step(d *device) {
	d.next = Never
	r.charge(d, r.now)
	if r.now >= d.settledAt+r.config.Settle {
		r.Settle(d.slot, r.now)
	}
	if r.now >= d.askedAt+r.config.Settle {
		r.admit(d)
	}
	if len(d.grants) == 0 || d.state == DeviceDown {
		return
	}
	if r.stepUngated(d) {
		r.listen(d.grants[0])
		return
	}
	busy := false
	for _, g := range d.grants {
		if !g.idle() {
			r.listen(g)
		}
		r.accrue(g, r.now)
		r.stepLate(g)
		r.stepCeiling(g)
		if g.demand && g.retryAt > r.now {
			d.due(g.retryAt)
		}
		busy = busy || !g.idle()
	}
	if d.handoff {
		r.handOff(d)
	}
	r.renewVMin(d)
	if busy {
		d.due(d.settledAt + r.config.Settle)
	}
	if d.holder != nil {
		r.stepHolder(d)
	}
	if d.holder == nil {
		r.stepFree(d)
	}
}

// stepHolder decides whether the holder goes on.
func (r *Rule) stepHolder(d *device) {
	holder, best := d.holder, r.choose(d)
	wanted := false
	for _, g := range d.grants {
		wanted = wanted || g != holder && r.waits(g) && mayRun(g)
	}
	idleAt, lost := NS(0), !mayRun(holder)
	if !lost {
		idleAt, lost = r.idled(holder, wanted)
	}
	if lost {
		r.loseIdle(holder)
		return
	}
	other := best != nil && best != holder
	if other && d.setAside == nil && revokes(best, holder) {
		if best.task.isGang() {
			r.gather(best.task)
			return
		}
		holder.books.Revoked++
		r.endLease(holder)
		return
	}
	d.due(idleAt)
	if d.setAside == nil {
		emptyAt, soon := r.aboutToIdle(holder, wanted)
		if soon {
			holder.lostIdleAt = holder.busyUntil
			holder.yielded = true
			r.endLease(holder)
			return
		}
		d.due(emptyAt)
	}
	end, ahead := holder.gate.End, r.config.Ahead
	if decide := end - min(ahead, end); r.now < decide {
		d.due(decide)
		return
	}
	if best == holder && d.setAside == nil && r.extend(holder) {
		d.due(holder.gate.End - ahead)
		return
	}
	// What it has let through lasts until about the end: closed now, it says for good when the device will be free.
	enough := other && holder.outstanding && holder.busyUntil > r.now && d.setAside == nil
	if r.now >= end || enough {
		r.endLease(holder)
	} else {
		d.due(end)
	}
}

// stepFree gives a device that nobody holds to the next.
func (r *Rule) stepFree(d *device) {
	if t := d.setAside; t != nil {
		r.finishGather(d)
		if d.setAside != t || r.now+fill > t.gatherAt {
			return
		}
	}
	best := r.candidate(d)
	if best == nil {
		return
	}
	if best.task.isGang() {
		r.gather(best.task)
		return
	}
	if again, blocked := r.blocked(d, best); blocked {
		d.due(again)
		return
	}
	length := r.leaseLength(best)
	if length == 0 { // its bucket has run out since it was last looked at
		best.barred = true
		d.next = r.now
		return
	}
	t := d.setAside
	if t != nil {
		length = min(length, t.gatherAt-r.now)
	}
	r.open(best, length)
	d.setAside = t
	d.next = r.now // sets its own next wake-up
}

// candidate is who may have a device that nobody holds: one that needs no other, while it is set aside.
func (r *Rule) candidate(d *device) *grant {
	if d.setAside != nil {
		return r.best(d, false)
	}
	return r.choose(d)
}

// stepUngated lets a device's only grant with a whole ceiling run ungated, and ends that where it is not so any more. It says whether it is.
func (r *Rule) stepUngated(d *device) bool {
	g := d.grants[0]
	sole := len(d.grants) == 1 && g.policy.Ceiling >= milli && !g.policy.Clock && mayRun(g)
	for _, other := range d.grants {
		if other.phase != phaseUngated || sole {
			continue
		}
		other.phase = phaseOpen
		other.openAt = r.now
		d.holder = other
		other.gate.End = r.now + 1 // no longer endless: it ends now
		r.endOne(other)
	}
	if !sole || g.phase == phaseUngated {
		return sole
	}
	if g.phase == phaseOpen {
		r.endLease(g)
	}
	g.measured = r.observe(g).MeasuredNS
	g.unheard = 0
	g.phase = phaseUngated
	g.overlapped, g.waking = false, false
	g.gate = Gate{Open: true, Ungated: true, Lease: g.gate.Lease + 1, Start: r.now, End: Never}
	r.publish(g)
	return true
}

// stepLate looks at work of a lease that is over.
func (r *Rule) stepLate(g *grant) {
	if g.phase != phaseDraining {
		return
	}
	if !g.outstanding {
		g.device.due(r.now + revokeCheck)
	}
	if g.overlapped {
		return
	}
	if late := r.overlapAt(g); r.now < late {
		g.device.due(late)
		return
	}
	g.overlapped = true
	g.books.Overlapped++
}

// stepCeiling bars a grant at the point where its bucket allows no lease that is worth a switch, until there is enough for a whole one.
func (r *Rule) stepCeiling(g *grant) {
	if g.policy.Ceiling >= milli {
		g.barred = false
		return
	}
	enough := psOf(milli-g.policy.Ceiling, r.config.Lease)
	if g.bucket < enough/4 && g.phase != phaseOpen {
		g.barred = true
	}
	if g.bucket >= enough {
		g.barred = false
	} else if g.barred && g.demand {
		g.device.due(r.now + max(NS(enough-g.bucket)/NS(g.policy.Ceiling)+1, barCheck))
	}
}

// renewVMin lets the least vtime of those who are active rise. One whom its ceiling holds back would gather arrears without end: it is kept
// within a lease of the others.
func (r *Rule) renewVMin(d *device) {
	least := ^uint64(0)
	for _, g := range d.grants {
		if !g.idle() && !g.barred {
			least = min(least, g.vtime)
		}
	}
	if least == ^uint64(0) || least <= d.vmin {
		return
	}
	d.vmin = least
	for _, g := range d.grants {
		if lag := r.arrears(g, 1); !g.idle() && g.vtime+lag < least {
			g.vtime = least - lag
		}
	}
}

// arrears is how far behind a number of leases leave a grant's vtime.
func (r *Rule) arrears(g *grant, leases uint64) uint64 {
	return leases * uint64(r.config.Lease) * perNS / uint64(g.policy.Weight)
}
