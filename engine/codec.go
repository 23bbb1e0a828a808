package engine

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/aliquot-dev/aliquot/api"
)

// tagged is how events and actions are written: a kind and, beside it, the fields of that kind.
type tagged struct {
	Kind string          `json:"kind"`
	Data json.RawMessage `json:"data"`
}

func eventKind(event Event) string {
	switch event.(type) {
	case NodeSet:
		return "nodeSet"
	case NodeGone:
		return "nodeGone"
	case DeviceHealth:
		return "deviceHealth"
	case QueueSet:
		return "queueSet"
	case QueueGone:
		return "queueGone"
	case PolicySet:
		return "policySet"
	case Submit:
		return "submit"
	case Change:
		return "change"
	case Cancel:
		return "cancel"
	case Started:
		return "started"
	case Ended:
		return "ended"
	case Shrunk:
		return "shrunk"
	case Checkpoint:
		return "checkpoint"
	case Usage:
		return "usage"
	case Feasibility:
		return "feasibility"
	case FeasibilityGone:
		return "feasibilityGone"
	case Done:
		return "done"
	case Refused:
		return "refused"
	case Adopt:
		return "adopt"
	case Learn:
		return "learn"
	case QueuesUsed:
		return "queuesUsed"
	case Tick:
		return "tick"
	}
	return ""
}

// MarshalEvent writes an event as JSON with a tag for its kind. Text that is not UTF-8 is written as Step takes it. An event with
// a share, an amount of memory or a quota that has no text form is refused, for it would not read back as it was; Step rejects
// such an event too.
func MarshalEvent(event Event) ([]byte, error) {
	kind := eventKind(event)
	if kind == "" {
		return nil, fmt.Errorf("an event of type %T has no kind and cannot be written", event)
	}
	if err := exact(event); err != nil {
		return nil, fmt.Errorf("event %s cannot be written exactly: %w", kind, err)
	}
	data, err := json.Marshal(clean(event))
	if err != nil {
		return nil, fmt.Errorf("event %s cannot be written: %w", kind, err)
	}
	return json.Marshal(tagged{kind, data})
}

// exact says whether the shares in an event have a text form that reads back the same.
func exact(event Event) error {
	switch ev := event.(type) {
	case Submit:
		return exactShares(&ev.Workload)
	case Change:
		if ev.Share != nil {
			return validShare(*ev.Share)
		}
	case Adopt:
		if err := exactShares(&ev.Workload); err != nil {
			return err
		}
		for _, p := range ev.Tasks {
			for _, g := range p.Grants {
				if err := validCompute(g.Compute); err != nil {
					return err
				}
				if g.Floor < 0 || g.Ceiling < 0 {
					return fmt.Errorf("grant %s has less than no memory", g.UID)
				}
			}
		}
	case NodeSet:
		if i := slices.IndexFunc(ev.Devices, func(d Device) bool { return d.Memory < 0 }); i >= 0 {
			return fmt.Errorf("device %s has less than no memory", ev.Devices[i].UUID)
		}
	case Usage:
		if i := slices.IndexFunc(ev.Grants, func(g GrantUsage) bool { return g.Memory < 0 }); i >= 0 {
			return fmt.Errorf("grant %s holds less than no memory", ev.Grants[i].UID)
		}
	case Shrunk:
		if i := slices.IndexFunc(ev.Holds, func(h Holding) bool { return h.Compute < 0 || h.Memory < 0 }); i >= 0 {
			return fmt.Errorf("task %d of workload %s keeps less than nothing of device %s", ev.Task, ev.ID, ev.Holds[i].Device)
		}
	case Ended:
		if u := ev.Used; u != nil && (u.Compute < 0 || u.Memory < 0) {
			return fmt.Errorf("task %d of workload %s has used less than nothing", ev.Task, ev.ID)
		}
	case QueueSet:
		return exactQueue(ev.Queue)
	case PolicySet:
		if ev.Policy.Placement != nil {
			if err := ev.Policy.Placement.Validate(); err != nil {
				return err
			}
		}
		for _, q := range ev.Policy.Queues {
			if err := exactQueue(q); err != nil {
				return err
			}
		}
	case Learn:
		for i := range ev.Past {
			if err := validPast(&ev.Past[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

func exactShares(w *Workload) error {
	for i := range w.Roles {
		if err := validShare(w.Roles[i].Share); err != nil {
			return err
		}
	}
	return validShare(w.Share)
}

func exactQueue(q api.QueueSpec) error {
	amounts := []api.QueueAmounts{{Compute: &q.Quota, Memory: q.QuotaMemory, Devices: q.QuotaDevices}, q.Limit}
	for _, m := range q.Models {
		amounts = append(amounts, m.Quota, m.Limit)
	}
	for _, a := range amounts {
		if a.Compute != nil && *a.Compute < api.Unlimited || a.Memory != nil && *a.Memory < 0 || a.Devices != nil && *a.Devices < 0 {
			return fmt.Errorf("queue %s has a quota or limit of less than nothing", q.Name)
		}
	}
	if !q.Hours.Valid() {
		return fmt.Errorf("queue %s may use %q device-hours, which is none of a day, week or month", q.Name, q.Hours)
	}
	if !q.Disruptions.Valid() {
		return fmt.Errorf("queue %s lets work be evicted %d times in any %s, which is no budget", q.Name, q.Disruptions.Most, q.Disruptions.Per)
	}
	if q.Order.PriorityWorth < 0 || q.Order.Served < 0 || q.LongestRun < 0 || q.MinRun < 0 {
		return fmt.Errorf("a step of priority in queue %s is worth less than nothing, or work in it may run, is protected, or is served on a level for less", q.Name)
	}
	return nil
}

// UnmarshalEvent reads what MarshalEvent wrote.
func UnmarshalEvent(data []byte) (Event, error) {
	var t tagged
	if err := decodeStrictly(data, &t); err != nil {
		return nil, fmt.Errorf("an event cannot be read: %w", err)
	}
	switch t.Kind {
	case "nodeSet":
		return event[NodeSet](t)
	case "nodeGone":
		return event[NodeGone](t)
	case "deviceHealth":
		return event[DeviceHealth](t)
	case "queueSet":
		return event[QueueSet](t)
	case "queueGone":
		return event[QueueGone](t)
	case "policySet":
		return event[PolicySet](t)
	case "submit":
		return event[Submit](t)
	case "change":
		return event[Change](t)
	case "cancel":
		return event[Cancel](t)
	case "started":
		return event[Started](t)
	case "ended":
		return event[Ended](t)
	case "shrunk":
		return event[Shrunk](t)
	case "checkpoint":
		return event[Checkpoint](t)
	case "usage":
		return event[Usage](t)
	case "feasibility":
		return event[Feasibility](t)
	case "feasibilityGone":
		return event[FeasibilityGone](t)
	case "done":
		return event[Done](t)
	case "refused":
		return event[Refused](t)
	case "adopt":
		return event[Adopt](t)
	case "learn":
		return event[Learn](t)
	case "queuesUsed":
		return event[QueuesUsed](t)
	case "tick":
		return event[Tick](t)
	}
	return nil, fmt.Errorf("an event of kind %q is not known: it may be of a newer version", t.Kind)
}

func event[T Event](t tagged) (Event, error) {
	var ev T
	if err := decodeStrictly(t.Data, &ev); err != nil {
		return nil, fmt.Errorf("event %s cannot be read: %w", t.Kind, err)
	}
	return ev, nil
}

// MarshalAction writes an action as JSON with a tag for its kind.
func MarshalAction(action Action) ([]byte, error) {
	var kind string
	switch action.(type) {
	case Place:
		kind = "place"
	case Evict:
		kind = "evict"
	case Resize:
		kind = "resize"
	case Reject:
		kind = "reject"
	default:
		return nil, fmt.Errorf("an action of type %T has no kind and cannot be written", action)
	}
	data, err := json.Marshal(action)
	if err != nil {
		return nil, fmt.Errorf("action %d cannot be written: %w", action.Action(), err)
	}
	return json.Marshal(tagged{kind, data})
}

// UnmarshalAction reads what MarshalAction wrote.
func UnmarshalAction(data []byte) (Action, error) {
	var t tagged
	if err := decodeStrictly(data, &t); err != nil {
		return nil, fmt.Errorf("an action cannot be read: %w", err)
	}
	switch t.Kind {
	case "place":
		return action[Place](t)
	case "evict":
		return action[Evict](t)
	case "resize":
		return action[Resize](t)
	case "reject":
		return action[Reject](t)
	}
	return nil, fmt.Errorf("an action of kind %q is not known: it may be of a newer version", t.Kind)
}

func action[T Action](t tagged) (Action, error) {
	var a T
	if err := decodeStrictly(t.Data, &a); err != nil {
		return nil, fmt.Errorf("action %s cannot be read: %w", t.Kind, err)
	}
	return a, nil
}
