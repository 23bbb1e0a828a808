package engine

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/engine/fleet"
)

func validUsage(ev Usage) error {
	for _, g := range ev.Grants {
		if g.Memory < 0 || g.Memory > maxMemory {
			return fmt.Errorf("grant %s cannot hold %d bytes of memory: it holds 0 to %s", g.UID, int64(g.Memory), maxMemory)
		}
	}
	return nil
}

// usage books what grants hold above their floors. What grew may let work start, too: the first in line may have to wait for longer.
func (e *Engine) usage(ev Usage) bool {
	if err := validUsage(ev); err != nil {
		return e.reject("", "invalid", "%v", err)
	}
	changed := false
	for _, u := range ev.Grants {
		g := e.grantOf(u.UID)
		if g == nil {
			continue
		}
		before := g.taken()
		if e.ahead != nil {
			e.ahead.using(g)
		}
		e.countAbove(g, -1)
		g.used = u.Memory
		e.countAbove(g, 1)
		if more := g.taken() - before; more != 0 {
			e.fleet.Adjust(g.device, 0, more, 0)
			if e.ahead != nil && more < 0 {
				e.fleet.Doubt() // what comes free in a look ahead is looked at there
			}
			changed = true
		}
	}
	return changed
}

// countAbove enters a grant among those that hold memory above their floors, if it does, or takes it out.
func (e *Engine) countAbove(g *grant, by int) {
	if g.above() == 0 {
		return
	}
	if e.above[g.device] += by; e.above[g.device] == 0 {
		delete(e.above, g.device)
	}
}

// Above is memory that a workload holds above its floors.
type Above struct {
	ID     string
	Memory api.Bytes
}

// aboveOn adds up what workloads hold above their floors on a device, in any order.
func (e *Engine) aboveOn(d fleet.DeviceID, sum []Above) []Above {
	if e.above[d] == 0 {
		return sum
	}
	for _, t := range e.held.on(d) {
		for i := range t.grants {
			if g := &t.grants[i]; g.device == d && g.above() > 0 {
				sum = addAbove(sum, Above{t.w.ID, g.above()})
			}
		}
	}
	return sum
}

func addAbove(sum []Above, more Above) []Above {
	for i := range sum {
		if sum[i].ID == more.ID {
			sum[i].Memory += more.Memory
			return sum
		}
	}
	return append(sum, more)
}

// sortAbove puts those first that hold most.
func sortAbove(sum []Above) []Above {
	slices.SortFunc(sum, func(a, b Above) int { return cmp.Or(cmp.Compare(b.Memory, a.Memory), cmp.Compare(a.ID, b.ID)) })
	return sum
}

// sumAbove is all that is held above floors on a device.
func (e *Engine) sumAbove(d fleet.DeviceID) (sum api.Bytes) {
	for _, a := range e.aboveOn(d, nil) {
		sum += a.Memory
	}
	return sum
}

// withoutAbove gives back all that is held above floors, for a look inside a mark.
func (e *Engine) withoutAbove() {
	for d := range e.above { // in any order: they are different devices
		e.fleet.Adjust(d, 0, -e.sumAbove(d), 0)
	}
}
