package judge

import (
	"fmt"
	"strings"
)

// Served is what examples/inference says that it did.
type Served struct {
	Requests int
	P50, P99 float64 // ms, from when a request was due
}

// ParseServed reads the line that the server prints in the end. No request is an error.
func ParseServed(printed string) (s Served, err error) {
	fields := strings.Fields(printed)
	find := func(name string, offset int, to any) {
		for i, field := range fields {
			if at := i + offset; field == name && at >= 0 && at < len(fields) {
				if _, bad := fmt.Sscan(fields[at], to); bad == nil {
					return
				}
			}
		}
		err = fmt.Errorf("the inference server printed %q, without %s", printed, name)
	}
	find("requests", -1, &s.Requests)
	find("p50", 1, &s.P50)
	find("p99", 1, &s.P99)
	if err == nil && (s.Requests == 0 || s.P99 <= 0) {
		err = fmt.Errorf("the inference server printed %q: no request was answered", printed)
	}
	return s, err
}

// Racers is how many processes race for memory.
const Racers = 8

// Raced is what the racer says that it did.
type Raced struct {
	Tries, Refused int
	Most           int64 // bytes of pieces that all held together at once, at least: each is counted only while it is surely held
}

// ParseRaced finds the line that the racer prints in the end.
func ParseRaced(printed string) (did Raced, err error) {
	for line := range strings.Lines(printed) {
		var processes int
		_, err := fmt.Sscanf(line, "racer: %d tries by %d processes, %d refused, at most %d bytes at once", &did.Tries, &processes, &did.Refused, &did.Most)
		if err == nil && processes == Racers {
			return did, nil
		}
	}
	return Raced{}, fmt.Errorf("the racer printed %q, and not how often it tried", printed)
}

// Calls is what calls take, ns of one: of the driver alone, and how much more with the shim.
type Calls struct {
	Launch, Gated, Ungated float64 // medians
	Cold, ColdGated        float64 // a launch by a driver that fills the nearest caches with other things: the mean of the middle half
	Pair, Counted          float64 // an allocation with its free: medians
}

// ParseCalls reads what native/shim/test/gate_cost.c prints.
func ParseCalls(printed string) (c Calls, err error) {
	for _, one := range []struct {
		begins, rest string
		into         []any
	}{
		{"a launch:", " %f ns without the shim, %f ns with the gate open, %f ns ungated", []any{&c.Launch, &c.Gated, &c.Ungated}},
		{"a launch by a driver that fills the nearest caches with other things:", " %f ns without the shim, %f ns with it", []any{&c.Cold, &c.ColdGated}},
		{"an allocation with its free:", " %f ns without the shim, %f ns with it", []any{&c.Pair, &c.Counted}},
	} {
		_, after, _ := strings.Cut("\n"+printed, "\n"+one.begins)
		if _, err := fmt.Sscanf(after, one.rest, one.into...); err != nil {
			return c, fmt.Errorf("the measurement of calls printed %q, where %q is looked for: %w", printed, one.begins, err)
		}
	}
	return c, nil
}
