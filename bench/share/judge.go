package main

import (
	"cmp"
	"slices"
	"time"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/divide"
)

// tenant is one program of a scenario: its share, and the work it declares.
type tenant struct {
	compute api.Compute
	weight  int32 // 0: the default
	kernel  time.Duration
	demand  api.Milli // of a device; 1000 or more: all there is
	batch   int       // kernels between two waits, 0: as many as a training step has; 1: it waits after each launch
	graph   bool      // each batch is one graph

	processes int // that do all this beside each other in one share; 0: one
}

// share is what the tenant asks for.
func (t tenant) share() api.Share {
	return api.Share{Compute: t.compute, Memory: memory, Weight: t.weight}
}

// waits says that the tenant waits after each launch.
func (t tenant) waits() bool { return t.batch == 1 }

// launch is the device time of one launch of the tenant, which cannot be split.
func (t tenant) launch() time.Duration {
	if t.graph {
		return t.kernel * time.Duration(t.kernels())
	}
	return t.kernel
}

// reading is the device model's record at one moment.
type reading struct {
	at        time.Duration         // of the monotonic clock
	switching time.Duration         // device time spent on changes from one context to another since the device began
	peak      int64                 // the most device memory ever held at once, bytes
	busy      map[int]time.Duration // device time of each process since the device began
}

// observation is what was seen of a scenario.
type observation struct {
	tenants  []tenant
	pids     []int // their processes
	readings []reading
	asked    [][]asked // what each tenant says it asked for; empty: as it declares
}

// verdict is how far what was delivered is from what the rule says, over the worst window.
type verdict struct {
	shareError float64   // worst tenant: distance from divide, in points (hundredths of the device)
	overshoot  float64   // worst tenant: above its ceiling, in points; below 0 if none came near
	busy       float64   // least busy, in percent of what the demand allows
	got, due   []float64 // of each tenant where shareError was worst, in points

	measuredError float64 // as shareError, and
	measuredBusy  float64 // as busy, against the demand that was measured where it was
	missed        float64 // worst tenant: missed of its floor, as far as it wanted it, in points
	lost          float64 // worst of those that do not wait after each launch: missed of what is due, in points
	switching     float64 // most, in percent of the device
}

// worse is the worst of both, each figure by itself.
func (v verdict) worse(w verdict) verdict {
	got, due := v.got, v.due
	if w.shareError > v.shareError {
		got, due = w.got, w.due
	}
	return verdict{
		got: got, due: due,
		shareError:    max(v.shareError, w.shareError),
		overshoot:     max(v.overshoot, w.overshoot),
		busy:          min(v.busy, w.busy),
		measuredError: max(v.measuredError, w.measuredError),
		measuredBusy:  min(v.measuredBusy, w.measuredBusy),
		missed:        max(v.missed, w.missed),
		lost:          max(v.lost, w.lost),
		switching:     max(v.switching, w.switching),
	}
}

// judge compares readings with the rule over every window of the given length that begins at a reading. Without a whole window ok is
// false.
func (o observation) judge(window time.Duration) (worst verdict, ok bool) {
	end := 0
	for _, from := range o.readings {
		for end < len(o.readings) && o.readings[end].at-from.at < window {
			end++
		}
		if end == len(o.readings) {
			break
		}
		v := o.judgeWindow(from, o.readings[end])
		if !ok {
			worst = v
		}
		worst, ok = worst.worse(v), true
	}
	return worst, ok
}

// judgeWindow compares one window with the rule. What is divided is what the device did not need to change between contexts: that time is
// nobody's.
func (o observation) judgeWindow(from, to reading) verdict {
	length := to.at - from.at
	switching := to.switching - from.switching
	points := func(d int64) float64 { return 100 * float64(d) / float64(length) }
	shares := o.shares(length)
	due := divide.Divide(int64(length-switching), shares)
	measured := slices.Clone(shares)
	for i := range measured {
		if want, ok := o.wanted(i, from.at, to.at); ok {
			measured[i].Demand = int64(want)
		}
	}
	really := divide.Divide(int64(length-switching), measured)

	v := verdict{switching: points(int64(switching))}
	var delivered, allowed, reallyAllowed int64
	for i, pid := range o.pids {
		got := int64(to.busy[pid] - from.busy[pid])
		v.got, v.due = append(v.got, points(got)), append(v.due, points(due[i]))
		v.shareError = max(v.shareError, points(max(got-due[i], due[i]-got)))
		v.measuredError = max(v.measuredError, points(max(got-really[i], really[i]-got)))
		if over := points(got - shares[i].Ceiling); i == 0 || over > v.overshoot {
			v.overshoot = over
		}
		v.missed = max(v.missed, points(min(measured[i].Floor, measured[i].Demand, really[i])-got))
		if lost := points(really[i] - got); !o.tenants[i].waits() {
			v.lost = max(v.lost, lost)
		}
		delivered += got
		allowed += due[i]
		reallyAllowed += really[i]
	}
	v.busy = 100 * float64(delivered) / float64(max(allowed, 1))
	v.measuredBusy = 100 * float64(delivered) / float64(max(reallyAllowed, 1))
	return v
}

// shares are what the tenants may have of a time, by what they declare.
func (o observation) shares(length time.Duration) []divide.Share {
	part := func(m api.Milli) int64 { return int64(length) / int64(api.WholeDevice) * int64(m) }
	shares := make([]divide.Share, len(o.tenants))
	for i, t := range o.tenants {
		shares[i] = divide.Share{
			Floor: part(t.compute.Floor), Ceiling: part(t.compute.Ceiling),
			Weight: int64(t.share().EffectiveWeight()), Demand: part(min(t.demand, api.WholeDevice)),
		}
	}
	return shares
}

// delivered is the part of the device, 0 to 1, that all tenants together had from the first reading to the last.
func (o observation) delivered() float64 {
	first, last := o.readings[0], o.readings[len(o.readings)-1]
	var all time.Duration
	for _, pid := range o.pids {
		all += last.busy[pid] - first.busy[pid]
	}
	return all.Seconds() / (last.at - first.at).Seconds()
}

// quantile is the smallest value that at least part q of the sorted values do not pass.
func quantile[T cmp.Ordered](sorted []T, q float64) T {
	if len(sorted) == 0 {
		var none T
		return none
	}
	rank := int(q*float64(len(sorted))+0.999999) - 1
	return sorted[min(max(rank, 0), len(sorted)-1)]
}
