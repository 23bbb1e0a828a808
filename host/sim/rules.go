package sim

import (
	"cmp"
	"slices"
	"time"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/engine"
	"github.com/aliquot-dev/aliquot/host/policy"
)

// Rules are a policy file that holds in a run of jobs, which go to the queues of their tenants then.
type Rules struct {
	Policy *policy.Policy
	Start  time.Time // when time 0 of the trace is: its windows come by that
}

// of are the rules with whole names of the models of a trace, among whose queues they add up.
func (r *Rules) of(t *Trace) (*Rules, error) {
	var models []string
	var devices []policy.Device
	for n := range t.everyNode {
		for _, d := range n.Devices {
			models = append(models, d.Model)
			devices = append(devices, policy.Device{Node: n.Node, Model: d.Model, Index: d.Index})
		}
	}
	named, wrong, err := r.Policy.For(models)
	switch {
	case err != nil:
		return nil, err
	case len(wrong) > 0:
		return nil, wrong[0]
	}
	if none := named.Unmatched(devices); len(none) > 0 {
		return nil, none[0]
	}
	return &Rules{Policy: named, Start: r.Start}, named.Check(t.Queues)
}

// ruling is how far the rules of a run are.
type ruling struct {
	*Rules
	own  []api.QueueSpec          // the queues by themselves
	says map[string]api.QueueSpec // what they are now, by name
	next engine.Time              // when another window holds
	date engine.Time              // when the priority of a queue is over

	hours policy.Hours
}

// moment is when a time of the run is.
func (r *ruling) moment(at engine.Time) time.Time {
	return r.Start.Add(time.Duration(at) * time.Microsecond)
}

// turn is what the engine is told at a time; it finds out when to tell it more.
func (r *ruling) turn(at engine.Time) engine.PolicySet {
	now := r.moment(at)
	r.next, r.date = engine.Never, engine.Never
	from := func(t time.Time) engine.Time { return at + engine.Time((t.Sub(now)-1)/time.Microsecond) + 1 }
	if next, ok := r.Policy.Next(now); ok {
		r.next = from(next)
	}
	set := engine.PolicySet{At: engine.At{At: at}, Policy: r.Policy.During(r.Policy.At(now), r.own)}
	r.hours.Set(set.Policy.Queues, r.Policy.Location(), now, at)
	r.hours.Mark(set.Policy.Queues)
	r.hours.Told(set.Policy.Queues)
	var date time.Time
	if set.Policy.Queues, date = policy.Holding(set.Policy.Queues, now); !date.IsZero() {
		r.date = from(date)
	}
	r.says = make(map[string]api.QueueSpec, len(set.Policy.Queues))
	for _, q := range set.Policy.Queues {
		r.says[q.Name] = q
	}
	return set
}

// soonest is when the engine is to be told more, nothing else having come for so long: each window has held by then once nothing has for
// policy.Ahead, each period of device-hours has begun in longestPeriod, and each date comes once.
func (r *ruling) soonest(still, now engine.Time, held func(queue string) api.Milli) engine.Time {
	next := r.date
	if still <= engine.Time(policy.Ahead.Microseconds()) {
		next = min(next, r.next)
	}
	if !r.hours.None() && still <= engine.Time(longestPeriod.Microseconds()) {
		at := r.moment(now)
		next = min(next, now+engine.Time((r.hours.Next(at, held).Sub(at)-1)/time.Microsecond)+1)
	}
	return next
}

// longestPeriod is longer than any period of device-hours: what waits for the next one starts within it, if it ever does.
const longestPeriod = 32 * 24 * time.Hour

// turnHours counts what is held until a time, and says whether device-hours are used up by then, or there are some again.
func (r *ruling) turnHours(now engine.Time, held func(queue string) api.Milli) bool {
	r.hours.Count(now, held)
	r.hours.Turn(r.moment(now))
	return len(r.hours.Changed()) > 0
}

// bounded is a job as its queue, and those above that, let it run when it comes: no longer than the shortest of them says.
func (r *ruling) bounded(j *Job) *Job {
	longest := engine.Time(0)
	for q, ok := r.says[cmp.Or(j.Queue, api.DefaultQueue)]; ok; q, ok = r.says[q.Parent] {
		if most := engine.Time(q.LongestRun / 1000); most > 0 && (longest == 0 || most < longest) { // ns to µs
			longest = most
		}
	}
	if longest == 0 || j.TimeLimit > 0 && j.TimeLimit <= longest {
		return j
	}
	held := *j
	held.TimeLimit = longest
	return &held
}

// under is what an event is where the rules hold: a queue is set with what they say of it.
func (r *ruling) under(event engine.Event) engine.Event {
	switch ev := event.(type) {
	case engine.QueueSet:
		if i := r.find(ev.Queue.Name); i >= 0 {
			r.own[i] = ev.Queue
		} else {
			r.own = append(r.own, ev.Queue)
		}
		return r.turn(ev.At.At)
	case engine.PolicySet: // of a log: other rules hold now, among its queues
		for _, q := range ev.Policy.Queues {
			if r.find(q.Name) < 0 {
				r.own = append(r.own, q)
			}
		}
		return r.turn(ev.At.At)
	}
	return event
}

func (r *ruling) find(name string) int {
	return slices.IndexFunc(r.own, func(q api.QueueSpec) bool { return q.Name == name })
}
