package scheduler

import (
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/host/policy"
)

// Device-hours are counted while a scheduler schedules, and kept in the status of queues, where the next one reads them. What was held when they were last
// said, and is held when that one begins, was held in between; what ended in between is not counted for that time.

// countHours counts what queues hold until now. It is called before what they hold changes.
func (s *Scheduler) countHours() {
	if !s.tenants.hours.None() {
		s.tenants.hours.Count(s.at().At, s.engine.Held)
	}
}

// setHours has the device-hours counted that queues have from now on, and says in these whose are used up. Those that were not counted until now go on from
// what their status says of this period.
func (s *Scheduler) setHours(told []api.QueueSpec, now time.Time) {
	t := &s.tenants
	if t.counting {
		t.hours.Resume(t.kept())
		t.hours.Set(told, t.rules.Zone(), now, s.at().At)
		s.countHours()
	}
	t.hours.Mark(told)
}

// kept is what the status of queues says that they used.
//
// What it said last of a queue that had no device-hours meanwhile, or did not hold, is kept as long as this scheduler runs.
func (t *tenants) kept() policy.KeptHours {
	for name, q := range t.queues {
		if u := q.Status.Uses; u != nil && u.Hours != nil {
			used := api.HoursUsed{Amount: u.Hours.Used, Begin: u.Hours.Begin.Time, End: u.Hours.End.Time}
			t.kepts[name] = policy.Kept(used, u.Hours.Per, u.At.Time)
		}
	}
	maps.DeleteFunc(t.kepts, func(name string, _ policy.KeptCount) bool { return t.queues[name] == nil })
	return policy.KeptHours{Queues: maps.Clone(t.kepts)}
}

// resumeHours begins to count once what is held is known, where the scheduler before this one stopped.
func (s *Scheduler) resumeHours() {
	t, now := &s.tenants, s.config.Now()
	kept := t.kept()
	t.counting = true
	s.setHours(slices.Collect(maps.Values(t.told)), now)
	for _, w := range s.work {
		if w.state == placed {
			s.forgive(w, kept, now)
		}
	}
	s.tellQueues()
}

// forgive takes back what was counted for a workload before its pods had their nodes: they got them after it was last said what was used.
func (s *Scheduler) forgive(w *work, kept policy.KeptHours, now time.Time) {
	known, is := s.engine.Workload(w.id)
	if !is {
		return
	}
	for _, task := range w.tasks {
		began := now
		if at := boundAt(task.pod); at.IsZero() {
			continue
		} else if at.Before(now) {
			began = at
		}
		var held api.Milli
		for _, c := range task.claims {
			_, grants := s.grantsOf(c.object)
			for _, g := range grants {
				held += g.Compute.Floor
			}
		}
		for _, q := range s.above(known.Queue) {
			was, counted := kept.Queues[q]
			used := s.tenants.hours.Used(q)
			if !counted || used == nil {
				continue
			}
			since := was.At
			if used.Begin.After(since) {
				since = used.Begin
			}
			if began.After(since) {
				s.tenants.hours.Forgive(q, held, began.Sub(since))
			}
		}
	}
}

// boundAt is when a pod got its node; zero: not known.
func boundAt(p *pod) time.Time {
	if p == nil {
		return time.Time{}
	}
	for _, c := range p.object.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionTrue {
			return c.LastTransitionTime.Time
		}
	}
	if at := p.object.Status.StartTime; at != nil {
		return at.Time
	}
	return time.Time{}
}

// above are a queue and those above it.
func (s *Scheduler) above(queue string) (all []string) {
	for q, is := s.tenants.told[queue]; is; q, is = s.tenants.told[q.Parent] {
		all = append(all, q.Name)
	}
	return all
}

// logHours says whose device-hours are used up now, and who has some again.
func (s *Scheduler) logHours(changed []string) {
	for _, name := range changed {
		if text, next := s.tenants.hours.Spent(name); text != "" {
			s.config.Log.Info(text, "queue", name, "next", next)
		} else {
			s.config.Log.Info("a queue has device-hours again", "queue", name)
		}
	}
}
