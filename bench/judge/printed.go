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
