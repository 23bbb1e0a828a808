package sim

import (
	"slices"
	"strings"
	"time"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/engine"
)

// ShadowResult is what a candidate policy would have made of what a record says was.
type ShadowResult struct {
	Policy    string        `json:"policy"`
	From      time.Time     `json:"from"`
	To        time.Time     `json:"to"`
	Steps     int           `json:"steps"`   // of the record
	Refused   int           `json:"refused"` // events that the candidate would have rejected, as a change of a share that is over a limit there
	Live      ShadowFigures `json:"live"`
	Candidate ShadowFigures `json:"candidate"`
	Queues    []ShadowQueue `json:"queues"`
	Changes   []ShadowJob   `json:"changes"` // workloads that would have fared otherwise, in the order in which they came
}

// ShadowFigures are of the workloads that waited when the record began or came in it.
type ShadowFigures struct {
	Started   int     `json:"started"`
	Waiting   int     `json:"waiting"`          // at the end
	MeanWait  float64 `json:"meanWait"`         // s until the first start, or until the end of the record
	P95Wait   float64 `json:"p95Wait"`          // s
	Evictions int     `json:"evictions"`        // also of what ran before the record
	Grown     int     `json:"grown,omitempty"`  // replicas that elastic workloads got above those that they are sure of
	Shrunk    int     `json:"shrunk,omitempty"` // and gave back before they ended
	Allocated float64 `json:"allocated"`        // mean part of the devices under compute floors, in %
	waits     []float64
}

// ShadowQueue is how a queue fared; its Allocated is of all devices.
type ShadowQueue struct {
	Queue     string        `json:"queue"`
	Live      ShadowFigures `json:"live"`
	Candidate ShadowFigures `json:"candidate"`
}

// The codes of what differs for a workload. They are stable.
const (
	ShadowEarlier   = "earlier"
	ShadowLater     = "later"
	ShadowElsewhere = "elsewhere" // it starts at the same time on other devices
	ShadowOnlyLive  = "not_started"
	ShadowOnlyMine  = "started"
	ShadowEvictions = "evictions" // it starts as it did, and is evicted more or less often
	ShadowReplicas  = "replicas"  // it starts as it did, is evicted as often, and grows or shrinks more or less often
)

// ShadowJob is a workload that would have fared otherwise.
type ShadowJob struct {
	Workload  string     `json:"workload"` // its ID when it came
	Name      string     `json:"name,omitempty"`
	User      string     `json:"user,omitempty"`
	Queue     string     `json:"queue"`
	Change    string     `json:"change"` // a code
	Live      ShadowFate `json:"live"`
	Candidate ShadowFate `json:"candidate"`
}

// ShadowFate is what became of a workload.
type ShadowFate struct {
	Start     *time.Time `json:"start,omitempty"` // its first one in the record
	Devices   []string   `json:"devices,omitempty"`
	Evictions int        `json:"evictions"`
	Grown     int        `json:"grown,omitempty"`
	Shrunk    int        `json:"shrunk,omitempty"`
}

// clockAt is a time of the engine's, by the clock.
func clockAt(at engine.Time) time.Time { return time.UnixMicro(int64(at)).UTC() }

// result makes the figures of what was run.
func (s *shadowing) result(name string, from engine.Time) {
	s.out.Policy, s.out.Steps = name, len(s.steps)
	s.out.From, s.out.To = clockAt(from), clockAt(s.now)
	queues := map[string]*ShadowQueue{}
	for _, j := range s.found {
		q := queues[j.work.Queue]
		if q == nil {
			q = &ShadowQueue{Queue: j.work.Queue}
			queues[j.work.Queue] = q
		}
		s.count(j, &j.live, s.live.Known(j.liveID), &q.Live, &s.out.Live)
		s.count(j, &j.mine, s.mine.Known(j.mineID), &q.Candidate, &s.out.Candidate)
		if change := j.change(); change != "" {
			s.out.Changes = append(s.out.Changes, ShadowJob{
				Workload: j.work.ID, Name: j.work.Name, User: j.work.User, Queue: j.work.Queue, Change: change, Live: j.live.shown(), Candidate: j.mine.shown(),
			})
		}
	}
	for _, q := range queues {
		q.Live.finish(s.meter.live.part(q.Queue, s.meter.room))
		q.Candidate.finish(s.meter.mine.part(q.Queue, s.meter.room))
		s.out.Queues = append(s.out.Queues, *q)
	}
	slices.SortFunc(s.out.Queues, func(a, b ShadowQueue) int { return strings.Compare(a.Queue, b.Queue) })
	s.out.Live.finish(s.meter.live.part("", s.meter.room))
	s.out.Candidate.finish(s.meter.mine.part("", s.meter.room))
}

// count enters a job in figures.
func (s *shadowing) count(j *shadowJob, f *fate, known bool, all ...*ShadowFigures) {
	for _, to := range all {
		to.Evictions += f.evictions
		to.Grown += f.grown
		to.Shrunk += f.shrunk
		switch {
		case j.ran:
		case f.placed >= 0:
			to.Started++
			to.waits = append(to.waits, float64(max(0, f.placed-j.came))/1e6)
		case known:
			to.Waiting++
			to.waits = append(to.waits, float64(max(0, s.now-j.came))/1e6)
		}
	}
}

// finish makes means of what was counted.
func (f *ShadowFigures) finish(allocated float64) {
	f.Allocated = allocated
	if len(f.waits) == 0 {
		return
	}
	slices.Sort(f.waits)
	sum := 0.0
	for _, w := range f.waits {
		sum += w
	}
	f.MeanWait, f.P95Wait = sum/float64(len(f.waits)), f.waits[(len(f.waits)*95+99)/100-1]
}

// change is the code of what differs for a job; empty: nothing.
func (j *shadowJob) change() string {
	switch a, b := &j.live, &j.mine; {
	case a.placed < 0 && b.placed >= 0:
		return ShadowOnlyMine
	case a.placed >= 0 && b.placed < 0:
		return ShadowOnlyLive
	case b.placed < a.placed:
		return ShadowEarlier
	case b.placed > a.placed:
		return ShadowLater
	case !slices.Equal(a.devices(), b.devices()):
		return ShadowElsewhere
	case a.evictions != b.evictions:
		return ShadowEvictions
	case a.grown != b.grown || a.shrunk != b.shrunk:
		return ShadowReplicas
	}
	return ""
}

// devices are where a job started first, one entry for each grant: node and device.
func (f *fate) devices() []string {
	var all []string
	for _, p := range f.where {
		for _, g := range p.Grants {
			all = append(all, p.Node+"/"+g.Device)
		}
	}
	return all
}

func (f *fate) shown() ShadowFate {
	out := ShadowFate{Devices: f.devices(), Evictions: f.evictions, Grown: f.grown, Shrunk: f.shrunk}
	if f.placed >= 0 {
		at := clockAt(f.placed)
		out.Start = &at
	}
	return out
}

// shadowMeter adds up what both hold over time.
type shadowMeter struct {
	live, mine heldMeter
	capacity   int64   // thousandths of devices that are there and not down
	room       float64 // capacity × µs
}

// heldMeter adds up what the queues of an engine hold.
type heldMeter struct {
	queues []string
	roots  []bool // by queue: it is under none
	held   []int64
	sum    map[string]float64 // thousandths of a device × µs, by queue; empty: of all
}

func (m *shadowMeter) begin(s *shadowing) {
	m.live.sum, m.mine.sum = map[string]float64{}, map[string]float64{}
	m.look(s, engine.NodeSet{})
	m.look(s, engine.PolicySet{})
}

// look notes what is held after an event.
func (m *shadowMeter) look(s *shadowing, event engine.Event) {
	switch event.(type) {
	case engine.NodeSet, engine.NodeGone, engine.DeviceHealth:
		m.capacity = 0
		for _, d := range s.live.Devices() {
			if !d.Gone && d.Health != api.Down {
				m.capacity += int64(api.WholeDevice)
			}
		}
	case engine.QueueSet, engine.QueueGone, engine.PolicySet:
		m.live.name(s.live)
		m.mine.name(s.mine)
	}
	m.live.look(s.live)
	m.mine.look(s.mine)
}

func (m *heldMeter) name(e *engine.Engine) {
	m.queues, m.roots, m.held = nil, nil, nil
	for _, q := range e.Queues() {
		m.queues, m.roots, m.held = append(m.queues, q.Name), append(m.roots, q.Parent == ""), append(m.held, 0)
	}
}

func (m *heldMeter) look(e *engine.Engine) {
	for i, name := range m.queues {
		m.held[i] = int64(e.HeldAll(name))
	}
}

// pass lets time pass.
func (m *shadowMeter) pass(by engine.Time) {
	if by <= 0 {
		return
	}
	m.room += float64(m.capacity) * float64(by)
	for _, h := range []*heldMeter{&m.live, &m.mine} {
		for i, name := range h.queues {
			h.sum[name] += float64(h.held[i]) * float64(by)
			if h.roots[i] {
				h.sum[""] += float64(h.held[i]) * float64(by)
			}
		}
	}
}

// part is what a queue held of all room, in %.
func (m *heldMeter) part(queue string, room float64) float64 {
	if room == 0 {
		return 0
	}
	return 100 * m.sum[queue] / room
}
