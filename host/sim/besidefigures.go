package sim

import (
	"slices"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/engine"
)

// SharingResult is what became of the devices of a run whose jobs share them, in percent where nothing else is said.
type SharingResult struct {
	// Useful is progress in seconds at the speed alone × what the job keeps busy of its devices alone, over all device-seconds.
	Useful float64 `json:"usefulPercent"`
	Busy   float64 `json:"busyPercent"` // of all device-seconds: what was divided out
	// FloorsMissed is of the time of all shares, each while it wants something of a floor: in how much of it the floor is missed, what is served being
	// more than 2 % less than the smaller of floor and wish.
	FloorsMissed float64 `json:"floorsMissedPercent"`
	Slowed       float64 `json:"slowedPercent"`    // of the progress that their floors alone would have made, what shares lacked; more at other times makes up for nothing
	SlowedP99    float64 `json:"slowedP99Percent"` // the same by job, the 99th percentile
	Speed        float64 `json:"speedPercent"`     // of its speed alone at which a job that follows no service runs, the mean over time
	Served       float64 `json:"servedPercent"`    // of what was wanted of services
	AtOnce       float64 `json:"atOnce"`           // jobs, the mean over time
	Left         int     `json:"left"`             // jobs that ran and had not ended when the run did
	// Tenants are the useful part of all devices by queue of the trace, by name, in steps of the plots.
	Tenants []TenantUse `json:"tenants"`
}

// TenantUse is what a queue of the trace made of the devices.
type TenantUse struct {
	Name   string    `json:"name"`
	Useful []float64 `json:"useful"` // percent of capacity, the mean of each step
}

// sharingSums are in µs × millionths of a device where nothing else is said.
type sharingSums struct {
	useful, got      float64
	wanted, lacked   float64 // of floors
	time, missed     float64 // µs of shares whose floor is wanted, and of those that are missed
	running          float64 // µs of jobs
	training, pace   float64 // µs of shares of jobs that follow no service, and that × their speed in millionths
	demanded, served float64 // by and of services
}

// missedBy is how much of its floor a share lacks when that is missed, as one part of so many.
const missedBy = 50

// settle sums up what a device did until now.
func (b *besides) settle(d *sharedDevice, now engine.Time) {
	passed := now - d.since
	time := float64(passed)
	d.since = now
	if time == 0 {
		return
	}
	sums := &b.sums
	for _, s := range d.sharers {
		s.member.used += passed * engine.Time(s.got) / engine.Time(api.WholeDevice)
		s.member.held += passed
		sums.useful += time * float64(s.useful)
		sums.got += time * float64(s.got*(fullSpeed/1000))
		sums.running += time / float64(len(s.member.sharers))
		if now <= s.member.resumed { // it starts again
			continue
		}
		if s.service < 0 {
			sums.training += time
			sums.pace += time * float64(s.member.speed)
		} else {
			sums.demanded += time * float64(int64(s.demand)*(fullSpeed/1000))
			sums.served += time * float64(s.useful)
		}
		wanted := s.wanted()
		if wanted == 0 {
			continue
		}
		lacked := max(0, wanted-s.useful)
		sums.time += time
		if lacked > wanted/missedBy {
			sums.missed += time
		}
		sums.wanted += time * float64(wanted)
		sums.lacked += time * float64(lacked)
		s.member.wanted += time * float64(wanted)
		s.member.lacked += time * float64(lacked)
	}
}

// part is percent of something; 0 where there is nothing.
func part(of, all float64) float64 {
	if all <= 0 {
		return 0
	}
	return of / all * 100
}

// sharing makes the result of what was summed up of devices, first being when the first job came. The plots are made by then.
func (r *jobRun) sharing(first engine.Time) *SharingResult {
	b := r.beside
	for _, d := range b.inOrder {
		b.settle(d, r.now)
	}
	span := max(1, r.now-first)
	all := float64(span) * float64(r.capacity) * (fullSpeed / 1000)
	s := &b.sums
	out := &SharingResult{
		Useful: part(s.useful, all), Busy: part(s.got, all), FloorsMissed: part(s.missed, s.time), Slowed: part(s.lacked, s.wanted),
		Speed: part(s.pace, s.training*fullSpeed), Served: part(s.served, s.demanded), AtOnce: s.running / float64(span), Left: len(r.running),
	}
	var slowed []float64
	for _, m := range b.members {
		if m.wanted > 0 {
			slowed = append(slowed, part(m.lacked, m.wanted))
		}
	}
	slices.Sort(slowed)
	out.SlowedP99 = quantile(slowed, 0.99)
	step := (span + plotSteps - 1) / plotSteps
	used := inSteps(b.changes, first, step, int((span+step-1)/step))
	for _, name := range tenantNames(used) {
		out.Tenants = append(out.Tenants, TenantUse{name, accumulate(used[name], step, span, r.capacity*fullSpeed/int64(api.WholeDevice))})
	}
	return out
}

// figures are the figures of what became of devices, as they are shown.
func (s *SharingResult) figures() []Named {
	return []Named{
		{"useful", s.Useful, "%"},
		{"busy", s.Busy, "%"},
		{"floors missed", s.FloorsMissed, "%"},
		{"slowed below floors", s.Slowed, "%"},
		{"p99 slowed below floors", s.SlowedP99, "%"},
		{"speed against alone", s.Speed, "%"},
		{"served of services", s.Served, "%"},
		{"jobs at once", s.AtOnce, ""},
		{"left at the end", float64(s.Left), ""},
	}
}
