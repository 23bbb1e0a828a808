package sim

import (
	"math"

	"github.com/aliquot-dev/aliquot/engine"
	"github.com/aliquot-dev/aliquot/engine/fleet"
)

// EnergyResult is what the devices of a run drew. A device draws what it does idle, and of what it draws at its peak beyond that the part that it is
// busy: what jobs hold of it as floors or, where they share devices, what they get of its time. So it is no more than an estimate, and knows
// nothing of what else a machine draws.
type EnergyResult struct {
	All     float64 `json:"kWh"`
	Idle    float64 `json:"idleKWh"`                  // of that, while nothing was on the device that drew it
	Unknown int     `json:"unknownDevices,omitempty"` // of which it is not known what they draw: they count nothing
}

func (e *EnergyResult) figures() []Named {
	return []Named{{"energy", e.All, "kWh"}, {"of that idle", e.Idle, "kWh"}}
}

// drawing is a device that draws power.
type drawing struct {
	fleet.Traits
	there  bool
	grants int
	busy   int64 // thousandths
	draws  int64 // mW
	idle   int64 // of that, with nothing on it
}

// energy is what devices draw in a run.
type energy struct {
	shared  bool                // how busy devices are is told, and not what is held of them
	devices map[string]*drawing // by UUID
	nodes   map[string][]string // the devices that a node has
	held    map[taskOf][]engine.Grant
	draws   []change // in mW
	idle    []change // of that, of devices with nothing on them
}

// taskOf names a task.
type taskOf struct {
	id   string
	task int
}

func newEnergy(shared bool) *energy {
	return &energy{shared: shared, devices: map[string]*drawing{}, nodes: map[string][]string{}, held: map[taskOf][]engine.Grant{}}
}

// event takes note of what the engine is told.
func (e *energy) event(event engine.Event, now engine.Time) {
	switch ev := event.(type) {
	case engine.NodeSet:
		e.gone(ev.Node, now)
		for _, d := range ev.Devices {
			one := e.devices[d.UUID]
			if one == nil {
				one = &drawing{}
				e.devices[d.UUID] = one
			}
			one.there, one.Traits = true, d.Traits
			e.nodes[ev.Node] = append(e.nodes[ev.Node], d.UUID)
			e.update(one, now)
		}
	case engine.NodeGone:
		e.gone(ev.Node, now)
	case engine.Ended:
		of := taskOf{ev.ID, ev.Task}
		e.hold(e.held[of], -1, now)
		delete(e.held, of)
	}
}

func (e *energy) gone(node string, now engine.Time) {
	for _, uuid := range e.nodes[node] {
		e.devices[uuid].there = false
		e.update(e.devices[uuid], now)
	}
	delete(e.nodes, node)
}

// place takes note of tasks that start.
func (e *energy) place(a engine.Place, now engine.Time) {
	for _, t := range a.Tasks {
		e.held[taskOf{a.Workload, t.Task}] = t.Grants
		e.hold(t.Grants, 1, now)
	}
}

func (e *energy) hold(grants []engine.Grant, sign int, now engine.Time) {
	for i := range grants {
		d := e.devices[grants[i].Device]
		d.grants += sign
		if !e.shared {
			d.busy += int64(grants[i].Compute.Floor) * int64(sign)
		}
		e.update(d, now)
	}
}

// busy takes note of how busy a device is that jobs share, in thousandths.
func (e *energy) busy(uuid string, part int64, now engine.Time) {
	d := e.devices[uuid]
	d.busy = part
	e.update(d, now)
}

// update works out what a device draws now, and notes what changed.
func (e *energy) update(d *drawing, now engine.Time) {
	var draws, idle int64
	if d.there && d.Wakes() > 0 {
		draws = int64(d.Idle)*1000 + int64(d.Wakes())*min(1000, d.busy)
	}
	if d.grants == 0 {
		idle = draws
	}
	if draws != d.draws {
		e.draws = append(e.draws, change{at: now, amount: draws - d.draws})
	}
	if idle != d.idle {
		e.idle = append(e.idle, change{at: now, amount: idle - d.idle})
	}
	d.draws, d.idle = draws, idle
}

// result is what was drawn from the first coming until now; nil: of no device it is known what it draws, or the run is a recorded one.
func (e *energy) result(first, now engine.Time) *EnergyResult {
	if e == nil {
		return nil
	}
	out := &EnergyResult{All: kWh(e.draws, first, now), Idle: kWh(e.idle, first, now)}
	for _, d := range e.devices {
		if d.Wakes() == 0 {
			out.Unknown++
		}
	}
	if out.Unknown == len(e.devices) {
		return nil
	}
	return out
}

// kWh is what changes of a draw, in mW, come to.
func kWh(changes []change, first, now engine.Time) float64 {
	var sum float64
	for _, c := range changes {
		sum += float64(c.amount) * seconds(max(0, now-max(c.at, first)))
	}
	return math.Round(sum/3.6e9*1e3) / 1e3
}

// watts is what all devices drew, the mean of each step.
func (e *energy) watts(first, step, span engine.Time, steps int) []float64 {
	series := make([]float64, steps)
	for _, c := range e.draws {
		addFrom(series, max(0, c.at-first), step, float64(c.amount))
	}
	return accumulate(series, step, span, 100_000) // mW as percent of 100 W are W
}
