package engine

import (
	"fmt"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/engine/fleet"
	"github.com/aliquot-dev/aliquot/engine/place"
)

// apartFrom tells the devices that are not in the domain that the other tasks of a replica's workload are in, where all must be in one; nil: there are
// none.
func (e *Engine) apartFrom(x *workload) func(fleet.DeviceID) bool {
	if x.Same == "" {
		return nil
	}
	domain := ""
	for _, t := range x.base.allTasks() {
		if t.live() {
			domain = e.fleet.DomainOf(t.node, x.Same)
			break
		}
	}
	return func(d fleet.DeviceID) bool { return e.fleet.DomainOf(e.fleet.NodeOf(d), x.Same) != domain }
}

// noDomain says that no domain has room for all tasks of a workload that are to be in one, and which has the most; empty: one has, or none is needed.
func (e *Engine) noDomain(w *workload, empty bool) string {
	if w.Same == "" {
		return ""
	}
	taken, free := place.AsItIs, "free"
	if empty {
		taken, free = place.Nothing, "that could serve it"
	}
	room, ok := e.placer.Roomiest(&w.shape.Request, taken)
	switch {
	case !ok:
		return fmt.Sprintf("no node is in any %s", w.Same)
	case room.Tasks >= w.Tasks && len(w.Roles) > 0:
		return fmt.Sprintf("no %s has room %s for all its roles together", w.Same, free)
	case room.Tasks >= w.Tasks:
		return ""
	case w.Tasks == 1:
		return fmt.Sprintf("no %s has room %s for it", w.Same, free)
	case w.Devices == 1 && w.Share.Compute.Floor == api.WholeDevice:
		return fmt.Sprintf("no %s has %d devices %s; %s has the most, %d", w.Same, w.Tasks, free, room.Domain, room.Tasks)
	}
	return fmt.Sprintf("no %s has room %s for all %d tasks; %s has the most, for %d", w.Same, free, w.Tasks, room.Domain, room.Tasks)
}

// checkTogether says whether the tasks of a workload could find room in one domain of empty nodes.
func (e *Engine) checkTogether(w *Workload, request *place.Request) error {
	if w.Same == "" {
		return nil
	}
	room, ok := e.placer.Roomiest(request, place.AtBest)
	if !ok {
		return fmt.Errorf("workload %s is to be in one %s and no node is in any: leave that out, or say which nodes are in which", w.ID, w.Same)
	}
	if room.Tasks < w.Tasks {
		return fmt.Errorf("workload %s has %d tasks that are to be in one %s, and %s, which could hold the most, would hold %d of them: ask for fewer tasks or smaller shares, or prefer a %s instead",
			w.ID, w.Tasks, w.Same, room.Domain, room.Tasks, w.Same)
	}
	return nil
}
