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

// expect puts the end of a job that runs among those to come, as it goes on from now on: when it is through, or at its time limit. It is settled.
func (r *jobRun) expect(m *member) {
	m.pace++
	at := m.limitAt()
	if m.speed > 0 {
		at = min(at, m.since+takes(m.left, m.speed))
	}
	if at != engine.Never {
		r.seq++
		heap.Push(&r.ends, ending{at: at, seq: r.seq, member: m, pace: m.pace})
	}
}

// limitAt is when a job that runs has run for as long as its time limit is, as on a server by the clock, however fast it goes on. What it ran before
// evictions counts, but for what it lost by them. Never: it has none.
func (m *member) limitAt() engine.Time {
	if m.job.TimeLimit <= 0 {
		return engine.Never
	}
	return m.began + m.job.TimeLimit - (m.ran - m.anew)
}

// remains is for how long a job goes on at its speed alone, until it is through or its time limit ends it.
func (m *member) remains(now engine.Time) engine.Time {
	left := m.leftAt(now)
	switch {
	case m.job.TimeLimit <= 0:
		return left
	case m.running:
		return min(left, m.limitAt()-now)
	}
	return min(left, m.job.TimeLimit-(m.ran-m.anew))
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

// endDue ends what has run its time, all of it before the engine decides on the first end: nothing is evicted that is over.
func (r *jobRun) endDue() error {
	var due []*member
	for r.skipStale(); len(r.ends) > 0 && r.ends[0].at <= r.now; r.skipStale() {
		m := heap.Pop(&r.ends).(ending).member
		r.release(m)
		if m.left > 0 {
			r.out.TimedOut++
		}
		r.wanted -= m.job.Wants()
		r.end(m)
		m.over = true
		due = append(due, m)
	}
	for _, m := range due {
		if err := r.tellEnd(m); err != nil {
			return err
		}
	}
	return nil
}

// tellEnd tells the engine that a job is over, those of its replicas first that it was not sure of.
func (r *jobRun) tellEnd(m *member) error {
	for _, task := range m.more {
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
