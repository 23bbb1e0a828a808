package main

import (
	"fmt"
	"time"

	"github.com/aliquot-dev/aliquot/api"
)

// scenario is a set of programs that run beside each other on one device.
type scenario struct {
	name    string
	tenants []tenant
	device  string // as `aliquot up --simulate` names it
	first   bool   // one of those that the figures without `_strict` are of
}

// The devices that shares are measured on: changes from one context to another cost nothing there, or 100 µs.
const (
	plainDevice     = "h200x1"
	switchingDevice = "h200x1,switch_ns=100000"
)

// waits says that one of the tenants waits after each launch.
func (s scenario) waits() bool {
	for _, t := range s.tenants {
		if t.waits() {
			return true
		}
	}
	return false
}

// partial says that one of the tenants wants less than there is.
func (s scenario) partial() bool {
	for _, t := range s.tenants {
		if t.demand < api.WholeDevice {
			return true
		}
	}
	return false
}

// Shares for 2, 4 and 8 saturating tenants. Each set has a ceiling that binds, a tenant that may burst to the whole device, and
// floors that together are less than the device, so that floors, ceilings and the division of the rest all matter.
var shares = [][]api.Compute{
	{{Floor: 250, Ceiling: 300}, {Floor: 500, Ceiling: 1000}},
	{{Floor: 400, Ceiling: 1000}, {Floor: 200, Ceiling: 250}, {Floor: 100, Ceiling: 1000}, {Floor: 50, Ceiling: 800}},
	{
		{Floor: 200, Ceiling: 1000},
		{Floor: 150, Ceiling: 180},
		{Floor: 100, Ceiling: 1000},
		{Floor: 100, Ceiling: 500},
		{Floor: 50, Ceiling: 60},
		{Floor: 50, Ceiling: 1000},
		{Floor: 20, Ceiling: 1000},
		{Floor: 30, Ceiling: 1000},
	},
}

// Weights that have nothing to do with the floors.
var weights = []int32{10, 50, 300, 20, 70, 200, 10, 400}

// Kernels of equal length for all tenants, and mixed: neighbours of very different length.
var (
	kernels = []time.Duration{50 * time.Microsecond, 500 * time.Microsecond, 5 * time.Millisecond, 20 * time.Millisecond}
	mixed   = []time.Duration{50 * time.Microsecond, 20 * time.Millisecond, 500 * time.Microsecond, 5 * time.Millisecond}
)

// scenarios are all that shares are measured on, those of one device after the other.
func scenarios() []scenario {
	var all []scenario
	for _, set := range shares {
		all = append(all, everyKernel(set)...)
	}
	all = append(all, particular()...)
	for i := range all {
		all[i].first = true
	}
	for _, set := range shares {
		all = append(all, graphsOf10ms(set))
	}
	all = append(all, weighted(shares[1]), weighted(shares[2]))
	for _, set := range shares {
		all = append(all, halfIdle(set, kernels[1]))
	}
	all = append(all, halfIdle(shares[1], kernels[2]))
	for _, set := range shares {
		all = append(all, oneWaits(set, kernels[1]))
	}
	all = append(all, oneWaits(shares[1], kernels[2]))
	for i := range all {
		all[i].device = plainDevice
	}
	for _, set := range shares {
		for _, s := range append(everyKernel(set), graphsOf10ms(set)) {
			s.name, s.device = s.name+", switches of 100µs", switchingDevice
			all = append(all, s)
		}
	}
	return all
}

// everyKernel is one set of saturating tenants with kernels of every length.
func everyKernel(set []api.Compute) []scenario {
	var all []scenario
	for _, kernel := range kernels {
		all = append(all, saturating(fmt.Sprintf("%d x %v", len(set), kernel), set, func(int) time.Duration { return kernel }))
	}
	return append(all, saturating(fmt.Sprintf("%d x mixed", len(set)), set, func(i int) time.Duration { return mixed[i%len(mixed)] }))
}

// particular are the sets that are there for one reason each.
func particular() []scenario {
	graphs := saturating("4 x 500µs, graphs", shares[1], func(int) time.Duration { return kernels[1] })
	for i := range graphs.tenants {
		graphs.tenants[i].graph = true
	}

	// Ceilings that leave a part of the device idle: nothing but the bucket holds a tenant back.
	capped := saturating("4 x 500µs, ceilings below the device", []api.Compute{
		{Floor: 100, Ceiling: 150}, {Floor: 200, Ceiling: 200}, {Floor: 50, Ceiling: 250}, {Floor: 0, Ceiling: 100},
	}, func(int) time.Duration { return kernels[1] })

	// Owners that want less than their floors: the rest is lent.
	lent := saturating("4 x 500µs, floors partly idle", []api.Compute{
		{Floor: 500, Ceiling: 1000}, {Floor: 200, Ceiling: 400}, {Floor: 100, Ceiling: 1000}, {Floor: 0, Ceiling: 1000},
	}, func(int) time.Duration { return kernels[1] })
	lent.tenants[0].demand = 150
	lent.tenants[1].demand = 100
	lent.tenants[3].weight = 50
	all := []scenario{graphs, capped, lent}

	// Shares whose processes launch beside each other: what they queue together must not last longer than what one may.
	for _, kernel := range []time.Duration{kernels[1], kernels[3]} {
		several := saturating(fmt.Sprintf("2 x 4 processes of %v", kernel), shares[0], func(int) time.Duration { return kernel })
		for i := range several.tenants {
			several.tenants[i].processes = 4
		}
		all = append(all, several)
	}
	return all
}

// graphsOf10ms are saturating tenants whose every launch is a graph of twenty kernels.
func graphsOf10ms(set []api.Compute) scenario {
	s := saturating(fmt.Sprintf("%d x graphs of 10ms", len(set)), set, func(int) time.Duration { return kernels[1] })
	for i := range s.tenants {
		s.tenants[i].graph, s.tenants[i].batch = true, 20
	}
	return s
}

func weighted(set []api.Compute) scenario {
	s := saturating(fmt.Sprintf("%d x %v, weights", len(set), kernels[1]), set, func(int) time.Duration { return kernels[1] })
	for i := range s.tenants {
		s.tenants[i].weight = weights[i]
	}
	return s
}

// halfIdle are tenants of which every other wants half of its floor.
func halfIdle(set []api.Compute, kernel time.Duration) scenario {
	s := saturating(fmt.Sprintf("%d x %v, half wanted", len(set), kernel), set, func(int) time.Duration { return kernel })
	for i := 0; i < len(set); i += 2 {
		s.tenants[i].demand = set[i].Floor / 2
	}
	return s
}

// oneWaits are saturating tenants of which the first waits after each launch.
func oneWaits(set []api.Compute, kernel time.Duration) scenario {
	s := saturating(fmt.Sprintf("%d x %v, one waits after each launch", len(set), kernel), set, func(int) time.Duration { return kernel })
	s.tenants[0].batch = 1
	return s
}

func saturating(name string, set []api.Compute, kernel func(int) time.Duration) scenario {
	s := scenario{name: name}
	for i, compute := range set {
		s.tenants = append(s.tenants, tenant{compute: compute, kernel: kernel(i), demand: api.WholeDevice})
	}
	return s
}

// kernels is how many kernels the tenant launches between two waits.
func (t tenant) kernels() int {
	switch {
	case t.batch > 0:
		return t.batch
	case t.demand < api.WholeDevice:
		return 1 + int(2*time.Millisecond/t.kernel) // asked for evenly
	default:
		return max(2, int(8*time.Millisecond/t.kernel)) // as a training step has, at least two so that the device never runs dry
	}
}

// line is the command line of a tenant: it runs until it is stopped.
func (t tenant) line(trainer string) []string {
	line := []string{
		trainer, "--seconds", "0", "--kernel-us", fmt.Sprint(t.kernel.Microseconds()), "--batch", fmt.Sprint(t.kernels()),
		"--demand", fmt.Sprintf("%g", float64(min(t.demand, api.WholeDevice))/float64(api.WholeDevice)),
	}
	if t.demand < api.WholeDevice {
		line = append(line, "--asked-ms", "100")
	}
	if t.processes > 1 {
		line = append(line, "--processes", fmt.Sprint(t.processes))
	}
	if t.graph {
		line = append(line, "--graph")
	}
	return line
}
