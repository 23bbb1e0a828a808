package policy

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/engine/queue"
)

// queueMeans is what a word of a queue says, in words; said is a queue of which nothing else is said.
func queueMeans(key string, said *api.QueueSpec, zone *time.Location, now time.Time) string {
	switch key {
	case "parent":
		if said.Parent == "" {
			return "it is under no other queue"
		}
		return "it is under " + said.Parent + ": what it holds counts against the quota and limits of that too, and what that is due is divided among the queues under it"
	case "order":
		return orderMeans(said.Order, said.ShortestFirst)
	case "hours":
		return hoursMean(said.Hours, zone, now)
	case "longest-run":
		if said.LongestRun == 0 {
			return "its work may run for as long as it likes"
		}
		return fmt.Sprintf("work submitted to it runs for at most %s: it may ask for no longer time limit, and gets this one where it asks for none", said.LongestRun)
	case "min-run":
		if said.MinRun == 0 {
			return "its work may be evicted for other work as soon as it runs"
		}
		return fmt.Sprintf("its work is not evicted for other work, nor moved, before it has run for %s", said.MinRun)
	case "disruptions":
		if said.Disruptions.IsZero() {
			return "its work may be evicted for other work and moved however often"
		}
		return fmt.Sprintf("each workload in it is evicted for other work or moved at most %s in any %s", times(int(said.Disruptions.Most)), said.Disruptions.Per)
	case "max-priority":
		return fmt.Sprintf("users may give their work in it a priority of at most %d", said.MaxPriority)
	case "priority":
		return priorityMeans(said, zone, now)
	}
	if word, model, _ := strings.Cut(key, "@"); slices.Contains(weightWords, word) {
		return weightMeans(word, model, weightOf(said, word, model))
	}
	return boundMeans(key, said)
}

// boundMeans is what a quota or limit says, overall or on one model.
func boundMeans(key string, said *api.QueueSpec) string {
	bound, model, _ := strings.Cut(key, "@")
	kind, resource, _ := strings.Cut(bound, "-")
	amounts := boundsOf(*said, kind == "limit", model)
	amount, of, what := int64(-1), queue.Compute, "compute"
	switch resource {
	case "":
		if amounts.Compute != nil {
			amount = int64(*amounts.Compute)
		}
	case "mem":
		of, what = queue.Memory, "memory"
		if amounts.Memory != nil {
			amount = int64(*amounts.Memory)
		}
	case "shares":
		of, what = queue.Devices, "shares"
		if amounts.Devices != nil {
			amount = *amounts.Devices
		}
	}
	on := ""
	if model != "" {
		on = " on " + model
	}
	if amount < 0 {
		if kind == "limit" {
			return "no limit of its own bounds its " + what + on
		}
		return "no quota of its own guarantees it " + what + on
	}
	text := queue.Format(of, amount)
	if of == queue.Compute {
		text += " of compute"
	}
	if kind == "limit" {
		return "the floors of its work, with that of the queues under it, never come to more than " + text + on + ", whatever is idle"
	}
	return "it is guaranteed floors of " + text + on + ": what it leaves of that others may borrow until it wants it, and work that is not preemptible must fit in it"
}

// weightMeans is what a weight says, overall or on one model; 0: on that it has none.
func weightMeans(word, model string, weight int32) string {
	of := map[string]string{"weight": "each resource that has no weight of its own", "weight-gpu": "compute", "weight-mem": "memory", "weight-shares": "the number of shares"}[word]
	as := "as much"
	switch {
	case weight == 0 && model == "":
		return "it has no weight of its own in " + of
	case weight == 0:
		return "on " + model + " it has its overall weight, in " + of
	case weight > 1:
		as = times(int(weight)) + " as much"
	}
	if model == "" {
		return fmt.Sprintf("of what is over all quotas it is due %s as a queue beside it of weight 1, in %s", as, of)
	}
	return fmt.Sprintf("of the devices of model %s that are over all quotas there it is due %s as a queue beside it of weight 1, in %s, and work that asks for that model goes by this", model, as, of)
}

// times is how often, in a sentence.
func times(n int) string {
	switch n {
	case 1:
		return "once"
	case 2:
		return "twice"
	}
	return fmt.Sprintf("%d times", n)
}

// hoursMean is what a quota of device-hours says, and when its next period begins.
func hoursMean(hours api.HoursQuota, zone *time.Location, now time.Time) string {
	if hours.IsZero() {
		return "its work may use any number of device-hours"
	}
	begins := map[api.Period]string{api.Day: "at midnight", api.Week: "with Monday", api.Month: "with its first day"}[hours.Per]
	_, next := period(hours.Per, now, zone)
	return fmt.Sprintf("its work may use %s device-hours of each %s, which begins %s, next on %s; once they are used up nothing more is started in it until then",
		hours.Amount, hours.Per, begins, shown(next))
}

// priorityMeans is what is added to the priority of work, and until when.
func priorityMeans(said *api.QueueSpec, zone *time.Location, now time.Time) string {
	const added = " is added to the priority of its work and of that in the queues under it"
	until := said.PriorityUntil
	switch {
	case until == nil:
		return fmt.Sprintf("%d%s", said.Priority, added)
	case now.Before(*until):
		return fmt.Sprintf("%d%s until %s, and %d from then on", said.Priority, added, shown(until.In(zone)), said.PriorityAfter)
	}
	return fmt.Sprintf("%d%s, since %s; before that it was %d", said.PriorityAfter, added, shown(until.In(zone)), said.Priority)
}

// orderMeans is what counts in the line of a queue, the first that decides first.
func orderMeans(order api.QueueOrder, shortest api.Milli) string {
	var counts []string
	start := "what waits in it and in the queues under it stands in one line"
	if !order.OneLine {
		start = "among the queues under it those within their quotas go first, then the one furthest below its fair share; within a line"
	}
	if !order.NoPriority && order.PriorityWorth == 0 {
		counts = append(counts, "a higher priority goes first, whatever came when, and preempts")
	}
	if order.Served != 0 {
		of := "was served less, in device-hours held as floors"
		if order.Held {
			of = "held devices for less long, each counted as a whole"
		}
		counts = append(counts, fmt.Sprintf("what %s, goes first and preempts, in levels of which the first is up to %s and each next twice as long", of, order.Served))
	}
	first := "who came first goes first"
	var earlier []string
	if order.PriorityWorth != 0 {
		earlier = append(earlier, fmt.Sprintf("each step of priority counts for having come %s earlier, and preempts nothing", order.PriorityWorth))
	}
	if shortest != 0 {
		earlier = append(earlier, fmt.Sprintf("each hour that it is predicted to run shorter counts for having come %s hours earlier", api.Quota(shortest)))
	}
	if len(earlier) > 0 {
		first += ", where " + strings.Join(earlier, ", and ")
	}
	counts = append(counts, first)
	text := start + ": " + strings.Join(counts, "; then ")
	if order.NoPriority {
		text += "; priorities do not count"
	}
	return text
}
