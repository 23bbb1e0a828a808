package policy

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// span is one time of the week: from a minute of a weekday to a minute of the same day or a later one, in local time.
type span struct {
	day      time.Weekday
	from, to int // minutes from the midnight at which the day begins; to is larger, by at most a week
}

// interval is a span of one week: its moments from begin on and before end.
type interval struct {
	window     *Window
	begin, end time.Time
}

const minutesADay = 24 * 60

// between are the intervals of a window that have a part after from and before to, in the order of their days.
func (w *Window) between(from, to time.Time) []interval {
	var all []interval
	year, month, day := from.In(w.zone).Date()
	for d := day - 8; ; d++ { // a span is a week at most
		date := time.Date(year, month, d, 0, 0, 0, 0, time.UTC)
		for _, s := range w.spans {
			if s.day != date.Weekday() {
				continue
			}
			i := interval{w, wall(date, s.from, w.zone), wall(date, s.to, w.zone)}
			if i.begin.Before(i.end) && i.end.After(from) && i.begin.Before(to) {
				all = append(all, i)
			}
		}
		if date.After(to.Add(2 * 24 * time.Hour)) { // no zone is as far from UTC
			return all
		}
	}
}

// wall is the moment at which clocks of a zone show so many minutes after the midnight of a date. Where they show it twice, because they
// were set back, it is the first; where never, because they were set forward over it, it is the moment at which they were.
func wall(date time.Time, minutes int, zone *time.Location) time.Time {
	shown := date.Add(time.Duration(minutes) * time.Minute) // what they show, as if it were UTC
	year, month, day := shown.Date()
	hour, minute, _ := shown.Clock()
	t := time.Date(year, month, day, hour, minute, 0, 0, zone)
	begin, end := t.ZoneBounds()
	if !reads(t, zone).Equal(shown) { // Date chose one of the two zones between which it was skipped
		for _, set := range []time.Time{begin, end} {
			if !set.IsZero() && reads(set.Add(-1), zone).Before(shown) && !reads(set, zone).Before(shown) {
				return set
			}
		}
	}
	if !begin.IsZero() { // the same reading before the clocks were set
		_, offset := begin.Add(-1).In(zone).Zone()
		if earlier := shown.Add(-time.Duration(offset) * time.Second); earlier.Before(begin) && reads(earlier, zone).Equal(shown) {
			return earlier.In(zone)
		}
	}
	return t
}

// reads is what clocks of a zone show at a moment, as if it were UTC.
func reads(t time.Time, zone *time.Location) time.Time {
	_, offset := t.In(zone).Zone()
	return t.UTC().Add(time.Duration(offset) * time.Second)
}

// Location is the zone of the policy.
func (p *Policy) Location() *time.Location {
	zone, err := loadZone(p.Zone)
	if err != nil { // it was when the policy was read
		return time.UTC
	}
	return zone
}

// Moment reads a time in the zone of the policy: 2026-01-05T08:00.
func (p *Policy) Moment(text string) (time.Time, error) {
	at, err := time.ParseInLocation("2006-01-02T15:04", text, p.Location())
	if err != nil {
		return time.Time{}, fmt.Errorf("%q is no time: write it as 2026-01-05T08:00", shortened(text))
	}
	return at, nil
}

// At is the window that holds at a moment; nil: none does.
func (p *Policy) At(t time.Time) *Window {
	for _, w := range p.Windows {
		for _, i := range w.between(t.Add(-time.Minute), t.Add(time.Minute)) {
			if !t.Before(i.begin) && t.Before(i.end) {
				return w
			}
		}
	}
	return nil
}

// Ahead is within how long each window that ever holds does so again: each week, but for one that falls out where clocks are set forward, and
// might in the week after by another rule.
const Ahead = 23 * 24 * time.Hour

// Next is the first moment after t at which another window holds, or none any more; false: that never comes.
func (p *Policy) Next(t time.Time) (time.Time, bool) {
	now := p.At(t)
	var turns []time.Time
	for _, w := range p.Windows {
		for _, i := range w.between(t, t.Add(Ahead)) {
			turns = append(turns, i.begin, i.end)
		}
	}
	slices.SortFunc(turns, time.Time.Compare)
	for _, at := range turns {
		if at.After(t) && p.At(at) != now {
			return at, true
		}
	}
	return time.Time{}, false
}

// mostTurns is how many turns are looked through for one at which something holds: more than a week of any policy that a person wrote.
const mostTurns = 200

// First is the first turn after t from which on something is so that depends on the window that holds, nil: none does; in its zone, else in
// that of the policy. False: it never is.
func (p *Policy) First(t time.Time, so func(*Window) bool) (*Window, time.Time, bool) {
	for range mostTurns {
		next, ok := p.Next(t)
		if !ok {
			break
		}
		w := p.At(next)
		if !so(w) {
			t = next
			continue
		}
		if w != nil {
			return w, next.In(w.zone), true
		}
		return nil, next.In(p.Location()), true
	}
	return nil, time.Time{}, false
}

// Coming is when a window of the policy begins and ends that holds at a moment, or else when it next does: days that meet are one time. Nil: it
// has held for so long, or goes on for so long, that it does so each week; both nil where it does not hold: it never does again.
func (p *Policy) Coming(w *Window, t time.Time) (begin, end *time.Time) {
	from, to := t.Add(-Ahead), t.Add(Ahead)
	all := w.between(from, to)
	slices.SortFunc(all, func(a, b interval) int { return a.begin.Compare(b.begin) })
	for i := 0; i < len(all); {
		one := all[i]
		for i++; i < len(all) && !all[i].begin.After(one.end); i++ {
			if all[i].end.After(one.end) {
				one.end = all[i].end
			}
		}
		if !one.end.After(t) {
			continue
		}
		if one.begin.After(from) {
			begin = new(one.begin.In(w.zone))
		}
		if one.end.Before(to) {
			end = new(one.end.In(w.zone))
		}
		return begin, end
	}
	return nil, nil
}

// overlapAhead is for how long windows must not overlap: over all settings of clocks that a year has.
const overlapAhead = 400 * 24 * time.Hour

// overlap finds two windows that hold at once after a moment, and when first; nil: there are none.
func (p *Policy) overlap(after time.Time) (a, b interval, found bool) {
	var all []interval
	for _, w := range p.Windows {
		all = append(all, w.between(after, after.Add(overlapAhead))...)
	}
	slices.SortStableFunc(all, func(a, b interval) int {
		return cmp.Or(a.begin.Compare(b.begin), a.end.Compare(b.end))
	})
	for i := 1; i < len(all); i++ { // while none overlap each ends before the next begins
		if a, b = all[i-1], all[i]; b.begin.Before(a.end) {
			return a, b, true
		}
	}
	return interval{}, interval{}, false
}
