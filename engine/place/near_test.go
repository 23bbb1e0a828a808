package place

import (
	"fmt"
	"math/bits"
	"testing"

	"pgregory.net/rapid"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/engine/fleet"
)

// TestMostPairsAreLinked holds the devices that are chosen on a node against every choice there is: where links alone count, as many pairs are
// linked as can be.
func TestMostPairsAreLinked(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := fleet.New()
		n := rapid.IntRange(2, 10).Draw(t, "devices")
		var devices []fleet.Device
		for k := range n {
			link := rapid.SampledFrom([]string{"", "a", "b", "c"}).Draw(t, "link")
			devices = append(devices, fleet.Device{UUID: fmt.Sprint(k), Index: k, Model: "m", Memory: 8 * gi, Health: api.Healthy, Link: link})
		}
		if _, err := f.SetNode("n", devices, nil); err != nil {
			t.Fatal(err)
		}
		var busy int
		for k, d := range f.DevicesOf(0) {
			if rapid.IntRange(0, 3).Draw(t, "taken") == 0 {
				f.Adjust(d, api.WholeDevice, 0, 1)
				busy |= 1 << k
			}
		}
		pairs := func(set int) (linked int) {
			for i := range n {
				for k := range i {
					if set>>i&1 == 1 && set>>k&1 == 1 && devices[i].Link != "" && devices[i].Link == devices[k].Link {
						linked++
					}
				}
			}
			return linked
		}
		want, most := rapid.IntRange(1, n).Draw(t, "wanted"), -1
		for set := range 1 << n {
			if set&busy == 0 && bits.OnesCount(uint(set)) == want {
				most = max(most, pairs(set))
			}
		}
		policy := Policy{Name: "linked", Weights: Weights{Linked: 1000}}
		p := New(f)
		p.UsePolicy(&policy)
		spots, ok := p.Place(&Request{Compute: api.WholeDevice, Devices: want, Tasks: 1})
		if ok != (most >= 0) {
			t.Fatalf("%d of %d devices are found: %v", want, n, ok)
		}
		if !ok {
			return
		}
		got := 0
		for _, d := range spots[0].Devices {
			got |= 1 << f.Device(d).Index
		}
		if pairs(got) != most {
			t.Fatalf("devices %0*b of %+v: %d pairs are linked, and %d can be", n, got, devices, pairs(got), most)
		}
	})
}

// A group of linked devices that suffices is taken whole, before a part of a larger one.
func TestLargerGroupsStayWhole(t *testing.T) {
	f := fleet.New()
	var devices []fleet.Device
	for k, link := range []string{"four", "four", "four", "four", "", "two", "two"} {
		devices = append(devices, fleet.Device{UUID: fmt.Sprint(k), Index: k, Model: "m", Memory: 8 * gi, Health: api.Healthy, Link: link})
	}
	if _, err := f.SetNode("n", devices, nil); err != nil {
		t.Fatal(err)
	}
	policy := Policy{Name: "linked", Weights: Weights{Linked: 1}}
	p := New(f)
	p.UsePolicy(&policy)
	for _, one := range []struct {
		devices int
		want    string
	}{{2, "[5 6]"}, {3, "[0 1 2]"}, {2, "[3 4]"}} {
		spots, ok := p.Place(&Request{Compute: api.WholeDevice, Devices: one.devices, Tasks: 1})
		var got []int
		for _, s := range spots {
			for _, d := range s.Devices {
				got = append(got, f.Device(d).Index)
			}
		}
		if !ok || fmt.Sprint(got) != one.want {
			t.Errorf("%d devices: %v, want %s", one.devices, got, one.want)
		}
	}
}
