package sim

import (
	"slices"

	"github.com/aliquot-dev/aliquot/engine"
)

// An elastic job does its work at a speed of its replicas by those that it is sure of: with four of 2..8 it runs in half the time. So it is in the
// best case; what a program loses by changes is not counted.

// replicaCompute is what one replica of a job takes, in thousandths of a device; one that is elastic has no roles.
func (m *member) replicaCompute() int64 {
	return int64(m.job.Share.Compute.Floor) * int64(m.job.Devices)
}

// changeReplicas has a job go on with other replicas from now on.
func (r *jobRun) changeReplicas(m *member, more []int) {
	m.settle(r.now)
	r.usage = append(r.usage, change{r.now, m.job.Queue, int64(len(more)-len(m.more)) * m.replicaCompute()})
	m.more = more
	m.speed = fullSpeed * int64(m.job.Tasks+len(m.more)) / int64(m.job.Tasks)
	r.expect(m)
}

// grow starts one more replica of a job. Where the engine is just being told that the job is over, it ends with that.
func (r *jobRun) grow(m *member, a engine.Place) {
	task := a.Tasks[0].Task
	if more := append(slices.Clone(m.more), task); m.over {
		m.more = more
	} else {
		r.changeReplicas(m, more)
		r.out.Grown++
	}
	r.carriedOut(a.ID, answer{event: engine.Started{At: engine.At{At: r.now}, ID: a.Workload, Task: task}})
}

// shrink ends one replica of a job that runs on.
func (r *jobRun) shrink(m *member, a engine.Evict) {
	r.changeReplicas(m, slices.DeleteFunc(slices.Clone(m.more), func(task int) bool { return task == a.Task }))
	r.out.Shrunk++
	r.carriedOut(a.ID, answer{event: engine.Ended{At: engine.At{At: r.now}, ID: a.Workload, Task: a.Task}})
}
