package queues

import (
	"slices"
	"time"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/engine"
	"github.com/aliquot-dev/aliquot/host/kube/api/v1alpha1"
	"github.com/aliquot-dev/aliquot/host/policy"
)

// Rules are the queues of a cluster and its policy, as far as they hold: what the engine is told of them.
type Rules struct {
	queues []api.QueueSpec
	policy *policy.Policy // nil: none holds
}

// Read says which Queues hold and why the others do not, as Tree does, and whether the Policy, nil for none, holds beside them: its windows are
// looked at for the 400 days after a moment.
func Read(all []*v1alpha1.Queue, p *v1alpha1.Policy, now time.Time) (rules Rules, queues map[string]Refusal, of *Refusal) {
	rules.queues, queues = Tree(all)
	if p == nil {
		return rules, queues, nil
	}
	read, err := policy.Read("policy", p.Spec.Text)
	if err == nil {
		err = read.Overlap(now)
	}
	if err != nil {
		return rules, queues, &Refusal{v1alpha1.ReasonInvalid, err.Error()}
	}
	if err := read.Check(checked(rules.queues)); err != nil {
		return rules, queues, &Refusal{v1alpha1.ReasonDoesNotAddUp, err.Error()}
	}
	rules.policy = read
	for _, q := range read.New(rules.queues) {
		q.MaxPriority = v1alpha1.NoMaxPriority // unless the policy says one
		rules.queues = append(rules.queues, q)
	}
	return rules, queues, nil
}

// Zone is the one whose days, weeks and months count: the policy's, else UTC.
func (r Rules) Zone() *time.Location {
	if r.policy == nil {
		return time.UTC
	}
	return r.policy.Location()
}

// checked are queues as a policy is checked beside them, which knows of one server's priorities alone.
func checked(all []api.QueueSpec) []api.QueueSpec {
	out := slices.Clone(all)
	for i := range out {
		out[i].MaxPriority = min(out[i].MaxPriority, api.MaxPriority)
	}
	return out
}

// At is what the engine is to be told at a moment, and until when that is so; a zero time: for good.
func (r Rules) At(now time.Time) (engine.Policy, time.Time) {
	told, until := engine.Policy{Queues: append([]api.QueueSpec(nil), r.queues...)}, time.Time{}
	if r.policy != nil {
		told = r.policy.During(r.policy.At(now), r.queues)
		if next, ever := r.policy.Next(now); ever {
			until = next
		}
	}
	for i, q := range told.Queues {
		if q.PriorityUntil != nil && now.Before(*q.PriorityUntil) && (until.IsZero() || q.PriorityUntil.Before(until)) {
			until = *q.PriorityUntil
		}
		told.Queues[i] = q.At(now)
	}
	return told, until
}

// Among finds queues among those that the engine was told of.
func Among(told []api.QueueSpec) Find {
	parents := make(map[string]string, len(told))
	for _, q := range told {
		parents[q.Name] = q.Parent
	}
	return func(name string) (string, bool, error) {
		parent, there := parents[name]
		return parent, there, nil
	}
}
