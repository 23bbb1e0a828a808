package judge

import (
	"time"

	"github.com/aliquot-dev/aliquot/api"
)

// StatedBurst is what a share may use beyond its ceiling over any time, besides one launch that cannot be split: 2.5 bursts of 20 ms, as
// native/arbiter/core.h states it ("bucket").
const StatedBurst = 50 * time.Millisecond

// The windows over which that is judged. Over longer ones the ceiling itself is (ceiling_overshoot).
const (
	shortest = 20 * time.Millisecond
	longest  = 10 * time.Second
)

// Beyond is by how much a tenant used more than its ceiling allows in one window.
type Beyond struct {
	Used    time.Duration // device time beyond ceiling × window; below 0: it used less
	Allowed time.Duration // the stated burst and one launch
	Window  time.Duration
}

// Part is what was used in percent of what is allowed.
func (b Beyond) Part() float64 { return 100 * b.Used.Seconds() / b.Allowed.Seconds() }

// Beyond finds the worst window between any two readings, the shortest of equals, of any tenant with a ceiling below the whole device. ok is false if there is
// no such tenant or window.
func (o Observation) Beyond() (worst Beyond, ok bool) {
	for i, t := range o.Tenants {
		if t.Compute.Ceiling >= api.WholeDevice {
			continue
		}
		// What the tenant has used beyond its ceiling since the first reading: windows are differences of two of these.
		over := make([]time.Duration, len(o.Readings))
		for k, r := range o.Readings {
			span := r.At - o.Readings[0].At
			over[k] = r.Busy[o.PIDs[i]] - span/time.Duration(api.WholeDevice)*time.Duration(t.Compute.Ceiling)
		}
		found := Beyond{Allowed: StatedBurst + t.Launch()}
		for from := range over {
			for to := from + 1; to < len(over); to++ {
				window := o.Readings[to].At - o.Readings[from].At
				if window > longest {
					break
				}
				used := over[to] - over[from]
				worse := used > found.Used || used == found.Used && window < found.Window || found.Window == 0
				if window >= shortest && worse {
					found.Used, found.Window = used, window
				}
			}
		}
		if found.Window > 0 && (!ok || found.Part() > worst.Part()) {
			worst, ok = found, true
		}
	}
	return worst, ok
}
