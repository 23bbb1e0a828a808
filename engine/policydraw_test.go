package engine

import (
	"fmt"

	"pgregory.net/rapid"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/engine/place"
)

// policy gives some queues at once what queue gives one.
func (g *generator) policy(at At) PolicySet {
	ev := PolicySet{At: at, Policy: Policy{Window: g.pick("window", "", "day", "night"), OneLine: g.int("one line", 0, 1) == 1}}
	for _, name := range rapid.Permutation([]string{"org", "team", "default", "other"}).Draw(g.t, "queues")[:g.int("count", 0, 4)] {
		ev.Policy.Queues = append(ev.Policy.Queues, g.spec(name))
	}
	ev.Policy.Predicted = g.int("predicted", 0, 2) > 0
	ev.Policy.HalfLife = Time(g.int("half-life", 0, 3)) * LeastHalfLife
	if g.int("pools", 0, 1) == 0 {
		ev.Policy.Pools = g.pools()
	}
	if !g.tame && g.int("moves", 0, 1) == 0 {
		ev.Policy.Defragment = &Defragment{
			MovesPerHour: int32(g.int("moves an hour", 1, 4)), MinRun: Time(g.int("least run", 0, 2)) * second,
			MaxLoss: Time(g.int("most loss", 0, 2)) * 60 * second, Free: int32(g.int("enough", 0, 3)),
		}
	}
	if !g.tame {
		best, weighed, devices := place.BestFit(), place.Default(), place.Default()
		devices.Name = "devices"
		for _, f := range []place.Feature{place.Cost, place.Bandwidth, place.Capability, place.DeviceMemory, place.Power, place.Wake, place.Linked, place.SameNUMA, place.Latency} {
			devices.Weights[f] = 50
		}
		apart := place.Default()
		apart.Weights[place.Interference] = 300
		ev.Policy.Placement = rapid.SampledFrom([]*place.Policy{nil, &best, &weighed, &apart, &devices}).Draw(g.t, "placement")
	}
	return ev
}

// pools are one to three, for one or two classes: of a model, a node or the first devices of each.
func (g *generator) pools() (all []Pool) {
	for i := range g.int("how many", 1, 3) {
		classes := rapid.Permutation([]api.Class{api.Training, api.Inference, api.Batch}).Draw(g.t, "classes")
		p := Pool{Name: fmt.Sprint("pool", i), Classes: classes[:g.int("for", 2, 5)/2], Lends: g.int("lends", 0, 2) > 0}
		switch g.int("of", 0, 2) {
		case 0:
			p.Models = []string{g.pick("model", "big", "small")}
		case 1:
			p.Nodes = []string{g.pick("node", "n1", "n2", "n3")}
		case 2:
			p.Last = new(g.int("last", 0, 1))
		}
		all = append(all, p)
	}
	return all
}
