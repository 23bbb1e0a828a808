package policy

import (
	"fmt"
	"time"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/engine/queue"
)

func (s *Settings) empty() bool {
	return len(s.Queues) == 0 && len(s.Pools) == 0 && s.OneLine == nil && s.Predicted == nil && s.HalfLife == 0 && s.Placement == nil && s.Defragment == nil
}

func (w *Window) nothing() error {
	return fmt.Errorf("window %s, in line %d, names nothing that holds in it: write queue, pool, top, backfill, half-life, placement or defragment lines after it, or leave it out", w.Name, w.Line)
}

// whole says what is wrong with a file that was read to its end.
func (p *parser) whole() error {
	switch {
	case p.window != nil && p.window.empty():
		return &Error{p.Name, p.window.Line, p.window.nothing()}
	case p.window == nil && p.empty():
		return &Error{p.Name, p.line, fmt.Errorf("the policy names nothing: write at least one queue, pool, top, backfill, half-life, placement or defragment line")}
	}
	return nil
}

// Overlap says which windows hold at once within 400 days of a moment, and when they first do; nil: none do.
func (p *Policy) Overlap(after time.Time) error {
	a, b, found := p.overlap(after)
	if !found {
		return nil
	}
	end := a.end
	if b.end.Before(end) {
		end = b.end
	}
	first, second := a.window, b.window
	if first.Line > second.Line {
		first, second = second, first
	}
	return &Error{p.Name, second.Line, fmt.Errorf("window %s overlaps window %s of line %d, first from %s to %s: end one where the other begins",
		second.Name, first.Name, first.Line, shown(b.begin.In(second.zone)), shown(end.In(second.zone)))}
}

// Indifferent says which placement has no place be better than another, for no feature counts in it; nil: none has.
func (p *Policy) Indifferent() error {
	all := []*Settings{&p.Settings}
	for _, w := range p.Windows {
		all = append(all, &w.Settings)
	}
	for _, s := range all {
		if s.Placement != nil && !s.Placement.Prefers() {
			return &Error{p.Name, s.placed, fmt.Errorf("no feature of the placement counts, for all its weights are 0: give one another weight, or leave the line out for best fit")}
		}
	}
	return nil
}

// shown is a moment as people of its zone say it.
func shown(t time.Time) string { return t.Format("Mon 2 Jan 2006 15:04 MST") }

// Check says what does not add up, in which line, on a server whose queues by themselves are own: whenever no window holds, or in one of
// them.
func (p *Policy) Check(own []api.QueueSpec) error {
	if err := p.check(own, p.Settings, ""); err != nil {
		return err
	}
	always := queuesUnder(own, p.Queues)
	for _, w := range p.Windows {
		if err := p.check(always, w.Settings, "in window "+w.Name+" "); err != nil {
			return err
		}
	}
	return nil
}

// check says what does not add up with some settings. Quotas may change hands in them, so only all of them together need be right; the line
// to blame is one up to which they are not, and up to the line before they are: looked for from the end, where each look costs all queues.
func (p *Policy) check(own []api.QueueSpec, s Settings, where string) error {
	wrong := addsUp(queuesUnder(own, s.Queues))
	if wrong == nil {
		return nil
	}
	upTo := func(lines int) bool { return addsUp(queuesUnder(own, s.Queues[:lines])) == nil }
	bad, good := len(s.Queues), len(s.Queues)-1
	for step := 2; good > 0 && !upTo(good); step *= 2 {
		bad, good = good, max(0, good-step)
	}
	if good <= 0 && !upTo(0) {
		return fmt.Errorf("the queues do not add up without the policy: %w", wrong)
	}
	for bad-good > 1 {
		if middle := (bad + good) / 2; upTo(middle) {
			good = middle
		} else {
			bad = middle
		}
	}
	return &Error{p.Name, s.Queues[bad-1].Line, fmt.Errorf("%s%w", where, wrong)}
}

// addsUp says what is wrong with queues together.
func addsUp(specs []api.QueueSpec) error {
	for _, spec := range specs {
		if err := spec.Validate(); err != nil {
			return err
		}
	}
	return queue.New().CheckAll(specs)
}
