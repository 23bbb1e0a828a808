// Package top is the live screen of a server: per device a bar of use now, its shares with their floors and ceilings, who lends and
// who borrows, and who waits for what. What comes in are snapshots of the API and keys; what goes out is text. Rendering is a
// function of a snapshot and a look alone; nothing here asks a server itself or decides anything.
package top

import (
	"cmp"
	"slices"
	"strconv"
	"time"

	"github.com/aliquot-dev/aliquot/api"
)

// Snapshot is what the screen shows at one moment.
type Snapshot struct {
	At        time.Time      `json:"at"`
	Info      api.Info       `json:"info"`
	Devices   []api.Device   `json:"devices"`
	Workloads []api.Workload `json:"workloads"`
}

// Order is what the shares of a device are sorted by.
type Order int

// The orders, in the turn in which the key goes through them.
const (
	ByPlace  Order = iota // as the server lists them
	ByUse                 // most compute used now first
	ByMemory              // most memory held now first
	ByName
	orders
)

func (o Order) String() string { return [...]string{"age", "use", "memory", "name"}[o] }

// next is the order after this one.
func (o Order) next() Order { return (o + 1) % orders }

// sorted are a device's shares in an order. What is not known comes last.
func sorted(grants []api.Usage, order Order) []api.Usage {
	out := slices.Clone(grants)
	switch order {
	case ByUse:
		slices.SortStableFunc(out, func(a, b api.Usage) int { return -compare(a.Compute, b.Compute) })
	case ByMemory:
		slices.SortStableFunc(out, func(a, b api.Usage) int { return -compare(a.Memory, b.Memory) })
	case ByName:
		slices.SortStableFunc(out, func(a, b api.Usage) int { return cmp.Compare(a.Workload, b.Workload) })
	}
	return out
}

// compare orders two amounts that may not be known.
func compare[T cmp.Ordered](a, b *T) int {
	switch {
	case a == nil && b == nil:
		return 0
	case a == nil:
		return -1
	case b == nil:
		return 1
	default:
		return cmp.Compare(*a, *b)
	}
}

// waiting are the workloads in line, first place first; one whose place is not known comes last.
func (s Snapshot) waiting() []api.Workload {
	var out []api.Workload
	for _, work := range s.Workloads {
		if work.Status.Phase == api.Waiting {
			out = append(out, work)
		}
	}
	slices.SortStableFunc(out, func(a, b api.Workload) int {
		return cmp.Compare(uint(a.Status.Place)-1, uint(b.Status.Place)-1)
	})
	return out
}

// count is how many workloads are in a phase.
func (s Snapshot) count(phases ...api.Phase) int {
	n := 0
	for _, work := range s.Workloads {
		if slices.Contains(phases, work.Status.Phase) {
			n++
		}
	}
	return n
}

// Span prints what rates are means over, for a heading: `10s`, `0.2s`; nothing where it is not known.
func Span(over time.Duration) string {
	switch {
	case over <= 0:
		return ""
	case over < 950*time.Millisecond:
		return strconv.FormatFloat(over.Seconds(), 'f', 1, 64) + "s"
	default:
		return strconv.Itoa(int(over.Round(time.Second)/time.Second)) + "s"
	}
}

// Used is the device time that all shares of a device together use now: the sum of their lines, and the length of its bar. nil
// where one is not known, and of a device that is down.
func Used(device api.Device) *api.Milli {
	if device.Health == api.Down {
		return nil
	}
	var sum api.Milli
	for _, one := range device.Grants {
		if one.Compute == nil {
			return nil
		}
		sum += *one.Compute
	}
	return &sum
}
