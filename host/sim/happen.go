package sim

import (
	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/engine"
)

// next is when something happens next, the next job coming at a time; Never: nothing does any more.
func (r *jobRun) next(submit engine.Time) engine.Time {
	next := submit
	if r.skipStale(); len(r.ends) > 0 {
		next = min(next, r.ends[0].at)
	}
	if len(r.events) > 0 {
		next = min(next, r.events[0].When())
	}
	if next != engine.Never {
		r.moved = r.now
	}
	if r.rules != nil {
		next = min(next, r.rules.soonest(r.now-r.moved, r.now, r.engine.Held))
	}
	if len(r.dated) > 0 {
		next = min(next, r.dated[0].job.PriorityUntil)
	}
	return min(next, r.crossing(), r.engine.Next())
}

// turn has another window hold where one begins or ends by now, and the priority of a queue be over that held until now.
func (r *jobRun) turn() error {
	if r.rules == nil || !r.rules.turnHours(r.now, r.engine.Held) && min(r.rules.next, r.rules.date) > r.now {
		return nil
	}
	if err := r.step(r.rules.turn(r.now)); err != nil {
		return err
	}
	r.nodesChanged() // pools, too, are among what says where work may run
	return nil
}

// happen feeds the engine what happens to nodes and queues by now.
func (r *jobRun) happen() error {
	if len(r.events) == 0 || r.events[0].When() > r.now {
		return nil
	}
	for len(r.events) > 0 && r.events[0].When() <= r.now {
		event := r.events[0]
		r.events = r.events[1:]
		if ofQueues(event) != nil && r.order != Fair {
			continue
		}
		r.nodeChanged(event)
		if err := r.set(event); err != nil {
			return err
		}
	}
	r.nodesChanged()
	return nil
}

// set feeds the engine what the trace says of nodes and queues, under the rules where there are some.
func (r *jobRun) set(event engine.Event) error {
	if r.rules != nil {
		event = r.rules.under(event)
	}
	return r.step(event)
}

// ofQueues are the queues that an event sets; nil: it is of something else.
func ofQueues(event engine.Event) []api.QueueSpec {
	switch ev := event.(type) {
	case engine.QueueSet:
		return []api.QueueSpec{ev.Queue}
	case engine.PolicySet:
		return append([]api.QueueSpec{}, ev.Policy.Queues...)
	}
	return nil
}
