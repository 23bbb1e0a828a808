package lease

import "fmt"

// visitor is given all that a Rule keeps and that decides over what comes out, number by number, in the order of native/arbiter/test/state.c.
type visitor interface {
	visit(of string, index int, name string, value uint64)
}

// digest folds a state into a number, as native/arbiter/test/record.c does.
type digest uint64

func (d *digest) visit(_ string, _ int, _ string, value uint64) {
	*d = (*d ^ digest(value)) * 0x9e3779b97f4a7c15
	*d ^= *d >> 32
}

// lines are a state as text, a number with its name a line.
type lines []string

func (l *lines) visit(of string, index int, name string, value uint64) {
	*l = append(*l, fmt.Sprintf("%s %d %s %d", of, index, name, int64(value)))
}

func truth(b bool) uint64 {
	if b {
		return 1
	}
	return 0
}

// slotOf is the number of a grant or task that there may be none of.
func grantSlot(g *grant) uint64 {
	if g == nil {
		return ^uint64(0)
	}
	return uint64(g.slot)
}

func taskSlot(t *task) uint64 {
	if t == nil {
		return ^uint64(0)
	}
	return uint64(t.slot)
}

func visitRule[V visitor](r *Rule, v V) {
	for i, d := range r.devices {
		visitDevice(d, i, v)
		for _, g := range d.grants {
			slot := int(g.slot)
			v.visit("grant", slot, "task", uint64(g.task.slot))
			visitLease(g, slot, v)
			visitCharges(g, slot, v)
		}
	}
}

func visitRows[V visitor](of string, index int, rows *Rows, v V) {
	v.visit(of, index, "own", uint64(rows.Own))
	v.visit(of, index, "lent", uint64(rows.Lent))
	v.visit(of, index, "reserved idle", uint64(rows.ReservedIdle))
	v.visit(of, index, "burst free", uint64(rows.BurstFree))
	v.visit(of, index, "burst lent", uint64(rows.BurstLent))
}

func visitDevice[V visitor](d *device, i int, v V) {
	v.visit("device", i, "state", uint64(d.state))
	v.visit("device", i, "holder", grantSlot(d.holder))
	v.visit("device", i, "set aside", taskSlot(d.setAside))
	v.visit("device", i, "last holder", grantSlot(d.lastHolder))
	v.visit("device", i, "charged at", uint64(d.chargedAt))
	v.visit("device", i, "settled at", uint64(d.settledAt))
	v.visit("device", i, "since", uint64(d.since))
	v.visit("device", i, "idle pending", uint64(d.idlePending))
	v.visit("device", i, "down pending", uint64(d.downPending))
	v.visit("device", i, "free account", uint64(d.freeAccount))
	v.visit("device", i, "vmin", d.vmin)
	v.visit("device", i, "handoff", truth(d.handoff))
	v.visit("device", i, "asked at", uint64(d.askedAt))
	v.visit("device", i, "admitted", uint64(d.admitted))
	v.visit("device", i, "lately held", uint64(d.latelyHeld))
	v.visit("device", i, "lately said", uint64(d.latelySaid))
	v.visit("device", i, "spare", uint64(d.spare))
	v.visit("device", i, "switching", uint64(d.switching))
	v.visit("device", i, "switches asked", d.switchesAsked)
	v.visit("device", i, "unreserved idle", uint64(d.unreservedIdle))
	v.visit("device", i, "down", uint64(d.down))
	v.visit("device", i, "switches", d.switches)
	v.visit("device", i, "next", uint64(d.next))
	v.visit("device", i, "grants", uint64(len(d.grants)))
	visitRows("device", i, &d.ended, v)
}

func visitLease[V visitor](g *grant, i int, v V) {
	v.visit("grant", i, "phase", uint64(g.phase))
	v.visit("grant", i, "gate open", truth(g.gate.Open))
	v.visit("grant", i, "gate ungated", truth(g.gate.Ungated))
	v.visit("grant", i, "gate extended", truth(g.gate.Extended))
	v.visit("grant", i, "gate lease", g.gate.Lease)
	v.visit("grant", i, "gate start", uint64(g.gate.Start))
	v.visit("grant", i, "gate end", uint64(g.gate.End))
	v.visit("grant", i, "used", truth(g.used))
	v.visit("grant", i, "owner", truth(g.owner))
	v.visit("grant", i, "wake lease", truth(g.wakeLease))
	v.visit("grant", i, "overlapped", truth(g.overlapped))
	v.visit("grant", i, "barred", truth(g.barred))
	v.visit("grant", i, "quick", truth(g.quick))
	v.visit("grant", i, "demand", truth(g.demand))
	v.visit("grant", i, "waking", truth(g.waking))
	v.visit("grant", i, "outstanding", truth(g.outstanding))
	v.visit("grant", i, "yielded", truth(g.yielded))
	v.visit("grant", i, "coming", truth(g.coming))
	v.visit("grant", i, "still since", uint64(g.stillSince))
	v.visit("grant", i, "demand since", uint64(g.demandSince))
	v.visit("grant", i, "woke at", uint64(g.wokeAt))
	v.visit("grant", i, "busy until", uint64(g.busyUntil))
	v.visit("grant", i, "launched", g.launched)
	v.visit("grant", i, "completed", g.completed)
	v.visit("grant", i, "outstanding ns", uint64(g.outstandingNS))
	v.visit("grant", i, "open at", uint64(g.openAt))
	v.visit("grant", i, "ended at", uint64(g.endedAt))
	v.visit("grant", i, "idle since", uint64(g.idleSince))
	v.visit("grant", i, "launched at open", g.launchedAtOpen)
	v.visit("grant", i, "late", uint64(g.late))
	v.visit("grant", i, "late completed", g.lateCompleted)
	v.visit("grant", i, "pause", uint64(g.pause))
	v.visit("grant", i, "lost idle at", uint64(g.lostIdleAt))
	v.visit("grant", i, "retry at", uint64(g.retryAt))
	v.visit("grant", i, "retry since", uint64(g.retrySince))
	v.visit("grant", i, "misses", uint64(g.misses))
}

func visitCharges[V visitor](g *grant, i int, v V) {
	v.visit("grant", i, "paid", uint64(g.paid))
	v.visit("grant", i, "measured", uint64(g.measured))
	v.visit("grant", i, "unsettled", uint64(g.unsettled))
	v.visit("grant", i, "unsettled wanted", uint64(g.unsettledWanted))
	v.visit("grant", i, "settled word at", uint64(g.settledWordAt))
	v.visit("grant", i, "may hold", uint64(g.mayHold))
	v.visit("grant", i, "unheard", uint64(g.unheard))
	v.visit("grant", i, "looked at", uint64(g.lookedAt))
	v.visit("grant", i, "asked", truth(g.asked))
	v.visit("grant", i, "told", uint64(g.toldNS))
	v.visit("grant", i, "measured at told", uint64(g.measuredAtTold))
	v.visit("grant", i, "held at told", uint64(g.heldAtTold))
	v.visit("grant", i, "spared", uint64(g.spared))
	v.visit("grant", i, "claim", uint64(g.claim))
	v.visit("grant", i, "accrued at", uint64(g.accruedAt))
	v.visit("grant", i, "credit", uint64(g.credit))
	v.visit("grant", i, "bucket", uint64(g.bucket))
	v.visit("grant", i, "floor account", uint64(g.floorAccount))
	v.visit("grant", i, "vtime", g.vtime)
	v.visit("grant", i, "burst pending", uint64(g.burstPending))
	v.visit("grant", i, "held", uint64(g.books.Held))
	v.visit("grant", i, "leases", g.books.Leases)
	v.visit("grant", i, "times overlapped", g.books.Overlapped)
	v.visit("grant", i, "revoked", g.books.Revoked)
	v.visit("grant", i, "wait", uint64(g.books.Wait))
	v.visit("grant", i, "wake worst", uint64(g.books.WakeWorst))
	v.visit("grant", i, "wakes", g.books.Wakes)
	visitRows("grant", i, &g.books.Rows, v)
}
