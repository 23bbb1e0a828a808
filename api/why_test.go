package api

import (
	"slices"
	"testing"
)

func TestCountTexts(t *testing.T) {
	nodes := func(classes ...string) (all []WhyNodes) {
		for i, class := range classes {
			all = append(all, WhyNodes{Class: class, Devices: 10 - i})
		}
		return all
	}
	compute := func(classes ...string) WhyCount {
		return WhyCount{Code: "compute", Message: "too little compute", Nodes: nodes(classes...)}
	}
	down := WhyCount{Code: "down", Message: "down", Devices: 10, Nodes: nodes("h100 x8")}
	for _, c := range []struct {
		name   string
		counts []WhyCount
		want   []string
	}{
		{"nothing", nil, nil},
		{"one class says nothing of it", []WhyCount{compute("h100 x8"), down}, []string{"too little compute", "down"}},
		{"of several each reason says which", []WhyCount{compute("a100 x4"), down}, []string{"too little compute (10 on a100 x4)", "down (10 on h100 x8)"}},
		{"of one reason", []WhyCount{compute("h100 x8", "a100 x4")}, []string{"too little compute (10 on h100 x8, 9 on a100 x4)"}},
		{"as many as are named", []WhyCount{compute("a", "b", "c", "d")}, []string{"too little compute (10 on a, 9 on b, 8 on c, 7 on d)"}},
		{"more", []WhyCount{compute("a", "b", "c", "d", "e")}, []string{"too little compute (10 on a, 9 on b, 8 on c, 13 on nodes of 2 other classes)"}},
		{"of a server that does not say", []WhyCount{{Code: "down", Message: "down", Devices: 3}, down, compute("a")}, []string{"down", "down (10 on h100 x8)", "too little compute (10 on a)"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := CountTexts(c.counts); !slices.Equal(got, c.want) {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}
