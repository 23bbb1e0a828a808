package engine

import (
	"cmp"
	"slices"

	"github.com/aliquot-dev/aliquot/engine/predict"
)

// maxForecast is how much a forecast tries at the most, in groups of the line: a pass along it tries each.
const maxForecast = 1 << 15

// Forecast is when what waits starts if everything that runs or is started takes all of its time limit and ends then, what is being
// ended or taken back ends at once, the host takes every start, and nobody submits or changes anything. It is found by deciding
// ahead on the live state, with all that decides: order, quotas, reclaim and backfill. For the first in line that is a bound; those
// behind it may start later all the same where work ends early, for their turn may come otherwise.
type Forecast struct {
	At      Time
	starts  map[string]Time
	cut     bool // there was too much to try
	guessed bool // something was predicted
}

// Forecast looks ahead from a time, not before that of the last event. It changes nothing.
func (e *Engine) Forecast(at Time) *Forecast {
	var f *Forecast
	e.lookAhead(at, func(a *ahead) {
		e.Step(Tick{At{e.now}})
		f = a.forecast(limits{e})
	})
	return f
}

// foresee is a forecast in which everything ends when a quantile of its prediction is over instead, or with its time limit where that
// comes first or nothing is predicted.
func (e *Engine) foresee(at Time, of func(predict.Quantiles) int64) *Forecast {
	var f *Forecast
	e.lookAhead(at, func(a *ahead) {
		e.Step(Tick{At{e.now}})
		ends := newPredictions(e, of)
		f = a.forecast(ends)
		f.guessed = ends.used
	})
	return f
}

// Outlook is what is known ahead: a forecast by time limits, and by the low, middle and high quantile of what work is predicted to take.
type Outlook struct {
	*Forecast
	low, median, high *Forecast // nil: nothing is predicted
}

// Outlook looks ahead from a time, not before that of the last event. It changes nothing.
func (e *Engine) Outlook(at Time) *Outlook {
	o := &Outlook{Forecast: e.Forecast(at)}
	median := e.foresee(at, func(q predict.Quantiles) int64 { return q.Median })
	if median.guessed {
		o.median = median
		o.low = e.foresee(at, func(q predict.Quantiles) int64 { return q.Low })
		o.high = e.foresee(at, func(q predict.Quantiles) int64 { return q.High })
	}
	return o
}

// Start is when a workload starts that waits; Never: not known.
func (f *Forecast) Start(id string) Time {
	if at, ok := f.starts[id]; ok {
		return at
	}
	return Never
}

// forecast lets the time go on until nothing starts any more by what ends.
func (a *ahead) forecast(ends endings) *Forecast {
	e := a.e
	f := &Forecast{At: e.now, starts: map[string]Time{}}
	a.notes(f)
	for _, w := range e.byID() { // whose end the host took on, and has not reported
		for _, t := range w.tasks {
			if t.live() && t.evicting && t.evict == 0 {
				a.endAndGoOn(t, f)
			}
		}
	}
	for budget := maxForecast; e.line.Len() > 0; budget -= 1 + len(e.groups) {
		a.carryOut(f, ends)
		next := e.Next()
		t, end := ends.next()
		switch {
		case budget < 0:
			f.cut = true
			return f
		case end == Never && next == Never:
			return f
		case end <= next:
			a.pass(end)
			a.endAndGoOn(t, f)
		default:
			a.pass(next)
			a.tick(f)
		}
	}
	return f
}

// pass lets the time go on.
func (a *ahead) pass(to Time) {
	a.e.now = max(a.e.now, to)
	a.e.queues.Now = int64(a.e.now)
}

// tick starts what may start by now.
func (a *ahead) tick(f *Forecast) {
	a.e.settled = false
	a.e.moves++
	a.e.Step(Tick{At{a.e.now}})
	a.notes(f)
}

// endAndGoOn has a task end, and starts what may start then.
func (a *ahead) endAndGoOn(t *task, f *Forecast) {
	e := a.e
	a.end(t)
	e.settled, e.out = false, nil
	e.doubt()
	e.unpark()
	e.schedule(true)
	a.notes(f)
}

// notes takes down what was just started. What runs already and grows does not start by that: its further replicas come behind task 0.
func (a *ahead) notes(f *Forecast) {
	for _, action := range a.e.out {
		if p, ok := action.(Place); ok && p.Tasks[0].Task == 0 {
			f.starts[p.Workload] = a.e.now
		}
	}
}

// carryOut answers all starts and evictions as a host does for which all goes well, until there are none.
func (a *ahead) carryOut(f *Forecast, ends endings) {
	for {
		var open []ActionID
		for id, p := range a.e.pending {
			if p.kind != resizeProposal {
				open = append(open, id)
			}
		}
		if len(open) == 0 {
			return
		}
		slices.Sort(open)
		for _, id := range open {
			p := a.e.pending[id]
			switch {
			case p == nil:
			case p.kind == placeProposal:
				a.begin(p.w)
				ends.began(p.w)
			default:
				a.endAndGoOn(p.w.tasks[p.task], f)
			}
		}
		a.tick(f) // what was just started may be taken back
	}
}

// Codes of why no start of a workload that waits is known.
const (
	UnknownEndless = "no_time_limit" // work without a time limit is in its way
	UnknownNever   = "impossible"    // it could not start whatever ended
	UnknownFar     = "too_far"       // more has to end before it than is looked at
	UnknownHours   = "hours"         // its queue has used its device-hours up, and no forecast knows when it has some again
	UnknownLent    = "nothing_lent"  // it may only have what pools lend, and when they do is not known
)

// maxInWay is how many workloads are named that are in the way of another.
const maxInWay = 8

// Estimate is when a workload that waits starts, as far as time limits say.
type Estimate struct {
	Earliest Time   // it does not start before: what runs may end at any moment
	Latest   Time   // as forecast; Never: not known
	Unknown  string // why not
	Message  string // the same in half a sentence; it names no workload
	// By predictions, Never where nothing is predicted or no start is known: when it is expected to start, and the times before and after
	// which it starts if all takes the low and the high quantile of its prediction. None is after Latest.
	Expected, From, To Time
	// InWay are running workloads without a time limit on devices that could serve it, oldest first, up to 8.
	InWay []string
}

// Estimate says what a forecast means for a workload that waits, with why where it means nothing.
func (e *Engine) Estimate(f *Outlook, id string) Estimate {
	out := Estimate{Earliest: Never, Latest: Never, Expected: Never, From: Never, To: Never}
	w, ok := e.work[id]
	if !ok || !w.waiting() {
		return out
	}
	out.Earliest, out.Latest = max(f.At, w.retryAt), f.Start(id)
	if f.median != nil {
		out.Expected = min(f.median.Start(id), out.Latest)
		// What is shorter may let others go first: the bounds hold the middle in any case.
		out.From, out.To = min(f.low.Start(id), out.Expected), min(max(f.high.Start(id), f.median.Start(id)), out.Latest)
		if out.Expected == Never {
			out.From = Never
		}
	}
	if out.Latest != Never {
		out.Earliest = min(out.Earliest, out.Latest)
		return out
	}
	r, over := w.queue.Smaller(w.demand())
	switch {
	case over && r.Spent():
		out.Unknown, out.Message = UnknownHours, "its queue has used its device-hours up, and when it has some again is not forecast"
	case !over && !e.possible(w.shape) && e.mayBorrow(w):
		out.Unknown, out.Message = UnknownLent, "it may have what pools lend alone, and when they do is not known"
	case over || !e.possible(w.shape):
		out.Unknown, out.Message = UnknownNever, "it could not start whatever ended"
	case f.cut:
		out.Unknown, out.Message = UnknownFar, "more has to end before it than is looked at ahead"
	default:
		out.Unknown, out.Message = UnknownEndless, "work without a time limit is in its way"
		if out.InWay = e.endless(w); len(out.InWay) == 0 {
			out.Message = "what goes before it has no time limit"
		}
	}
	return out
}

// endless are running workloads without a time limit on devices that could serve another.
func (e *Engine) endless(w *workload) []string {
	var all []*workload
	for n := range e.fleet.Nodes {
		for _, d := range e.fleet.DevicesOf(n) {
			if len(e.held.on(d)) == 0 || !e.servedBy(w.shape, d) {
				continue
			}
			for _, t := range e.held.on(d) {
				if t.w.TimeLimit == 0 && t.w.base == nil && !t.evicting && !slices.Contains(all, t.w) {
					all = append(all, t.w)
				}
			}
		}
	}
	slices.SortFunc(all, func(a, b *workload) int { return cmp.Compare(a.seq, b.seq) })
	ids := make([]string, 0, maxInWay)
	for _, o := range all[:min(len(all), maxInWay)] {
		ids = append(ids, o.ID)
	}
	return ids
}
