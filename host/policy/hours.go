package policy

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/engine"
)

// Hours counts what queues use of their device-hours: the compute that they and those under them hold as floors, for as long as they hold it. Who
// has it count says what is held; how long is by the engine's time, which period it is by the clock. The zero Hours counts nothing.
type Hours struct {
	counts map[string]*count // by queue
	told   map[string]bool   // queues of which the engine was told that theirs are spent
	kept   KeptHours         // what was counted before a restart, of queues that are not counted yet
}

// count is what a queue used in a period.
type count struct {
	quota      api.HoursQuota
	zone       *time.Location
	begin, end time.Time   // of the period
	at         engine.Time // up to which it is counted
	used       int64       // thousandths of a device × ms
}

// msPerHour makes thousandths of device-hours comparable with what is counted.
const msPerHour = 3_600_000

// period is the period that a moment is in, by the clocks of a zone.
func period(per api.Period, now time.Time, zone *time.Location) (begin, end time.Time) {
	shown := reads(now, zone)
	first := shown.Truncate(24 * time.Hour)
	last := first.AddDate(0, 0, 1)
	switch per {
	case api.Week:
		first = first.AddDate(0, 0, -int(first.Weekday()+6)%7)
		last = first.AddDate(0, 0, 7)
	case api.Month:
		first = first.AddDate(0, 0, 1-first.Day())
		last = first.AddDate(0, 1, 0)
	}
	return wall(first, 0, zone), wall(last, 0, zone)
}

// None says that nothing is counted.
func (h *Hours) None() bool { return len(h.counts) == 0 }

// Set has those of some queues counted from a moment on that have device-hours. What was counted of one stays while it is by the same period.
func (h *Hours) Set(queues []api.QueueSpec, zone *time.Location, now time.Time, at engine.Time) {
	before := h.counts
	h.counts = map[string]*count{}
	for _, q := range queues {
		if q.Hours.IsZero() {
			continue
		}
		c := before[q.Name]
		begin, end := period(q.Hours.Per, now, zone)
		if c == nil || c.quota.Per != q.Hours.Per {
			c = &count{at: at}
			h.kept.into(c, q, begin, now)
		}
		if !c.begin.IsZero() && c.begin.Before(begin) {
			c.used = 0
		}
		c.quota, c.zone, c.begin, c.end = q.Hours, zone, begin, end
		h.counts[q.Name] = c
	}
	h.kept = KeptHours{}
}

// Count counts what is held until a time.
func (h *Hours) Count(at engine.Time, held func(queue string) api.Milli) {
	for name, c := range h.counts {
		if ms := int64(at-c.at) / 1000; ms > 0 {
			c.used += int64(held(name)) * ms
			c.at += engine.Time(ms * 1000)
		}
	}
}

// Turn begins the periods that have begun by now.
func (h *Hours) Turn(now time.Time) {
	for _, c := range h.counts {
		if now.Before(c.begin) || !now.Before(c.end) {
			if !now.Before(c.end) {
				c.used = 0
			}
			c.begin, c.end = period(c.quota.Per, now, c.zone)
		}
	}
}

func (c *count) left() int64 { return max(0, int64(c.quota.Amount)*msPerHour-c.used) }

// Next is when it is to be looked again: a period begins, or device-hours are used up if as much stays held. Zero: never.
func (h *Hours) Next(now time.Time, held func(queue string) api.Milli) (next time.Time) {
	for name, c := range h.counts {
		at := c.end
		if holds := int64(held(name)); holds > 0 && c.left() > 0 {
			if ms := c.left()/holds + 1; ms < c.end.Sub(now).Milliseconds() {
				at = now.Add(time.Duration(ms) * time.Millisecond)
			}
		}
		if next.IsZero() || at.Before(next) {
			next = at
		}
	}
	return next
}

// Mark says of queues that the engine is to be told whether their device-hours are used up.
func (h *Hours) Mark(queues []api.QueueSpec) {
	for i := range queues {
		q := &queues[i]
		c := h.counts[q.Name]
		q.HoursSpent = c != nil && !q.Hours.IsZero() && c.left() == 0
	}
}

// MarkAt says the same of a moment to come, as if no more were used until then: those used up now are until their period ends.
func (h *Hours) MarkAt(at time.Time, queues []api.QueueSpec) {
	h.Mark(queues)
	for i := range queues {
		q := &queues[i]
		q.HoursSpent = q.HoursSpent && (at.Before(h.counts[q.Name].end) || q.Hours.Amount == 0)
	}
}

// Renewed are the moments at which queues whose device-hours are used up have some again.
func (h *Hours) Renewed() (all []time.Time) {
	for _, c := range h.counts {
		if c.left() == 0 && c.quota.Amount > 0 {
			all = append(all, c.end)
		}
	}
	return all
}

// Told notes what the engine was told of queues.
func (h *Hours) Told(queues []api.QueueSpec) {
	if h.told == nil {
		h.told = map[string]bool{}
	}
	for i := range queues {
		h.told[queues[i].Name] = queues[i].HoursSpent
	}
}

// Changed are the queues of which the engine is to be told something else, by name: their device-hours are used up, or there are some again.
func (h *Hours) Changed() []string {
	var names []string
	for _, name := range slices.Sorted(maps.Keys(h.counts)) {
		if (h.counts[name].left() == 0) != h.told[name] {
			names = append(names, name)
		}
	}
	return names
}

// Used is what a queue used of its device-hours; nil: they are no bound.
func (h *Hours) Used(queue string) *api.HoursUsed {
	c := h.counts[queue]
	if c == nil {
		return nil
	}
	return &api.HoursUsed{Amount: api.Quota(c.used / msPerHour), Begin: c.begin.UTC(), End: c.end.UTC()}
}

// Spent says how a queue stands whose device-hours are used up, and when the next period begins; empty: they are not.
func (h *Hours) Spent(queue string) (text, next string) {
	c := h.counts[queue]
	if c == nil || c.left() > 0 {
		return "", ""
	}
	next = shown(c.end.In(c.zone))
	return fmt.Sprintf("queue %s has used %s of its %s device-hours of this %s", queue, api.Quota(c.used/msPerHour), c.quota.Amount, c.quota.Per), next
}

// Explain says why work waits whose queue, or one of those above that, has used its device-hours up, and for what; empty: none has.
func (h *Hours) Explain(queues []string) (message, unblock string) {
	for _, name := range queues {
		if text, next := h.Spent(name); text != "" {
			return fmt.Sprintf("%s: what runs goes on, and nothing with a compute floor is started before %s", text, next),
				fmt.Sprintf("%s, more device-hours for queue %s, or another queue", next, name)
		}
	}
	return "", ""
}

// Forgive takes back what was counted for what nobody held: so much compute, for so long.
func (h *Hours) Forgive(queue string, compute api.Milli, long time.Duration) {
	if c := h.counts[queue]; c != nil {
		c.used = max(0, c.used-int64(compute)*long.Milliseconds())
	}
}

// KeptHours are what was counted until a moment, as it is stored.
type KeptHours struct {
	At     time.Time            `json:"at"`
	Queues map[string]KeptCount `json:"queues"`
}

// KeptCount is what was counted of one queue: thousandths of a device × ms in the period that began then.
type KeptCount struct {
	Per   api.Period `json:"per"`
	Begin time.Time  `json:"begin"`
	Used  int64      `json:"used"`
	At    time.Time  `json:"at,omitzero"` // until when it was counted; zero: until KeptHours.At
}

// Kept is what was counted of one queue until a moment, as it was told by Used, to the thousandth of a device-hour.
func Kept(used api.HoursUsed, per api.Period, at time.Time) KeptCount {
	return KeptCount{per, used.Begin, int64(used.Amount) * msPerHour, at}
}

// Keep is what was counted until now.
func (h *Hours) Keep(now time.Time) KeptHours {
	kept := KeptHours{At: now.UTC(), Queues: map[string]KeptCount{}}
	for name, c := range h.counts {
		kept.Queues[name] = KeptCount{Per: c.quota.Per, Begin: c.begin.UTC(), Used: c.used}
	}
	return kept
}

// Resume has what was counted before a restart count for those queues that are set next: what they hold then they held since.
func (h *Hours) Resume(kept KeptHours) { h.kept = kept }

// into is what was counted of a queue before a restart, in the period that began at a moment.
func (k *KeptHours) into(c *count, q api.QueueSpec, begin, now time.Time) {
	was, ok := k.Queues[q.Name]
	if !ok || was.Per != q.Hours.Per {
		return
	}
	since := k.At
	if !was.At.IsZero() {
		since = was.At
	}
	if was.Begin.Before(begin) {
		since = begin
	} else {
		c.used = was.Used
	}
	c.at -= engine.Time(max(0, now.Sub(since)).Microseconds())
}
