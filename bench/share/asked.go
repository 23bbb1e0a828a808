package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// asked is how much device time a program had asked for by one moment, by its own word.
type asked struct{ at, total time.Duration }

// parseAsked finds what a trainer said of that among all it printed: lines `asked T D`, in ns. Time must pass, and what was asked for
// cannot fall.
func parseAsked(printed string) ([]asked, error) {
	var all []asked
	for line := range strings.Lines(printed) {
		if !strings.HasPrefix(line, "asked ") || !strings.HasSuffix(line, "\n") { // another line, or half a one
			continue
		}
		var at, total int64
		if _, err := fmt.Sscanf(line, "asked %d %d\n", &at, &total); err != nil {
			return nil, fmt.Errorf("the trainer printed %q: %w", line, err)
		}
		one := asked{time.Duration(at), time.Duration(total)}
		if n := len(all); n > 0 && (one.at <= all[n-1].at || one.total < all[n-1].total) {
			return nil, fmt.Errorf("the trainer printed %q after %v", line, all[n-1])
		}
		all = append(all, one)
	}
	return all, nil
}

// until is what had been asked for by a moment, between two words in proportion; ok is false before the first word and after the last.
func until(said []asked, at time.Duration) (total time.Duration, ok bool) {
	i, found := slices.BinarySearchFunc(said, at, func(a asked, at time.Duration) int { return cmp.Compare(a.at, at) })
	if found {
		return said[i].total, true
	}
	if i == 0 || i == len(said) {
		return 0, false
	}
	before, after := said[i-1], said[i]
	part := float64(at-before.at) / float64(after.at-before.at)
	return before.total + time.Duration(part*float64(after.total-before.total)), true
}

// wanted is what a tenant asked for in a window, if it said so.
func (o observation) wanted(tenant int, from, to time.Duration) (device time.Duration, ok bool) {
	if len(o.asked) == 0 || len(o.asked[tenant]) == 0 {
		return 0, false
	}
	before, known := until(o.asked[tenant], from)
	after, ok := until(o.asked[tenant], to)
	return after - before, known && ok
}
