package local

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/aliquot-dev/aliquot/engine"
	"github.com/aliquot-dev/aliquot/host/policy"
)

// turnsForeseen is how many windows that begin or end, at the most, estimates of starts know of.
const turnsForeseen = 16

// coming is what the engine will be told by the clock, the soonest first: windows that begin and end, priorities that are over, device-hours of
// the next period for those that have used theirs up, and work that may be started again.
func (h *Host) coming() []engine.Event {
	now, since := h.Now().Round(0), h.time().At
	at := func(moment time.Time) engine.At {
		return engine.At{At: since + engine.Time(moment.Sub(now).Microseconds())}
	}
	var events []engine.Event
	for _, moment := range h.turns(now) {
		next := h.ruling
		if next.policy != nil {
			next.holds = next.policy.At(moment)
		}
		told := next.under(next.own, moment)
		h.hours.MarkAt(moment, told.Queues)
		events = append(events, engine.PolicySet{At: at(moment), Policy: told})
	}
	for _, uid := range h.byOrder() {
		w := h.work[uid]
		if h.dates.work[w] {
			events = append(events, engine.Change{At: at(*w.now.Spec.PriorityUntil), ID: w.gang(), Priority: new(w.now.Spec.PriorityAfter)})
		}
		if h.dates.again[w] {
			events = append(events, engine.Feasibility{At: at(*w.keep.Again), Class: w.class(), Allowed: []string{h.name}})
		}
	}
	slices.SortStableFunc(events, func(a, b engine.Event) int { return cmp.Compare(a.When(), b.When()) })
	return events
}

// turns are the moments after now from which on something else holds for queues, as far as it is known and not more than so many.
func (h *Host) turns(now time.Time) []time.Time {
	all := map[time.Time]bool{}
	if p := h.ruling.policy; p != nil {
		for t := now; len(all) < turnsForeseen; {
			next, ok := p.Next(t)
			if !ok {
				break
			}
			t = next
			all[t.UTC()] = true
		}
	}
	queues := h.ruling.queuesNow()
	for _, moment := range h.hours.Renewed() {
		all[moment.UTC()] = true
	}
	for t := now; ; {
		_, next := policy.Holding(queues, t)
		if next.IsZero() {
			break
		}
		t = next
		all[t.UTC()] = true
	}
	return slices.SortedFunc(maps.Keys(all), time.Time.Compare)
}
