package judge

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Asked is how much device time a program had asked for by one moment, by its own word.
type Asked struct{ At, Total time.Duration }

// ParseAsked finds what a trainer said of that among all it printed: lines `asked T D`, in ns. Time must pass, and what was asked for
// cannot fall.
func ParseAsked(printed string) ([]Asked, error) {
	var all []Asked
	for line := range strings.Lines(printed) {
		if !strings.HasPrefix(line, "asked ") || !strings.HasSuffix(line, "\n") { // another line, or half a one
			continue
		}
		var at, total int64
		if _, err := fmt.Sscanf(line, "asked %d %d\n", &at, &total); err != nil {
			return nil, fmt.Errorf("the trainer printed %q: %w", line, err)
		}
		one := Asked{time.Duration(at), time.Duration(total)}
		if n := len(all); n > 0 && (one.At <= all[n-1].At || one.Total < all[n-1].Total) {
			return nil, fmt.Errorf("the trainer printed %q after %v", line, all[n-1])
		}
		all = append(all, one)
	}
	return all, nil
}

// Until is what had been asked for by a moment, between two words in proportion; ok is false before the first word and after the last.
func Until(said []Asked, at time.Duration) (total time.Duration, ok bool) {
	i, found := slices.BinarySearchFunc(said, at, func(a Asked, at time.Duration) int { return cmp.Compare(a.At, at) })
	if found {
		return said[i].Total, true
	}
	if i == 0 || i == len(said) {
		return 0, false
	}
	before, after := said[i-1], said[i]
	part := float64(at-before.At) / float64(after.At-before.At)
	return before.Total + time.Duration(part*float64(after.Total-before.Total)), true
}

// wanted is what a tenant asked for in a window, if it said so.
func (o Observation) wanted(tenant int, from, to time.Duration) (device time.Duration, ok bool) {
	if len(o.Asked) == 0 || len(o.Asked[tenant]) == 0 {
		return 0, false
	}
	before, known := Until(o.Asked[tenant], from)
	after, ok := Until(o.Asked[tenant], to)
	return after - before, known && ok
}
