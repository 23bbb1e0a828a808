package top

import (
	"slices"
	"time"

	"github.com/aliquot-dev/aliquot/api"
)

// span is the time over which a ceiling holds: what is shown is the mean over it, as far as it was watched.
const span = 10 * time.Second

// window is the snapshots of the last span, oldest first.
type window struct{ seen []Snapshot }

// add takes a snapshot in and returns it with the rates of each share as means over the window. Snapshots with another grant, as
// before a change of the share, do not count, nor does a reading that the server gave twice.
func (w *window) add(latest Snapshot) Snapshot {
	w.seen = append(w.seen, latest)
	w.seen = slices.DeleteFunc(w.seen, func(one Snapshot) bool { return latest.At.Sub(one.At) >= span })
	out := latest
	out.Mean = span
	out.Devices = slices.Clone(latest.Devices)
	for i, device := range out.Devices {
		out.Devices[i].Grants = slices.Clone(device.Grants)
		for j, one := range device.Grants {
			out.Devices[i].Grants[j] = w.mean(device.UUID, one)
		}
	}
	return out
}

// mean is a share's latest use with its rates as means over the window.
func (w *window) mean(device string, latest api.Usage) api.Usage {
	if latest.Compute == nil {
		return latest // nothing is known now, whatever was
	}
	var compute, borrowing, lending, waited, count int64
	var last *api.Usage
	for _, snapshot := range w.seen {
		one := snapshot.find(device, latest)
		if one == nil || one.Compute == nil || last != nil && *one.Compute > 0 && one.DeviceTime == last.DeviceTime {
			continue
		}
		last = one
		count++
		compute += int64(*one.Compute)
		borrowing += int64(one.Borrowing)
		lending += int64(one.Lending)
		waited += int64(one.WaitedShare)
	}
	if count == 0 {
		return latest
	}
	of := func(sum int64) api.Milli { return api.Milli((sum + count/2) / count) }
	mean := of(compute)
	latest.Compute, latest.Borrowing, latest.Lending, latest.WaitedShare = &mean, of(borrowing), of(lending), of(waited)
	return latest
}

// find is the use of the same grant in a snapshot, with the same floors and ceilings; nil if it is not there.
func (s Snapshot) find(device string, share api.Usage) *api.Usage {
	for i := range s.Devices {
		if s.Devices[i].UUID != device {
			continue
		}
		for j := range s.Devices[i].Grants {
			if one := &s.Devices[i].Grants[j]; one.Workload == share.Workload && one.Grant == share.Grant {
				return one
			}
		}
	}
	return nil
}
