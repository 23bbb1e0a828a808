package main

import (
	"context"
	"fmt"

	"github.com/aliquot-dev/aliquot/bench/report"
)

// measureScenarios runs every scenario of the device that is simulated now and says how each went.
func (b *bench) measureScenarios(ctx context.Context, _ *report.Report) error {
	for _, s := range scenarios() {
		if s.device != b.daemon.device || !b.only.MatchString("shares "+s.name) {
			continue
		}
		o, err := b.measureShares(ctx, s)
		if err != nil {
			return err
		}
		b.say("shares %s: error %.2f (without %.2f) points, over a ceiling %.2f (%.2f), busy %.1f (%.1f) %%, arbiter %.1f %%", s.name,
			o.with.shareError, o.without.shareError, o.with.overshoot, o.without.overshoot, o.with.busy, o.without.busy, o.arbiter)
		b.say("  worst: got %.1f, due %.1f", o.with.got, o.with.due)
		if s.partial() {
			b.say("  against what was asked for: error %.2f points, busy %.1f %%", o.with.measuredError, o.with.measuredBusy)
		}
		if s.waits() {
			b.say("  missed of a floor %.2f points, lost by a neighbour %.2f", o.with.missed, o.with.lost)
		}
		if o.with.switching > 0 {
			b.say("  switching %.2f %% of the device", o.with.switching)
		}
		if o.beyond.window > 0 {
			b.say("  beyond a ceiling over any window: %v in %v, %.0f %% of the %v allowed", o.beyond.used, o.beyond.window, o.beyond.part(), o.beyond.allowed)
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
		all.with, all.without = all.with.worse(o.with), all.without.worse(o.without)
		all.arbiter = max(all.arbiter, o.arbiter)
		if o.beyond.window > 0 && (all.beyond.window == 0 || o.beyond.part() > all.beyond.part()) {
			all.beyond = o.beyond
		}
	}
	return all, none
}

// reportShares reports the worst over all scenarios that were measured, against the goals of the first list and of the strict one.
func (b *bench) reportShares(r *report.Report) {
	if first, none := worst(b.outcomes, func(s scenario) bool { return s.first }); !none {
		r.AtMost("share_error", first.with.shareError, 2, "points")
		if b.bare > 0 {
			r.Beside("share_error without Aliquot", first.without.shareError, "points")
			r.Beside("ceiling_overshoot without Aliquot", first.without.overshoot, "points")
			r.Beside("device_busy without Aliquot", first.without.busy, "% of what the demand allows")
		}
		r.AtMost("ceiling_overshoot", first.with.overshoot, 1, "points")
		r.AtLeast("device_busy", first.with.busy, 97, "% of what the demand allows")
		r.AtMost("arbiter_contended", first.arbiter, 6, "% of a core")
	}
	b.reportStrict(r)
}

func (b *bench) reportStrict(r *report.Report) {
	over := fmt.Sprintf(", any %v of %v", b.window, b.span())
	if all, none := worst(b.outcomes, func(s scenario) bool { return !s.partial() && !s.waits() }); !none {
		r.AtMost("share_error_strict"+over, all.with.shareError, 1, "points")
		if b.bare > 0 {
			r.Beside("share_error_strict without Aliquot", all.without.shareError, "points")
		}
	}
	if all, none := worst(b.outcomes, scenario.partial); !none {
		r.AtMost("share_error_partial"+over, all.with.measuredError, 1.5, "points")
	}
	if all, none := worst(b.outcomes, scenario.waits); !none {
		r.AtMost("floor_missed beside one that waits"+over, all.with.missed, 0.5, "points")
		r.AtMost("neighbours_lost beside one that waits"+over, all.with.lost, 0.5, "points")
	}
	all, none := worst(b.outcomes, func(scenario) bool { return true })
	if none {
		return
	}
	r.AtMost("ceiling_overshoot_strict"+over, all.with.overshoot, 0.5, "points")
	if all.beyond.window > 0 {
		r.AtMost("burst_used, any window", all.beyond.part(), 100, "% of the stated burst + one launch")
	}
	if busy, none := worst(b.outcomes, func(s scenario) bool { return !s.waits() }); !none {
		r.AtLeast("device_busy_strict"+over, busy.with.measuredBusy, 98, "% of what the demand allows")
	}
	if all.with.switching > 0 {
		r.Beside("device_switching", all.with.switching, "% of the device")
	}
	r.AtMost("arbiter_contended_strict", all.arbiter, 5, "% of a core")
}
