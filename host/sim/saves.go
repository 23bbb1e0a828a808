package sim

import (
	"container/heap"
	"fmt"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/engine"
)

// A job that says how often it saves goes on, after it was evicted, from what it had saved; one that says what starting again takes holds its devices for so long
// before it goes on. It saves at even distances while it goes on, the first time that long after it began to; saving takes no time. Of what says
// neither nothing is lost. The engine is told of saves as a server is by `aliquot checkpoint`.

// NeverSaves is Job.Checkpoint of one that begins anew after each eviction.
const NeverSaves engine.Time = -1

// maxVain is how often in a row jobs may be evicted by which none had saved anything more, while none ends, after all have come.
const maxVain = 1000

// LostResult is what evictions cost, in seconds × devices.
type LostResult struct {
	Work    float64 `json:"workDeviceSeconds"`    // that jobs did and had not saved
	Restart float64 `json:"restartDeviceSeconds"` // for which they held devices until they went on
	Percent float64 `json:"percent"`              // both, of all that jobs held
}

func (l *LostResult) figures() []Named {
	return []Named{{"work lost", l.Work, "device-s"}, {"starting again", l.Restart, "device-s"}, {"lost of what was held", l.Percent, "%"}}
}

// keepsAccount says that evictions cost something of some job.
func (t *Trace) keepsAccount() bool {
	for i := range t.Jobs {
		if t.Jobs[i].Checkpoint != 0 || t.Jobs[i].Restart > 0 {
			return true
		}
	}
	return false
}

// begin has a job run; one that ran before starts again.
func (r *jobRun) begin(m *member) {
	m.running, m.speed, m.used, m.held = true, fullSpeed, 0, 0
	m.began, m.resumed, m.saved = r.now, r.now, m.left
	if m.started < 0 {
		m.started = r.now
	} else {
		m.resumed += m.job.Restart
	}
	m.since = m.resumed
	r.running[m] = true
	r.toSave(m)
}

// lastSave is when a job that runs saved last by now; when it went on if it has not saved since.
func (m *member) lastSave(now engine.Time) engine.Time {
	if m.job.Checkpoint <= 0 || now <= m.resumed {
		return m.resumed
	}
	return now - (now-m.resumed)%m.job.Checkpoint
}

// leftAt is what is left of running.
func (m *member) leftAt(now engine.Time) engine.Time {
	if !m.running {
		return m.left
	}
	return m.left - progress(max(0, now-m.since), m.speed)
}

// serviceAt is what a job had until now, in seconds × devices.
func (m *member) serviceAt(now engine.Time) float64 {
	return float64(m.hadAt(now)) * float64(m.job.Wants()) / 1e9
}

// settle has what a job did until now at its speed count, and what it saved of that.
func (m *member) settle(now engine.Time) {
	if at := m.lastSave(now); at > m.since {
		m.saved = m.left - progress(at-m.since, m.speed)
	}
	m.left, m.since = m.leftAt(now), max(m.since, now)
}

// starting is for how long it has held its devices by now, since it began, without going on.
func (m *member) starting(now engine.Time) engine.Time { return min(now, m.resumed) - m.began }

// hadAt is for how long a job ran until now, in µs of running at its speed alone: what it did, what of that was lost, and what starting again took.
func (m *member) hadAt(now engine.Time) engine.Time {
	had := m.job.Duration - m.leftAt(now) + m.lost + m.again
	if m.running {
		had += m.starting(now)
	}
	return had
}

// hasAt is when a job that runs will have had so many µs more.
func (m *member) hasAt(now, more engine.Time) engine.Time {
	if starting := max(0, m.resumed-now); more > starting {
		return now + starting + takes(more-starting, m.speed)
	}
	return now + more
}

// lose takes from a job that is being evicted what it did and has not saved. It is settled, and on its devices.
func (r *jobRun) lose(m *member) error {
	if m.job.Checkpoint == 0 && m.job.Restart == 0 {
		return nil
	}
	if m.job.Checkpoint != 0 {
		saved := m.lastSave(r.now)
		if saved <= m.resumed { // nothing, since it began
			saved = m.began
		}
		m.anew += r.now - saved
		lost := m.saved - m.left
		m.left = m.saved
		m.lost += lost
		r.lost.Work += float64(lost) * float64(m.job.Compute()) / 1e9
		if r.beside != nil {
			r.beside.lose(m, lost, r.now)
		}
	}
	if m.left < m.kept || r.toCome > 0 {
		r.vain = 0
	}
	if m.kept = m.left; m.keptAt != r.now { // what is evicted over and over at one moment is not to blame for that: see decided
		r.vain++
	}
	if m.keptAt = r.now; r.vain > maxVain {
		return fmt.Errorf("jobs were evicted %d times in a row, the last of them %s, and none had saved anything more or ended meanwhile: have them save more often (checkpoint=), or start again faster (restart=)", maxVain, m.job.ID)
	}
	return nil
}

// lose takes back what was counted as useful of what a job lost, evenly over the time in which it did that.
func (b *besides) lose(m *member, lost, now engine.Time) {
	passed := now - m.lastSave(now)
	if lost == 0 || passed <= 0 {
		return
	}
	useful := float64(lost) * float64(int64(b.alone(m.job))*(fullSpeed/int64(api.WholeDevice))*int64(len(m.sharers))) // µs × millionths of a device
	b.sums.useful -= useful
	each := int64(useful / float64(passed))
	b.changes = append(b.changes, change{now - passed, m.job.Queue, -each}, change{now, m.job.Queue, each})
}

// save is when a job has saved something of which the engine does not know.
type save struct {
	at     engine.Time
	seq    int
	member *member
	began  engine.Time // one that was evicted since has not saved it
}

// saves are those to come, a heap by time.
type saves []save

func (s saves) Len() int { return len(s) }
func (s saves) Less(i, j int) bool {
	return s[i].at < s[j].at || s[i].at == s[j].at && s[i].seq < s[j].seq
}
func (s saves) Swap(i, j int) { s[i], s[j] = s[j], s[i] }
func (s *saves) Push(x any)   { *s = append(*s, x.(save)) }
func (s *saves) Pop() any {
	last := len(*s) - 1
	x := (*s)[last]
	*s = (*s)[:last]
	return x
}

// toSave puts the next save of a job that runs among those to come.
func (r *jobRun) toSave(m *member) {
	if every := m.job.Checkpoint; every > 0 && !r.order.chooses() { // else the engine chooses nobody to evict
		r.seq++
		heap.Push(&r.saves, save{at: m.lastSave(r.now) + every, seq: r.seq, member: m, began: m.began})
	}
}

// tellSaves tells the engine until when work is saved. Nothing is decided by that alone, so it is enough to do so when something is to be decided.
func (r *jobRun) tellSaves() error {
	for len(r.saves) > 0 && r.saves[0].at <= r.now {
		s := heap.Pop(&r.saves).(save)
		m := s.member
		if !m.running || m.began != s.began {
			continue
		}
		if err := r.step(engine.Checkpoint{At: engine.At{At: r.now}, ID: m.id, Ago: r.now - m.lastSave(r.now)}); err != nil {
			return err
		}
		r.toSave(m)
	}
	return nil
}

// costs sums up what evictions cost, the run being over.
func (r *jobRun) costs() *LostResult {
	if r.lost == nil {
		return nil
	}
	var held float64
	for _, c := range r.usage {
		held += float64(c.amount) * float64(r.now-c.at) / 1e9
	}
	for _, m := range r.runningMembers() {
		r.lost.Restart += float64(m.starting(r.now)) * float64(m.job.Compute()) / 1e9
	}
	r.lost.Percent = part(r.lost.Work+r.lost.Restart, held)
	return r.lost
}
