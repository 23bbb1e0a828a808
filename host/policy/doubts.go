package policy

import (
	"fmt"
	"slices"

	"github.com/aliquot-dev/aliquot/api"
)

// Doubts are what is allowed and may not do what it was written for, each a sentence with its line, said once for all windows.
func (p *Policy) Doubts() []string {
	var all []string
	say := func(line int, format string, args ...any) {
		if text := fmt.Sprintf("%s:%d: ", p.Name, line) + fmt.Sprintf(format, args...); !slices.Contains(all, text) {
			all = append(all, text)
		}
	}
	for _, w := range append([]*Window{nil}, p.Windows...) {
		e := p.During(w, nil)
		queues := map[string]api.QueueSpec{}
		for _, q := range e.Queues {
			queues[q.Name] = q
		}
		for _, q := range e.Queues {
			line := ""
			for above, ok := queues[q.Parent]; ok; above, ok = queues[above.Parent] {
				if above.Order.OneLine {
					line = above.Name
				}
			}
			if ruler := queues[line]; line != "" && countsOf(ruler) != countsOf(q) {
				say(find(p.Queues, q.Name).Line, "work of queue %s stands in the line of queue %s, and counts there by the order of its own queue, %s: write the same words of order for both if that is not meant",
					q.Name, line, api.FormatOrder(q.Order, q.ShortestFirst))
			}
		}
		if len(e.Pools) > 0 && e.Placement != nil {
			say(p.Pools[0].Line, "while there are pools places go by best fit, and placement says nothing")
		}
	}
	return all
}

// counts is what of an order counts in the line of the queue itself.
type counts struct {
	none     bool // priority does not
	worth    api.Duration
	shortest api.Milli
}

func countsOf(q api.QueueSpec) counts {
	return counts{q.Order.NoPriority, q.Order.PriorityWorth, q.ShortestFirst}
}
