package policy

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/aliquot-dev/aliquot/api"
)

// Own is what a queue is by itself once a user has set it now to what was asked while a window holds, nil: while none does; old is what it was by
// itself before. What the policy says of it now stays the policy's, and cannot be asked to be otherwise.
func (p *Policy) Own(w *Window, old, asked api.QueueSpec, now time.Time) (api.QueueSpec, error) {
	type word struct {
		change
		line int
	}
	said := map[string]word{}
	sections := []*Settings{&p.Settings}
	if w != nil {
		sections = append(sections, &w.Settings)
	}
	own := asked
	for _, s := range sections {
		if q := find(s.Queues, asked.Name); q != nil {
			for _, c := range q.changes {
				said[c.key] = word{c, q.Line} // a window's after what always holds
			}
		}
	}
	for _, key := range slices.Sorted(maps.Keys(said)) {
		c := said[key]
		with := asked
		if c.apply(&with); !reflect.DeepEqual(with.At(now), asked.At(now)) {
			return own, fmt.Errorf("%s of queue %s is what the policy says, %s (%s:%d): change it there and set the policy again", key, asked.Name, c.value, p.Name, c.line)
		}
		keep(key, old, &own)
	}
	return own, nil
}

// keep copies what a word is about.
func keep(key string, from api.QueueSpec, to *api.QueueSpec) {
	switch key {
	case "parent":
		to.Parent = from.Parent
	case "max-priority":
		to.MaxPriority = from.MaxPriority
	case "priority":
		to.Priority, to.PriorityUntil, to.PriorityAfter = from.Priority, from.PriorityUntil, from.PriorityAfter
	case "hours":
		to.Hours = from.Hours
	case "longest-run":
		to.LongestRun = from.LongestRun
	case "min-run":
		to.MinRun = from.MinRun
	case "disruptions":
		to.Disruptions = from.Disruptions
	case "order":
		to.Order, to.ShortestFirst = from.Order, from.ShortestFirst
	default:
		bound, model, _ := strings.Cut(key, "@")
		if slices.Contains(weightWords, bound) {
			setWeight(to, bound, model, weightOf(&from, bound, model))
			return
		}
		kind, resource, _ := strings.Cut(bound, "-")
		was := boundsOf(from, kind == "limit", model)
		withBounds(to, kind == "limit", model, func(a *api.QueueAmounts) {
			switch resource {
			case "":
				a.Compute = was.Compute
			case "mem":
				a.Memory = was.Memory
			case "shares":
				a.Devices = was.Devices
			}
		})
	}
}

// boundsOf are the quota or limit of a queue, overall or on one model.
func boundsOf(q api.QueueSpec, limit bool, model string) api.QueueAmounts {
	if model == "" {
		if limit {
			return q.Limit
		}
		return api.QueueAmounts{Compute: &q.Quota, Memory: q.QuotaMemory, Devices: q.QuotaDevices}
	}
	i := slices.IndexFunc(q.Models, func(m api.QueueModel) bool { return m.Model == model })
	switch {
	case i < 0:
		return api.QueueAmounts{}
	case limit:
		return q.Models[i].Limit
	}
	return q.Models[i].Quota
}

// New are the queues of the policy that are not among those of a server, as they are to be by themselves: with nothing said of them but where
// they are.
func (p *Policy) New(own []api.QueueSpec) []api.QueueSpec {
	var made []api.QueueSpec
	for _, spec := range queuesUnder(nil, p.Queues) {
		if !slices.ContainsFunc(own, func(o api.QueueSpec) bool { return o.Name == spec.Name }) {
			made = append(made, api.QueueSpec{Name: spec.Name, Parent: spec.Parent, Quota: api.Unlimited})
		}
	}
	return made
}
