package sim

import (
	"container/heap"

	"github.com/aliquot-dev/aliquot/engine"
)

// finished is what a job came to.
type finished struct {
	job        *Job
	wait       engine.Time // until its first start
	completion engine.Time // from its coming to its end
	contention float64     // mean, at least 1
}

// expect puts the end of a job that runs among those to come, as it goes on from now on. It is settled.
func (r *jobRun) expect(m *member) {
	m.pace++
	if m.speed > 0 {
		r.seq++
		heap.Push(&r.ends, ending{at: m.since + takes(m.left, m.speed), seq: r.seq, member: m, pace: m.pace})
	}
}

// skipStale drops ends of jobs that were stopped before, or go on at another speed.
func (r *jobRun) skipStale() {
	for len(r.ends) > 0 {
		if e := r.ends[0]; e.member.running && e.member.pace == e.pace {
			return
		}
		heap.Pop(&r.ends)
	}
}

// endDue ends what has run its time.
func (r *jobRun) endDue() error {
	for r.skipStale(); len(r.ends) > 0 && r.ends[0].at <= r.now; r.skipStale() {
		m := heap.Pop(&r.ends).(ending).member
		r.release(m)
		r.wanted -= m.job.Wants()
		r.end(m)
		m.over = true
		more := m.more
		m.more = nil
		for _, task := range more {
			if err := r.step(engine.Ended{At: engine.At{At: r.now}, ID: m.id, Task: task}); err != nil {
				return err
			}
		}
		used := r.usedBy(m)
		for task := range m.job.AllTasks() {
			if err := r.step(engine.Ended{At: engine.At{At: r.now}, ID: m.id, Task: task, Used: used}); err != nil {
				return err
			}
		}
		delete(r.byID, m.id)
	}
	return nil
}

// end notes what a job came to.
func (r *jobRun) end(m *member) {
	r.vain = 0
	r.ended = append(r.ended, finished{
		job: m.job, wait: m.started - m.job.Submit, completion: r.now - m.job.Submit,
		contention: max(1, (r.busy-m.busy)/float64(max(1, r.now-m.job.Submit))),
	})
}

// release takes what a job holds out of the sums.
func (r *jobRun) release(m *member) {
	m.settle(r.now)
	if starting := m.starting(r.now); starting > 0 {
		m.again += starting
		r.lost.Restart += float64(starting) * float64(m.job.Compute()) / 1e9
	}
	m.running = false
	m.ran += r.now - m.began
	delete(r.running, m)
	r.vacate(m)
	r.usage = append(r.usage, change{r.now, m.job.Queue, -m.job.Compute() - m.replicaCompute()*int64(len(m.more))})
}
