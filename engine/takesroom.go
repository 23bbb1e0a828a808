package engine

import (
	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/engine/fleet"
	"github.com/aliquot-dev/aliquot/engine/place"
)

// TakesRoom says whether grants keep a waiting workload from having its devices on some nodes, each task on the node in its place, where it would have them
// otherwise; held: the books hold these grants already. So a host that makes room there knows what it must not start meanwhile. CPU, memory and the like
// are not looked at, nor are queues and the line. It changes nothing.
func (e *Engine) TakesRoom(id string, nodes []string, grants []Grant, held bool) (takes bool) {
	w, ok := e.work[id]
	if !ok || !w.waiting() {
		return false
	}
	e.lookAhead(e.now, func(*ahead) {
		there := &workload{Workload: w.Workload}
		only := e.turnstiles(w, func(_ *place.Request, role int, n fleet.NodeID) (tasks int) {
			for task, name := range nodes {
				if name == e.fleet.NodeName(n) && w.roleOf(task) == role {
					tasks++
				}
			}
			return tasks
		})
		there.Resources, there.Roles = nil, cloneRoles(w.Roles)
		for i := range there.Roles {
			there.Roles[i].Resources = nil
		}
		passThrough(there, only)
		there.shape = e.shapeOf(&there.Workload)
		defer e.dropShape(there)
		request := there.shape.Request
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
