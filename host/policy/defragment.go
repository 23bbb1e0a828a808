package policy

import (
	"fmt"
	"strconv"
	"time"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/engine"
)

// usualLoss is what moves may cost where the file does not say: an hour of a device for each plan.
const usualLoss = engine.Time(time.Hour / time.Microsecond)

// Defragment is what is said of moving work together.
type Defragment struct {
	Line  int
	words []string
	rule  *engine.Defragment // nil: none is moved
}

// Says are the words that are said of it, as they are written.
func (d *Defragment) Says() []string { return d.words }

// takeDefragment takes in whether work is moved, and what for at the most.
func (p *parser) takeDefragment(name string) error {
	if err := p.once("defragment"); err != nil {
		return err
	}
	d := &Defragment{Line: p.line}
	p.section.Defragment = d
	switch name {
	case "off":
		if len(p.words) > 0 {
			return fmt.Errorf("defragment off moves nothing: leave its other words out")
		}
		d.words = []string{"off"}
		return nil
	case "":
	default:
		return fmt.Errorf("defragment %q: write moves-per-hour= and how many, or off", shortened(name))
	}
	d.rule = &engine.Defragment{MaxLoss: usualLoss}
	moves, ok := p.word("moves-per-hour")
	if !ok {
		return fmt.Errorf("defragment does not say how much may be moved: write moves-per-hour= and how many, or defragment off")
	}
	var err error
	if d.rule.MovesPerHour, err = moveCount(moves, 1); err != nil {
		return fmt.Errorf("moves-per-hour=%s: %w", shortened(moves), err)
	}
	d.words = append(d.words, "moves-per-hour="+moves)
	for _, one := range []struct {
		key string
		set func(text string) error
	}{
		{"min-run", func(text string) error { return takeTime(text, &d.rule.MinRun) }},
		{"max-loss", func(text string) error {
			if text == "none" {
				d.rule.MaxLoss = 0
				return nil
			}
			return takeTime(text, &d.rule.MaxLoss)
		}},
		{"free", func(text string) (err error) {
			d.rule.Free, err = moveCount(text, 1)
			return err
		}},
	} {
		text, ok := p.word(one.key)
		if !ok {
			continue
		}
		if err := one.set(text); err != nil {
			return fmt.Errorf("%s=%s: %w", one.key, shortened(text), err)
		}
		d.words = append(d.words, one.key+"="+text)
	}
	return nil
}

func moveCount(text string, least int32) (int32, error) {
	n, err := strconv.ParseInt(text, 10, 32)
	if err != nil || int32(n) < least || n > engine.MaxMoves {
		return 0, fmt.Errorf("write a whole number from %d to %d", least, engine.MaxMoves)
	}
	return int32(n), nil
}

// takeTime reads a duration above nothing.
func takeTime(text string, to *engine.Time) error {
	long, err := api.ParseDuration(text)
	if err != nil || long < api.Duration(time.Second) {
		return fmt.Errorf("write a time of a second or more, for example 10m or 2h")
	}
	*to = engine.Time(time.Duration(long) / time.Microsecond)
	return nil
}

// Means is what it says, in words.
func (d *Defragment) Means() string {
	r := d.rule
	if r == nil {
		return "nothing is moved"
	}
	text := fmt.Sprintf("at most %d moves in any hour, of work that may be preempted and comes again", r.MovesPerHour)
	if r.MinRun > 0 {
		text += " and has run for " + plainTime(r.MinRun)
	}
	if text += ", for the first in line or so that a device is free as a whole"; r.Free > 0 {
		text += fmt.Sprintf(" while fewer than %d are", r.Free)
	}
	if r.MaxLoss > 0 {
		text += "; a plan loses " + plainTime(r.MaxLoss) + " of a device at the most"
	}
	return text
}

func plainTime(t engine.Time) string {
	return api.Duration(time.Duration(t) * time.Microsecond).String()
}
