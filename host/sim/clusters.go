package sim

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/engine"
)

// perNode is how many devices a node of the job traces has.
const perNode = 8

// uniform are nodes of eight devices each.
func uniform(nodes int) []engine.NodeSet {
	all := make([]engine.NodeSet, nodes)
	for i := range all {
		all[i].Node = fmt.Sprintf("node-%04d", i)
		for k := range perNode {
			all[i].Devices = append(all[i].Devices, engine.Device{
				UUID: all[i].Node + "-" + strconv.Itoa(k), Index: k, Model: "GPU", Memory: 16 << 30, Health: api.Healthy,
			})
		}
	}
	return all
}

// wholeDevices is a job of so many whole devices: up to a node's, which has each of them, on one node, more as whole nodes.
func wholeDevices(id string, devices, each int64) (Job, error) {
	if id == "" || devices < 1 || devices > each*engine.MaxTasks {
		return Job{}, fmt.Errorf("job %q wants %d GPUs: give it a name and at least 1 GPU", id, devices)
	}
	j := Job{Workload: engine.Workload{ID: id, Class: api.Training, Tasks: 1, Devices: int(devices), Preemptible: true}}
	if devices > each {
		j.Tasks, j.Devices = int((devices+each-1)/each), int(each)
	}
	j.Share.Compute = api.Compute{Floor: api.WholeDevice, Ceiling: api.WholeDevice}
	return j, nil
}

// ReadMuri reads a job trace of Muri (SIGCOMM'22): 64 GPUs as eight nodes of eight; a job's work is its iterations of so many ms.
// It names no users: all are taken for one's, and the models for the jobs' names.
func ReadMuri(path string) (*Trace, error) { return readMuri(path, uniform(8)) }

func readMuri(path string, nodes []engine.NodeSet) (*Trace, error) {
	t := &Trace{Nodes: nodes}
	each := mostOnOne(nodes)
	err := readTable(path, func(r row) error {
		n, err := r.numbers("num_gpu", "submit_time", "iterations", "iteration_time")
		if err != nil {
			return err
		}
		j, err := wholeDevices(strings.Clone(r.text("job_id")), n[0], each)
		if err != nil {
			return err
		}
		if n[2] < 1 || n[3] < 1 || n[2] > maxTime/1000/n[3] || n[1] > maxTime/1000 {
			return fmt.Errorf("job %s comes at %d ms and has %d iterations of %d ms: it needs at least one of each, and times of less than 30 years", j.ID, n[1], n[2], n[3])
		}
		j.User, j.Name = "muri", strings.Clone(r.text("model_name"))
		j.Submit, j.Duration = engine.Time(n[1])*1000, engine.Time(n[2]*n[3])*1000
		if j.Stages, err = r.stages(float64(n[3])); err != nil {
			return err
		}
		t.Jobs = append(t.Jobs, j)
		return nil
	})
	return fromZero(t), err
}

// stages are what part of an iteration of so many ms its stages take, in thousandths, rounded up; where they lie over each other each is all of it at most. A table
// without their columns says nothing of them.
func (r row) stages(iteration float64) (s Stages, err error) {
	if _, ok := r.head["resource_time_0"]; !ok {
		return s, nil
	}
	for i, part := range []*api.Milli{&s.Host, &s.Device, &s.Network} {
		took, err := r.decimal("resource_time_"+strconv.Itoa(i), 0, maxTime)
		if err != nil {
			return s, err
		}
		*part = api.Milli(min(1000, math.Ceil(took*1000/iteration)))
	}
	return s, nil
}

// maxTime is the longest time that a trace may have, in µs: about 30 years.
const maxTime = 1 << 50

// ReadPhilly reads Microsoft's trace of 2017 as the Sia artefact has it: the virtual clusters are the tenants, and users. There are as many nodes
// of eight devices as keep the load, which is what all jobs hold over the span in which they come, at or under the given part of
// the devices.
func ReadPhilly(path string, load float64) (*Trace, error) { return readPhilly(path, load, nil) }

// readPhilly is ReadPhilly on given nodes, or where these are nil on those that keep the load.
func readPhilly(path string, load float64, on []engine.NodeSet) (*Trace, error) {
	t, each := &Trace{Nodes: on}, int64(perNode)
	if on != nil {
		each = mostOnOne(on)
	}
	line := 0
	err := readTable(path, func(r row) error {
		line++
		devices, err := r.number("num_gpus")
		if err != nil {
			return err
		}
		j, err := wholeDevices("job-"+strconv.Itoa(line), devices, each)
		if err != nil {
			return err
		}
		at, err := time.Parse(time.DateTime, r.text("timestamp"))
		if err != nil {
			return fmt.Errorf("timestamp is %q: write it as 2017-10-09 07:01:55", r.text("timestamp"))
		}
		took, err := strconv.ParseFloat(r.text("duration"), 64)
		if err != nil || !(took > 0 && took < maxTime/1e6) {
			return fmt.Errorf("duration is %q: it must be a number of seconds above 0 and under 30 years", r.text("duration"))
		}
		if j.Queue = strings.Clone(r.text("cluster")); j.Queue == "" {
			return fmt.Errorf("the job has no cluster: name its virtual cluster")
		}
		j.User = j.Queue
		j.Submit, j.Duration = engine.Time(at.UnixMicro()), max(1, engine.Time(took*1e6))
		t.Jobs = append(t.Jobs, j)
		return nil
	})
	if err != nil {
		return nil, err
	}
	if fromZero(t); on != nil {
		return t, nil
	}
	nodes, err := nodesFor(t.Jobs, load)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	t.Nodes = uniform(nodes)
	return t, nil
}

// sorted puts the jobs in the order of their coming.
func sorted(t *Trace) *Trace {
	slices.SortStableFunc(t.Jobs, func(a, b Job) int { return cmp.Compare(a.Submit, b.Submit) })
	return t
}

// fromZero puts the jobs in the order of their coming, the first at time 0.
func fromZero(t *Trace) *Trace {
	sorted(t)
	for i := len(t.Jobs) - 1; i >= 0; i-- {
		t.Jobs[i].Submit -= t.Jobs[0].Submit
	}
	return t
}

// nodesFor is how many nodes of eight devices keep the load at or under a part of them, and are enough for the largest job.
func nodesFor(jobs []Job, load float64) (int, error) {
	var held float64
	most := 1
	for i := range jobs {
		held += float64(jobs[i].Duration) / 1000 * float64(jobs[i].Compute())
		most = max(most, jobs[i].Tasks)
	}
	if len(jobs) == 0 {
		return most, nil
	}
	span := max(1, jobs[len(jobs)-1].Submit)
	nodes := held / float64(span) / perNode / load
	if nodes >= maxNodes {
		return 0, fmt.Errorf("all jobs come within %s, and a load of %g of them takes %.0f nodes, more than %d: give a trace whose jobs come over a longer time, or a higher load",
			time.Duration(min(span, maxTime))*time.Microsecond, load, nodes, maxNodes)
	}
	return max(most, int(nodes)+1), nil
}
