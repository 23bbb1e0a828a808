package sim

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"slices"
	"sort"
	"strconv"
	"strings"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/engine"
	"github.com/aliquot-dev/aliquot/engine/fleet"
	"github.com/aliquot-dev/aliquot/engine/queue"
)

// formatLine is the first line of a trace in our own format; docs/simulator.md says what may follow.
const formatLine = "aliquot trace 1"

// maxNodes is how many nodes a trace may have, and maxJobs how many jobs.
const (
	maxNodes = 100_000
	maxJobs  = 10_000_000
)

// ReadLines reads a trace in our own format, to run on other nodes than its own, or where these are nil on its own.
func ReadLines(path string, on []engine.NodeSet) (*Trace, error) {
	file, err := os.Open(path) //nolint:gosec // the path is the user's own word
	if err != nil {
		return nil, fmt.Errorf("read trace: %w", err)
	}
	defer func() { _ = file.Close() }()
	return scanLines(path, file, on)
}

func scanLines(name string, from io.Reader, on []engine.NodeSet) (*Trace, error) {
	p := newLineReader(on)
	if err := p.all(name, from); err != nil {
		return nil, err
	}
	if on != nil {
		p.trace.Nodes = on
	}
	switch nodes, jobs := len(p.trace.Nodes) > 0, len(p.trace.Jobs) > 0; {
	case !nodes && !jobs:
		return nil, fmt.Errorf("%s has neither nodes nor jobs: it needs at least one of each", name)
	case !nodes:
		return nil, fmt.Errorf("%s has no nodes: it needs at least one, as in nodes 1", name)
	case !jobs:
		return nil, fmt.Errorf("%s has no jobs: it needs at least one, as in job a run=1h", name)
	}
	countOnly(p.trace.Jobs, p.trace.Nodes)
	p.trace.add(p.outages)
	return sorted(p.trace), nil
}

func newLineReader(on []engine.NodeSet) *lineReader {
	return &lineReader{trace: &Trace{}, on: on, queues: map[string]bool{}, jobs: map[string]bool{}}
}

// all takes in all lines.
func (p *lineReader) all(name string, from io.Reader) error {
	lines := bufio.NewScanner(from)
	n := 0
	for lines.Scan() {
		n++
		words := strings.Fields(lines.Text())
		var err error
		switch {
		case n == 1 && strings.Join(words, " ") != formatLine:
			err = fmt.Errorf("the first line is %q: it must be %q", lines.Text(), formatLine)
		case n == 1 || len(words) == 0 || strings.HasPrefix(words[0], "#"):
		default:
			p.at = n
			err = p.line(words)
		}
		if err != nil {
			return fmt.Errorf("%s:%d: %w", name, n, err)
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("%s:%d: %w", name, n+1, err)
	}
	if line, err := p.promised(); err != nil {
		return fmt.Errorf("%s:%d: %w", name, line, err)
	}
	return nil
}

// lineReader is a trace of our own format on its way in.
type lineReader struct {
	trace        *Trace
	on           []engine.NodeSet // that count instead of its own; nil: none
	queues, jobs map[string]bool
	queueLines   []int // of trace.Queues
	outages      []outage
	at           int               // the line
	words        map[string]string // of a line, by key; what was read is taken out
	err          error             // the first of a line
}

// line takes in one line: a word that says what it is, a name or number, then words of the form key=value, in any order.
func (p *lineReader) line(words []string) error {
	if len(words) < 2 {
		return fmt.Errorf("%q stands alone: write nodes COUNT, queue NAME, job NAME, role NAME or fail NODE, then key=value", words[0])
	}
	p.words, p.err = map[string]string{}, nil
	for _, word := range words[2:] {
		key, value, _ := strings.Cut(word, "=")
		if _, twice := p.words[key]; twice || value == "" {
			return fmt.Errorf("%q is not key=value with a key that comes once", word)
		}
		p.words[key] = value
	}
	switch words[0] {
	case "nodes":
		p.nodes(words[1])
	case "queue":
		p.queue(words[1])
	case "job":
		p.job(words[1])
	case "role":
		p.role(words[1])
	case "fail":
		p.failure(words[1])
	default:
		return fmt.Errorf("%q is no kind of line: write nodes, queue, job, role or fail", words[0])
	}
	if p.err == nil {
		for _, key := range slices.Sorted(maps.Keys(p.words)) {
			return fmt.Errorf("%s has no %s: see the list of its words in docs/simulator.md", words[0], key)
		}
	}
	return p.err
}

// read takes a word of the line and parses it; what is not there is left as it is.
func read[T any](p *lineReader, key string, parse func(string) (T, error), into *T) {
	text, ok := p.words[key]
	if !ok {
		return
	}
	delete(p.words, key)
	value, err := parse(text)
	if err != nil {
		p.fail("%s=%s: %w", key, text, err)
		return
	}
	*into = value
}

func (p *lineReader) fail(format string, args ...any) {
	if p.err == nil {
		p.err = fmt.Errorf(format, args...)
	}
}

// between parses a whole number of a range.
func between(low, high int64) func(string) (int64, error) {
	return func(text string) (int64, error) {
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil || n < low || n > high {
			return 0, fmt.Errorf("write a whole number from %d to %d", low, high)
		}
		return n, nil
	}
}

// busyPart parses how much of a device a job keeps busy.
func busyPart(text string) (api.Milli, error) {
	c, err := api.ParseCompute(text)
	if err != nil || c.Floor != c.Ceiling || c.Floor < 1 {
		return 0, fmt.Errorf("write a part of a device from 0.001 to 1")
	}
	return c.Floor, nil
}

// stages parses what part of its time a job spends on host, device and network: `0.9/0.02/0.1`.
func stages(text string) (s Stages, err error) {
	parts := strings.Split(text, "/")
	if len(parts) != 3 {
		return s, fmt.Errorf("write three parts of its time, of host, device and network, for example 0.9/0.02/0.1")
	}
	for i, part := range []*api.Milli{&s.Host, &s.Device, &s.Network} {
		v, err := strconv.ParseFloat(parts[i], 64)
		if err != nil || !(v >= 0 && v <= 1) {
			return s, fmt.Errorf("%q is no part of its time: write a number from 0 to 1", parts[i])
		}
		*part = api.Milli(math.Ceil(v * 1000))
	}
	return s, nil
}

// replicas parses how many tasks a job has: `4`, or `2..8` of an elastic one.
func replicas(text string) (all [2]int64, err error) {
	least, most, elastic := strings.Cut(text, "..")
	number := between(1, engine.MaxTasks)
	if all[0], err = number(least); err == nil && elastic {
		if all[1], err = number(most); err == nil && all[1] < all[0] {
			err = fmt.Errorf("write the smaller number first")
		}
	}
	return all, err
}

// moment parses a duration of at most 30 years into µs.
func moment(text string) (engine.Time, error) {
	d, err := api.ParseDuration(text)
	if err == nil && int64(d)/1000 > maxTime {
		err = fmt.Errorf("the time is too long: write at most 30 years")
	}
	return engine.Time(int64(d) / 1000), err
}

// every parses how often a job saves its work.
func every(text string) (engine.Time, error) {
	if text == "never" {
		return NeverSaves, nil
	}
	t, err := moment(text)
	if err == nil && t < 1 {
		err = fmt.Errorf("write how often it saves, for example 10m, or never")
	}
	return t, err
}

// resources reads cpu, in cores, and ram.
func (p *lineReader) resources() (cpu api.Milli, ram api.Bytes) {
	read(p, "cpu", cores, &cpu)
	read(p, "ram", api.ParseBytes, &ram)
	return cpu, ram
}

// least reads what the devices of a job must be able to do.
func (p *lineReader) least() fleet.Least {
	var capability api.Capability
	var bandwidth, class int64
	read(p, "min-capability", api.ParseCapability, &capability)
	read(p, "min-bandwidth", between(1, api.MaxBandwidth), &bandwidth)
	read(p, "max-latency-class", between(1, api.SlowestLatency), &class)
	return fleet.Least{Capability: int32(capability), Bandwidth: int32(bandwidth), Latency: int32(class)}
}

func cores(text string) (api.Milli, error) {
	n, err := strconv.ParseFloat(text, 64)
	if err != nil || !(n >= 0 && n <= 1e6) {
		return 0, fmt.Errorf("write a number of cores from 0 to a million")
	}
	return api.Milli(n * 1000), nil
}

func word(text string) (string, error) { return text, nil }

// named are the resources of a node or job, without those that it has none of.
func named(cpu api.Milli, ram api.Bytes) []engine.Resource {
	var all []engine.Resource
	if cpu > 0 {
		all = append(all, engine.Resource{Name: "cpu", Amount: int64(cpu)})
	}
	if ram > 0 {
		all = append(all, engine.Resource{Name: "memory", Amount: int64(ram)})
	}
	return all
}

func (p *lineReader) queue(name string) {
	spec := api.QueueSpec{Name: name, Quota: api.Unlimited}
	weight := int64(1)
	read(p, "quota", api.ParseQuota, &spec.Quota)
	read(p, "weight", between(1, 1<<20), &weight)
	read(p, "parent", word, &spec.Parent)
	spec.Weight.All = int32(weight)
	switch {
	case p.queues[name]:
		p.fail("queue %s comes twice: write it once", name)
	case spec.Parent != "" && !p.queues[spec.Parent]:
		p.fail("queue %s is under %s, which does not come before it: write that first", name, spec.Parent)
	}
	p.queues[name] = true
	p.trace.Queues = append(p.trace.Queues, spec)
	p.queueLines = append(p.queueLines, p.at)
}

// promised says which quota there is too little of, and in which line: the first up to which the queues are promised more than those above
// them have. Each comes after the one that it is under, so no later line makes that right.
func (p *lineReader) promised() (line int, err error) {
	upTo := func(queues int) error { return queue.New().CheckAll(p.trace.Queues[:queues]) }
	if err = upTo(len(p.trace.Queues)); err == nil {
		return 0, nil
	}
	bad := 1 + sort.Search(len(p.trace.Queues)-1, func(i int) bool { return upTo(i+1) != nil })
	return p.queueLines[bad-1], upTo(bad)
}

func (p *lineReader) failure(node string) {
	o := outage{node: node}
	there := p.trace.Nodes
	if p.on != nil {
		there = p.on
	}
	read(p, "at", moment, &o.at)
	read(p, "for", moment, &o.long)
	switch {
	case !slices.ContainsFunc(there, func(n engine.NodeSet) bool { return n.Node == node }) && p.on != nil:
		p.fail("there is no node %s among the %d that the trace is to run on: give such with that node, or leave the line out", node, len(there))
	case !slices.ContainsFunc(there, func(n engine.NodeSet) bool { return n.Node == node }):
		p.fail("there is no node %s before this line: they are called node-00000 and so on, in their order", node)
	case o.long < 1:
		p.fail("the failure of %s has no end: write for example for=30m", node)
	}
	p.outages = append(p.outages, o)
}

// role is further tasks of the job in front of it.
func (p *lineReader) role(name string) {
	if len(p.trace.Jobs) == 0 {
		p.fail("role %s comes before any job: write it behind the job that it is of", name)
		return
	}
	j := &p.trace.Jobs[len(p.trace.Jobs)-1]
	r := engine.Role{Name: name, Share: api.Share{Compute: api.Compute{Floor: api.WholeDevice, Ceiling: api.WholeDevice}}}
	tasks, devices := int64(1), int64(1)
	read(p, "tasks", between(1, engine.MaxTasks), &tasks)
	read(p, "devices", between(1, 64), &devices)
	read(p, "gpu", api.ParseCompute, &r.Share.Compute)
	read(p, "mem", api.ParseMemory, &r.Share.Memory)
	read(p, "model", word, &r.Model)
	r.Resources = named(p.resources())
	r.Tasks, r.Devices = int(tasks), int(devices)
	j.Roles = append(j.Roles, r)
	if err := engine.ValidRoles(&j.Workload); err != nil {
		p.fail("%w", err)
	}
}

func (p *lineReader) job(name string) {
	j := Job{Workload: engine.Workload{ID: name, Class: api.Batch, Preemptible: true}}
	j.Share.Compute = api.Compute{Floor: api.WholeDevice, Ceiling: api.WholeDevice}
	devices, priority, after := int64(1), int64(0), int64(0)
	tasks := [2]int64{1, 0}
	var preemptible string
	read(p, "at", moment, &j.Submit)
	read(p, "run", moment, &j.Duration)
	read(p, "limit", moment, &j.TimeLimit)
	read(p, "checkpoint", every, &j.Checkpoint)
	read(p, "restart", moment, &j.Restart)
	read(p, "tasks", replicas, &tasks)
	read(p, "devices", between(1, 64), &devices)
	read(p, "gpu", api.ParseCompute, &j.Share.Compute)
	read(p, "mem", api.ParseMemory, &j.Share.Memory)
	read(p, "model", word, &j.Model)
	j.Least = p.least()
	read(p, "same", word, &j.Same)
	read(p, "prefer", word, &j.Prefer)
	read(p, "queue", word, &j.Queue)
	read(p, "user", word, &j.User)
	read(p, "name", word, &j.Name)
	read(p, "priority", between(-1<<31, 1<<31-1), &priority)
	read(p, "priority-until", moment, &j.PriorityUntil)
	read(p, "priority-after", between(-1<<31, 1<<31-1), &after)
	read(p, "preemptible", word, &preemptible)
	read(p, "busy", busyPart, &j.Busy)
	read(p, "program", word, &j.Program)
	read(p, "stages", stages, &j.Stages)
	read(p, "service", word, &j.Service)
	j.Resources = named(p.resources())
	j.Tasks, j.Max, j.Devices, j.Priority, j.PriorityAfter = int(tasks[0]), int(tasks[1]), int(devices), int32(priority), int32(after)
	switch {
	case p.jobs[name]:
		p.fail("job %s comes twice: give each a name of its own", name)
	case j.Duration < 1:
		p.fail("job %s does not say how long it runs: write for example run=90m", name)
	case j.PriorityUntil == 0 && after != 0:
		p.fail("priority-after=%d: it is not said after what: write priority-until=2d beside it, as at= is written", after)
	case j.Service != "" && (j.Busy > 0 || j.Program != ""):
		p.fail("job %s follows a service, and keeps busy what that does: leave out busy and program", name)
	case j.Service != "" && j.Checkpoint != 0:
		p.fail("job %s follows a service, which serves and saves nothing: leave out checkpoint", name)
	case preemptible != "" && preemptible != "no" && preemptible != "yes":
		p.fail("preemptible=%s: write yes or no", preemptible)
	case len(p.trace.Jobs) == maxJobs:
		p.fail("the trace has more than %d jobs: split it", maxJobs)
	}
	j.Preemptible = preemptible != "no"
	p.jobs[name] = true
	p.trace.Jobs = append(p.trace.Jobs, j)
}
