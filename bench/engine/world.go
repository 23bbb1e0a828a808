package main

import (
	"fmt"
	"math/rand/v2"
	"strconv"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/engine"
	"github.com/aliquot-dev/aliquot/engine/place"
)

const (
	gib        = api.Bytes(1) << 30
	perNode    = 8 // devices, where it is not said
	deviceSize = 80 * gib
)

// world is an engine with a fleet of nodes of as many devices each, and a host that carries everything out at once.
type world struct {
	engine  *engine.Engine
	random  *rand.Rand
	nodes   int
	perNode int // devices
	shapes  int
	limits  bool // work has a time limit, of 1 to 11 hours
	now     engine.Time
	next    int
	taken   int64 // milli of compute
	running []running
	placed  int
	refused int
}

// running is a workload that was placed.
type running struct {
	id    string
	taken int64 // milli of compute
}

// newWorld makes an engine with the default weights and an empty fleet of nodes of 8 devices: each third node of one model, the others of another.
func newWorld(nodes, shapes int) *world { return newWorldOf(nodes, perNode, shapes) }

// newWorldOf is the same with so many devices on each node, a power of two up to 16.
func newWorldOf(nodes, perNode, shapes int) *world {
	policy := place.Default()
	x := &world{engine: engine.New(engine.Config{Placement: &policy}), random: rand.New(rand.NewPCG(1, 2)), nodes: nodes, perNode: perNode, shapes: shapes}
	devices := int64(perNode)
	for i := range nodes {
		node := engine.NodeSet{Node: "node" + strconv.Itoa(i), Resources: []engine.Resource{{Name: "cpu", Amount: 16_000 * devices}, {Name: "memory", Amount: devices << 37}, {Name: "slot", Amount: 1}}}
		for k := range perNode {
			node.Devices = append(node.Devices, engine.Device{
				UUID: node.Node + "-" + strconv.Itoa(k), Index: k, Model: [3]string{"a100", "h100", "h100"}[i%3], Memory: deviceSize, Health: api.Healthy,
			})
		}
		x.engine.Step(node)
	}
	return x
}

// compute is what a workload takes in all, in milli.
func compute(w *engine.Workload) int64 {
	return int64(w.Share.Compute.Floor) * int64(w.Devices) * int64(w.Tasks)
}

// full is the compute of the fleet, in milli, times so many percent.
func (x *world) full(percent float64) int64 {
	return int64(percent * float64(x.nodes) * float64(x.perNode) * 10)
}

// work is a workload of one of the shapes, each as likely: of 127, 121 want a part of a device in steps of 5 %, six one whole or
// several; each has its own CPU and memory of the node, each third a floor of device memory that goes with its compute, and each
// seventh one model. No more devices are wanted than a node has.
func (x *world) work() engine.Workload {
	x.next++
	k := (x.random.IntN(x.shapes) + 9) % 127 // so that a single one is half a device
	floor := api.Milli(50 * (1 + k%20))
	w := engine.Workload{
		ID: "w" + strconv.Itoa(x.next), Queue: "default", Tasks: 1, Devices: 1, Class: api.Training,
		Resources: []engine.Resource{{Name: "cpu", Amount: int64(1000 + 97*k)}, {Name: "memory", Amount: int64(1+k/8) << 30}},
	}
	if k%20 == 19 {
		w.Devices = min(1<<(k/20%4), x.perNode)
	}
	w.Share.Compute = api.Compute{Floor: floor, Ceiling: api.WholeDevice}
	if k%3 == 0 {
		memory := api.Amount{Bytes: deviceSize / api.Bytes(api.WholeDevice) * api.Bytes(floor)}
		w.Share.Memory = api.Memory{Floor: memory, Ceiling: memory}
	}
	if k%7 == 0 {
		w.Model = "h100"
	}
	if x.limits {
		w.TimeLimit = engine.Time(1+k%11) * 3_600_000_000
	}
	return w
}

// pin puts a workload on each node of the model a100 that never ends, so that no such node ever has all its devices free.
func (x *world) pin() error {
	for i := 0; i < x.nodes; i += 3 {
		w := engine.Workload{ID: "pin" + strconv.Itoa(i), Queue: "default", Tasks: 1, Devices: 1, Class: api.Inference, Model: "a100"}
		w.Share.Compute = api.Compute{Floor: 50, Ceiling: api.WholeDevice}
		w.Resources = []engine.Resource{{Name: "slot", Amount: 1}}
		if err := x.place(w); err != nil {
			return err
		}
		x.running = x.running[:len(x.running)-1]
	}
	return nil
}

// large is a workload of one of eight shapes that does not fit on a fleet with pins, and would if they ended.
func (x *world) large() engine.Workload {
	x.next++
	w := whole("w"+strconv.Itoa(x.next), "default", 1, x.perNode)
	w.Model = "a100"
	w.Resources = []engine.Resource{{Name: "cpu", Amount: int64(8000 + 1000*x.random.IntN(8))}}
	return w
}

// step gives the engine an event, and it must not answer.
func (x *world) step(event engine.Event) error {
	if got := x.engine.Step(event); len(got) != 0 {
		return fmt.Errorf("%+v is answered with %+v", event, got)
	}
	return nil
}

// started answers a placement as a host does.
func (x *world) started(p engine.Place, w *engine.Workload) error {
	if err := x.step(engine.Done{At: engine.At{At: x.now}, ID: p.ID}); err != nil {
		return err
	}
	for _, t := range p.Tasks {
		if err := x.step(engine.Started{At: engine.At{At: x.now}, ID: w.ID, Task: t.Task}); err != nil {
			return err
		}
	}
	x.placed++
	x.taken += compute(w)
	x.running = append(x.running, running{w.ID, compute(w)})
	return nil
}

// decide is one decision: a workload is submitted and placed, or refused, asked why where that is wanted, and cancelled.
func (x *world) decide(w engine.Workload, ask bool) error {
	actions := x.engine.Step(engine.Submit{At: engine.At{At: x.now}, Workload: w})
	if len(actions) == 0 {
		x.refused++
		if ask {
			if why := x.engine.Why(w.ID); why.Code != engine.WhyNoRoom || why.Message == "" || len(why.Counts) == 0 {
				return fmt.Errorf("workload %s does not start, and why is %+v", w.ID, why)
			}
		}
		return x.step(engine.Cancel{At: engine.At{At: x.now}, ID: w.ID})
	}
	p, ok := actions[0].(engine.Place)
	if !ok || len(actions) != 1 {
		return fmt.Errorf("a submission gives %+v", actions)
	}
	return x.started(p, &w)
}

// end takes any one that runs away and says which.
func (x *world) end() string {
	i, last := x.random.IntN(len(x.running)), len(x.running)-1
	w := x.running[i]
	x.running[i] = x.running[last]
	x.running = x.running[:last]
	x.taken -= w.taken
	return w.id
}

// depart ends any one that runs; nothing waits for its room.
func (x *world) depart() error {
	return x.step(engine.Ended{At: engine.At{At: x.now}, ID: x.end()})
}

// fillTo places work until so many percent are taken.
func (x *world) fillTo(percent float64) error {
	for refused := x.refused; x.taken < x.full(percent); {
		if x.refused > refused+x.nodes*x.perNode {
			return fmt.Errorf("of a fleet of %d nodes %d %% can be taken, not %g %%", x.nodes, x.taken/x.full(1), percent)
		}
		if err := x.decide(x.work(), false); err != nil {
			return err
		}
	}
	return nil
}
