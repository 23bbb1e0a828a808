package main

import (
	"time"

	"github.com/aliquot-dev/aliquot/api"
)

// statedBurst is what a share may use beyond its ceiling over any time, besides one launch that cannot be split: 2.5 bursts of 20 ms, as
// native/arbiter/core.h states it ("bucket").
const statedBurst = 50 * time.Millisecond

// The windows over which that is judged. Over longer ones the ceiling itself is (ceiling_overshoot).
const (
	shortest = 20 * time.Millisecond
	longest  = 10 * time.Second
)

// beyond is by how much a tenant used more than its ceiling allows in one window.
type beyond struct {
	used    time.Duration // device time beyond ceiling × window; below 0: it used less
	allowed time.Duration // the stated burst and one launch
	window  time.Duration
}

// part is what was used in percent of what is allowed.
func (b beyond) part() float64 { return 100 * b.used.Seconds() / b.allowed.Seconds() }

// beyond finds the worst window between any two readings, the shortest of equals, of any tenant with a ceiling below the whole device. ok is false if there is
// no such tenant or window.
func (o observation) beyond() (worst beyond, ok bool) {
	for i, t := range o.tenants {
		if t.compute.Ceiling >= api.WholeDevice {
			continue
		}
		// What the tenant has used beyond its ceiling since the first reading: windows are differences of two of these.
		over := make([]time.Duration, len(o.readings))
		for k, r := range o.readings {
			span := r.at - o.readings[0].at
			over[k] = r.busy[o.pids[i]] - span/time.Duration(api.WholeDevice)*time.Duration(t.compute.Ceiling)
		}
		found := beyond{allowed: statedBurst + t.launch()}
		for from := range over {
			for to := from + 1; to < len(over); to++ {
				window := o.readings[to].at - o.readings[from].at
				if window > longest {
					break
				}
				used := over[to] - over[from]
				worse := used > found.used || used == found.used && window < found.window || found.window == 0
				if window >= shortest && worse {
					found.used, found.window = used, window
				}
			}
		}
		if found.window > 0 && (!ok || found.part() > worst.part()) {
			worst, ok = found, true
		}
	}
	return worst, ok
}
