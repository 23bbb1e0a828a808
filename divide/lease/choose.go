package lease

// gated grants take part in their task's leases: those that have been used and are not ungated.
func (g *grant) gated() bool { return g.used && g.phase != phaseUngated }

// isGang says that a task must hold several devices together.
func (t *task) isGang() bool {
	if len(t.grants) == 1 {
		return false
	}
	n := 0
	for _, g := range t.grants {
		if g.gated() {
			n++
		}
	}
	return n > 1
}

// waits says that a grant waits at its gate, and is not passed over for having let its leases pass.
func (r *Rule) waits(g *grant) bool { return g.demand && g.retryAt <= r.now }

// wants says that a grant would use its device. A task with several devices waits where any of its processes waits.
func (r *Rule) wants(g *grant) bool {
	if g.phase == phaseOpen {
		return g.idleSince == 0
	}
	if !g.task.isGang() {
		return r.waits(g)
	}
	for _, other := range g.task.grants {
		if r.waits(other) {
			return g.gated()
		}
	}
	return false
}

// leaseLength is how long a lease may be by the grant's bucket: 0 where that allows none that is worth a switch.
func (r *Rule) leaseLength(g *grant) NS {
	whole := r.config.Lease
	if g.policy.Ceiling >= milli {
		return whole
	}
	if g.bucket <= 0 {
		return 0
	}
	length := NS(g.bucket) / NS(milli-g.policy.Ceiling)
	if length < whole/4 {
		return 0
	}
	return min(length, whole)
}

// mayRun says that limits and health let a grant run, apart from who is first.
func mayRun(g *grant) bool {
	return g.device.state != DeviceDown && !g.policy.Stopped && !g.barred
}

// woken says that a grant is an owner whose task has just woken.
func woken(g *grant) bool {
	if !g.hasCredit() {
		return false
	}
	for _, other := range g.task.grants {
		if other.waking {
			return true
		}
	}
	return false
}

// rank orders claims: the lowest is served first.
type rank uint8

const (
	rankWoken rank = iota
	rankOwner
	rankBorrower
)

func rankOf(g *grant) rank {
	switch {
	case woken(g):
		return rankWoken
	case g.hasCredit():
		return rankOwner
	default:
		return rankBorrower
	}
}

// before says that a is served before b. It is a strict order: two grants are never equal.
func before(a, b *grant) bool {
	rankA, rankB := rankOf(a), rankOf(b)
	switch {
	case rankA != rankB:
		return rankA < rankB
	case rankA != rankBorrower && a.policy.Latency != b.policy.Latency:
		return a.policy.Latency
	case rankA == rankWoken && a.wokeAt != b.wokeAt:
		return a.wokeAt < b.wokeAt
	case rankA == rankOwner && a.credit != b.credit:
		return a.credit > b.credit
	case rankA == rankBorrower && a.vtime != b.vtime:
		return a.vtime < b.vtime
	case a.demandSince != b.demandSince:
		return a.demandSince < b.demandSince
	default:
		return a.slot < b.slot
	}
}

// best is the first of those that want a device, its holder included, tasks with several devices only if gangs are to count; nil: nobody.
func (r *Rule) best(d *device, gangs bool) *grant {
	var best *grant
	for _, g := range d.grants {
		switch {
		case g.phase == phaseUngated || !mayRun(g) || !r.wants(g):
		case !gangs && g.task.isGang():
		case best == nil || before(g, best):
			best = g
		}
	}
	return best
}

// couldGather says that a task that holds several devices together could get them all: nothing bars it, and none is set aside for another.
func couldGather(t *task) bool {
	for _, g := range t.grants {
		if !g.gated() {
			continue
		}
		if other := g.device.setAside; !mayRun(g) || other != nil && other != t {
			return false
		}
	}
	return true
}

// waitsSince is since when a task with several devices waits on any of them; now, if it waits nowhere.
func (r *Rule) waitsSince(t *task) NS {
	since := r.now
	for _, g := range t.grants {
		if g.demand {
			since = min(since, g.demandSince)
		}
	}
	return since
}

func (r *Rule) firstEverywhere(t *task) bool {
	for _, g := range t.grants {
		if g.gated() && r.best(g.device, true) != g {
			return false
		}
	}
	return true
}

// choose says who is to hold a device next: its holder, if that is to go on; nil: nobody.
func (r *Rule) choose(d *device) *grant {
	best := r.best(d, true)
	if best == nil || !best.task.isGang() {
		return best
	}
	if couldGather(best.task) && r.firstEverywhere(best.task) {
		return best
	}
	if single := r.best(d, false); single != nil {
		return single
	}
	// Only tasks with several devices want it and none is first everywhere: they could wait for each other in a ring, so the one that
	// has waited longest goes.
	var longest *grant
	for _, g := range d.grants {
		if g.phase == phaseUngated || !r.wants(g) || !couldGather(g.task) {
			continue
		}
		if longest == nil || r.waitsSince(g.task) < r.waitsSince(longest.task) {
			longest = g
		}
	}
	return longest
}

// revokes says that an owner who has just woken ends the holder's lease at once.
func revokes(owner, holder *grant) bool {
	if !woken(owner) || owner.task == holder.task {
		return false
	}
	return !holder.wakeLease || owner.policy.Latency && !holder.policy.Latency
}
