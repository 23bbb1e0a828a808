package policy

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/aliquot-dev/aliquot/api"
)

// takeQueue takes in what is said of a queue. A window only says more of queues that are named before it, so that what holds in it ends
// with it, and a slip of the finger makes no new queue.
func (p *parser) takeQueue(name string) error {
	if err := (api.QueueSpec{Name: name, Quota: api.Unlimited}).Validate(); err != nil {
		return err
	}
	if before := find(p.section.Queues, name); before != nil {
		return fmt.Errorf("queue %s comes twice %s, in line %d and here: write it once", name, p.where(), before.Line)
	}
	switch {
	case p.window != nil && find(p.Queues, name) == nil:
		return fmt.Errorf("window %s names queue %s, which no line before the first window names: write `queue %s` there", p.window.Name, name, name)
	case p.window != nil && len(p.words) == 0:
		return fmt.Errorf("nothing is said of queue %s %s: say what changes, for example quota=2", name, p.where())
	case len(p.section.Queues) == maxQueues:
		return fmt.Errorf("there are more than %d queues %s: name fewer", maxQueues, p.where())
	}
	q := &Queue{Name: name, Line: p.line}
	switch c, err := p.priority(); {
	case err != nil:
		return err
	case c != nil:
		q.changes = append(q.changes, *c)
	}
	for _, key := range slices.Sorted(maps.Keys(p.words)) {
		value, _ := p.word(key)
		if bound, model, of := strings.Cut(key, "@"); of && model != "" {
			key = bound + "@" + p.model(model)
		}
		if slices.ContainsFunc(q.changes, func(c change) bool { return c.key == key }) {
			return fmt.Errorf("%s of queue %s is said twice, by two names of one model: say it once", shortened(key), name)
		}
		apply, err := p.change(name, key, value)
		if err != nil {
			return fmt.Errorf("%s=%s: %w", shortened(key), shortened(value), err)
		}
		q.changes = append(q.changes, change{key: key, value: value, apply: apply})
	}
	p.section.Queues = append(p.section.Queues, q)
	return nil
}

func find(all []*Queue, name string) *Queue {
	if i := slices.IndexFunc(all, func(q *Queue) bool { return q.Name == name }); i >= 0 {
		return all[i]
	}
	return nil
}

// change is what a word makes of a queue.
func (p *parser) change(queue, key, value string) (func(*api.QueueSpec), error) {
	switch key {
	case "parent":
		return p.parent(queue, value)
	case "max-priority":
		n, err := number(value, 0, api.MaxPriority)
		return func(q *api.QueueSpec) { q.MaxPriority = int32(n) }, err
	case "longest-run":
		if value == "none" {
			return func(q *api.QueueSpec) { q.LongestRun = 0 }, nil
		}
		long, err := api.ParseDuration(value)
		return func(q *api.QueueSpec) { q.LongestRun = long }, err
	case "min-run":
		if value == "none" {
			return func(q *api.QueueSpec) { q.MinRun = 0 }, nil
		}
		least, err := api.ParseDuration(value)
		return func(q *api.QueueSpec) { q.MinRun = least }, err
	case "disruptions":
		budget, err := api.ParseDisruptions(value)
		return func(q *api.QueueSpec) { q.Disruptions = budget }, err
	case "hours":
		if p.window != nil {
			return nil, fmt.Errorf("device-hours are of a day, week or month, whichever window holds: write this word before the first window")
		}
		hours, err := api.ParseHours(value)
		return func(q *api.QueueSpec) { q.Hours = hours }, err
	case "order":
		order, shortest, err := api.ParseOrder(value)
		return func(q *api.QueueSpec) { q.Order, q.ShortestFirst = order, shortest }, err
	}
	bound, model, ofModel := strings.Cut(key, "@")
	if ofModel && model == "" {
		return nil, fmt.Errorf("the model is missing: write for example %s@H200", bound)
	}
	if slices.Contains(weightWords, bound) {
		n, err := weight(bound, model, value)
		return func(q *api.QueueSpec) { setWeight(q, bound, model, n) }, err
	}
	kind, resource, _ := strings.Cut(bound, "-")
	if kind != "quota" && kind != "limit" {
		return nil, fmt.Errorf("a queue has no such word: write parent, quota, limit (also -mem, -shares and @MODEL), weight (also -gpu, -mem, -shares and @MODEL), order, hours, longest-run, min-run, disruptions, max-priority or priority (also -until, -after)")
	}
	set, err := amount(resource, value)
	if err != nil {
		return nil, err
	}
	return func(q *api.QueueSpec) { withBounds(q, kind == "limit", model, set) }, nil
}

// weightWords are the words for weights: for all resources, and for single ones.
var weightWords = []string{"weight", "weight-gpu", "weight-mem", "weight-shares"}

// weight reads a weight; none, which only the one of a queue for all resources overall cannot be, is 0.
func weight(word, model, value string) (int32, error) {
	if value == "none" && (model != "" || word != "weight") {
		return 0, nil
	}
	n, err := number(value, 1, api.MaxWeight)
	if err != nil && (model != "" || word != "weight") {
		err = fmt.Errorf("%w, or none for that which it has without", err)
	}
	return int32(n), err
}

// SetBound sets an amount or a weight of a queue as a word of a policy file would, "quota-mem" to "80Gi", overall or on one model; "none" takes it away,
// and a model of which nothing is said any more with it. It fails where the value is none such.
func SetBound(q *api.QueueSpec, word, model, value string) error {
	if slices.Contains(weightWords, word) {
		n, err := weight(word, model, value)
		if err != nil {
			return err
		}
		setWeight(q, word, model, n)
	} else {
		kind, resource, _ := strings.Cut(word, "-")
		set, err := amount(resource, value)
		if err != nil {
			return err
		}
		withBounds(q, kind == "limit", model, set)
	}
	q.Models = slices.DeleteFunc(slices.Clone(q.Models), func(m api.QueueModel) bool {
		return unbounded(m.Quota) && unbounded(m.Limit) && m.Weight == api.QueueWeight{}
	})
	return nil
}

// unbounded says that amounts bound nothing.
func unbounded(a api.QueueAmounts) bool {
	return (a.Compute == nil || *a.Compute < 0) && a.Memory == nil && a.Devices == nil
}

// parent puts a queue under another, or with none under no other.
func (p *parser) parent(queue, value string) (func(*api.QueueSpec), error) {
	if value == "none" {
		return func(q *api.QueueSpec) { q.Parent = "" }, nil
	}
	if value != queue && find(p.Queues, value) == nil {
		return nil, fmt.Errorf("no line before this one names queue %s: write `queue %s` there, alone if nothing is to be said of it", shortened(value), shortened(value))
	}
	return func(q *api.QueueSpec) { q.Parent = value }, nil
}

// setWeight sets a weight of a queue, overall or on one model; 0: there it has none of its own. It shares nothing with what it changes.
func setWeight(q *api.QueueSpec, word, model string, n int32) {
	if model == "" {
		*weightIn(&q.Weight, word) = n
		return
	}
	*weightIn(&onModel(q, model).Weight, word) = n
}

// weightOf is a weight of a queue, overall or on one model.
func weightOf(q *api.QueueSpec, word, model string) int32 {
	if model == "" {
		return *weightIn(&q.Weight, word)
	}
	if i := slices.IndexFunc(q.Models, func(m api.QueueModel) bool { return m.Model == model }); i >= 0 {
		return *weightIn(&q.Models[i].Weight, word)
	}
	return 0
}

// weightIn is the weight that a word is about.
func weightIn(w *api.QueueWeight, word string) *int32 {
	switch word {
	case "weight-gpu":
		return &w.Compute
	case "weight-mem":
		return &w.Memory
	case "weight-shares":
		return &w.Devices
	}
	return &w.All
}

// amount reads a quota or limit of a resource; none: not set.
func amount(resource, value string) (func(*api.QueueAmounts), error) {
	switch resource {
	case "":
		n, err := api.ParseQuota(value)
		return func(a *api.QueueAmounts) { a.Compute = &n }, err
	case "mem":
		if value == "none" {
			return func(a *api.QueueAmounts) { a.Memory = nil }, nil
		}
		n, err := api.ParseBytes(value)
		return func(a *api.QueueAmounts) { a.Memory = new(n) }, err
	case "shares":
		if value == "none" {
			return func(a *api.QueueAmounts) { a.Devices = nil }, nil
		}
		n, err := number(value, 0, 1<<40)
		return func(a *api.QueueAmounts) { a.Devices = new(n) }, err
	}
	return nil, fmt.Errorf("there is no amount of %s: write -mem or -shares, or nothing for devices", shortened(resource))
}

// withBounds sets the quota or limit of a queue, overall or on one model. It shares nothing with what it changes.
func withBounds(q *api.QueueSpec, limit bool, model string, set func(*api.QueueAmounts)) {
	if model == "" {
		if limit {
			set(&q.Limit)
			return
		}
		quota := api.QueueAmounts{Compute: &q.Quota, Memory: q.QuotaMemory, Devices: q.QuotaDevices}
		set(&quota)
		q.Quota, q.QuotaMemory, q.QuotaDevices = *quota.Compute, quota.Memory, quota.Devices
		return
	}
	of := onModel(q, model)
	if limit {
		set(&of.Limit)
	} else {
		set(&of.Quota)
	}
}

// onModel is what is said of a queue on a model, which it shares with no other queue from here on.
func onModel(q *api.QueueSpec, model string) *api.QueueModel {
	q.Models = slices.Clone(q.Models)
	i := slices.IndexFunc(q.Models, func(m api.QueueModel) bool { return m.Model == model })
	if i < 0 {
		i = len(q.Models)
		q.Models = append(q.Models, api.QueueModel{Model: model})
	}
	return &q.Models[i]
}

func number(text string, low, high int64) (int64, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < low || n > high {
		return 0, fmt.Errorf("write a whole number from %d to %d", low, high)
	}
	return n, nil
}
