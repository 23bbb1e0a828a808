package engine

import (
	"slices"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/engine/fleet"
)

// TakesRoom says whether grants keep a waiting workload from having its devices on some nodes, a task on each of as many as it has, where it would have them
// otherwise; held: the books hold these grants already. So a host that makes room there knows what it must not start meanwhile. CPU, memory and the like
// are not looked at, nor are queues and the line. It changes nothing.
func (e *Engine) TakesRoom(id string, nodes []string, grants []Grant, held bool) (takes bool) {
	w, ok := e.work[id]
	if !ok || !w.waiting() {
		return false
	}
	e.lookAhead(e.now, func(*ahead) {
		anywhere := &workload{Workload: w.Workload}
		anywhere.Feasibility, anywhere.Resources, anywhere.Roles = "", nil, cloneRoles(w.Roles)
		for i := range anywhere.Roles {
			anywhere.Roles[i].Feasibility, anywhere.Roles[i].Resources = "", nil
		}
		anywhere.shape = e.shapeOf(&anywhere.Workload)
		defer e.dropShape(anywhere)
		request := anywhere.shape.Request
		request.Avoid = func(d fleet.DeviceID) bool { return !slices.Contains(nodes, e.fleet.NodeName(e.fleet.NodeOf(d))) }
		fits := func() bool {
			mark := e.fleet.Begin()
			defer e.fleet.Rollback(mark)
			_, ok := e.placer.Place(&request)
			return ok
		}
		adjust := func(sign int32) {
			for _, g := range grants {
				if d, known := e.fleet.DeviceOf(g.Device); known {
					e.fleet.Adjust(d, api.Milli(sign)*g.Compute.Floor, api.Bytes(sign)*g.Floor, sign)
				}
			}
		}
		if held {
			adjust(-1)
		}
		if fits() {
			adjust(1)
			takes = !fits()
		}
	})
	return takes
}
