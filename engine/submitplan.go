package engine

// Codes of Promise: why what is started behind the first in line does not delay it.
const (
	PromiseEnds      = "ends_before"      // its time limit is over before the first in line starts at the latest
	PromisePredicted = "predicted_before" // it is predicted to be over before that, and is evicted where it is not
	PromiseBeside    = "fits_beside"      // it leaves what the first in line has from its latest start on
	PromiseApart     = "stays_apart"      // it takes only what could never serve the first in line, or leaves room for all of it
	PromiseNothing   = "takes_nothing"    // it holds nothing that anyone could miss
)

// Promise is what backfill promises the first in line of a workload that it starts before it.
type Promise struct {
	Code  string
	First string // the ID of the first in line
	At    Time   // its latest start, by which that was judged; Never: not known
}

// Delay is a start that moves back.
type Delay struct {
	ID   string
	From Time
	To   Time // Never: not known any more
}

// maxDelays is how many delays a SubmitPlan lists.
const maxDelays = 16

// SubmitPlan is what would follow if a workload were submitted.
type SubmitPlan struct {
	Actions  []Action // as Step would answer
	Rejected *Reject  // it would not be taken in
	Place    *Place   // it would start at once
	Promise  *Promise // to the first in line, if it starts behind that

	// Of one that would wait:
	Why      Why
	Estimate Estimate
	Evict    []Evict // the plan that takes back for it what its queue is guaranteed, or what work of a lower priority holds there
	Behind   int     // how many that wait come after it in line

	// By forecast, among those that wait: how many would start later or without a known start, and the first of them in line.
	Delayed int
	Delays  []Delay
}

// PlanSubmit says what would follow if a workload were submitted after news of what grants hold, not before the last event, with what is
// known to come as Forecast has it. It decides as Step does, on the live state, and takes everything back: it changes nothing.
func (e *Engine) PlanSubmit(news Usage, w Workload, coming ...Event) SubmitPlan {
	never := Estimate{Earliest: Never, Latest: Never, Expected: Never, From: Never, To: Never}
	out := SubmitPlan{Why: Why{Estimate: Never, NextTry: Never}, Estimate: never}
	e.lookAhead(news.At.At, func(*ahead) {
		e.Step(news)
		out.plan(e, w, coming)
	})
	return out
}

// plan decides ahead, in a look ahead that has the news.
func (s *SubmitPlan) plan(e *Engine, w Workload, coming []Event) {
	before := e.Forecast(e.now, coming...)
	e.lookAhead(e.now, func(a *ahead) {
		s.Actions = e.Step(Submit{At: At{e.now}, Workload: w})
		if s.read(w.ID); s.Rejected != nil {
			return
		}
		one := e.work[w.ID]
		if promise, ok := a.promises[one]; ok && s.Place != nil {
			s.Promise = &promise
		}
		waiting, after := e.Waiting(), e.Outlook(e.now, coming...)
		if one.waiting() {
			s.Why, s.Estimate = e.Why(one.ID), e.Estimate(after, one.ID)
			s.Behind = len(waiting) - s.Why.Place
			s.Evict = e.evictionsFor(one)
		}
		for _, id := range waiting {
			s.compare(id, before.Start(id), after.Start(id))
		}
	})
}

// read finds what the actions say of a workload itself. A Reject is of its submission: nothing else is answered so here.
func (s *SubmitPlan) read(id string) {
	for _, action := range s.Actions {
		switch action := action.(type) {
		case Reject:
			s.Rejected = &action
		case Place:
			if action.Workload == id {
				s.Place = &action
			}
		}
	}
}

// compare enters a workload that would start later.
func (s *SubmitPlan) compare(id string, from, to Time) {
	if from >= to {
		return
	}
	if s.Delayed++; len(s.Delays) < maxDelays {
		s.Delays = append(s.Delays, Delay{id, from, to})
	}
}

// evictionsFor are the evictions under way for a workload that waits.
func (e *Engine) evictionsFor(w *workload) []Evict {
	pl := e.plans[w.plan]
	if pl == nil || pl.w != w {
		return nil
	}
	all := make([]Evict, len(pl.tasks))
	for i, t := range pl.tasks {
		all[i] = Evict{ID: t.evict, Workload: t.w.ID, Task: t.number(), Code: t.evictCode(), Reason: t.evictReason()}
	}
	return all
}
