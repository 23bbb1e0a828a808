package device

import (
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

func TestFaults(t *testing.T) {
	type step struct {
		xid     uint64
		answer  nvml.Return // when xid is 0
		changed bool
		now     Condition
	}
	tests := map[string][]step{
		"the application's own": {
			{xid: 13}, {xid: 31}, {xid: 43}, {xid: 45}, {xid: 68}, {xid: 109}, {xid: 999},
		},
		"memory errors": {
			{xid: 48, changed: true, now: Sick}, {xid: 63, now: Sick}, {answer: nvml.SUCCESS, now: Sick},
		},
		"halted inside":       {{xid: 62, changed: true, now: Sick}},
		"remapping failed":    {{xid: 64, changed: true, now: Sick}},
		"NVLink":              {{xid: 74, changed: true, now: Sick}, {xid: 64, now: Sick}},
		"GSP does not answer": {{xid: 119, changed: true, now: Sick}, {answer: nvml.ERROR_GPU_IS_LOST, changed: true, now: Gone}},
		"GSP failed":          {{xid: 120, changed: true, now: Sick}},
		"unrecovered memory":  {{xid: 140, changed: true, now: Sick}},
		"off the bus, and back after a reset": {
			{xid: 79, changed: true, now: Gone},
			{answer: nvml.SUCCESS, now: Gone}, // it answers still: not believed
			{xid: 94, now: Gone},
			{answer: nvml.ERROR_GPU_IS_LOST, now: Gone},
			{answer: nvml.SUCCESS, changed: true, now: Well},
		},
		"lost without an XID": {
			{answer: nvml.SUCCESS},
			{answer: nvml.ERROR_NOT_SUPPORTED}, // says nothing of its health
			{answer: nvml.ERROR_GPU_IS_LOST, changed: true, now: Gone},
			{answer: nvml.ERROR_GPU_IS_LOST, now: Gone},
			{answer: nvml.SUCCESS, changed: true, now: Well},
		},
		"sick, then lost": {
			{xid: 95, changed: true, now: Sick}, {answer: nvml.ERROR_DRIVER_NOT_LOADED, changed: true, now: Gone},
		},
	}
	for name, steps := range tests {
		t.Run(name, func(t *testing.T) {
			f := newFaults()
			for i, s := range steps {
				var changed bool
				var reason string
				if s.xid != 0 {
					_, reason, changed = f.xid("GPU-a", s.xid)
				} else {
					_, reason, changed = f.answer("GPU-a", s.answer)
				}
				if changed != s.changed || f.condition["GPU-a"] != s.now {
					t.Errorf("step %d: changed %v to %v, want %v to %v", i, changed, f.condition["GPU-a"], s.changed, s.now)
				}
				if changed && reason == "" {
					t.Errorf("step %d: a change without a reason", i)
				}
			}
			if f.condition["GPU-b"] != Well {
				t.Error("another GPU's condition changed")
			}
		})
	}
}
