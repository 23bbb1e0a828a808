package main

import (
	"fmt"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/bench/judge"
)

// scenario is a set of programs and the device that they share.
type scenario struct {
	judge.Set
	device string // as `aliquot up --simulate` names it
	first  bool   // one of those that the figures without `_strict` are of
}

// The devices that shares are measured on: changes from one context to another cost nothing there, or 100 µs.
const (
	plainDevice     = "h200x1"
	switchingDevice = "h200x1,switch_ns=100000"
)

// scenarios are all that shares are measured on, those of one device after the other.
func scenarios() []scenario {
	var first, more, switching []judge.Set
	for _, set := range judge.Shares {
		first = append(first, everyKernel(set)...)
	}
	first = append(first, particular()...)
	for _, set := range judge.Shares {
		more = append(more, judge.GraphsOf10ms(set))
	}
	four, eight := judge.Shares[1], judge.Shares[2]
	more = append(more, judge.Weighted(four), judge.Weighted(eight))
	for _, set := range judge.Shares {
		more = append(more, judge.HalfIdle(set, judge.Kernels[1]))
	}
	more = append(more, judge.HalfIdle(four, judge.Kernels[2]))
	for _, set := range judge.Shares {
		more = append(more, judge.OneWaits(set, judge.Kernels[1]))
	}
	more = append(more, judge.OneWaits(four, judge.Kernels[2]))
	for _, set := range judge.Shares {
		for _, s := range append(everyKernel(set), judge.GraphsOf10ms(set)) {
			s.Name += ", switches of 100µs"
			switching = append(switching, s)
		}
	}
	var all []scenario
	for _, s := range first {
		all = append(all, scenario{s, plainDevice, true})
	}
	for _, s := range more {
		all = append(all, scenario{s, plainDevice, false})
	}
	for _, s := range switching {
		all = append(all, scenario{s, switchingDevice, false})
	}
	return all
}

// everyKernel is one set of saturating tenants with kernels of every length.
func everyKernel(set []api.Compute) []judge.Set {
	var all []judge.Set
	for _, kernel := range judge.Kernels {
		all = append(all, judge.Equal(set, kernel))
	}
	return append(all, judge.Mixed(set))
}

// particular are the sets that are there for one reason each.
func particular() []judge.Set {
	graphs := judge.Equal(judge.Shares[1], judge.Kernels[1])
	graphs.Name += ", graphs"
	for i := range graphs.Tenants {
		graphs.Tenants[i].Graph = true
	}

	// Owners that want less than their floors: the rest is lent.
	lent := judge.Equal([]api.Compute{
		{Floor: 500, Ceiling: 1000}, {Floor: 200, Ceiling: 400}, {Floor: 100, Ceiling: 1000}, {Floor: 0, Ceiling: 1000},
	}, judge.Kernels[1])
	lent.Name += ", floors partly idle"
	lent.Tenants[0].Demand = 150
	lent.Tenants[1].Demand = 100
	lent.Tenants[3].Weight = 50
	all := []judge.Set{graphs, judge.Capped(), lent}

	// Shares whose processes launch beside each other: what they queue together must not last longer than what one may.
	for _, kernel := range []int{1, 3} {
		several := judge.Equal(judge.Shares[0], judge.Kernels[kernel])
		several.Name = fmt.Sprintf("2 x 4 processes of %v", judge.Kernels[kernel])
		for i := range several.Tenants {
			several.Tenants[i].Processes = 4
		}
		all = append(all, several)
	}
	return all
}
