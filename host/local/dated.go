package local

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/engine"
	"github.com/aliquot-dev/aliquot/host/policy"
)

// A priority that holds until a date is over by the clock of the machine, as a window of the policy is; the engine is told so at that moment.

// dates are what is to be over when its date comes.
type dates struct {
	again  map[*work]bool           // that are not started before their time, which has not come
	work   map[*work]bool           // whose priority holds until a date that has not come
	queues map[string]api.QueueSpec // that the engine was told have a priority, or that will have one, by name, with their dates
}

// awaitDate has the priority of a workload be over when its date comes, or at once where it has.
func (h *Host) awaitDate(w *work) {
	until := w.now.Spec.PriorityUntil
	if until == nil || w.now.Status.PriorityOver {
		return
	}
	now := h.Now().Round(0)
	if !now.Before(*until) {
		h.priorityOver(w)
		return
	}
	if h.dates.work == nil {
		h.dates.work = map[*work]bool{}
	}
	h.dates.work[w] = true
	h.ruling.sooner(now, *until)
}

// sooner has it looked at a time, if nothing is looked at before, what holds.
func (r *rules) sooner(now, at time.Time) {
	if pace := now.Add(windowPace); pace.Before(at) {
		at = pace
	}
	if r.next.IsZero() {
		r.looked, r.next = now, at
	} else if at.Before(r.next) {
		r.next = at
	}
}

// priorityOver writes down that the date has come until which a workload's priority holds.
func (h *Host) priorityOver(w *work) {
	w.now.Status.PriorityOver = true
	h.touch(w)
	h.note(w, fmt.Sprintf("its priority of %d held until now: from now on it is %d", w.now.Spec.Priority, w.now.Spec.PriorityAfter))
}

// endPriorities ends those of workloads whose date has come.
func (h *Host) endPriorities(now time.Time) {
	var over []*work
	for w := range h.dates.work {
		if !now.Before(*w.now.Spec.PriorityUntil) {
			over = append(over, w)
			delete(h.dates.work, w)
		}
	}
	slices.SortFunc(over, func(a, b *work) int { return cmp.Compare(a.seq, b.seq) })
	for _, w := range over {
		h.priorityOver(w)
		if rejected := h.step(engine.Change{At: h.time(), ID: w.gang(), Priority: new(w.now.Priority())}); rejected != nil {
			h.Log.Error("a priority that is over could not be taken back", "workload", w.now.UID, "error", rejected.Reason)
		}
	}
}

// queuesNow are the queues that there are, under the policy where one holds, with their dates.
func (r *rules) queuesNow() []api.QueueSpec {
	if r.policy == nil {
		return r.own
	}
	return r.policy.During(r.holds, r.own).Queues
}

// dated are queues that have a priority at a moment, or will have one, by name, with their dates.
func dated(queues []api.QueueSpec, now time.Time) map[string]api.QueueSpec {
	out := map[string]api.QueueSpec{}
	for _, q := range queues {
		if q = q.At(now); q.Priority != 0 || q.PriorityUntil != nil {
			out[q.Name] = q
		}
	}
	return out
}

// setDated notes of one queue what the engine was told of its priority.
func (h *Host) setDated(q api.QueueSpec, now time.Time) {
	delete(h.dates.queues, q.Name)
	maps.Copy(h.dates.queues, dated([]api.QueueSpec{q}, now))
	if q.PriorityUntil != nil {
		h.ruling.sooner(now.Round(0), *q.PriorityUntil)
	}
}

// samePriorities says that the same is added by all queues.
func samePriorities(a, b map[string]api.QueueSpec) bool {
	for _, pair := range [2][2]map[string]api.QueueSpec{{a, b}, {b, a}} {
		for name, q := range pair[0] {
			if pair[1][name].Priority != q.Priority {
				return false
			}
		}
	}
	return true
}

// sayPriorities tells of the queues that add something else than before to the priority of their work.
func (h *Host) sayPriorities(now map[string]api.QueueSpec) {
	names := slices.Collect(maps.Keys(now))
	for name := range h.dates.queues {
		if _, also := now[name]; !also {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		if before, is := h.dates.queues[name].Priority, now[name].Priority; before != is {
			h.say("queue", nil, fmt.Sprintf("queue %s adds %d to the priority of its work from now on, and no longer %d", name, is, before))
		}
	}
}

// withDates are queues as the engine has them, with the dates until which their priorities hold and what they used of their device-hours.
func (h *Host) withDates(queues []api.Queue) []api.Queue {
	for i := range queues {
		q := &queues[i]
		if of, ok := h.dates.queues[q.Name]; ok {
			q.PriorityUntil, q.PriorityAfter = of.PriorityUntil, of.PriorityAfter
		}
		q.HoursUsed = h.hours.Used(q.Name)
	}
	return queues
}

// checkDate refuses a priority that would hold until a date that is over.
func checkDate(until *time.Time, now time.Time) error {
	if until != nil && !now.Before(*until) {
		return api.Invalid("a priority until %s was asked for, and that is over: give a later date, or leave priority and date out", moment(*until))
	}
	return nil
}

// moment is a time as it is said to people, in the machine's zone.
func moment(at time.Time) string { return at.Local().Format("Mon 2 Jan 2006 15:04 MST") }

// explainPriority adds to why a workload waits until when its priority holds, and what its queue and those above add to it.
func (h *Host) explainPriority(w *work, why *api.Why) {
	var all []string
	spec := &w.now.Spec
	switch {
	case spec.PriorityUntil == nil:
	case w.now.Status.PriorityOver:
		all = append(all, fmt.Sprintf("its priority of %d held until %s and is %d now", spec.Priority, moment(*spec.PriorityUntil), spec.PriorityAfter))
	default:
		all = append(all, fmt.Sprintf("its priority of %d holds until %s, then it is %d", spec.Priority, moment(*spec.PriorityUntil), spec.PriorityAfter))
	}
	if len(h.dates.queues) > 0 {
		for _, name := range h.above(spec.Queue) {
			if q, ok := h.dates.queues[name]; ok {
				all = append(all, "queue "+name+" adds to its priority "+policy.Dated(q, time.Local))
			}
		}
	}
	if len(all) > 0 {
		why.Message += "; " + strings.Join(all, "; ")
	}
}
