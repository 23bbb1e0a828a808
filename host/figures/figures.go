// Package figures says in words what a queue is guaranteed and has: the lines that `aliquot queue show` and `kubectl aliquot queue show` print. What comes
// in is a queue as the API shows it; what goes out are the words of its lines, one kind of figure each. It prints nothing and asks nobody.
package figures

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/aliquot-dev/aliquot/api"
)

// Line is one kind of figure of a queue: what it is called, and how much it is. A column that says nothing of it is empty.
type Line struct {
	Name   string
	Amount [3]string // under Heads
}

// Heads are the headings of a Line's amounts: compute in devices, memory in bytes, and the number of shares.
var Heads = [3]string{"DEVICES", "MEMORY", "SHARES"}

// Bounds are what a queue is guaranteed and may never pass, overall and on models of device.
func Bounds(queue *api.QueueSpec) []Line {
	all := []Line{
		amounts("quota", api.QueueAmounts{Compute: &queue.Quota, Memory: queue.QuotaMemory, Devices: queue.QuotaDevices}),
		amounts("limit", queue.Limit),
	}
	for _, m := range queue.Models {
		if (m.Quota == api.QueueAmounts{}) && (m.Limit == api.QueueAmounts{}) {
			continue
		}
		all = append(all, amounts("quota on "+m.Model, m.Quota), amounts("limit on "+m.Model, m.Limit))
	}
	return all
}

// Uses are what a queue holds and is due now, and what it borrows and lends.
func Uses(queue *api.Queue) []Line {
	all := []Line{use("held", queue.Use), use("due now", queue.Fair), use("borrowed", queue.Borrowed)}
	if queue.Burst != (api.QueueUse{}) {
		all = append(all, use("of that burst", queue.Burst))
	}
	all = append(all, use("could be taken back", queue.AtRisk), use("lent", queue.Lent))
	for _, on := range queue.OnModels {
		all = append(all, use("held on "+on.Model, on.Use), use("due now on "+on.Model, on.Fair))
	}
	if used := queue.HoursUsed; used != nil {
		hours := queue.Hours
		all = append(all, Line{"device-hours", [3]string{fmt.Sprintf("%s of %s this %s", used.Amount, hours.Amount, hours.Per), "until " + Date(used.End), ""}})
	}
	return all
}

// Rules are what else is said of a queue, where something is: by what weights it has a part of what is over all quotas, how long its work may run, and does before it is evicted for others, and what is added to its priority.
func Rules(queue *api.QueueSpec) (all []Line) {
	w := queue.Weight
	weight := [3]int32{cmp.Or(w.Compute, w.All, 1), cmp.Or(w.Memory, w.All, 1), cmp.Or(w.Devices, w.All, 1)}
	weights := func(name string, of api.QueueWeight) {
		line := Line{Name: name}
		for r, own := range [3]int32{of.Compute, of.Memory, of.Devices} {
			line.Amount[r] = strconv.Itoa(int(cmp.Or(own, of.All, weight[r])))
		}
		if of != (api.QueueWeight{}) {
			all = append(all, line)
		}
	}
	weights("weight", w)
	for _, m := range queue.Models {
		weights("weight on "+m.Model, m.Weight)
	}
	if queue.LongestRun != 0 {
		all = append(all, Line{"longest run", [3]string{queue.LongestRun.String(), "", ""}})
	}
	if queue.MinRun != 0 {
		all = append(all, Line{"not evicted before", [3]string{queue.MinRun.String(), "", ""}})
	}
	if !queue.Disruptions.IsZero() {
		all = append(all, Line{"evicted for others", [3]string{"at most " + queue.Disruptions.String(), "", ""}})
	}
	if queue.Priority != 0 || queue.PriorityUntil != nil {
		all = append(all, Line{"priority", [3]string{Priority(queue), "", ""}})
	}
	return all
}

// Quota is a quota or limit of compute written as what is held of it is: `0.20`, or none.
func Quota(q api.Quota) string {
	if q < 0 {
		return "none"
	}
	whole := api.Quota(api.WholeDevice)
	return strings.TrimSuffix(fmt.Sprintf("%d.%03d", q/whole, q%whole), "0")
}

// Priority is what a queue adds to the priority of its work, and until when.
func Priority(queue *api.QueueSpec) string {
	text := strconv.Itoa(int(queue.Priority))
	if queue.PriorityUntil == nil {
		return text
	}
	return fmt.Sprintf("%s until %s, then %d", text, Date(*queue.PriorityUntil), queue.PriorityAfter)
}

// Date is a time to the minute, in the zone of whoever reads it.
func Date(at time.Time) string { return at.Local().Format("2006-01-02 15:04") }

func amounts(name string, of api.QueueAmounts) Line {
	words := [3]string{"none", "none", "none"}
	if of.Compute != nil {
		words[0] = Quota(*of.Compute)
	}
	if of.Memory != nil {
		words[1] = of.Memory.Short()
	}
	if of.Devices != nil {
		words[2] = strconv.FormatInt(*of.Devices, 10)
	}
	return Line{name, words}
}

func use(name string, of api.QueueUse) Line {
	return Line{name, [3]string{of.Compute.String(), of.Memory.Short(), strconv.FormatInt(of.Devices, 10)}}
}
