package top

import (
	"testing"
	"time"

	"github.com/aliquot-dev/aliquot/api"
)

// at is a snapshot of one share of a device, so many seconds after the first.
func at(second int, use api.Milli, held time.Duration, ceiling api.Milli) Snapshot {
	return Snapshot{
		At: time.Date(2026, 11, 20, 14, 0, second, 0, time.UTC),
		Devices: []api.Device{{UUID: "GPU-0", Grants: []api.Usage{{
			Workload: "train", Grant: grant(250, ceiling, gib, gib), Compute: ptr(use), DeviceTime: held, Borrowing: max(use-250, 0),
		}}}},
	}
}

// A ceiling holds over any 10 s, not over each second: what is drawn against its mark is the mean.
func TestUseIsTheMeanOfTheWindow(t *testing.T) {
	var w window
	var got Snapshot
	var held time.Duration
	for second := range 30 {
		use := api.Milli(270) // before the window
		if second >= 20 {
			use = []api.Milli{410, 190}[second%2]
		}
		held += time.Duration(use) * time.Millisecond
		got = w.add(at(second, use, held, 300))
	}
	if use := *got.Devices[0].Grants[0].Compute; use != 300 {
		t.Errorf("the mean of ten seconds of 410 and 190 is %d", use)
	}
	if borrowed := got.Devices[0].Grants[0].Borrowing; borrowed != 80 {
		t.Errorf("the mean of what it borrowed, 160 and 0, is %d", borrowed)
	}
	if got.Mean != span || len(w.seen) != 10 {
		t.Errorf("a mean over %s of %d snapshots", got.Mean, len(w.seen))
	}
	// Another ceiling begins anew: what was used under the old one says nothing about it.
	got = w.add(at(30, 500, held+time.Second, 800))
	if use := *got.Devices[0].Grants[0].Compute; use != 500 {
		t.Errorf("after a change of the share the mean is %d", use)
	}
}

// A reading that the server gave twice counts once; idle seconds all count.
func TestRepeatedReadingsCountOnce(t *testing.T) {
	var w window
	w.add(at(0, 600, 600*time.Millisecond, 800))
	w.add(at(1, 600, 600*time.Millisecond, 800))
	got := w.add(at(2, 0, 600*time.Millisecond, 800))
	if use := *got.Devices[0].Grants[0].Compute; use != 300 {
		t.Errorf("600, the same again, then nothing: the mean is %d, want 300", use)
	}
	got = w.add(at(3, 0, 600*time.Millisecond, 800))
	if use := *got.Devices[0].Grants[0].Compute; use != 200 {
		t.Errorf("then nothing again: the mean is %d, want 200", use)
	}
}

// The line of a device and its bar are of one source: what its shares used.
func TestDeviceUseIsTheSumOfItsShares(t *testing.T) {
	device := busy().Devices[0]
	device.Busy = ptr(api.Milli(100))
	if got := Used(device); got == nil || *got != 930 {
		t.Errorf("used %v, and its shares use 930", got)
	}
	for _, health := range []api.DeviceHealth{api.Down} {
		if got := Used(api.Device{Health: health}); got != nil {
			t.Errorf("a device that is %s uses %v", health, *got)
		}
	}
}

// What rounds to nothing is no flow.
func TestFlowOfATrace(t *testing.T) {
	for _, one := range []api.Usage{{Compute: ptr(api.Milli(4)), Borrowing: 4}, {Compute: ptr(api.Milli(0)), Lending: 4}} {
		if text, _ := flowOf(one); text != "" {
			t.Errorf("a trace of flow is shown as %q", text)
		}
	}
}
