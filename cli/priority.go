package cli

import (
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/pflag"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/host/figures"
)

// dateFlags are the flags of a priority that holds until a date.
type dateFlags struct {
	priority, after int32
	until           string
}

// define defines them; of is whose priority it is.
func (f *dateFlags) define(flags *pflag.FlagSet, of string) {
	flags.StringVar(&f.until, "priority-until", "", "the priority holds until then, 2026-12-01T18:00 in your zone, or 2026-12-01 for the beginning of that day")
	flags.Int32Var(&f.after, "priority-after", 0, of+" from then on (default: 0)")
}

// date reads until when the priority holds; nil: as long as there is what has it.
func (f *dateFlags) date(given func(flag string) bool) (*time.Time, error) {
	if !given("priority-until") {
		if given("priority-after") {
			return nil, usagef("--priority-after %d: it is not said after what: write --priority-until 2026-12-01T18:00 beside it", f.after)
		}
		return nil, nil //nolint:nilnil // none was asked for
	}
	if !given("priority") {
		return nil, usagef("--priority-until %s: it is not said which priority holds until then: write for example --priority 50 beside it", f.until)
	}
	for _, layout := range []string{"2006-01-02T15:04", "2006-01-02 15:04", time.DateOnly, time.RFC3339} {
		if at, err := time.ParseInLocation(layout, f.until, time.Local); err == nil {
			return new(at.UTC()), nil
		}
	}
	return nil, usagef("--priority-until %q: this is no date: write 2026-12-01T18:00, or 2026-12-01 for the beginning of that day", f.until)
}

// workPriority says which priority of a workload counts, and until when.
func workPriority(work api.Workload) string {
	spec, text := work.Spec, strconv.Itoa(int(work.Priority()))
	switch {
	case spec.PriorityUntil == nil:
		return text
	case work.Status.PriorityOver:
		return fmt.Sprintf("%s, %d until %s", text, spec.Priority, figures.Date(*spec.PriorityUntil))
	}
	return fmt.Sprintf("%s until %s, then %d", text, figures.Date(*spec.PriorityUntil), spec.PriorityAfter)
}
