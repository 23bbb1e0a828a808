package fleet

import (
	"fmt"
	"strings"

	"github.com/aliquot-dev/aliquot/api"
)

// Traits are what a device can do, costs and draws, as its node tells. What is 0 is not known.
type Traits struct {
	Capability int32 `json:"capability,omitempty"` // compute capability, 10 × major + minor: 90 is 9.0
	Bandwidth  int32 `json:"bandwidth,omitempty"`  // of its memory, GB/s
	Cost       int32 `json:"cost,omitempty"`       // of an hour, in a unit that is the same for all devices
	Idle       int32 `json:"idle,omitempty"`       // watts with nothing on it
	Peak       int32 `json:"peak,omitempty"`       // watts at full load

	// Latency is its latency class, as who runs it declares it: from 1, which answers fastest, to api.SlowestLatency.
	Latency int32 `json:"latencyClass,omitempty"`
}

// maxTrait bounds each of them, so that sums over devices stay far from what an integer holds.
const maxTrait = 1_000_000

// Wakes is by how many watts the draw of a device may rise once something is on it; 0 where that is not known.
func (t Traits) Wakes() int32 {
	if t.Idle == 0 || t.Peak == 0 {
		return 0
	}
	return t.Peak - t.Idle
}

func (t Traits) check() error {
	for _, one := range []struct {
		name  string
		value int32
	}{{"a compute capability", t.Capability}, {"a bandwidth", t.Bandwidth}, {"a cost", t.Cost}, {"an idle draw", t.Idle}, {"a peak draw", t.Peak}} {
		if one.value < 0 || one.value > maxTrait {
			return fmt.Errorf("has %s of %d: give it one from 0, which is not known, to %d", one.name, one.value, maxTrait)
		}
	}
	if t.Wakes() < 0 {
		return fmt.Errorf("draws %d W idle and %d W at its peak: the peak is no less", t.Idle, t.Peak)
	}
	if t.Latency < 0 || t.Latency > api.SlowestLatency {
		return fmt.Errorf("has latency class %d: give it one from 1, which answers fastest, to %d, or 0, which is not known", t.Latency, api.SlowestLatency)
	}
	return nil
}

// Near says of two devices of a node whether they are linked with each other, and whether they are at the same memory node.
func (f *Fleet) Near(a, b DeviceID) (linked, local bool) {
	x, y := &f.devices[a], &f.devices[b]
	return x.link != 0 && x.link == y.link, x.numa != 0 && x.numa == y.numa
}

// LinkOf is the same for all devices that are linked with each other, 0 for one that is with none.
func (f *Fleet) LinkOf(d DeviceID) int32 { return f.devices[d].link }

// NUMAOf is the same for all devices at one memory node, 0 where that is not known.
func (f *Fleet) NUMAOf(d DeviceID) int32 { return f.devices[d].numa }

// labelOf numbers a name of a link or memory node; the empty one is 0.
func (f *Fleet) labelOf(name string) int32 {
	if name == "" {
		return 0
	}
	id, ok := f.labels[name]
	if !ok {
		id = int32(len(f.labels) + 1)
		f.labels[name] = id
	}
	return id
}

// Least is what a device must be able to do at the least. What is 0 is not asked for; a device of which it is not known does not do.
type Least struct {
	Capability int32 `json:"capability,omitempty"` // as Traits have it
	Bandwidth  int32 `json:"bandwidth,omitempty"`
	Latency    int32 `json:"latencyClass,omitempty"` // the slowest that will do
}

// Met says that a device can do so much.
func (l Least) Met(t Traits) bool {
	return t.Capability >= l.Capability && t.Bandwidth >= l.Bandwidth && (l.Latency == 0 || t.Latency != 0 && t.Latency <= l.Latency)
}

// String is what is asked for, in words.
func (l Least) String() string {
	var all []string
	if l.Capability > 0 {
		all = append(all, fmt.Sprintf("compute capability %d.%d", l.Capability/10, l.Capability%10))
	}
	if l.Bandwidth > 0 {
		all = append(all, fmt.Sprintf("%d GB/s of memory bandwidth", l.Bandwidth))
	}
	switch {
	case l.Latency == 1:
		all = append(all, "latency class 1")
	case l.Latency > 1:
		all = append(all, fmt.Sprintf("latency class %d or a faster one", l.Latency))
	}
	return strings.Join(all, " and ")
}

// Check says what is wrong with it.
func (l Least) Check() error {
	if l.Capability < 0 || l.Bandwidth < 0 || l.Capability > maxTrait || l.Bandwidth > maxTrait {
		return fmt.Errorf("a compute capability of %d and a bandwidth of %d GB/s at the least cannot be asked for: give each from 0, which asks for nothing, to %d", l.Capability, l.Bandwidth, maxTrait)
	}
	if l.Latency < 0 || l.Latency > api.SlowestLatency {
		return fmt.Errorf("latency class %d or a faster one cannot be asked for: give one from 1, which answers fastest, to %d, or 0, which asks for nothing", l.Latency, api.SlowestLatency)
	}
	return nil
}
