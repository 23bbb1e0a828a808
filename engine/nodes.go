package engine

import (
	"slices"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/engine/fleet"
)

// Codes of Evict.
const (
	EvictDeviceGone = "device_gone"
	EvictDeviceDown = "device_down"
	EvictNodeGone   = "node_gone"
	EvictCancelled  = "cancelled"
)

func (e *Engine) nodeSet(ev NodeSet) bool {
	devices := make([]fleet.Device, len(ev.Devices))
	for i, d := range ev.Devices {
		devices[i] = fleet.Device(d)
	}
	capacity := make([]fleet.Resource, len(ev.Resources))
	for i, r := range ev.Resources {
		capacity[i] = fleet.Resource(r)
	}
	if err := fleet.CheckDomains(ev.Node, ev.Domains); err != nil {
		return e.reject("", "invalid", "%v", err)
	}
	lost, err := e.fleet.SetNode(ev.Node, devices, capacity)
	if err != nil {
		return e.reject("", "invalid", "%v", err)
	}
	if n, ok := e.fleet.Node(ev.Node); ok {
		e.fleet.SetDomains(ev.Node, ev.Domains)
		e.remodel(n)
	}
	for _, d := range lost {
		e.evictFrom(d, EvictDeviceGone, "device "+e.fleet.Device(d).UUID+" is gone from node "+ev.Node)
	}
	for _, d := range devices {
		e.evictIfDown(ev.Node, d)
	}
	return true
}

func (e *Engine) evictIfDown(node string, d fleet.Device) {
	if d.Health != api.Down {
		return
	}
	if id, ok := e.fleet.DeviceOf(d.UUID); ok {
		e.evictFrom(id, EvictDeviceDown, downReason(node, d))
	}
}

func downReason(node string, d fleet.Device) string {
	reason := "device " + d.UUID + " on node " + node + " is down"
	if d.Reason != "" {
		reason += ": " + d.Reason
	}
	return reason
}

func (e *Engine) nodeGone(ev NodeGone) bool {
	lost, ok := e.fleet.RemoveNode(ev.Node)
	if !ok {
		return e.reject("", "not_found", "there is no node %s to remove", ev.Node)
	}
	for _, d := range lost {
		e.evictFrom(d, EvictNodeGone, "node "+ev.Node+" is gone")
	}
	return true
}

func (e *Engine) deviceHealth(ev DeviceHealth) bool {
	d, err := e.fleet.SetHealth(ev.Node, ev.UUID, ev.Health, ev.Reason)
	if err != nil {
		return e.reject("", "not_found", "%v", err)
	}
	e.evictIfDown(ev.Node, e.fleet.Device(d))
	return true
}

// evictFrom asks for the end of every task with a grant on a device, oldest workload first.
func (e *Engine) evictFrom(d fleet.DeviceID, code, reason string) {
	tasks := slices.Clone(e.held.on(d))
	slices.SortFunc(tasks, func(a, b *task) int {
		if a.w != b.w {
			if a.w.seq < b.w.seq {
				return -1
			}
			return 1
		}
		return a.index - b.index
	})
	for _, t := range tasks {
		e.evict(t, code, reason)
	}
}

// evict asks for a task's end, once.
func (e *Engine) evict(t *task, code, reason string) {
	if t.evicting {
		return
	}
	if e.ahead != nil {
		e.ahead.evicting(t)
	}
	e.reorderOut(t, func() { t.evicting = true })
	t.evict = e.id()
	e.noteEnding(t)
	t.why = &evicted{code, reason}
	e.pending[t.evict] = &proposal{w: t.w, task: t.index, kind: evictProposal}
	e.out = append(e.out, Evict{ID: t.evict, Workload: t.w.ID, Task: t.number(), Code: code, Reason: reason})
}
