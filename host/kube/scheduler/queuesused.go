package scheduler

import (
	"maps"
	"slices"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/engine"
	"github.com/aliquot-dev/aliquot/host/kube/api/v1alpha1"
)

// perThousandth is how much of what the engine counts is a thousandth of a device-hour.
const perThousandth = 3_600_000

// queuesUsed is what queues used until now, by name.
func (s *Scheduler) queuesUsed() map[string]*v1alpha1.QueueUsed {
	all := map[string]*v1alpha1.QueueUsed{}
	for _, u := range s.engine.QueuesUsed(s.at().At) {
		all[u.Queue] = &v1alpha1.QueueUsed{All: api.Quota(u.All / perThousandth), Own: api.Quota(u.Own / perThousandth)}
	}
	return all
}

// recallQueuesUsed has the order of queues go on where the scheduler before this one stopped, once what is held is known: what they held since their status
// was written is taken to be what they hold now.
func (s *Scheduler) recallQueuesUsed() {
	for _, name := range slices.Sorted(maps.Keys(s.tenants.queues)) {
		uses := s.tenants.queues[name].Status.Uses
		if uses == nil || uses.Used == nil {
			continue
		}
		count := func(q api.Quota) int64 {
			return min(max(0, int64(q)), engine.MostQueueUsed/perThousandth) * perThousandth
		}
		ago := max(0, s.config.Now().Sub(uses.At.Time)) // a clock that was set back
		told := engine.QueueUsed{Queue: name, All: count(uses.Used.All), Own: count(uses.Used.Own)}
		s.step(engine.QueuesUsed{At: s.at(), Ago: engine.Time(ago.Microseconds()), Queues: []engine.QueueUsed{told}})
	}
}
