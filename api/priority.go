package api

import "time"

// Priority is what a workload's priority counts now, without what its queue adds: what was asked for, or once the date is over until which
// that holds, what was asked for after it.
func (w Workload) Priority() int32 {
	if w.Status.PriorityOver {
		return w.Spec.PriorityAfter
	}
	return w.Spec.Priority
}

// At is a queue as it holds at a moment: with the priority that counts then, and without a date that is over.
func (q QueueSpec) At(now time.Time) QueueSpec {
	if q.PriorityUntil != nil && !now.Before(*q.PriorityUntil) {
		q.Priority, q.PriorityUntil, q.PriorityAfter = q.PriorityAfter, nil, 0
	}
	return q
}

// validDated says what is wrong with a priority of what is named so, that holds until a date, nil: always, and with the one after it.
func validDated(of string, priority int32, until *time.Time, after int32) error {
	switch {
	case priority < MinPriority || priority > MaxPriority:
		return Invalid("the priority %d%s is out of range; give %d to %d", priority, of, MinPriority, MaxPriority)
	case after < MinPriority || after > MaxPriority:
		return Invalid("the priority %d%s after the date is out of range; give %d to %d", after, of, MinPriority, MaxPriority)
	case until == nil && after != 0:
		return Invalid("a priority of %d%s after a date was asked for, and no date until which another holds; give that, or leave it out", after, of)
	case until != nil && priority == after:
		return Invalid("the priority%s is %d until a date and after it; leave the date out, or give another one after it", of, priority)
	case until != nil && (until.Year() < 1970 || until.Year() > 9999):
		return Invalid("the priority%s holds until the year %d; give a date from 1970 to 9999", of, until.Year())
	}
	return nil
}
