package sim

import (
	"math"
	"slices"
	"strings"
	"testing"
)

// What devices draw by hand: a T4 10 W idle and 70 W at its peak, an L4 12 W and 72 W.
func TestEnergyByHand(t *testing.T) {
	for name, c := range map[string]struct {
		lines     []string
		want      EnergyResult
		from, end float64 // W
	}{
		"one of two devices, half of it, for half of the time": {
			lines: []string{"nodes 1 devices=2 model=T4", "job a run=10h gpu=0.5", "job b run=20h gpu=0..1"},
			want:  EnergyResult{All: 10*40 + 10*10 + 20*10, Idle: 20 * 10}, // b is on the device of a, and there when a is over
			from:  50, end: 20,
		},
		"a gang, and what is not known": {
			lines: []string{"nodes 1 devices=1 model=L4", "nodes 1 devices=1 model=T4", "nodes 1 devices=1 model=other", "job a run=10h tasks=3"},
			want:  EnergyResult{All: 10 * (72 + 70), Unknown: 1},
			from:  142, end: 142,
		},
		"a node that fails draws nothing": {
			lines: []string{"nodes 2 devices=1 model=T4", "job a run=10h", "job b run=10h", "fail node-00001 at=5h for=5h"},
			want:  EnergyResult{All: 5*140 + 5*70 + 5*(10+70), Idle: 5 * 10},
			from:  140, end: 80,
		},
		"replicas that come and go": { // it has all four at once
			lines: []string{"nodes 1 devices=4 model=T4", "job a run=10h tasks=1..4 gpu=1"},
			want:  EnergyResult{All: 2.5 * 280},
			from:  280, end: 280,
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := runJobs(t, few(t, c.lines...), Backfill)
			c.want.All, c.want.Idle = c.want.All/1000, c.want.Idle/1000
			if r.Energy == nil || *r.Energy != c.want {
				t.Fatalf("the energy is %+v, want %+v", r.Energy, c.want)
			}
			if w := r.Plots.Watts; len(w) != len(r.Plots.Allocated) || w[0] != c.from || w[len(w)-1] != c.end {
				t.Errorf("the draw goes from %v to %v W in %d steps, want %v to %v", w[0], w[len(w)-1], len(w), c.from, c.end)
			}
		})
	}
	if r := runJobs(t, few(t, "nodes 1", "job a run=1h"), Backfill); r.Energy != nil || r.Plots.Watts != nil {
		t.Errorf("of devices of no known model %+v is known", r.Energy)
	}
}

// On shared devices the energy is by how busy they are, and not by what is held of them.
func TestEnergyOfSharedDevices(t *testing.T) {
	trace := few(t, "nodes 1 devices=1 model=T4", "job a run=100h gpu=0.5..1 busy=0.25", "job b run=100h gpu=0.5..1 busy=0.25")
	r := runShared(t, trace, Sharing{}, 0)
	if want := (EnergyResult{All: 100 * (10 + 60*0.5) / 1000}); r.Energy == nil || *r.Energy != want {
		t.Errorf("the energy is %+v, want %+v", r.Energy, want)
	}
}

// The steps add up to the whole, on a run in which much comes and goes.
func TestEnergyAddsUp(t *testing.T) {
	trace := GenerateJobs(4, 0.5, 3)
	for i := range trace.Nodes {
		for k := range trace.Nodes[i].Devices {
			trace.Nodes[i].Devices[k].Traits.Idle, trace.Nodes[i].Devices[k].Traits.Peak = 50, 400
		}
	}
	r := runJobs(t, trace, Backfill)
	var sum, last float64
	for i, w := range r.Plots.Watts {
		last = math.Min(r.Plots.Step, r.Makespan-float64(i)*r.Plots.Step)
		sum += w * last / 3.6e6
	}
	if math.Abs(sum-r.Energy.All) > 0.01 {
		t.Errorf("the steps add up to %v kWh, the whole is %v", sum, r.Energy.All)
	}
	if least, most := 32*50*r.Makespan/3.6e6, 32*400*r.Makespan/3.6e6; r.Energy.All < least || r.Energy.All > most || r.Energy.Idle > least {
		t.Errorf("%+v: it is between %v and %v", r.Energy, least, most)
	}
	// All jobs want whole devices: so much is busy whatever goes where.
	want := 32*50*r.Makespan/3.6e6 + 350*r.Utilisation/100*32*r.Makespan/3.6e6
	if math.Abs(r.Energy.All-want) > want/1000 {
		t.Errorf("%v kWh are drawn, by the utilisation of %v %% it is %v", r.Energy.All, r.Utilisation, want)
	}
	if !slices.ContainsFunc(r.Figures(), func(n Named) bool { return n.Name == "energy" && n.Value == r.Energy.All && n.Unit == "kWh" }) {
		t.Errorf("the figures are %+v", r.Figures())
	}
}

// A report draws the power of those runs of which it is known, and says nothing of it where it is of none.
func TestReportOfPower(t *testing.T) {
	known := runJobs(t, few(t, "nodes 1 devices=8 model=H100", "job a run=100s devices=8"), Backfill)
	other := runJobs(t, few(t, "nodes 1 devices=8", "job a run=100s devices=8"), Backfill)
	page := (&File{Trace: "few", Jobs: []*JobResult{known, other}}).html()
	for _, want := range []string{"<h2>Power</h2>", "drawn, kW", "<td>of that idle</td>"} {
		if strings.Count(page, want) != 1 {
			t.Errorf("the report has %q %d times, want it once", want, strings.Count(page, want))
		}
	}
	if strings.Contains((&File{Trace: "few", Jobs: []*JobResult{other}}).html(), "Power") {
		t.Error("a report of devices that nobody knows says something of their power")
	}
}
