package main

import (
	"strings"
	"testing"
)

func TestParseCalls(t *testing.T) {
	const printed = "a launch: 37.2 ns without the shim, +41.5 ns with the gate open, -0.4 ns ungated (on average 37.5, +44.0, +0.1)\na launch into a stream: +33.1 ns with the gate open\nan allocation with its free: 80.1 ns without the shim, +113.0 ns with it\nmedians\n"
	if got, err := parseCalls(printed); err != nil || got != (callCosts{37.2, 41.5, -0.4, 80.1, 113}) {
		t.Errorf("%+v, %v", got, err)
	}
	for _, printed := range []string{"", "a launch: 37 ns\n", strings.Replace(printed, "+113.0", "x", 1)} {
		if got, err := parseCalls(printed); err == nil {
			t.Errorf("%q is taken for %+v", printed, got)
		}
	}
}
