package engine

import (
	"cmp"
	"slices"

	"github.com/aliquot-dev/aliquot/engine/predict"
)

// maxForecast is how much a forecast tries at the most, in groups of the line: a pass along it tries each.
const maxForecast = 1 << 15

// Forecast is when what waits starts if everything that runs or is started takes all of its time limit and ends then, what is being
// ended or taken back ends at once, the host takes every start, and nobody submits or changes anything but by events that are known to
// come. It is found by deciding ahead, with all that decides: order, quotas, reclaim and backfill. For the first in line that is a
// bound; those behind it may start later all the same where work ends early, for their turn may come otherwise.
type Forecast struct {
	At      Time
	starts  map[string]Time
	cut     bool // there was too much to try
	guessed bool // something was predicted
	coming  Time // when the first event comes that is known to; Never: none is
}

// Forecast looks ahead from a time, not before that of the last event. What is known to come, the soonest first, comes at its time: what the
// host will say of windows, priorities and device-hours. It changes nothing.
func (e *Engine) Forecast(at Time, coming ...Event) *Forecast {
	return e.newLookout(at, coming).forecast()
}

// lookout is from where forecasts are made: the live state, or copies of it where events are known to come, for no look ahead takes back what
// these change.
type lookout struct {
	*Engine
	at     Time
	coming []Event
	state  []byte
}

func (e *Engine) newLookout(at Time, coming []Event) *lookout {
	l := &lookout{Engine: e, at: at, coming: coming}
	if len(coming) > 0 {
		l.state = e.state().text()
	}
	return l
}

// look calls with the engine that is to decide, the time gone on.
func (l *lookout) look(look func(a *ahead)) {
	if len(l.coming) == 0 {
		l.lookAhead(l.at, func(a *ahead) {
			a.e.Step(Tick{At{a.e.now}})
			look(a)
		})
		return
	}
	copied, err := restoreState(l.state)
	if err != nil {
		panic("engine: its own state cannot be read: " + err.Error()) // a defect, not a condition
	}
	copied.predictor, copied.uses = l.predictor, l.uses // no look ahead learns
	copied.ahead = &ahead{e: copied, promises: map[*workload]Promise{}}
	copied.now = max(copied.now, l.at)
	copied.Step(Tick{At{copied.now}})
	look(copied.ahead)
}

// forecast is one by time limits.
func (l *lookout) forecast() *Forecast {
	var f *Forecast
	l.look(func(a *ahead) { f = a.forecast(limits{a.e}, l.coming) })
	return f
}

// foresee is a forecast in which everything ends when a quantile of its prediction is over instead, or with its time limit where that
// comes first or nothing is predicted.
func (l *lookout) foresee(of func(predict.Quantiles) int64) *Forecast {
	var f *Forecast
	l.look(func(a *ahead) {
		ends := newPredictions(a.e, of)
		f = a.forecast(ends, l.coming)
		f.guessed = ends.used
	})
	return f
}

// Outlook is what is known ahead: a forecast by time limits, and by the low, middle and high quantile of what work is predicted to take.
type Outlook struct {
	*Forecast
	low, median, high *Forecast // nil: nothing is predicted
}

// Outlook looks ahead as Forecast does. It changes nothing.
func (e *Engine) Outlook(at Time, coming ...Event) *Outlook {
	l := e.newLookout(at, coming)
	o := &Outlook{Forecast: l.forecast()}
	median := l.foresee(func(q predict.Quantiles) int64 { return q.Median })
	if median.guessed {
		o.median = median
		o.low = l.foresee(func(q predict.Quantiles) int64 { return q.Low })
		o.high = l.foresee(func(q predict.Quantiles) int64 { return q.High })
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

// forecast lets the time go on until nothing starts any more by what ends or comes.
func (a *ahead) forecast(ends endings, coming []Event) *Forecast {
	e := a.e
	f := &Forecast{At: e.now, starts: map[string]Time{}, coming: comes(coming)}
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
		case len(coming) > 0 && comes(coming) <= min(end, next):
			a.pass(comes(coming))
			e.Step(coming[0])
			a.notes(f)
			coming = coming[1:]
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

// comes is when the first of some events does; Never: there is none.
func comes(coming []Event) Time {
	if len(coming) == 0 {
		return Never
	}
	return coming[0].When()
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
	UnknownHours   = "hours"         // its queue has used its device-hours up, and nothing that is known to come lets it start
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
	r, over := w.queue.Smaller(w.demand())
	if f.coming != Never && (over || !e.possible(w.shape) && !e.mayBorrow(w)) { // whatever ends before
		out.Earliest = max(out.Earliest, f.coming)
	}
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
	switch {
	case over && r.Spent():
		out.Unknown, out.Message = UnknownHours, "its queue has used its device-hours up, and nothing that is known to come lets it start"
	case !over && !e.possible(w.shape) && e.mayBorrow(w):
		out.Unknown, out.Message = UnknownLent, "it may have what pools lend alone, and when they do is not known"
	case over || !e.possible(w.shape):
		out.Unknown, out.Message = UnknownNever, "it could not start whatever ended"
		if f.coming != Never {
			out.Message += " now, and nothing that is known to come lets it start"
		}
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
