package engine

import (
	"fmt"
	"testing"

	"github.com/aliquot-dev/aliquot/api"
)

// bench is a fleet of 5,000 nodes with 8 devices each, and work of many shapes for it.
type bench struct {
	b       *testing.B
	e       *Engine
	now     Time
	next    int
	running []string
	random  uint64
	shapes  int
	places  int
}

func newBench(b *testing.B, shapes int) *bench {
	x := &bench{b: b, e: New(Config{}), random: 1, shapes: shapes}
	for i := range 5000 {
		name := fmt.Sprintf("node%04d", i)
		model, size := "h100", 80*gi
		if i%3 == 0 {
			model, size = "a100", 40*gi
		}
		x.e.Step(NodeSet{At{}, name, devices(name, 8, model, size), []Resource{{"cpu", 128_000}, {"memory", 1 << 40}}, nil})
	}
	return x
}

func (x *bench) rand(n int) int {
	x.random = x.random*6364136223846793005 + 1442695040888963407
	return int(x.random>>33) % n
}

// work is a workload of one of the shapes: eighths of a device, a third of them whole, with node resources.
func (x *bench) work() Workload {
	x.next++
	k := x.rand(x.shapes)
	floor := api.Milli(125 * (1 + k%8))
	return Workload{
		ID: fmt.Sprintf("w%d", x.next), Queue: "default", Tasks: 1, Devices: 1, Class: api.Training, TimeLimit: Time(1+k%5) * 3_600_000_000,
		Share: api.Share{
			Compute: api.Compute{Floor: floor, Ceiling: api.WholeDevice},
			Memory:  api.Memory{Floor: api.Amount{Bytes: api.Bytes(1+k/8) * gi}, Ceiling: api.Amount{Bytes: 40 * gi}},
		},
		Resources: []Resource{{"cpu", int64(1000 + k)}},
	}
}

func (x *bench) step(ev Event) {
	actions := x.e.Step(ev)
	for _, a := range actions {
		p, ok := a.(Place)
		if !ok {
			x.b.Fatalf("unexpected %+v", a)
		}
		x.places++
		x.running = append(x.running, p.Workload)
		x.e.Step(Done{At{x.now}, p.ID})
		for _, t := range p.Tasks {
			x.e.Step(Started{At{x.now}, p.Workload, t.Task})
		}
	}
}

func (x *bench) endOne() {
	i := x.rand(len(x.running))
	id := x.running[i]
	x.running[i] = x.running[len(x.running)-1]
	x.running = x.running[:len(x.running)-1]
	x.step(Ended{At{x.now}, id, 0, nil})
}

func (x *bench) report() {
	x.b.ReportMetric(float64(x.places)/x.b.Elapsed().Seconds(), "placed/s")
}

// BenchmarkFill places onto an empty fleet: submit, placed, done, started for each.
func BenchmarkFill(b *testing.B) {
	for _, shapes := range []int{1, 127} {
		b.Run(fmt.Sprintf("shapes=%d", shapes), func(b *testing.B) {
			x := newBench(b, shapes)
			x.places = 0
			for b.Loop() {
				if x.e.line.Len() > 0 { // full: begin anew
					b.StopTimer()
					fresh := newBench(b, shapes)
					fresh.places, fresh.random = x.places, x.random
					x = fresh
					b.StartTimer()
				}
				x.step(Submit{At: At{x.now}, Workload: x.work()})
			}
			x.report()
		})
	}
}

// BenchmarkSteady keeps a fleet at 90 %: one ends, one is submitted and placed.
func BenchmarkSteady(b *testing.B) {
	for _, shapes := range []int{1, 127} {
		b.Run(fmt.Sprintf("shapes=%d", shapes), func(b *testing.B) {
			x := newBench(b, shapes)
			for x.e.line.Len() == 0 {
				x.step(Submit{At: At{x.now}, Workload: x.work()})
			}
			for range len(x.running) / 10 {
				x.endOne()
			}
			x.places = 0
			for b.Loop() {
				x.now += 1000
				x.endOne()
				x.step(Submit{At: At{x.now}, Workload: x.work()})
			}
			x.report()
		})
	}
}

// BenchmarkBacklog keeps 1,000 waiting before a full fleet: one ends, what fits starts with backfill, as many are submitted.
func BenchmarkBacklog(b *testing.B) {
	for _, shapes := range []int{1, 127} {
		b.Run(fmt.Sprintf("shapes=%d", shapes), func(b *testing.B) {
			x := newBench(b, shapes)
			for x.e.line.Len() < 1000 {
				x.step(Submit{At: At{x.now}, Workload: x.work()})
			}
			x.places = 0
			for b.Loop() {
				x.now += 1000
				x.endOne()
				for x.e.line.Len() < 1000 {
					x.step(Submit{At: At{x.now}, Workload: x.work()})
				}
			}
			x.report()
		})
	}
}

// BenchmarkPools is BenchmarkSteady and BenchmarkBacklog where a third of the fleet is a pool for inference and the rest one for training, with
// work of both, and both lend.
func BenchmarkPools(b *testing.B) {
	for name, waiting := range map[string]int{"steady": 0, "backlog": 1000} {
		b.Run(name, func(b *testing.B) {
			x := newBench(b, 127)
			x.e.Step(PolicySet{At{}, Policy{Pools: []Pool{
				{Name: "serving", Models: []string{"a100"}, Classes: []api.Class{api.Inference}, Lends: true},
				{Name: "training", Models: []string{"h100"}, Classes: []api.Class{api.Training}, Lends: true},
			}}})
			submit := func() {
				w := x.work()
				if x.rand(3) == 0 {
					w.Class = api.Inference
				}
				x.step(Submit{At: At{x.now}, Workload: w})
			}
			for x.e.line.Len() <= waiting {
				submit()
			}
			if waiting == 0 {
				for range len(x.running) / 10 {
					x.endOne()
				}
			}
			x.places = 0
			for b.Loop() {
				x.now += 1000
				x.endOne()
				for submit(); x.e.line.Len() < waiting; {
					submit()
				}
			}
			x.report()
		})
	}
}

// BenchmarkGangCannotFit finds that a gang of 1,000 tasks of 8 whole devices does not fit on a fleet that is in use, after one
// workload came and went.
func BenchmarkGangCannotFit(b *testing.B) {
	x := newBench(b, 127)
	for x.e.line.Len() == 0 {
		x.step(Submit{At: At{x.now}, Workload: x.work()})
	}
	for range len(x.running) / 2 {
		x.endOne()
	}
	gang := x.work()
	gang.ID, gang.Tasks, gang.Devices, gang.Share.Compute.Floor, gang.Resources, gang.TimeLimit = "gang", 1000, 8, api.WholeDevice, nil, 0
	for b.Loop() {
		x.e.Step(Submit{At: At{x.now}, Workload: gang})
		if x.e.Phase("gang") != api.Waiting {
			b.Fatal("the gang fits")
		}
		x.e.Step(Cancel{At{x.now}, "gang", ""})
	}
}

// BenchmarkSnapshot writes and restores the state of a full fleet.
func BenchmarkSnapshot(b *testing.B) {
	x := newBench(b, 127)
	for x.e.line.Len() == 0 {
		x.step(Submit{At: At{x.now}, Workload: x.work()})
	}
	b.Run("write", func(b *testing.B) {
		for b.Loop() {
			b.SetBytes(int64(len(x.e.Snapshot())))
		}
	})
	data := x.e.Snapshot()
	b.Run("restore", func(b *testing.B) {
		for b.Loop() {
			if _, err := Restore(data); err != nil {
				b.Fatal(err)
			}
		}
	})
}
