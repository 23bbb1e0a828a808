package lease

import "math/bits"

// creditLimit is what credit and debt are kept up to: what is beyond is forgiven, so that one endless kernel does not decide over a device
// for minutes.
const creditLimit = 2 * PS(second) * perNS

// silentMisses are the leases in a row that a program may let pass, where its machine is busy.
const silentMisses = 2

// accrueMost is enough for every bound to be reached, and so little that nothing overflows.
const accrueMost = second

func clamp(v, low, high PS) PS { return min(max(v, low), high) }

// idleCap is what an idle owner keeps of its credit.
func (r *Rule) idleCap(policy *Policy) PS {
	least := PS(r.config.IdleCap) * perNS
	if !policy.Latency {
		return least
	}
	return max(least, min(psOf(policy.Floor, r.config.LatencyReach), PS(r.config.LatencyCap)*perNS))
}

// accrue lets credit and bucket grow until now. Time when the device is down brings nothing.
func (r *Rule) accrue(g *grant, now NS) {
	if now <= g.accruedAt {
		return
	}
	time := min(now-g.accruedAt, accrueMost)
	g.accruedAt = now
	if g.device.state == DeviceDown {
		return
	}
	burst := PS(r.config.Burst) * perNS
	mostCredit, mostBucket := creditLimit, burst*5/2
	switch {
	case g.idle():
		mostCredit, mostBucket = r.idleCap(&g.policy), burst
	case r.silent(g, now):
		mostCredit = max(r.idleCap(&g.policy), g.credit) // what it was owed before stays
	}
	g.credit = clamp(g.credit+psOf(g.policy.Floor, time), -creditLimit, mostCredit)
	g.bucket = clamp(g.bucket+psOf(g.policy.Ceiling, time), -creditLimit, mostBucket)
}

// silent says whether nothing tells that the grant's program still wants its floor: it let leases pass again and again, or what is beside others'
// work is later than its announced end by Patience for each whose work is to drain, and nobody of it waits.
func (r *Rule) silent(g *grant, now NS) bool {
	if g.misses > silentMisses {
		return true
	}
	if !g.overlapped || g.demand {
		return false
	}
	late := max(g.busyUntil, g.endedAt)
	for _, other := range g.device.grants {
		if other.phase == phaseDraining {
			late += r.config.Patience
		}
	}
	return now > late
}

func (rows *Rows) add(more *Rows) {
	rows.Own += more.Own
	rows.Lent += more.Lent
	rows.ReservedIdle += more.ReservedIdle
	rows.BurstFree += more.BurstFree
	rows.BurstLent += more.BurstLent
}

// Books are the books of a grant as of its device's last settling.
func (r *Rule) Books(slot GrantSlot) Books {
	g := r.grants[slot]
	books := g.books
	books.Credit, books.Bucket, books.VTime = int64(g.credit/perNS), int64(g.bucket/perNS), g.vtime
	return books
}

// DeviceBooks are a device's rows as of its last settling.
func (r *Rule) DeviceBooks(slot DeviceSlot) DeviceBooks {
	d := r.devices[slot]
	return DeviceBooks{
		Since: d.since, Updated: d.settledAt, UnreservedIdle: d.unreservedIdle, Down: d.down, Switches: d.switches, Ended: d.ended,
	}
}

// Restore continues the books of an earlier arbiter, credit and debt alike; one that turns out to be idle keeps what an idle one may. It comes
// after AddTask and before Run.
func (r *Rule) Restore(slot GrantSlot, books Books) {
	g := r.grants[slot]
	const most = creditLimit / perNS
	g.books = books
	g.credit = clamp(PS(books.Credit), -most, most) * perNS
	g.bucket = clamp(PS(books.Bucket), -most, PS(r.config.Burst)*5/2) * perNS
	g.vtime = books.VTime
	g.gate.Lease = books.Leases
}

// RestoreDevice continues a device's books. Away books the time since then.
func (r *Rule) RestoreDevice(slot DeviceSlot, books DeviceBooks) {
	d := r.devices[slot]
	d.since = books.Since
	d.settledAt, d.chargedAt = books.Updated, books.Updated
	d.unreservedIdle, d.down, d.switches, d.ended = books.UnreservedIdle, books.Down, books.Switches, books.Ended
}

// Away books the time from a device's last settling until now, when no arbiter watched: to a floor whose task was live as own, since
// tenants pace themselves at their floors; other floors as reserved and idle; the rest as idle. No credit accrues for it. Also for an arbiter that was there
// all the time and did not run, after a Settle as of when it last did.
func (r *Rule) Away(slot DeviceSlot, now NS, live func(GrantSlot) bool) {
	d := r.devices[slot]
	time := NS(0)
	if now > d.settledAt {
		time = now - d.settledAt
	}
	d.settledAt, d.chargedAt = now, now
	if d.state == DeviceDown {
		d.down += time
		return
	}
	rest := time
	for _, g := range d.grants {
		g.accruedAt, g.lookedAt = now, now
		part := min(mulDiv(time, NS(g.policy.Floor), NS(milli)), rest)
		rest -= part
		if live(g.slot) {
			g.books.Rows.Own += part
			g.books.Held += part
		} else {
			g.books.Rows.ReservedIdle += part
			r.mayHaveRun(g, time)
		}
	}
	d.unreservedIdle += rest
}

// mulDiv is a × b / c rounded down, without overflow on the way; the result must fit.
func mulDiv(a, b, c NS) NS {
	high, low := bits.Mul64(uint64(a), uint64(b))
	quotient, _ := bits.Div64(high, low, uint64(c))
	return NS(quotient)
}
