package policy

import (
	"fmt"
	"time"

	"github.com/aliquot-dev/aliquot/api"
)

// priority takes in the words about the priority of a queue, which are one change: what it is, until when, and what it is after that.
func (p *parser) priority() (*change, error) {
	text, ok := p.word("priority")
	until, dated := p.word("priority-until")
	after, then := p.word("priority-after")
	switch {
	case !ok && !dated && !then:
		return nil, nil //nolint:nilnil // nothing is said of it
	case !ok:
		return nil, fmt.Errorf("it is not said which priority holds until a date: write priority=50 beside it")
	case then && !dated:
		return nil, fmt.Errorf("priority-after=%s: it is not said after what: write priority-until=2026-12-01T18:00 beside it", shortened(after))
	}
	now, err := number(text, api.MinPriority, api.MaxPriority)
	if err != nil {
		return nil, fmt.Errorf("priority=%s: %w", shortened(text), err)
	}
	c := change{key: "priority", value: text}
	var end *time.Time
	if dated {
		if end, err = p.date(until); err != nil {
			return nil, fmt.Errorf("priority-until=%s: %w", shortened(until), err)
		}
		c.more = append(c.more, "priority-until="+until)
	}
	later := int64(0)
	if then {
		if later, err = number(after, api.MinPriority, api.MaxPriority); err != nil {
			return nil, fmt.Errorf("priority-after=%s: %w", shortened(after), err)
		}
		c.more = append(c.more, "priority-after="+after)
	}
	if end != nil && now == later {
		return nil, fmt.Errorf("priority=%d until a date and after it: leave the date out, or write another priority-after", now)
	}
	c.apply = func(q *api.QueueSpec) {
		q.Priority, q.PriorityUntil, q.PriorityAfter = int32(now), end, int32(later)
	}
	return &c, nil
}

// date reads a day or a moment of it, in the zone of the policy; a day is its beginning.
func (p *parser) date(text string) (*time.Time, error) {
	for _, layout := range []string{"2006-01-02T15:04", time.DateOnly} {
		shown, err := time.Parse(layout, text)
		if err != nil || shown.Year() < 1970 {
			continue
		}
		p.dated = p.line
		day := shown.Truncate(24 * time.Hour)
		at := wall(day, int(shown.Sub(day)/time.Minute), p.zone).UTC()
		return &at, nil
	}
	return nil, fmt.Errorf("%q is no date: write 2026-12-01T18:00, or 2026-12-01 for the beginning of that day", shortened(text))
}

// Holding is what queues are told to be at a moment: with the priorities that hold then, and without their dates, of which the engine knows
// nothing; and the next of the dates; zero: none is to come.
func Holding(specs []api.QueueSpec, now time.Time) (told []api.QueueSpec, next time.Time) {
	told = make([]api.QueueSpec, len(specs))
	for i, q := range specs {
		q = q.At(now)
		if until := q.PriorityUntil; until != nil && (next.IsZero() || until.Before(next)) {
			next = *until
		}
		q.PriorityUntil, q.PriorityAfter = nil, 0
		told[i] = q
	}
	return told, next
}

// Dated says of a queue what is added to the priority of its work and until when, in the zone of a place; empty: nothing is, and nothing will be.
func Dated(q api.QueueSpec, zone *time.Location) string {
	if q.PriorityUntil == nil {
		if q.Priority == 0 {
			return ""
		}
		return fmt.Sprint(q.Priority)
	}
	return fmt.Sprintf("%d until %s, then %d", q.Priority, shown(q.PriorityUntil.In(zone)), q.PriorityAfter)
}
