package engine

import (
	"fmt"
	"testing"

	"github.com/aliquot-dev/aliquot/engine/fleet"
	"github.com/aliquot-dev/aliquot/engine/place"
)

// BenchmarkTogetherCannotFit is a gang of 512 whole devices that is to be in one rack, on 5,000 nodes of eight devices in racks of 100: each has room for
// 800, and every other device is taken, so that none has room for more than 400.
func BenchmarkTogetherCannotFit(b *testing.B) {
	e := New(Config{})
	for i := range 5000 {
		name := fmt.Sprintf("node-%04d", i)
		e.Step(NodeSet{At{}, name, devices(name, 8, "h100", 80*gi), nil, []fleet.Domain{{Level: "rack", Name: fmt.Sprintf("rack-%02d", i/100)}}})
		busy := wholes("busy-"+name, 1, 0)
		busy.Devices, busy.Feasibility = 4, name
		e.Step(Feasibility{Class: name, Allowed: []string{name}})
		e.Step(Submit{Workload: busy})
	}
	gang := wholes("gang", 512, 0)
	gang.Same = "rack"
	if actions := e.Step(Submit{Workload: gang}); len(actions) != 0 {
		b.Fatalf("it starts: %s", show(actions))
	}
	b.Run("anew", func(b *testing.B) { // for a shape of which nothing is known
		for b.Loop() {
			request := *e.requestOfGang(gang)
			if _, ok := e.placer.Place(&request); ok {
				b.Fatal("it fits")
			}
		}
	})
	b.Run("again", func(b *testing.B) { // after one node changed
		request, device := e.requestOfGang(gang), e.fleet.DevicesOf(0)[7]
		for b.Loop() {
			mark := e.fleet.Begin()
			e.fleet.Adjust(device, 500, 0, 1)
			if _, ok := e.placer.Place(request); ok {
				b.Fatal("it fits")
			}
			e.fleet.Rollback(mark)
		}
	})
}

func (e *Engine) requestOfGang(w Workload) *place.Request {
	request := e.requestOf(&w)
	return &request
}

// BenchmarkRoomTogether is whether it is of use to make room on one of 5,000 nodes for a gang of 64 that lacks CPU on all.
func BenchmarkRoomTogether(b *testing.B) {
	x := newBench(b, 127)
	var openings []Opening
	for n := range x.e.fleet.Nodes {
		openings = append(openings, Opening{Node: x.e.fleet.NodeName(n), Tasks: []int{64}, Freed: []Resource{{"cpu", 8000}}})
	}
	gang := x.work()
	gang.ID, gang.Tasks, gang.Resources = "gang", 64, []Resource{{"cpu", 132_000}}
	x.e.Step(Submit{At: At{x.now}, Workload: gang})
	for _, n := range []int{8, 5000} {
		b.Run(fmt.Sprintf("openings=%d", n), func(b *testing.B) {
			for b.Loop() {
				if nodes := x.e.RoomTogether("gang", openings[:n]); (nodes != nil) != (n > 8) {
					b.Fatalf("on %d nodes", len(nodes))
				}
			}
		})
	}
}
