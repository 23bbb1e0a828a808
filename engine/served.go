package engine

import (
	"cmp"
	"fmt"
	"math"
	"math/bits"

	"github.com/aliquot-dev/aliquot/api"
)

// Where the order of a queue counts service (QueueOrder.Served), its work is on levels by what it was served so far: as device-hours are counted, the time for
// which it ran weighed by the compute floors that it holds, or by the devices that it has shares of where the order says so (QueueOrder.Held). Who is on a lower level goes first, and preempts preemptible work that is on a
// higher one. Each level is twice as long as the one before, so what takes turns changes places ever more seldom. It is least attained service
// in discrete levels (Gu et al., Tiresias, NSDI'19), without knowing how long anything runs.

// lastLevel is the number of the last level: what was served more than some 500,000 times the first is equal. With that, the longest first level is still within an
// integer.
const lastLevel = 20

// firstLevel is how much service the first level is of, in µs of a whole device; 0: service does not count in its line.
func (w *workload) firstLevel() Time { return Time(w.queue.Ruler().Order().Served / 1000) }

// setServed takes in what a host says that a workload was served before.
func (w *workload) setServed(had Time) error {
	if had < 0 || had > maxPast {
		return fmt.Errorf("workload %s cannot have been served for %d µs of a device already: give 0 to %d", w.ID, had, maxPast)
	}
	if had > 0 {
		w.setRarely(func(r *rare) { r.had = had })
	}
	return nil
}

// rate is what a workload is served while it runs, in thousandths of a device: the floors of all its tasks, or their devices.
func (w *workload) rate() uint64 { return rateOf(&w.Workload, w.queue.Ruler().Order().Held) }

func rateOf(w *Workload, held bool) uint64 {
	sum := uint64(0)
	add := func(share api.Share, devices, tasks int) {
		floor := share.Compute.Floor
		if held {
			floor = api.WholeDevice
		}
		sum += uint64(floor) * uint64(devices) * uint64(tasks)
	}
	add(w.Share, w.Devices, w.Tasks)
	for i := range w.Roles {
		add(w.Roles[i].Share, w.Roles[i].Devices, w.Roles[i].Tasks)
	}
	return max(1, sum)
}

// ServedIn is what a workload of so much as this one is served in a time for which it runs, in µs of a whole device, by what its queue counts: what a host tells of earlier IDs of
// it (Submit.Served).
func (e *Engine) ServedIn(w *Workload, ran Time) Time {
	q, ok := e.queues.Get(cmp.Or(w.Queue, api.DefaultQueue))
	if ran <= 0 {
		return 0
	}
	return Time(min(scaled(uint64(ran), rateOf(w, ok && q.Ruler().Order().Held), uint64(api.WholeDevice)), uint64(maxPast)))
}

// served is what a workload was served until now, in µs of a whole device: what its host says that it was before, and since it started, with the floors that
// it holds now. Replicas above those that it is sure of do not count.
func (e *Engine) served(w *workload) Time { return w.servedAt(e.now) }

func (w *workload) servedAt(now Time) Time {
	had := w.rarely().had
	if w.tasks == nil {
		return had
	}
	ran := scaled(uint64(max(0, now-w.tasks[0].since)), w.rate(), uint64(api.WholeDevice))
	return had + Time(min(ran, uint64(maxPast)))
}

// scaled is a × b / c, rounded down, and the largest Time where that is out of range.
func scaled(a, b, c uint64) uint64 {
	high, low := bits.Mul64(a, b)
	if high >= c {
		return math.MaxInt64
	}
	q, _ := bits.Div64(high, low, c)
	return min(q, math.MaxInt64)
}

// levelOf is the level that a workload is on, 0 where service does not count.
func (e *Engine) levelOf(w *workload) int8 { return w.levelAt(e.now) }

func (w *workload) levelAt(now Time) int8 {
	first := w.firstLevel()
	if first == 0 {
		return 0
	}
	return int8(min(bits.Len64(uint64(w.servedAt(now)/first)), lastLevel))
}

// rises is when a workload that runs comes to the next level: Never where service does not count, or far from now.
func (e *Engine) rises(w *workload) Time {
	first := uint64(w.firstLevel())
	if first == 0 || w.tasks == nil || w.base != nil || !w.Preemptible {
		return Never
	}
	level := int(e.levelOf(w))
	if level == lastLevel {
		return Never
	}
	more := first<<level - uint64(w.rarely().had) // since it started
	ran := scaled(more, uint64(api.WholeDevice), w.rate())
	for scaled(ran, w.rate(), uint64(api.WholeDevice)) < more {
		ran++
	}
	return after(w.tasks[0].since, Time(min(ran, uint64(maxPast))))
}

// noteRise has the engine look again when a workload comes to its next level, that was just placed or whose floors changed.
func (e *Engine) noteRise(w *workload) { e.rise = min(e.rise, e.rises(w)) }

// findRise works out when the next of all that run comes to another level, and says whether one has since it was looked last.
func (e *Engine) findRise() (rose bool) {
	e.rise = Never
	for _, w := range e.work {
		e.noteRise(w)
		rose = rose || w.tasks != nil && w.Preemptible && w.levelAt(e.looked) != e.levelOf(w)
	}
	return rose
}

// preempts says that a workload goes before one of its own queue that runs: by its priority, or because it was served less.
func (e *Engine) preempts(w, v *workload) bool {
	if v.queue != w.queue {
		return false
	}
	if v.Priority != w.Priority && ranked(w.queue) {
		return v.Priority < w.Priority
	}
	return e.levelOf(w) < e.levelOf(v)
}

// whyPreempted is the reason of such an eviction.
func (e *Engine) whyPreempted(pl *plan, v *workload) string {
	w := pl.w
	if v.Priority != w.Priority && ranked(w.queue) {
		return fmt.Sprintf("workload %s of priority %d in its queue %s goes before it, of priority %d (plan %d)", w.ID, w.Priority, w.queue.Name, v.Priority, pl.id)
	}
	return fmt.Sprintf("workload %s in its queue %s had %s of a device so far, and goes before it, which had %s (plan %d)",
		w.ID, w.queue.Name, serviceText(e.served(w)), serviceText(e.served(v)), pl.id)
}

// serviceText is an amount of service for people, to the second.
func serviceText(t Time) string {
	const second = 1_000_000 // µs
	seconds := min((t+second/2)/second, math.MaxInt64/1_000_000_000)
	return api.Duration(seconds * 1_000_000_000).String() // which is in ns
}
