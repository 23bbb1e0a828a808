package lease

import (
	"fmt"

	"github.com/aliquot-dev/aliquot/api"
)

// judged is what a tenant got, by the device's own record, held against its floor and ceiling over every stretch of time: what it is behind or
// ahead at most is the greatest rise of a sum that falls or rises only while it runs, so that looking at the ends of its runs is enough.
type judged struct {
	floor, ceiling api.Milli
	since          NS // judged from then on
	ran            NS // the device ran for it, in runs that have ended
	wanting        bool
	wantedSince    NS
	ranLast        NS // end of its last run

	floorLeast   PS // of what its floor brought less what it ran, since it wants
	ceilingLeast PS // of what it ran less what its ceiling allows
	behind       PS // its floor, over any time in which it wanted all the while
	ahead        PS // of its ceiling, over any time
	longest      NS // without a run while it wanted
}

// owed is what a part of the device brings until a time less what it ran until then.
func (j *judged) owed(part api.Milli, at, ran NS) PS { return psOf(part, at-j.since) - PS(ran)*perNS }

// judgeFrom begins anew at a time by when the device has run so much of an unfinished run for it.
func (j *judged) judgeFrom(now NS, policy Policy) {
	j.floor, j.ceiling = policy.Floor, policy.Ceiling
	j.since, j.ran, j.ranLast = now, 0, now
	j.floorLeast, j.ceilingLeast = 0, 0
	if j.wanting {
		j.wantedSince = now
	}
}

func (j *judged) wants(now NS) {
	j.wanting, j.wantedSince = true, now
	j.floorLeast = j.owed(j.floor, now, j.ran)
}

func (j *judged) content(NS) { j.wanting = false }

// hasRun counts a run that has ended, or a part of one.
func (j *judged) hasRun(start, end NS) {
	if end <= j.since {
		return
	}
	start = max(start, j.since)
	j.look(start)
	j.ran += end - start
	j.ranLast = end
	if j.wanting {
		j.floorLeast = min(j.floorLeast, j.owed(j.floor, end, j.ran))
	}
	j.ahead = max(j.ahead, -j.owed(j.ceiling, end, j.ran)-j.ceilingLeast)
}

// look: until now it has not run since its last run.
func (j *judged) look(now NS) {
	j.ceilingLeast = min(j.ceilingLeast, -j.owed(j.ceiling, now, j.ran))
	if !j.wanting {
		return
	}
	j.behind = max(j.behind, j.owed(j.floor, now, j.ran)-j.floorLeast)
	if since := max(j.ranLast, j.wantedSince); now > since {
		j.longest = max(j.longest, now-since)
	}
}

// finish judges what is left until now.
func (w *world) finish() {
	w.advance(w.now)
	for i := range w.runs {
		if r := &w.runs[i]; r.start < w.now {
			r.tenant.hasRun(r.start, w.now)
		}
	}
	for _, t := range w.tenants {
		t.look(w.now)
	}
}

// checkRows settles the books and says where they do not add up to the time that went by, to the nanosecond, or what was lent is not what was
// borrowed.
func (w *world) checkRows() error {
	w.rule.Settle(0, w.now)
	d := w.rule.DeviceBooks(0)
	rows, lent, borrowed := d.UnreservedIdle+d.Down, NS(0), NS(0)
	count := func(r *Rows) {
		rows += r.Own + r.Lent + r.ReservedIdle + r.BurstFree
		lent += r.Lent
		borrowed += r.BurstLent
	}
	count(&d.Ended)
	for _, t := range w.tenants {
		books := w.rule.Books(t.grant)
		count(&books.Rows)
	}
	if rows != w.now-d.Since || d.Updated != w.now {
		return fmt.Errorf("the rows add up to %d of %d ns", rows, w.now-d.Since)
	}
	if lent != borrowed {
		return fmt.Errorf("%d ns were lent, %d borrowed", lent, borrowed)
	}
	return nil
}
