package main

import (
	"fmt"
	"runtime"
	"slices"
	"time"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/engine"
)

// quantile is the value that so many percent of all are not over.
func quantile(all []time.Duration, percent int) time.Duration {
	slices.Sort(all)
	return all[(len(all)*percent+99)/100-1]
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// microseconds is the mean of several.
func microseconds(d time.Duration, times int) float64 {
	return float64(d) / float64(time.Microsecond) / float64(times)
}

// withLine is a fleet on which nothing of any shape fits any more before so many that wait.
func (b *bench) withLine(waiting int, limits bool) (*world, error) {
	x := newWorld(b.nodes, b.shapes)
	x.limits = limits
	if err := x.fillTo(most); err != nil {
		return nil, err
	}
	for n := 0; n < waiting; {
		started, _, err := x.submit()
		if err != nil {
			return nil, err
		}
		if !started {
			n++
		}
	}
	return x, nil
}

// submit submits one workload, asks why where it waits, and says what that took.
func (x *world) submit() (started bool, took time.Duration, err error) {
	w := x.work()
	begin := time.Now()
	actions := x.engine.Step(engine.Submit{At: engine.At{At: x.now}, Workload: w})
	took = time.Since(begin)
	for _, a := range actions {
		p, ok := a.(engine.Place)
		if !ok || p.Workload != w.ID {
			return false, 0, fmt.Errorf("a submission gives %+v", a)
		}
		if err := x.started(p, &w); err != nil {
			return false, 0, err
		}
	}
	return len(actions) > 0, took, nil
}

// submits times so many submissions before a line, each with its reason where it waits, and the end of a workload before each,
// for which others start.
func (x *world) submits(times int) (submits, ends []time.Duration, err error) {
	for range times {
		x.now += 1000
		id := x.end()
		begin := time.Now()
		actions := x.engine.Step(engine.Ended{At: engine.At{At: x.now}, ID: id})
		ends = append(ends, time.Since(begin))
		for _, a := range actions {
			p, ok := a.(engine.Place)
			if !ok {
				return nil, nil, fmt.Errorf("the end of %s gives %+v", id, a)
			}
			started, _ := x.engine.Workload(p.Workload)
			if err := x.started(p, &started); err != nil {
				return nil, nil, err
			}
		}
		started, took, err := x.submit()
		if err != nil {
			return nil, nil, err
		}
		if !started {
			begin := time.Now()
			why := x.engine.Why("w" + fmt.Sprint(x.next))
			took += time.Since(begin)
			if why.Message == "" {
				return nil, nil, fmt.Errorf("w%d waits without a reason", x.next)
			}
		}
		submits = append(submits, took)
	}
	return submits, ends, nil
}

// longLine measures submissions before a long line; beside that where all have time limits.
func (b *bench) longLine() error {
	submits, ends, err := b.before(b.waiting, false)
	if err != nil {
		return err
	}
	b.AtMost("submit_to_decision_p99", milliseconds(quantile(submits, 99)), 5, "ms")
	b.Beside("submit_to_decision_p50", milliseconds(quantile(submits, 50)), "ms")
	b.Beside("end_to_decision_p99", milliseconds(quantile(ends, 99)), "ms")
	if submits, ends, err = b.before(b.waiting, true); err != nil {
		return err
	}
	b.Beside("submit_to_decision_p99/time_limits", milliseconds(quantile(submits, 99)), "ms")
	b.Beside("end_to_decision_p99/time_limits", milliseconds(quantile(ends, 99)), "ms")
	return nil
}

// before is how long submissions and ends take before a line of so many.
func (b *bench) before(waiting int, limits bool) (submits, ends []time.Duration, err error) {
	x, err := b.withLine(waiting, limits)
	if err != nil {
		return nil, nil, err
	}
	return x.submits(b.submits)
}

// idleStep measures steps that change nothing: ticks where nobody waits, and before a line of 1,000.
func (b *bench) idleStep() error {
	for _, waiting := range []int{0, 1000} {
		x, err := b.withLine(waiting, false)
		if err != nil {
			return err
		}
		const times = 2000
		begin := time.Now()
		for range times {
			x.now += 1000
			if err := x.step(engine.Tick{At: engine.At{At: x.now}}); err != nil {
				return err
			}
		}
		name := "idle_step"
		if waiting > 0 {
			name += fmt.Sprintf("@%d_waiting", waiting)
		}
		b.AtMost(name, microseconds(time.Since(begin), times), 10, "µs")
	}
	return nil
}

// memory measures what a running task takes of the heap, with what the engine keeps to decide faster.
func (b *bench) memory() error {
	x := newWorld(b.nodes, b.shapes)
	empty := heap()
	if err := x.fillTo(most); err != nil {
		return err
	}
	tasks := len(x.running)
	x.running = nil // what the benchmark itself keeps
	b.AtMost("memory_per_running_task", float64(heap()-empty)/float64(tasks), 1024, "bytes")
	runtime.KeepAlive(x)
	return nil
}

func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// whole is a workload of tasks of whole devices.
func whole(id, queue string, tasks, devices int) engine.Workload {
	w := engine.Workload{ID: id, Queue: queue, Tasks: tasks, Devices: devices, Class: api.Training}
	w.Share.Compute = api.Compute{Floor: api.WholeDevice, Ceiling: api.WholeDevice}
	return w
}
