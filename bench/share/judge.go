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
	graph   bool

	processes int // that do all this beside each other in one share; 0: one
}

// share is what the tenant asks for.
func (t tenant) share() api.Share {
	return api.Share{Compute: t.compute, Memory: memory, Weight: t.weight}
}

// reading is the device model's record at one moment.
type reading struct {
	at   time.Duration         // of the monotonic clock
	busy map[int]time.Duration // device time of each process since the device began
}

// verdict is how far what was delivered is from what the rule says, over the worst window.
type verdict struct {
	shareError float64   // worst tenant: distance from divide, in points (hundredths of the device)
	overshoot  float64   // worst tenant: above its ceiling, in points; below 0 if none came near
	busy       float64   // least busy, in percent of what the demand allows
	got, due   []float64 // of each tenant where shareError was worst, in points
}

// worse is the worst of both, each figure by itself.
func (v verdict) worse(w verdict) verdict {
	got, due := v.got, v.due
	if w.shareError > v.shareError {
		got, due = w.got, w.due
	}
	return verdict{
		got: got, due: due,
		shareError: max(v.shareError, w.shareError),
		overshoot:  max(v.overshoot, w.overshoot),
		busy:       min(v.busy, w.busy),
	}
}

// judge compares readings with the rule over every window of the given length that begins at a reading. pids are the tenants'
// processes, in their order. Without a whole window ok is false.
func judge(tenants []tenant, pids []int, readings []reading, window time.Duration) (worst verdict, ok bool) {
	for i, from := range readings {
		end := slices.IndexFunc(readings[i:], func(r reading) bool { return r.at-from.at >= window })
		if end < 0 {
			break
		}
		v := judgeWindow(tenants, pids, from, readings[i+end])
		if !ok {
			worst = v
		}
		worst, ok = worst.worse(v), true
	}
	return worst, ok
}

func judgeWindow(tenants []tenant, pids []int, from, to reading) verdict {
	length := to.at - from.at
	part := func(m api.Milli) int64 { return int64(length) / int64(api.WholeDevice) * int64(m) }
	points := func(d int64) float64 { return 100 * float64(d) / float64(length) }

	shares := make([]divide.Share, len(tenants))
	for i, t := range tenants {
		shares[i] = divide.Share{
			Floor: part(t.compute.Floor), Ceiling: part(t.compute.Ceiling),
			Weight: int64(t.share().EffectiveWeight()), Demand: part(min(t.demand, api.WholeDevice)),
		}
	}
	due := divide.Divide(int64(length), shares)
	var v verdict
	var delivered, allowed int64
	for i, pid := range pids {
		got := int64(to.busy[pid] - from.busy[pid])
		v.got, v.due = append(v.got, points(got)), append(v.due, points(due[i]))
		v.shareError = max(v.shareError, points(max(got-due[i], due[i]-got)))
		if over := points(got - shares[i].Ceiling); i == 0 || over > v.overshoot {
			v.overshoot = over
		}
		delivered += got
		allowed += due[i]
	}
	v.busy = 100 * float64(delivered) / float64(max(allowed, 1))
	return v
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
