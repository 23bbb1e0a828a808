package judge

import (
	"fmt"
	"time"

	"github.com/aliquot-dev/aliquot/api"
)

// Set is programs that run beside each other on one device.
type Set struct {
	Name    string
	Tenants []Tenant
}

// Waits says that one of the tenants waits after each launch.
func (s Set) Waits() bool {
	for _, t := range s.Tenants {
		if t.Waits() {
			return true
		}
	}
	return false
}

// Partial says that one of the tenants wants less than there is.
func (s Set) Partial() bool {
	for _, t := range s.Tenants {
		if t.Demand < api.WholeDevice {
			return true
		}
	}
	return false
}

// Shares are those of 2, 4 and 8 saturating tenants. Each has a ceiling that binds, a tenant that may burst to the whole device, and
// floors that together are less than the device, so that floors, ceilings and the division of the rest all matter.
var Shares = [][]api.Compute{
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

// weights have nothing to do with the floors.
var weights = []int32{10, 50, 300, 20, 70, 200, 10, 400}

// Kernels of equal length for all tenants, and mixed: neighbours of very different length.
var (
	Kernels = []time.Duration{50 * time.Microsecond, 500 * time.Microsecond, 5 * time.Millisecond, 20 * time.Millisecond}
	mixed   = []time.Duration{50 * time.Microsecond, 20 * time.Millisecond, 500 * time.Microsecond, 5 * time.Millisecond}
)

// Saturating are tenants with these shares that want all there is.
func Saturating(name string, shares []api.Compute, kernel func(int) time.Duration) Set {
	s := Set{Name: name}
	for i, compute := range shares {
		s.Tenants = append(s.Tenants, Tenant{Compute: compute, Kernel: kernel(i), Demand: api.WholeDevice})
	}
	return s
}

// Equal are saturating tenants with kernels of one length.
func Equal(shares []api.Compute, kernel time.Duration) Set {
	return Saturating(fmt.Sprintf("%d x %v", len(shares), kernel), shares, func(int) time.Duration { return kernel })
}

// Mixed are saturating tenants whose neighbours have kernels of very different length.
func Mixed(shares []api.Compute) Set {
	return Saturating(fmt.Sprintf("%d x mixed", len(shares)), shares, func(i int) time.Duration { return mixed[i%len(mixed)] })
}

// Capped are tenants with ceilings that leave a part of the device idle: nothing but the bucket holds one back.
func Capped() Set {
	s := Equal([]api.Compute{{Floor: 100, Ceiling: 150}, {Floor: 200, Ceiling: 200}, {Floor: 50, Ceiling: 250}, {Floor: 0, Ceiling: 100}}, Kernels[1])
	s.Name += ", ceilings below the device"
	return s
}

// GraphsOf10ms are saturating tenants whose every launch is a graph of twenty kernels.
func GraphsOf10ms(shares []api.Compute) Set {
	s := Equal(shares, Kernels[1])
	s.Name = fmt.Sprintf("%d x graphs of 10ms", len(shares))
	for i := range s.Tenants {
		s.Tenants[i].Graph, s.Tenants[i].Batch = true, 20
	}
	return s
}

// Weighted are saturating tenants with weights that have nothing to do with their floors.
func Weighted(shares []api.Compute) Set {
	s := Equal(shares, Kernels[1])
	s.Name += ", weights"
	for i := range s.Tenants {
		s.Tenants[i].Weight = weights[i]
	}
	return s
}

// HalfIdle are tenants of which every other wants half of its floor.
func HalfIdle(shares []api.Compute, kernel time.Duration) Set {
	s := Equal(shares, kernel)
	s.Name += ", half wanted"
	for i := 0; i < len(shares); i += 2 {
		s.Tenants[i].Demand = shares[i].Floor / 2
	}
	return s
}

// OneWaits are saturating tenants of which the first waits after each launch.
func OneWaits(shares []api.Compute, kernel time.Duration) Set {
	s := Equal(shares, kernel)
	s.Name += ", one waits after each launch"
	s.Tenants[0].Batch = 1
	return s
}

// Kernels is how many kernels the tenant launches between two waits.
func (t Tenant) Kernels() int {
	switch {
	case t.Batch > 0:
		return t.Batch
	case t.Demand < api.WholeDevice:
		return 1 + int(2*time.Millisecond/t.Kernel) // asked for evenly
	default:
		return max(2, int(8*time.Millisecond/t.Kernel)) // as a training step has, at least two so that the device never runs dry
	}
}

// Line is the command line of a tenant as a program of examples/trainer: it runs until it is stopped.
func (t Tenant) Line(trainer string) []string {
	line := []string{
		trainer, "--seconds", "0", "--kernel-us", fmt.Sprint(t.Kernel.Microseconds()), "--batch", fmt.Sprint(t.Kernels()),
		"--demand", fmt.Sprintf("%g", float64(min(t.Demand, api.WholeDevice))/float64(api.WholeDevice)),
	}
	if t.Demand < api.WholeDevice {
		line = append(line, "--asked-ms", "100")
	}
	if t.Processes > 1 {
		line = append(line, "--processes", fmt.Sprint(t.Processes))
	}
	if t.Graph {
		line = append(line, "--graph")
	}
	return line
}
