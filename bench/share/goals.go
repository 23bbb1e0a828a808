package main

import (
	"context"
	"fmt"

	"github.com/aliquot-dev/aliquot/bench/report"
)

// measureScenarios runs every scenario of the device that is simulated now and says how each went.
func (b *bench) measureScenarios(ctx context.Context, _ *report.Report) error {
	for _, s := range scenarios() {
		if s.device != b.daemon.device || !b.only.MatchString("shares "+s.Name) {
			continue
		}
		if o, ok := b.kept.set(s); ok {
			b.say("shares %s: measured before, error %.2f points, busy %.1f %%", s.Name, o.with.ShareError, o.with.Busy)
			b.outcomes = append(b.outcomes, o)
			continue
		}
		if err := b.ready(ctx); err != nil {
			return err
		}
		o, err := b.measureShares(ctx, s)
		if err != nil {
			return err
		}
		if err := b.kept.addSet(o); err != nil {
			return err
		}
		b.say("shares %s: error %.2f (without %.2f) points, over a ceiling %.2f (%.2f), busy %.1f (%.1f) %%, arbiter %.1f %%", s.Name,
			o.with.ShareError, o.without.ShareError, o.with.Overshoot, o.without.Overshoot, o.with.Busy, o.without.Busy, o.arbiter)
		b.say("  worst: got %.1f, due %.1f", o.with.Got, o.with.Due)
		if s.Partial() {
			b.say("  against what was asked for: error %.2f points, busy %.1f %%", o.with.MeasuredError, o.with.MeasuredBusy)
		}
		if s.Waits() {
			b.say("  missed of a floor %.2f points, lost by a neighbour %.2f", o.with.Missed, o.with.Lost)
		}
		if o.with.Switching > 0 {
			b.say("  switching %.2f %% of the device", o.with.Switching)
		}
		if o.beyond.Window > 0 {
			b.say("  beyond a ceiling over any window: %v in %v, %.0f %% of the %v allowed", o.beyond.Used, o.beyond.Window, o.beyond.Part(), o.beyond.Allowed)
		}
		if o.again > 0 || o.taken > 0 {
			b.say("  taken of the machine's CPU time: at most %.2f %%; runs not counted for that: %d", o.taken, o.again)
		}
		b.outcomes = append(b.outcomes, o)
	}
	return nil
}

// worst is the worst of some outcomes, each figure by itself; none: there are none.
func worst(outcomes []outcome, which func(scenario) bool) (all outcome, none bool) {
	none = true
	for _, o := range outcomes {
		if !which(o.scenario) {
			continue
		}
		if none {
			all, none = o, false
			continue
		}
		all.with, all.without = all.with.Worse(o.with), all.without.Worse(o.without)
		all.arbiter = max(all.arbiter, o.arbiter)
		all.taken, all.again = max(all.taken, o.taken), all.again+o.again
		if o.beyond.Window > 0 && (all.beyond.Window == 0 || o.beyond.Part() > all.beyond.Part()) {
			all.beyond = o.beyond
		}
	}
	return all, none
}

// reportShares reports the worst over all scenarios that were measured, against the goals of the first list and of the strict one.
func (b *bench) reportShares(r *report.Report) {
	if first, none := worst(b.outcomes, func(s scenario) bool { return s.first }); !none {
		r.AtMost("share_error", first.with.ShareError, 2, "points")
		if b.bare > 0 {
			r.Beside("share_error without Aliquot", first.without.ShareError, "points")
			r.Beside("ceiling_overshoot without Aliquot", first.without.Overshoot, "points")
			r.Beside("device_busy without Aliquot", first.without.Busy, "% of what the demand allows")
		}
		r.AtMost("ceiling_overshoot", first.with.Overshoot, 1, "points")
		r.AtLeast("device_busy", first.with.Busy, 97, "% of what the demand allows")
		r.AtMost("arbiter_contended", first.arbiter, 6, "% of a core")
	}
	b.reportStrict(r)
}

func (b *bench) reportStrict(r *report.Report) {
	over := fmt.Sprintf(", any %v of %v", b.window, b.span())
	if all, none := worst(b.outcomes, func(s scenario) bool { return !s.Partial() && !s.Waits() }); !none {
		r.AtMost("share_error_strict"+over, all.with.ShareError, 1, "points")
		if b.bare > 0 {
			r.Beside("share_error_strict without Aliquot", all.without.ShareError, "points")
		}
	}
	if all, none := worst(b.outcomes, scenario.Partial); !none {
		r.AtMost("share_error_partial"+over, all.with.MeasuredError, 1.5, "points")
	}
	if all, none := worst(b.outcomes, scenario.Waits); !none {
		r.AtMost("floor_missed beside one that waits"+over, all.with.Missed, 0.5, "points")
		r.AtMost("neighbours_lost beside one that waits"+over, all.with.Lost, 0.5, "points")
	}
	all, none := worst(b.outcomes, func(scenario) bool { return true })
	if none {
		return
	}
	r.AtMost("ceiling_overshoot_strict"+over, all.with.Overshoot, 0.5, "points")
	if all.beyond.Window > 0 {
		r.AtMost("burst_used, any window", all.beyond.Part(), 100, "% of the stated burst + one launch")
	}
	if busy, none := worst(b.outcomes, func(s scenario) bool { return !s.Waits() }); !none {
		r.AtLeast("device_busy_strict"+over, busy.with.MeasuredBusy, 98, "% of what the demand allows")
	}
	if all.with.Switching > 0 {
		r.Beside("device_switching", all.with.Switching, "% of the device")
	}
	r.Beside("machine_taken while shares were measured", all.taken, "% of its CPU time")
	if b.taken < 100 {
		r.Beside(fmt.Sprintf("runs_not_counted, more than %g %% taken", b.taken), float64(all.again), "runs")
	}
	r.AtMost("arbiter_contended_strict", all.arbiter, 5, "% of a core")
}
