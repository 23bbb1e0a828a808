package main

import (
	"fmt"
	"strconv"
	"time"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/bench/report"
	"github.com/aliquot-dev/aliquot/engine"
	"github.com/aliquot-dev/aliquot/engine/place"
)

// The fleet and the work that speed is measured with.
const (
	speedNodes  = 5000
	speedShapes = 127
	speedFrom   = 60 // percent of the fleet taken when the measurement begins
	speedTo     = 95 // and what it does not pass
	speedSteps  = 30_000
)

// speed measures decisions: each is a workload submitted, and placed (with the host's Done and Started) or refused, asked why and
// cancelled. Of the fleet 60 to 95 % are taken; beyond that, and with each fifth decision, workloads end. One thread decides.
func (b *bench) speed() error {
	policy := place.Default()
	x := &speedRun{engine: engine.New(engine.Config{Placement: &policy}), random: 1}
	for i := range speedNodes {
		node := engine.NodeSet{Node: "node" + strconv.Itoa(i), Resources: []engine.Resource{{Name: "cpu", Amount: 128_000}, {Name: "memory", Amount: 1 << 40}}}
		for k := range 8 {
			node.Devices = append(node.Devices, engine.Device{
				UUID: node.Node + "-" + strconv.Itoa(k), Index: k, Model: [3]string{"a100", "h100", "h100"}[i%3], Memory: 80 << 30, Health: api.Healthy,
			})
		}
		x.engine.Step(node)
	}
	for x.taken < speedNodes*8*1000*speedFrom/100 {
		if err := x.decide(); err != nil {
			return err
		}
	}
	for range speedSteps / 4 { // so that every shape is known
		if err := x.turn(); err != nil {
			return err
		}
	}
	placed, refused := x.placed, x.refused
	start := time.Now()
	for range speedSteps {
		if err := x.turn(); err != nil {
			return err
		}
	}
	took := time.Since(start).Seconds()
	value := speedSteps / took
	b.Add(report.Metric{
		Metric: "decisions_per_second", Value: value, Unit: "1/s", Goal: "≥ 50000", OK: value >= 50_000,
	})
	b.Add(report.Metric{Metric: "decisions_per_second/placed", Value: float64(x.placed-placed) * 100 / speedSteps, Unit: "%", OK: true})
	b.Add(report.Metric{Metric: "decisions_per_second/refused", Value: float64(x.refused-refused) * 100 / speedSteps, Unit: "%", OK: true})
	return nil
}

type speedRun struct {
	engine          *engine.Engine
	random          uint64
	next            int
	taken           int64
	running         []engine.Workload
	placed, refused int
}

func (x *speedRun) draw(n int) int {
	x.random = x.random*6364136223846793005 + 1442695040888963407
	return int(x.random>>33) % n
}

// turn is one decision, and the ends that keep the fleet between its bounds.
func (x *speedRun) turn() error {
	const all = int64(speedNodes) * 8 * 1000
	for x.taken > all*speedTo/100 || x.taken > all*speedFrom/100 && x.draw(5) == 0 {
		i := x.draw(len(x.running))
		w := x.running[i]
		x.running[i] = x.running[len(x.running)-1]
		x.running = x.running[:len(x.running)-1]
		x.taken -= compute(&w)
		if got := x.engine.Step(engine.Ended{ID: w.ID}); len(got) != 0 {
			return fmt.Errorf("the end of %s gives %+v", w.ID, got)
		}
	}
	return x.decide()
}

func compute(w *engine.Workload) int64 { return int64(w.Share.Compute.Floor) * int64(w.Devices) }

// work is a workload of one of the shapes: parts of devices, whole ones, a few that want several.
func (x *speedRun) work() engine.Workload {
	x.next++
	k := x.draw(speedShapes)
	w := engine.Workload{ID: "w" + strconv.Itoa(x.next), Queue: "default", Tasks: 1, Devices: 1, Class: api.Training}
	floor := api.Milli(50 * (1 + k%20))
	if k%20 == 19 {
		w.Devices = 1 << (k / 20 % 4)
	}
	w.Share.Compute = api.Compute{Floor: floor, Ceiling: api.WholeDevice}
	w.Resources = []engine.Resource{{Name: "cpu", Amount: int64(1000 + 97*k)}, {Name: "memory", Amount: int64(1+k/8) << 30}}
	return w
}

func (x *speedRun) decide() error {
	w := x.work()
	actions := x.engine.Step(engine.Submit{Workload: w})
	if len(actions) == 0 {
		x.refused++
		if why := x.engine.Why(w.ID); why.Message == "" {
			return fmt.Errorf("workload %s is refused without a reason", w.ID)
		}
		x.engine.Step(engine.Cancel{ID: w.ID})
		return nil
	}
	p, ok := actions[0].(engine.Place)
	if !ok || len(actions) != 1 {
		return fmt.Errorf("a submission gives %+v", actions)
	}
	x.placed++
	x.taken += compute(&w)
	x.running = append(x.running, w)
	x.engine.Step(engine.Done{ID: p.ID})
	x.engine.Step(engine.Started{ID: w.ID})
	return nil
}
