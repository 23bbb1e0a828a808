package place

import (
	"slices"
	"testing"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/engine/fleet"
)

// Of devices that are as good those are taken that are linked, by best fit and by the default weights, in place of the first.
func TestLinkedOfEqualOnes(t *testing.T) {
	for name, c := range map[string]struct {
		links, numa string // of each device, - for none
		taken       []int  // by others, in halves
		ask         int
		share       api.Milli
		want        []int
	}{
		"the linked pair":            {links: "aabb", numa: "----", taken: []int{2}, ask: 2, share: 1000, want: []int{2, 3}},
		"the group that suffices":    {links: "aaabb", numa: "-----", ask: 2, share: 1000, want: []int{3, 4}},
		"a part of the smallest":     {links: "aaaabbb", numa: "-------", ask: 2, share: 1000, want: []int{4, 5}},
		"groups as wholes":           {links: "abbccd", numa: "------", ask: 3, share: 1000, want: []int{0, 1, 2}},
		"one memory node of all":     {links: "aaaa", numa: "0110", ask: 2, share: 1000, want: []int{0, 3}},
		"one memory node, no link":   {links: "----", numa: "0110", ask: 2, share: 1000, want: []int{0, 3}},
		"nothing is near another":    {links: "----", numa: "----", ask: 2, share: 1000, want: []int{0, 1}},
		"what has least left first":  {links: "aabb", numa: "----", taken: []int{1, 0, 0, 1}, ask: 2, share: 500, want: []int{0, 3}},
		"shares on a pair of wholes": {links: "abba", numa: "----", ask: 2, share: 500, want: []int{0, 3}},
		"half taken ones as good":    {links: "abba", numa: "----", taken: []int{1, 1, 1}, ask: 2, share: 500, want: []int{1, 2}},
	} {
		for _, weights := range []*Policy{nil, new(Default())} {
			f := fleet.New()
			var devices []fleet.Device
			label := func(text string, i int) string {
				if text[i] == '-' {
					return ""
				}
				return text[i : i+1]
			}
			for i := range len(c.links) {
				devices = append(devices, fleet.Device{UUID: string(rune('a' + i)), Index: i, Model: "m", Memory: 1 << 30, Health: api.Healthy, Link: label(c.links, i), NUMA: label(c.numa, i)})
			}
			if _, err := f.SetNode("n", devices, nil); err != nil {
				t.Fatal(err)
			}
			n, _ := f.Node("n")
			for i, halves := range c.taken {
				if halves > 0 {
					f.Adjust(f.DevicesOf(n)[i], api.Milli(halves)*500, 0, 1)
				}
			}
			p := New(f)
			p.ChangePolicy(weights)
			spots, ok := p.Place(&Request{Compute: c.share, Devices: c.ask, Tasks: 1})
			var got []int
			if ok {
				for _, d := range spots[0].Devices {
					got = append(got, f.Device(d).Index)
				}
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("%s, %v: devices %v, want %v", name, weights, got, c.want)
			}
		}
	}
}
