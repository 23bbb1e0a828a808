package sim

import (
	"slices"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/engine"
)

// Trace is the input of a run.
type Trace struct {
	Name  string
	Nodes []engine.NodeSet
	// Classes say which nodes the feasibility classes that jobs name may use.
	Classes []engine.Feasibility
	// Queues are the tenants of which more is known than their names.
	Queues []api.QueueSpec
	Jobs   []Job // by Submit
	// Events are what happens to nodes, devices, queues and classes while the jobs run, by time.
	Events []engine.Event

	outages []outage // of which there are events
}

// Job is a workload of a trace.
type Job struct {
	engine.Workload
	Submit   engine.Time // µs
	Duration engine.Time // µs of running; 0: it never ends
	// PriorityUntil is when its priority is over, in µs of the trace, and PriorityAfter counts instead; 0: it always holds.
	PriorityUntil engine.Time
	PriorityAfter int32
	// Checkpoint is how often it saves what it did, in µs of going on; NeverSaves: it begins anew after an eviction; 0: an eviction takes nothing of what it did.
	Checkpoint engine.Time
	// What it does to devices, where that counts (Sharing).
	Busy        api.Milli // what it keeps busy of each device alone; 0: as its program, all of it where that is not known either
	Program     string    // as an interference lists it; empty: none of those
	Service     string    // whose duty cycle it follows instead, one of those of a Duty; empty: it always keeps as much busy
	FirstSample int       // of the duty cycle, at time 0 of the trace; ≥ 0

	Used   *engine.Used // of each device, in a record of it; nil: that says nothing. Where devices are shared the run itself says it
	Stages Stages       // of its iterations
	Alone  int64        // what it would take with devices of its own, in thousandths of a device; 0: what it takes
}

// Compute is what the job takes while it runs, in thousandths of a device.
func (j *Job) Compute() int64 {
	sum := int64(j.Share.Compute.Floor) * int64(j.Devices) * int64(j.Tasks)
	for i := range j.Roles {
		r := &j.Roles[i]
		sum += int64(r.Share.Compute.Floor) * int64(r.Devices) * int64(r.Tasks)
	}
	return sum
}

// Takes is how long the job runs with devices of its own: until it is through, or its time limit ends it.
func (j *Job) Takes() engine.Time {
	if j.TimeLimit > 0 {
		return min(j.Duration, j.TimeLimit)
	}
	return j.Duration
}

// Wants is what the job would take if it had its devices for itself, in thousandths of a device.
func (j *Job) Wants() int64 {
	if j.Alone > 0 {
		return j.Alone
	}
	return j.Compute()
}

// everyNode are the nodes of a trace, then those that come or change while its jobs run.
func (t *Trace) everyNode(yield func(engine.NodeSet) bool) {
	for _, n := range t.Nodes {
		if !yield(n) {
			return
		}
	}
	for _, event := range t.Events {
		if n, ok := event.(engine.NodeSet); ok && !yield(n) {
			return
		}
	}
}

// withResources is a copy of a trace in which nodes, also those that come later, have further resources, by how many devices they have. Its jobs may be changed.
func (t *Trace) withResources(of func(devices int) []engine.Resource) *Trace {
	with := func(n engine.NodeSet) engine.NodeSet {
		n.Resources = append(slices.Clone(n.Resources), of(len(n.Devices))...)
		return n
	}
	out := *t
	out.Nodes, out.Jobs, out.Events = slices.Clone(t.Nodes), slices.Clone(t.Jobs), slices.Clone(t.Events)
	for i := range out.Nodes {
		out.Nodes[i] = with(out.Nodes[i])
	}
	for i, event := range out.Events {
		if n, ok := event.(engine.NodeSet); ok {
			out.Events[i] = with(n)
		}
	}
	return &out
}

// Capacity is what all devices of the trace's nodes have, in thousandths of a device; those that come later count as if they were there
// from the beginning, and those that go as if they stayed.
func (t *Trace) Capacity() int64 {
	devices := map[string]int{}
	for n := range t.everyNode {
		devices[n.Node] = max(devices[n.Node], len(n.Devices))
	}
	var sum int64
	for _, count := range devices {
		sum += int64(count) * 1000
	}
	return sum
}

// random draws numbers that are the same on every machine and with every version of the language: splitmix64 (Steele, Lea, Flood:
// Fast splittable pseudorandom number generators, 2014).
type random struct{ state uint64 }

func newRandom(seed uint64) *random { return &random{seed * 0x9e3779b97f4a7c15} }

func (r *random) next() uint64 {
	r.state += 0x9e3779b97f4a7c15
	x := r.state
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// below draws a number from 0 to n-1; n must be positive. The bias is under n in 2^64.
func (r *random) below(n int) int { return int(r.next() % uint64(n)) }

// unit draws a number from 0 to 1, 1 excluded.
func (r *random) unit() float64 { return float64(r.next()>>11) / (1 << 53) }

func shuffle[T any](r *random, list []T) {
	for i := len(list) - 1; i > 0; i-- {
		k := r.below(i + 1)
		list[i], list[k] = list[k], list[i]
	}
}
