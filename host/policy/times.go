package policy

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aliquot-dev/aliquot/api"
)

var weekdays = []string{"sun", "mon", "tue", "wed", "thu", "fri", "sat"}

// takeWindow begins a window: what follows, up to the next one, holds in it.
func (p *parser) takeWindow(name string) error {
	if err := (api.QueueSpec{Name: name, Quota: api.Unlimited}).Validate(); err != nil {
		return fmt.Errorf("window %q: its name is written as that of a queue: lower-case letters, digits and dashes", shortened(name))
	}
	if i := slices.IndexFunc(p.Windows, func(w *Window) bool { return w.Name == name }); i >= 0 {
		return fmt.Errorf("window %s comes twice, in line %d and here: give each a name of its own; one may have several days", name, p.Windows[i].Line)
	}
	if len(p.Windows) == maxWindows {
		return fmt.Errorf("there are more than %d windows: join some", maxWindows)
	}
	if p.window != nil && p.window.empty() {
		return p.window.nothing()
	}
	w := &Window{Name: name, Line: p.line, zone: p.zone}
	if text, ok := p.word("zone"); ok {
		var err error
		if w.zone, err = loadZone(text); err != nil {
			return err
		}
	}
	days, byDay := p.word("days")
	from, begins := p.word("from")
	to, ends := p.word("to")
	if !byDay && !begins && !ends || begins != ends {
		return fmt.Errorf("window %s does not say when it is: write days=sat,sun, or days=mon-fri from=22:00 to=06:00, or from=fri@18:00 to=mon@06:00", name)
	}
	var err error
	switch {
	case strings.Contains(from+to, "@") && byDay:
		err = fmt.Errorf("the days of window %s are said twice: write days=, or the day in from= and to=, not both", name)
	case strings.Contains(from+to, "@"):
		err = w.weekly(from, to)
		w.when = from + " to " + to
	default:
		err = w.daily(days, from, to)
		w.when = strings.TrimSpace(strings.Replace(days+" "+from+"-"+to, " -", "", 1))
	}
	if err != nil {
		return err
	}
	p.Windows = append(p.Windows, w)
	p.window, p.section = w, &w.Settings
	return nil
}

// daily reads days with times; no days: every day; no times: whole days.
func (w *Window) daily(days, from, to string) error {
	if days == "" {
		days = "mon-sun"
	}
	if from == "" {
		from, to = "00:00", "24:00"
	}
	begin, err := clock(from)
	if err != nil {
		return err
	}
	end, err := clock(to)
	if err != nil {
		return err
	}
	if begin == minutesADay {
		return fmt.Errorf("from=24:00 is the next day: write 00:00 and that day")
	}
	if end <= begin {
		end += minutesADay // it ends the day after
	}
	for _, text := range strings.Split(days, ",") {
		first, last, isRange := strings.Cut(text, "-")
		day, err := weekday(first)
		if err != nil {
			return err
		}
		until := day
		if isRange {
			if until, err = weekday(last); err != nil {
				return err
			}
		}
		for ; ; day = (day + 1) % 7 {
			if slices.ContainsFunc(w.spans, func(s span) bool { return s.day == day }) {
				return fmt.Errorf("%s comes twice in days=%s: name each day once", weekdays[day], shortened(days))
			}
			w.spans = append(w.spans, span{day, begin, end})
			if day == until {
				break
			}
		}
	}
	return nil
}

// weekly reads a time from one day of the week to another.
func (w *Window) weekly(from, to string) error {
	day, begin, err := moment(from)
	if err != nil {
		return err
	}
	last, end, err := moment(to)
	if err != nil {
		return err
	}
	end += int(last-day+7) % 7 * minutesADay
	if end <= begin {
		end += 7 * minutesADay
	}
	w.spans = []span{{day, begin, end}}
	return nil
}

func moment(text string) (time.Weekday, int, error) {
	day, at, both := strings.Cut(text, "@")
	if !both {
		return 0, 0, fmt.Errorf("%q has no day: write it as fri@18:00", shortened(text))
	}
	d, err := weekday(day)
	if err != nil {
		return 0, 0, err
	}
	minutes, err := clock(at)
	return d, minutes, err
}

func weekday(text string) (time.Weekday, error) {
	i := slices.Index(weekdays, text)
	if i < 0 {
		return 0, fmt.Errorf("%q is no day: write mon, tue, wed, thu, fri, sat or sun", shortened(text))
	}
	return time.Weekday(i), nil
}

// clock reads a time of day into minutes from midnight, 24:00 included.
func clock(text string) (int, error) {
	hours, minutes, _ := strings.Cut(text, ":")
	h, err := strconv.Atoi(hours)
	m, wrong := strconv.Atoi(minutes)
	if err != nil || wrong != nil || len(hours) != 2 || len(minutes) != 2 || h < 0 || m < 0 || m > 59 || h*60+m > minutesADay {
		return 0, fmt.Errorf("%q is no time of day: write it from 00:00 to 24:00", shortened(text))
	}
	return h*60 + m, nil
}
