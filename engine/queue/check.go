package queue

import (
	"fmt"
	"maps"
	"slices"

	"github.com/aliquot-dev/aliquot/api"
)

// maxBound is the largest quota, limit or weight there may be: far over what any fleet has, so that sums stay integers.
const (
	maxBound  = 1 << 50
	maxWeight = api.MaxWeight
)

// validate says what is wrong with a queue by itself.
func validate(spec api.QueueSpec) error {
	if spec.Name == "" {
		return fmt.Errorf("a queue without a name cannot be set: give it one")
	}
	if spec.Quota < api.Unlimited {
		return fmt.Errorf("queue %s: a quota of %d thousandths is less than nothing: give a number of devices, or none", spec.Name, int64(spec.Quota))
	}
	seen, weights := map[string]bool{}, []api.QueueWeight{spec.Weight}
	for _, m := range spec.Models {
		if m.Model == "" || seen[m.Model] {
			return fmt.Errorf("queue %s: model %q is without a name or comes twice: name each model once", spec.Name, m.Model)
		}
		seen[m.Model] = true
		weights = append(weights, m.Weight)
	}
	for _, of := range weights {
		for _, w := range []int32{of.All, of.Compute, of.Memory, of.Devices} {
			if w < 0 || w > maxWeight {
				return fmt.Errorf("queue %s: a weight of %d is out of range: give 1 to %d, or 0 for the default", spec.Name, w, maxWeight)
			}
		}
	}
	if f := spec.ShortestFirst; f < 0 || f > api.MaxShortestFirst {
		return fmt.Errorf("queue %s: the shortest go first by %s, out of range: give 0 to %s", spec.Name, f, api.MaxShortestFirst)
	}
	if w := spec.Order.PriorityWorth; w < 0 || w > api.MaxPriorityWorth {
		return fmt.Errorf("queue %s: a step of priority is worth %s, out of range: give 0s to %s", spec.Name, w, api.MaxPriorityWorth)
	}
	if s := spec.Order.Served; s != 0 && (s < api.LeastServed || s > api.MostServed) {
		return fmt.Errorf("queue %s: %s of service are no first level: give %s to %s, or 0s for none", spec.Name, s, api.LeastServed, api.MostServed)
	}
	if spec.Order.Held && spec.Order.Served == 0 {
		return fmt.Errorf("queue %s: devices held count by no levels: give the first, of %s to %s", spec.Name, api.LeastServed, api.MostServed)
	}
	if spec.Priority < api.MinPriority || spec.Priority > api.MaxPriority {
		return fmt.Errorf("queue %s: a priority of %d is out of range: give %d to %d", spec.Name, spec.Priority, api.MinPriority, api.MaxPriority)
	}
	if !spec.Hours.Valid() {
		return fmt.Errorf("queue %s: %s device-hours are none: give 0 to %s of a day, week or month, or none", spec.Name, spec.Hours, api.MaxHours)
	}
	if spec.LongestRun < 0 {
		return fmt.Errorf("queue %s: work may run for %s, less than nothing: give more, or 0s for no bound", spec.Name, spec.LongestRun)
	}
	if spec.MinRun < 0 {
		return fmt.Errorf("queue %s: work runs for %s before it is evicted for others, less than nothing: give more, or 0s for at once", spec.Name, spec.MinRun)
	}
	if !spec.Disruptions.Valid() {
		return fmt.Errorf("queue %s: its work may be evicted %d times in any %s, which is no budget: give 1 to %d in 1s to %s, or none",
			spec.Name, spec.Disruptions.Most, spec.Disruptions.Per, api.MaxDisruptions, api.MaxDisruptionsPer)
	}
	all := boundsOf(spec)
	for i := range all {
		b := &all[i]
		for r := range resources {
			quota, limit := b.quota[r], b.limit[r]
			if quota > maxBound || limit > maxBound {
				return fmt.Errorf("queue %s: %s%s is more than any fleet has: give less, or none", spec.Name, Format(r, max(quota, limit)), on(b.model))
			}
			if quota != Unbounded && limit != Unbounded && quota > limit {
				return fmt.Errorf("queue %s: its quota of %s%s is over its limit of %s: raise the limit or lower the quota",
					spec.Name, Format(r, quota), on(b.model), Format(r, limit))
			}
		}
	}
	for r := range resources {
		if sum := modelSum(all, r); all[0].quota[r] != Unbounded && sum > all[0].quota[r] {
			return fmt.Errorf("queue %s: its quotas for single models add up to %s, over its quota of %s: raise that or lower those",
				spec.Name, Format(r, sum), Format(r, all[0].quota[r]))
		}
	}
	return nil
}

// modelSum adds up the quotas for single models.
func modelSum(all []bound, r Resource) (sum int64) {
	for i := range all {
		if i > 0 && all[i].quota[r] != Unbounded {
			sum += all[i].quota[r]
		}
	}
	return sum
}

// guaranteed is what a queue and those under it are guaranteed of a resource: its quota, or else what it implies by quotas for
// single models and by its children's.
func guaranteed(q *plan, model string, r Resource) int64 {
	for i := range q.bounds {
		if b := &q.bounds[i]; b.model == model && b.quota[r] != Unbounded {
			return b.quota[r]
		}
	}
	sum := int64(0)
	for _, c := range q.children {
		sum += guaranteed(c, model, r)
	}
	if model == "" {
		sum = max(sum, modelSum(q.bounds, r))
	}
	return sum
}

// plan is a queue as it would be.
type plan struct {
	name     string
	bounds   []bound
	children []*plan
}

// fits says which quota the tree would have too little of with a queue set so.
func (t *Tree) fits(n, parent *Node, spec api.QueueSpec) error {
	changed := &plan{name: spec.Name, bounds: boundsOf(spec)}
	if n != nil {
		for _, c := range n.children {
			changed.children = append(changed.children, planOf(c, n, nil, nil))
		}
	}
	if err := changed.check(); err != nil {
		return err
	}
	if parent == nil {
		return nil
	}
	for q := parent; q != nil; q = q.parent {
		if err := planOf(q, n, parent, changed).check(); err != nil {
			return err
		}
	}
	return nil
}

// planOf is a queue and those under it, without one of them and with another under its parent.
func planOf(q, without, parent *Node, with *plan) *plan {
	p := &plan{name: q.Name, bounds: q.bounds}
	for _, c := range q.children {
		if c != without {
			p.children = append(p.children, planOf(c, without, parent, with))
		}
	}
	if q == parent {
		p.children = append(p.children, with)
	}
	return p
}

// check says whether a queue's children are guaranteed more than it is.
func (p *plan) check() error {
	models := []string{}
	for i := range p.bounds {
		models = append(models, p.bounds[i].model)
	}
	for _, model := range models {
		i := slices.IndexFunc(p.bounds, func(b bound) bool { return b.model == model })
		for r := range resources {
			quota, sum := p.bounds[i].quota[r], int64(0)
			if quota == Unbounded {
				continue
			}
			for _, c := range p.children {
				sum += guaranteed(c, model, r)
			}
			if sum > quota {
				return tooLittle(p.name, &p.bounds[i], r, sum)
			}
		}
	}
	return nil
}

// promised is what a queue and those under it are guaranteed, overall and of each model, or which of them has less than those under it: as
// guaranteed and plan.check say it, for a whole tree at once.
func (n *Node) promised() (map[string]Amounts, error) {
	sums := map[string]Amounts{}
	for _, c := range n.children {
		of, err := c.promised()
		if err != nil {
			return nil, err
		}
		for model, amounts := range of {
			sums[model] = sums[model].Plus(amounts, 1)
		}
	}
	out := maps.Clone(sums)
	for r := range resources {
		overall := out[""]
		overall[r] = max(overall[r], modelSum(n.bounds, r))
		out[""] = overall
	}
	for i := range n.bounds {
		b := &n.bounds[i]
		of := out[b.model]
		for r := range resources {
			if b.quota[r] == Unbounded {
				continue
			}
			if sum := sums[b.model][r]; sum > b.quota[r] {
				return nil, tooLittle(n.Name, b, r, sum)
			}
			of[r] = b.quota[r]
		}
		out[b.model] = of
	}
	return out, nil
}

// tooLittle says that a queue is guaranteed less than those under it.
func tooLittle(name string, b *bound, r Resource, sum int64) error {
	return fmt.Errorf("the quotas of the queues under %s add up to %s%s, and its own is %s: lower theirs or raise its own",
		name, Format(r, sum), on(b.model), Format(r, b.quota[r]))
}

func on(model string) string {
	if model == "" {
		return ""
	}
	return " on " + model
}

// Format writes an amount of a resource with its unit.
func Format(r Resource, amount int64) string {
	switch {
	case r == Memory:
		return api.Bytes(amount).String() + " of memory"
	case r == Devices && amount == 1:
		return "1 share"
	case r == Devices:
		return fmt.Sprintf("%d shares", amount)
	case amount == int64(api.WholeDevice):
		return "1 device"
	}
	return api.Quota(amount).String() + " devices"
}
