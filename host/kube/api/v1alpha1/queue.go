package v1alpha1

import (
	"fmt"
	"math"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/aliquot-dev/aliquot/api"
)

// QueueKind is the kind of a Queue.
const QueueKind = "Queue"

// Queue is a tenant in the cluster's tree of queues, with the name that its work names: what it is guaranteed, what it may never pass, and how
// what is over the quotas is divided.
type Queue struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitzero"`

	Spec   QueueSpec   `json:"spec"`
	Status QueueStatus `json:"status,omitzero"`
}

// QueueSpec is what is said of a queue. Each field is one of api.QueueSpec, which says what it means. What is not said is no bound.
type QueueSpec struct {
	Parent string           `json:"parent,omitempty"` // empty: it is under none
	Quota  api.QueueAmounts `json:"quota,omitzero"`
	Limit  api.QueueAmounts `json:"limit,omitzero"`
	Weight api.QueueWeight  `json:"weight,omitzero"`
	Models []api.QueueModel `json:"models,omitempty"`
	Hours  api.HoursQuota   `json:"hours,omitzero"`  // "100/week"
	Order  string           `json:"order,omitempty"` // "fair+priority:1h+shortest:2", as api.ParseOrder reads it

	LongestRun    api.Duration `json:"longestRun,omitempty"`  // "8h"
	MinRun        api.Duration `json:"minRun,omitempty"`      // "10m"
	MaxPriority   *int32       `json:"maxPriority,omitempty"` // nil: that of the queue above it
	Priority      int32        `json:"priority,omitempty"`
	PriorityUntil *metav1.Time `json:"priorityUntil,omitempty"`
	PriorityAfter int32        `json:"priorityAfter,omitempty"`
}

// QueueStatus is what is said of a Queue: whether it holds, by the controller as Status has it, and what it uses, by the scheduler.
type QueueStatus struct {
	ObservedGeneration int64              `json:"observedGeneration,omitempty"`
	Conditions         []metav1.Condition `json:"conditions,omitempty"`
	Uses               *QueueUses         `json:"uses,omitempty"` // nil: the scheduler has said nothing yet
}

// QueueUses is what the work of a queue and of those under it has, as api.Queue says it.
type QueueUses struct {
	At       metav1.MicroTime   `json:"at"`      // when that was so
	Running  int64              `json:"running"` // workloads: a pod, or a gang
	Waiting  int64              `json:"waiting"`
	Held     api.QueueUse       `json:"held"`
	Fair     api.QueueUse       `json:"fair"`
	Borrowed api.QueueUse       `json:"borrowed"`
	AtRisk   api.QueueUse       `json:"atRisk"`
	Lent     api.QueueUse       `json:"lent"`
	OnModels []api.QueueOnModel `json:"onModels"` // nil: neither it nor a queue beside it has weights on models
	Hours    *QueueHours        `json:"hours"`    // nil: they are no bound
	Used     *QueueUsed         `json:"used"`     // nil: nothing
}

// QueueUsed is what was used of compute, each moment of it halved with each half-life since, in device-hours: those that used least of their fair shares go
// first.
type QueueUsed struct {
	All api.Quota `json:"all"` // with the queues under it
	Own api.Quota `json:"own"` // by work of its own
}

// QueueHours is what was used of a queue's device-hours until then.
type QueueHours struct {
	Used  api.Quota   `json:"used"`
	Per   api.Period  `json:"per"` // of which it is counted
	Begin metav1.Time `json:"begin"`
	End   metav1.Time `json:"end"`
}

// Equal says whether two are the same.
func (h *QueueHours) Equal(o *QueueHours) bool {
	if h == nil || o == nil {
		return h == o
	}
	return h.Used == o.Used && h.Per == o.Per && h.Begin.Equal(&o.Begin) && h.End.Equal(&o.End)
}

// UsesOf are the uses of a queue at a moment.
func UsesOf(q *api.Queue, now time.Time) QueueUses {
	out := QueueUses{
		At: metav1.NewMicroTime(now), Running: int64(q.Running), Waiting: int64(q.Waiting), Held: q.Use, Fair: q.Fair, Borrowed: q.Borrowed, AtRisk: q.AtRisk, Lent: q.Lent,
		OnModels: q.OnModels,
	}
	if used := q.HoursUsed; used != nil {
		out.Hours = &QueueHours{used.Amount, q.Hours.Per, metav1.NewTime(used.Begin), metav1.NewTime(used.End)}
	}
	return out
}

// Queue is a queue with these uses.
func (u *QueueUses) Queue(spec api.QueueSpec) api.Queue {
	out := api.Queue{
		QueueSpec: spec, Held: u.Held.Compute, Running: int(u.Running), Waiting: int(u.Waiting), Use: u.Held, Fair: u.Fair, Borrowed: u.Borrowed, AtRisk: u.AtRisk, Lent: u.Lent,
		OnModels: u.OnModels,
	}
	if h := u.Hours; h != nil && h.Per == spec.Hours.Per {
		out.HoursUsed = &api.HoursUsed{Amount: h.Used, Begin: h.Begin.Time, End: h.End.Time}
	}
	return out
}

// Status is what the controller says of a Policy, and of a Queue.
type Status struct {
	ObservedGeneration int64              `json:"observedGeneration,omitempty"` // of the spec that the conditions are about
	Conditions         []metav1.Condition `json:"conditions,omitempty"`
}

// Accepted is the condition that says whether a Queue or a Policy holds.
const Accepted = "Accepted"

// The reasons of Accepted.
const (
	ReasonAccepted      = "Accepted"
	ReasonInvalid       = "Invalid"       // by itself, whatever else there is
	ReasonNoParent      = "NoParent"      // its parent is not there
	ReasonParentRefused = "ParentRefused" // its parent does not hold
	ReasonCycle         = "Cycle"         // it is under itself
	ReasonDoesNotAddUp  = "DoesNotAddUp"  // with what others are guaranteed or the policy says
)

// NoMaxPriority is the highest priority of a queue that says none: no pod has a higher one.
const NoMaxPriority int32 = math.MaxInt32

// Engine is the queue as the engine has it. It fails where it is no queue, whatever others there are.
func (q *Queue) Engine() (api.QueueSpec, error) {
	s := q.Spec
	out := api.QueueSpec{
		Name: q.Name, Parent: s.Parent, Quota: api.Unlimited, QuotaMemory: s.Quota.Memory, QuotaDevices: s.Quota.Devices, Limit: s.Limit, Weight: s.Weight,
		Models: s.Models, Priority: s.Priority, PriorityAfter: s.PriorityAfter, LongestRun: s.LongestRun, MinRun: s.MinRun, Hours: s.Hours,
	}
	if s.Quota.Compute != nil {
		out.Quota = *s.Quota.Compute
	}
	if s.PriorityUntil != nil {
		out.PriorityUntil = new(time.Time)
		*out.PriorityUntil = s.PriorityUntil.UTC()
	}
	if s.Order != "" {
		var err error
		if out.Order, out.ShortestFirst, err = api.ParseOrder(s.Order); err != nil {
			return out, fmt.Errorf("spec.order: %w", err)
		}
	}
	most := NoMaxPriority
	if s.MaxPriority != nil {
		most = *s.MaxPriority
	}
	out.MaxPriority = min(most, api.MaxPriority) // beyond that Kubernetes alone has priorities
	err := out.Validate()
	out.MaxPriority = most
	return out, err
}
