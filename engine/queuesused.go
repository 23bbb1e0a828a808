package engine

import (
	"fmt"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/engine/queue"
)

// QueueUsed is what a queue used of compute, each moment of it halved with each half-life since, in thousandths of a device times milliseconds: 0 to
// MostQueueUsed.
type QueueUsed struct {
	Queue string `json:"queue"`
	All   int64  `json:"all"` // with the queues under it
	Own   int64  `json:"own"` // by work of its own
}

// MostQueueUsed is the most that a queue can have used.
const MostQueueUsed = queue.MostUsed

// QueuesUsed tells what queues had used so long ago, so that their order goes on where an engine before this one stopped. What they hold now, they count as
// having held since: an engine that begins is told of it once it knows all that runs. Queues that are not named stay as they are, and those named that are not
// there any more count for nothing. What waits may start, whose turn it is by that; elastic work does not grow.
type QueuesUsed struct {
	At
	Ago    Time        `json:"ago"` // µs; 0 to 2^60
	Queues []QueueUsed `json:"queues"`
}

func (e *Engine) queuesUsed(ev QueuesUsed) bool {
	if err := validQueuesUsed(&ev); err != nil {
		return e.reject("", "invalid", "%v", err)
	}
	for _, u := range ev.Queues {
		e.queues.Recall(u.Queue, u.All, u.Own, int64(ev.Ago))
	}
	return true
}

func validQueuesUsed(ev *QueuesUsed) error {
	if ev.Ago < 0 || ev.Ago > maxPast {
		return fmt.Errorf("what queues used %d µs ago cannot be told: give 0 to %d", ev.Ago, maxPast)
	}
	for _, u := range ev.Queues {
		if u.All < 0 || u.All > MostQueueUsed || u.Own < 0 || u.Own > MostQueueUsed {
			return fmt.Errorf("queue %s cannot have used %d, %d of it by its own work: give 0 to %d thousandths of a device times milliseconds", u.Queue, u.All, u.Own, int64(MostQueueUsed))
		}
	}
	return nil
}

// QueuesUsed is what queues used up to a time, no earlier than the last event, if what they hold stays; those that used anything, by name. It is what an
// engine that begins later is told.
func (e *Engine) QueuesUsed(at Time) (all []QueueUsed) {
	for _, u := range e.queues.Uses() {
		n, _ := e.queues.Get(u.Queue)
		use := func(used int64) int64 { return min(used, MostQueueUsed) }
		all = append(all, QueueUsed{u.Queue, use(n.All.UsedAt(e.queues, int64(at))), use(n.Own.UsedAt(e.queues, int64(at)))})
	}
	return all
}

// UseOf is what who held so much compute for so long, until now, has used by it.
func (e *Engine) UseOf(held api.Milli, long Time) int64 {
	return e.queues.UseOf(int64(held), int64(long))
}
