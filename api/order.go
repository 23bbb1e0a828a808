package api

import "strings"

const orderAdvice = "write words joined by +: fair, priority or priority:1h, served:1m or held:1m, shortest:2, fifo"

// ParseOrder reads what counts in the line of a queue: words joined by `+`, in any order. What is not named does not count, and who came
// first decides in the end.
//
//	fair        among the queues under it the one furthest below its fair share goes first, quotas before all
//	priority    a higher priority goes first, whatever came when
//	priority:1h each step of priority goes before what came up to an hour earlier
//	served:1m   what was served least goes first, in levels of whole devices held: up to 1m, up to 2m, up to 4m, …; it takes the place of what had more
//	held:1m     the same, each device counted as a whole for as long as a share of it is held, however small
//	shortest:2  what is predicted to run shorter goes before what came up to twice the difference earlier
//	fifo        nothing more: who came first
func ParseOrder(text string) (order QueueOrder, shortestFirst Milli, err error) {
	order = QueueOrder{OneLine: true, NoPriority: true}
	seen, at := map[string]bool{}, 0
	fail := func(problem string) error {
		return &ParseError{What: "order", Input: text, Offset: at, Problem: problem, Advice: orderAdvice}
	}
	for word := range strings.SplitSeq(text, "+") {
		name, value, given := strings.Cut(word, ":")
		if seen[name] {
			return QueueOrder{}, 0, fail(quoted(name) + " comes twice")
		}
		seen[name] = true
		switch {
		case name == "fair" && !given:
			order.OneLine = false
		case name == "fifo" && !given:
		case name == "priority":
			order.NoPriority = false
			if given {
				order.PriorityWorth, err = ParseDuration(value)
				if err == nil && (order.PriorityWorth <= 0 || order.PriorityWorth > MaxPriorityWorth) {
					err = fail("a step of priority is worth more than nothing and at most " + MaxPriorityWorth.String())
				}
			}
		case (name == "served" || name == "held") && given:
			if order.Served != 0 {
				return QueueOrder{}, 0, fail("what work was served and what it held do not both count")
			}
			order.Held = name == "held"
			order.Served, err = ParseDuration(value)
			if err == nil && (order.Served < LeastServed || order.Served > MostServed) {
				err = fail("the first level of service is of " + LeastServed.String() + " to " + MostServed.String())
			}
		case name == "shortest" && given:
			shortestFirst, err = ParseMilli(value)
			if err == nil && (shortestFirst <= 0 || shortestFirst > MaxShortestFirst) {
				err = fail("the shortest go first by more than nothing and at most " + MaxShortestFirst.String())
			}
		default:
			err = fail(quoted(word) + " is no word of an order")
		}
		if err != nil {
			return QueueOrder{}, 0, err
		}
		at += len(word) + 1
	}
	return order, shortestFirst, nil
}

// FormatOrder writes what ParseOrder reads.
func FormatOrder(order QueueOrder, shortestFirst Milli) string {
	var words []string
	if !order.OneLine {
		words = append(words, "fair")
	}
	switch {
	case order.NoPriority:
	case order.PriorityWorth > 0:
		words = append(words, "priority:"+order.PriorityWorth.String())
	default:
		words = append(words, "priority")
	}
	switch {
	case order.Served == 0:
	case order.Held:
		words = append(words, "held:"+order.Served.String())
	default:
		words = append(words, "served:"+order.Served.String())
	}
	if shortestFirst > 0 {
		words = append(words, "shortest:"+shortestFirst.String())
	}
	if len(words) == 0 {
		return "fifo"
	}
	return strings.Join(words, "+")
}
