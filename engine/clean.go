package engine

import (
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/engine/fleet"
)

// clean is an event with all its text in UTF-8, bytes that are none replaced by U+FFFD. Reasons come from drivers and files; an event
// log can only hold text, and what is replayed must be what was decided upon. An event that is clean already is not copied.
func clean(event Event) Event {
	if isText(event) {
		return event
	}
	switch ev := event.(type) {
	case NodeSet:
		ev.Node = text(ev.Node)
		ev.Devices = cleaned(ev.Devices, func(d Device) Device {
			d.UUID, d.Model, d.Reason, d.Link, d.NUMA = text(d.UUID), text(d.Model), text(d.Reason), text(d.Link), text(d.NUMA)
			d.Health = api.DeviceHealth(text(string(d.Health)))
			return d
		})
		ev.Resources = cleaned(ev.Resources, cleanResource)
		ev.Domains = cleaned(ev.Domains, func(d fleet.Domain) fleet.Domain { return fleet.Domain{Level: text(d.Level), Name: text(d.Name)} })
		return ev
	case NodeGone:
		ev.Node = text(ev.Node)
		return ev
	case DeviceHealth:
		ev.Node, ev.UUID, ev.Reason = text(ev.Node), text(ev.UUID), text(ev.Reason)
		ev.Health = api.DeviceHealth(text(string(ev.Health)))
		return ev
	case QueueSet:
		ev.Queue = cleanQueue(ev.Queue)
		return ev
	case PolicySet:
		ev.Policy = cleanPolicy(ev.Policy)
		return ev
	case QueueGone:
		ev.Queue = text(ev.Queue)
		return ev
	case Submit:
		ev.Workload, ev.Was = cleanWorkload(ev.Workload), text(ev.Was)
		return ev
	case Change:
		ev.ID = text(ev.ID)
		if ev.Queue != nil {
			q := text(*ev.Queue)
			ev.Queue = &q
		}
		return ev
	case Cancel:
		ev.ID, ev.Reason = text(ev.ID), text(ev.Reason)
		return ev
	case Started:
		ev.ID = text(ev.ID)
		return ev
	case Ended:
		ev.ID = text(ev.ID)
		return ev
	case Shrunk:
		ev.ID = text(ev.ID)
		ev.Holds = cleaned(ev.Holds, func(h Holding) Holding { h.Device = text(h.Device); return h })
		return ev
	case Checkpoint:
		ev.ID = text(ev.ID)
		return ev
	case Usage:
		ev.Grants = cleaned(ev.Grants, func(g GrantUsage) GrantUsage { return GrantUsage{text(g.UID), g.Memory} })
		return ev
	case Feasibility:
		ev.Class, ev.Prefer = text(ev.Class), text(ev.Prefer)
		ev.Allowed = cleaned(ev.Allowed, text)
		ev.Barred = cleaned(ev.Barred, func(b NodeReason) NodeReason { return NodeReason{text(b.Node), text(b.Code)} })
		return ev
	case FeasibilityGone:
		ev.Classes = cleaned(ev.Classes, text)
		return ev
	case Refused:
		ev.Node, ev.Reason = text(ev.Node), text(ev.Reason)
		return ev
	case QueuesUsed:
		ev.Queues = cleaned(ev.Queues, func(u QueueUsed) QueueUsed { u.Queue = text(u.Queue); return u })
		return ev
	case Learn:
		ev.Past = slices.Clone(ev.Past)
		for i := range ev.Past {
			ev.Past[i].Workload = cleanWorkload(ev.Past[i].Workload)
		}
		return ev
	case Adopt:
		ev.Workload = cleanWorkload(ev.Workload)
		ev.Tasks = slices.Clone(ev.Tasks)
		for i, p := range ev.Tasks {
			ev.Tasks[i].Node = text(p.Node)
			ev.Tasks[i].Grants = cleaned(p.Grants, func(g Grant) Grant {
				g.UID, g.Device = text(g.UID), text(g.Device)
				return g
			})
		}
		return ev
	}
	return event
}

// isText says of the events that come most often whether all their text is in UTF-8; of others it says nothing.
func isText(event Event) bool {
	switch ev := event.(type) {
	case Submit:
		return utf8.ValidString(ev.Was) && isTextOf(&ev.Workload)
	case Started:
		return utf8.ValidString(ev.ID)
	case Ended:
		return utf8.ValidString(ev.ID)
	}
	return false
}

func isTextOf(w *Workload) bool {
	if len(w.Roles) > 0 {
		return false
	}
	for _, s := range [...]string{w.ID, w.Queue, w.Model, w.Feasibility, w.User, w.Name, w.Same, w.Prefer, string(w.Class)} {
		if !utf8.ValidString(s) {
			return false
		}
	}
	return !slices.ContainsFunc(w.Resources, func(r Resource) bool { return !utf8.ValidString(r.Name) })
}

func text(s string) string { return strings.ToValidUTF8(s, "\ufffd") }

func cleanResource(r Resource) Resource { return Resource{text(r.Name), r.Amount} }

func cleanQueue(q api.QueueSpec) api.QueueSpec {
	q.Name, q.Parent = text(q.Name), text(q.Parent)
	q.Models = slices.Clone(q.Models)
	for i := range q.Models {
		q.Models[i].Model = text(q.Models[i].Model)
	}
	return q
}

func cleanWorkload(w Workload) Workload {
	w.ID, w.Queue, w.Model, w.Feasibility = text(w.ID), text(w.Queue), text(w.Model), text(w.Feasibility)
	w.User, w.Name, w.Same, w.Prefer = text(w.User), text(w.Name), text(w.Same), text(w.Prefer)
	w.Class = api.Class(text(string(w.Class)))
	w.Resources = cleaned(w.Resources, cleanResource)
	w.Roles = slices.Clone(w.Roles)
	for i := range w.Roles {
		r := &w.Roles[i]
		r.Feasibility = text(r.Feasibility)
		r.Name, r.Model, r.Resources = text(r.Name), text(r.Model), cleaned(r.Resources, cleanResource)
	}
	return w
}

// cleaned applies each to a copy, if it changes anything.
func cleaned[T comparable](all []T, each func(T) T) []T {
	for i, v := range all {
		if c := each(v); c != v {
			all = slices.Clone(all)
			for k := i; k < len(all); k++ {
				all[k] = each(all[k])
			}
			return all
		}
	}
	return all
}
