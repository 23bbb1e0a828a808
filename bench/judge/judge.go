// Package judge holds what programs got of a device to the rule of package divide. What comes in are the programs, with their shares and
// what they declare, and readings of the device time that each has had: the simulated device's own record in bench/share, the work that
// programs completed in gpu/measure. What goes out is by how much the worst of them missed, over the worst window. It also reads what those
// programs print. It runs nothing.
package judge

import (
	"cmp"
	"slices"
	"time"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/divide"
)

// Tenant is one program of a set: its share, and the work it declares.
type Tenant struct {
	Compute api.Compute
	Weight  int32 // 0: the default
	Kernel  time.Duration
	Demand  api.Milli // of a device; 1000 or more: all there is
	Batch   int       // kernels between two waits, 0: as many as a training step has; 1: it waits after each launch
	Graph   bool      // each batch is one graph

	Processes int // that do all this beside each other in one share; 0: one
}

// Memory is what every program gets of the device's memory, where memory is not what is measured.
var Memory = api.Memory{Floor: api.Amount{Bytes: 1 << 30}, Ceiling: api.Amount{Bytes: 1 << 30}}

// Share is what the tenant asks for.
func (t Tenant) Share() api.Share {
	return api.Share{Compute: t.Compute, Memory: Memory, Weight: t.Weight}
}

// Waits says that the tenant waits after each launch.
func (t Tenant) Waits() bool { return t.Batch == 1 }

// Launch is the device time of one launch of the tenant, which cannot be split.
func (t Tenant) Launch() time.Duration {
	if t.Graph {
		return t.Kernel * time.Duration(t.Kernels())
	}
	return t.Kernel
}

// Reading is what is known of a device at one moment. What is not known is zero.
type Reading struct {
	At        time.Duration         // of the monotonic clock
	Switching time.Duration         // device time spent on changes from one context to another since the device began
	Peak      int64                 // the most device memory ever held at once, bytes
	Busy      map[int]time.Duration // device time of each process since the device began
}

// Observation is what was seen of a set.
type Observation struct {
	Tenants  []Tenant
	PIDs     []int // their processes
	Readings []Reading
	Asked    [][]Asked // what each tenant says it asked for; empty: as it declares
}

// Verdict is how far what was delivered is from what the rule says, over the worst window.
type Verdict struct {
	ShareError float64   // worst tenant: distance from divide, in points (hundredths of the device)
	Overshoot  float64   // worst tenant: above its ceiling, in points; below 0 if none came near
	Busy       float64   // least busy, in percent of what the demand allows
	Got, Due   []float64 // of each tenant where ShareError was worst, in points

	MeasuredError float64 // as ShareError, and
	MeasuredBusy  float64 // as Busy, against the demand that was measured where it was
	Missed        float64 // worst tenant: missed of its floor, as far as it wanted it, in points
	Lost          float64 // worst of those that do not wait after each launch: missed of what is due, in points
	Switching     float64 // most, in percent of the device
}

// Worse is the worst of both, each figure by itself.
func (v Verdict) Worse(w Verdict) Verdict {
	got, due := v.Got, v.Due
	if w.ShareError > v.ShareError {
		got, due = w.Got, w.Due
	}
	return Verdict{
		Got: got, Due: due,
		ShareError:    max(v.ShareError, w.ShareError),
		Overshoot:     max(v.Overshoot, w.Overshoot),
		Busy:          min(v.Busy, w.Busy),
		MeasuredError: max(v.MeasuredError, w.MeasuredError),
		MeasuredBusy:  min(v.MeasuredBusy, w.MeasuredBusy),
		Missed:        max(v.Missed, w.Missed),
		Lost:          max(v.Lost, w.Lost),
		Switching:     max(v.Switching, w.Switching),
	}
}

// Judge compares readings with the rule over every window of the given length that begins at a reading. Without a whole window ok is
// false.
func (o Observation) Judge(window time.Duration) (worst Verdict, ok bool) {
	end := 0
	for _, from := range o.Readings {
		for end < len(o.Readings) && o.Readings[end].At-from.At < window {
			end++
		}
		if end == len(o.Readings) {
			break
		}
		v := o.judgeWindow(from, o.Readings[end])
		if !ok {
			worst = v
		}
		worst, ok = worst.Worse(v), true
	}
	return worst, ok
}

// judgeWindow compares one window with the rule. What is divided is what the device did not need to change between contexts: that time is
// nobody's.
func (o Observation) judgeWindow(from, to Reading) Verdict {
	length := to.At - from.At
	switching := to.Switching - from.Switching
	points := func(d int64) float64 { return 100 * float64(d) / float64(length) }
	shares := o.shares(length)
	due := divide.Divide(int64(length-switching), shares)
	measured := slices.Clone(shares)
	for i := range measured {
		if want, ok := o.wanted(i, from.At, to.At); ok {
			measured[i].Demand = int64(want)
		}
	}
	really := divide.Divide(int64(length-switching), measured)

	v := Verdict{Switching: points(int64(switching))}
	var delivered, allowed, reallyAllowed int64
	for i, pid := range o.PIDs {
		got := int64(to.Busy[pid] - from.Busy[pid])
		v.Got, v.Due = append(v.Got, points(got)), append(v.Due, points(due[i]))
		v.ShareError = max(v.ShareError, points(max(got-due[i], due[i]-got)))
		v.MeasuredError = max(v.MeasuredError, points(max(got-really[i], really[i]-got)))
		if over := points(got - shares[i].Ceiling); i == 0 || over > v.Overshoot {
			v.Overshoot = over
		}
		v.Missed = max(v.Missed, points(min(measured[i].Floor, measured[i].Demand, really[i])-got))
		if lost := points(really[i] - got); !o.Tenants[i].Waits() {
			v.Lost = max(v.Lost, lost)
		}
		delivered += got
		allowed += due[i]
		reallyAllowed += really[i]
	}
	v.Busy = 100 * float64(delivered) / float64(max(allowed, 1))
	v.MeasuredBusy = 100 * float64(delivered) / float64(max(reallyAllowed, 1))
	return v
}

// shares are what the tenants may have of a time, by what they declare.
func (o Observation) shares(length time.Duration) []divide.Share {
	part := func(m api.Milli) int64 { return int64(length) / int64(api.WholeDevice) * int64(m) }
	shares := make([]divide.Share, len(o.Tenants))
	for i, t := range o.Tenants {
		shares[i] = divide.Share{
			Floor: part(t.Compute.Floor), Ceiling: part(t.Compute.Ceiling),
			Weight: int64(t.Share().EffectiveWeight()), Demand: part(min(t.Demand, api.WholeDevice)),
		}
	}
	return shares
}

// Delivered is the part of the device, 0 to 1, that all tenants together had from the first reading to the last.
func (o Observation) Delivered() float64 {
	first, last := o.Readings[0], o.Readings[len(o.Readings)-1]
	var all time.Duration
	for _, pid := range o.PIDs {
		all += last.Busy[pid] - first.Busy[pid]
	}
	return all.Seconds() / (last.At - first.At).Seconds()
}

// Quantile is the smallest value that at least part q of the sorted values do not pass.
func Quantile[T cmp.Ordered](sorted []T, q float64) T {
	if len(sorted) == 0 {
		var none T
		return none
	}
	rank := int(q*float64(len(sorted))+0.999999) - 1
	return sorted[min(max(rank, 0), len(sorted)-1)]
}
