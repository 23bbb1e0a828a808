package engine

import (
	"cmp"
	"container/heap"
	"fmt"
	"strconv"

	"github.com/aliquot-dev/aliquot/engine/fleet"
	"github.com/aliquot-dev/aliquot/engine/predict"
)

// Past is work that ended before the engine knew of it, or while it was away: predictions learn from it.
type Past struct {
	Workload Workload `json:"workload"`
	Ago      Time     `json:"ago"`               // µs since it ended; 0 to 2^60
	Ran      Time     `json:"ran"`               // µs from its start to its end; 0 to 2^60
	Stopped  bool     `json:"stopped,omitempty"` // it did not end by itself: what it used counts, how long it ran does not
	Used     *Used    `json:"used,omitempty"`    // nil: not known
}

// Learn has predictions learn from past work, the longest ago first. It starts nothing.
type Learn struct {
	At
	Past []Past `json:"past"`
}

func (e *Engine) learnPast(ev Learn) bool {
	for i := range ev.Past {
		p := &ev.Past[i]
		if err := validPast(p); err != nil {
			return e.reject(p.Workload.ID, "invalid", "%v", err)
		}
		if i > 0 && p.Ago > ev.Past[i-1].Ago {
			return e.reject(p.Workload.ID, "invalid", "workload %s ended before the one in front of it: list what ended longest ago first", p.Workload.ID)
		}
	}
	for i := range ev.Past {
		p := &ev.Past[i]
		work := PredictedBy(&p.Workload)
		if !p.Stopped {
			e.predictor.Learn(work, int64(p.Ran), int64(e.now-p.Ago))
		}
		if p.Used != nil {
			e.uses.Learn(work, predict.Use{Compute: int64(p.Used.Compute), Memory: int64(p.Used.Memory)}, int64(e.now-p.Ago))
		}
	}
	return false
}

func validPast(p *Past) error {
	if p.Ago < 0 || p.Ago > maxPast || p.Ran < 0 || p.Ran > maxPast {
		return fmt.Errorf("workload %s cannot have ended %d µs ago and run for %d µs: both are from 0 to %d", p.Workload.ID, p.Ago, p.Ran, maxPast)
	}
	if err := validUsed(p.Used); err != nil {
		return fmt.Errorf("workload %s: %w", p.Workload.ID, err)
	}
	return validShare(p.Workload.Share)
}

// learn has predictions learn from a workload whose last task just ended. What was evicted, or asked to end, says nothing of how long
// it would have run.
func (e *Engine) learn(w *workload) {
	began := Never
	for _, t := range w.tasks {
		if t.evicting || w.cancelled {
			return
		}
		if t.started {
			began = min(began, t.since)
		}
	}
	if began == Never {
		return
	}
	e.predictor.Learn(w.predictedBy(), int64(e.now-began), int64(e.now))
	if w.said != nil {
		e.predictor.Fared(*w.said, int64(e.now-began))
	}
}

// begins notes what is predicted of a workload whose first task starts, for the intervals of predictions are judged by it when it ends.
func (e *Engine) begins(w *workload) {
	if w.said != nil || w.base != nil || w.tasks == nil {
		return
	}
	if q, ok := e.predictor.Predict(w.predictedBy(), -1, int64(e.now)); ok {
		w.said = &q
	}
}

// PredictedBy is what predictions know of a workload. Its shape is what it asks for of devices: their number, the floors, the model.
func PredictedBy(w *Workload) predict.Work {
	shape := strconv.Itoa(w.Tasks) + "x" + strconv.Itoa(w.Devices) + " " + strconv.Itoa(int(w.Share.Compute.Floor))
	if m := w.Share.Memory.Floor; !m.IsZero() {
		shape += fmt.Sprintf(" %v", m)
	}
	if w.Model != "" {
		shape += " " + w.Model
	}
	if w.Least != (fleet.Least{}) {
		shape += " " + w.Least.String()
	}
	for i := range w.Roles {
		shape += " + " + PredictedBy(new(w.as(&w.Roles[i]))).Shape
	}
	return predict.Work{User: w.User, Name: w.Name, Shape: shape, Queue: w.Queue}
}

// predictedBy is PredictedBy for a workload with a shape, which is all that its words for it rest on.
func (w *workload) predictedBy() predict.Work {
	if w.shape.predicted == "" {
		w.shape.predicted = PredictedBy(&w.Workload).Shape
	}
	return predict.Work{User: w.User, Name: w.Name, Shape: w.shape.predicted, Queue: w.Queue}
}

// Predict tells how long a workload runs, live or to be submitted, by what has ended; false: too little is known. Of what runs already
// it tells by what ran for longer.
func (e *Engine) Predict(w *Workload) (predict.Quantiles, bool) {
	above := int64(-1)
	if live, ok := e.work[w.ID]; ok {
		for _, t := range live.tasks {
			if t.live() && t.started {
				above = max(above, int64(e.now-t.since))
			}
		}
	}
	return e.predictor.Predict(PredictedBy(w), above, int64(e.now))
}

// likelyLimit is a time limit that would let a workload end before the first in line starts at the latest, and that nine in ten of the same user's work of
// that shape did not run for, in µs and whole minutes; 0: none is known, or it has one that short. It is told and no more: but where a policy lets
// work in by predictions (letin.go), backfill goes by limits that are given.
func (p *pass) likelyLimit(w *workload) Time {
	q, ok := p.Predict(&w.Workload)
	if !ok || q.Like > predict.SameShape {
		return 0
	}
	const minute = 60_000_000
	limit := (Time(q.High)/minute + 1) * minute
	if after(p.now, limit) > p.reserve.at || w.TimeLimit > 0 && w.TimeLimit <= limit {
		return 0
	}
	return limit
}

// endings say what ends next in a forecast.
type endings interface {
	next() (*task, Time) // nil, Never: nothing does
	began(w *workload)   // a workload runs from now on
}

// limits has each task end with its time limit, and those without one never.
type limits struct{ *Engine }

func (l limits) began(*workload) {}

func (l limits) next() (*task, Time) {
	var first *task
	sooner := func(t *task) {
		if first == nil || cmp.Or(cmp.Compare(t.end(), first.end()), cmp.Compare(t.w.seq, first.w.seq), cmp.Compare(t.index, first.index)) < 0 {
			first = t
		}
	}
	for t := range l.outs.All {
		if t.w.TimeLimit > 0 && t.out() == t.end() {
			sooner(t)
			break
		}
	}
	for w := range l.early { // counted on to be over before, when nothing ends by itself
		for _, t := range w.tasks {
			if t.live() && w.TimeLimit > 0 {
				sooner(t)
			}
		}
	}
	if first == nil {
		return nil, Never
	}
	return first, first.end()
}

// predictions has each task end when one quantile of its prediction is over, at its time limit at the latest; with its time limit
// where nothing is predicted.
type predictions struct {
	e    *Engine
	of   func(predict.Quantiles) int64
	heap predictedEnds
	used bool // something was predicted
}

func newPredictions(e *Engine, of func(predict.Quantiles) int64) *predictions {
	p := &predictions{e: e, of: of}
	for _, w := range e.byID() {
		p.began(w)
	}
	return p
}

func (p *predictions) began(w *workload) {
	for _, t := range w.tasks {
		if t.live() {
			heap.Push(&p.heap, predictedEnd{t, t.since, p.end(t)})
		}
	}
}

func (p *predictions) end(t *task) Time {
	limit := Never
	if t.w.TimeLimit > 0 {
		limit = t.end()
	}
	above := int64(-1)
	if t.started {
		above = int64(p.e.now - t.since)
	}
	q, ok := p.e.predictor.Predict(t.w.predictedBy(), above, int64(p.e.now))
	if !ok {
		return limit
	}
	p.used = true
	return min(limit, after(t.since, Time(p.of(q))))
}

func (p *predictions) next() (*task, Time) {
	for len(p.heap) > 0 {
		first := p.heap[0]
		if first.t.live() && first.t.since == first.since {
			if first.end == Never {
				break
			}
			return first.t, first.end
		}
		heap.Pop(&p.heap) // it ended otherwise, or began again
	}
	return nil, Never
}

// predictedEnd is when a task ends that runs since some time.
type predictedEnd struct {
	t          *task
	since, end Time
}

// predictedEnds is a heap, what ends first on top.
type predictedEnds []predictedEnd

func (h predictedEnds) Len() int      { return len(h) }
func (h predictedEnds) Swap(i, k int) { h[i], h[k] = h[k], h[i] }
func (h predictedEnds) Less(i, k int) bool {
	a, b := &h[i], &h[k]
	return cmp.Or(cmp.Compare(a.end, b.end), cmp.Compare(a.t.w.seq, b.t.w.seq), cmp.Compare(a.t.index, b.t.index)) < 0
}
func (h *predictedEnds) Push(one any) { *h = append(*h, one.(predictedEnd)) }
func (h *predictedEnds) Pop() any {
	last := len(*h) - 1
	one := (*h)[last]
	(*h)[last] = predictedEnd{}
	*h = (*h)[:last]
	return one
}
