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

// Kernels of equal length for all tenants, and mixed: neighbours of very different length.
var (
	kernels = []time.Duration{50 * time.Microsecond, 500 * time.Microsecond, 5 * time.Millisecond, 20 * time.Millisecond}
	mixed   = []time.Duration{50 * time.Microsecond, 20 * time.Millisecond, 500 * time.Microsecond, 5 * time.Millisecond}
)

// scenarios are all that shares are measured on.
func scenarios() []scenario {
	var all []scenario
	for _, set := range shares {
		for _, kernel := range kernels {
			all = append(all, saturating(fmt.Sprintf("%d x %v", len(set), kernel), set, func(int) time.Duration { return kernel }))
		}
		all = append(all, saturating(fmt.Sprintf("%d x mixed", len(set)), set, func(i int) time.Duration { return mixed[i%len(mixed)] }))
	}

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
	all = append(all, graphs, capped, lent)

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

func saturating(name string, set []api.Compute, kernel func(int) time.Duration) scenario {
	s := scenario{name: name}
	for i, compute := range set {
		s.tenants = append(s.tenants, tenant{compute: compute, kernel: kernel(i), demand: api.WholeDevice})
	}
	return s
}

// line is the command line of a tenant: it runs until it is stopped.
func (t tenant) line(trainer string) []string {
	// About 8 ms of work between two waits, as a training step has, at least two kernels so that the device never runs dry.
	batch := max(2, int(8*time.Millisecond/t.kernel))
	if t.demand < api.WholeDevice {
		batch = 1 + int(2*time.Millisecond/t.kernel) // asked for evenly
	}
	line := []string{
		trainer, "--seconds", "0", "--kernel-us", fmt.Sprint(t.kernel.Microseconds()), "--batch", fmt.Sprint(batch),
		"--demand", fmt.Sprintf("%g", float64(min(t.demand, api.WholeDevice))/float64(api.WholeDevice)),
	}
	if t.processes > 1 {
		line = append(line, "--processes", fmt.Sprint(t.processes))
	}
	if t.graph {
		line = append(line, "--graph")
	}
	return line
}
