package sim

import (
	"fmt"
	"math"
	"math/bits"
	"slices"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/divide"
	"github.com/aliquot-dev/aliquot/engine"
)

// Sharing is what happens on a device that jobs share: package divide divides its time among them at each moment by what each keeps busy then, and
// beside others they are slower.
//
// A job that keeps a part of a device busy alone goes on at the speed at which it gets that part, at most as fast as alone, times what it keeps beside its
// neighbours. One that follows a service runs for its time whatever it gets; where neighbours slow it, it needs the device for longer, for the same
// requests, and gets that where there is room. A job on several devices goes on as fast as on the slowest of them.
type Sharing struct {
	Interference *Interference // nil: no job slows another beyond what it takes
	Duty         *Duty         // of the services that jobs follow; nil: none does
	// Beside is what a job keeps of its speed, in millionths, when one, two and so on are on its device, itself included; more are as the last. Empty: all.
	Beside []int64
}

// check says which job follows a service that is not known.
func (s *Sharing) check(t *Trace) error {
	for i := range t.Jobs {
		if name := t.Jobs[i].Service; name != "" && (s.Duty == nil || s.Duty.index(name) < 0) {
			return fmt.Errorf("job %s follows service %s, which is not among the duty cycles: give a file that has it", t.Jobs[i].ID, name)
		}
	}
	return nil
}

// alone is what a job keeps busy of each of its devices where it is alone, where that does not change.
func (s *Sharing) alone(j *Job) api.Milli {
	switch {
	case j.Busy > 0:
		return j.Busy
	case s.Interference != nil && s.Interference.index(j.Program) >= 0:
		return s.Interference.programs[s.Interference.index(j.Program)].Busy
	}
	return api.WholeDevice
}

// usedBy is what a job used of each of its devices since it started last; where devices are not shared, what it used in its record; nil: not known.
func (r *jobRun) usedBy(m *member) *engine.Used {
	if r.beside == nil {
		return m.job.Used
	}
	if m.held == 0 {
		return nil
	}
	return &engine.Used{Compute: api.Milli(min(engine.Time(api.WholeDevice), (m.used*engine.Time(api.WholeDevice)+m.held/2)/m.held)), Memory: r.beside.memory(m.job)} //nolint:gosec // at most a whole device
}

// sharedDevice is a device with what runs there, in the order of its coming.
type sharedDevice struct {
	uuid    string
	since   engine.Time // until when its figures are summed up
	sharers []*sharer
}

// sharer is a grant that is used.
type sharer struct {
	member  *member
	device  *sharedDevice
	compute api.Compute
	weight  int64
	program int // in the interference; -1: not listed
	service int // in the duty cycles; -1: what it keeps busy does not change

	demand api.Milli // what it would keep busy of the device now if it were alone
	kept   int64     // of its speed beside the others, in millionths
	got    int64     // thousandths of the device's time
	speed  int64     // millionths of its speed alone; of one that follows a service: of what is wanted of it now
	useful int64     // millionths of the device: progress at the speed alone × what it keeps busy alone
}

// wanted is what its floor alone would serve now, in millionths of the device.
func (s *sharer) wanted() int64 { return int64(min(s.demand, s.compute.Floor)) * (fullSpeed / 1000) }

// besides are the devices of a run with what is summed up of them.
type besides struct {
	Sharing
	devices  map[string]*sharedDevice // by UUID
	inOrder  []*sharedDevice          // of their first use
	services int                      // grants that follow one
	starting []*member                // jobs that start again and do not yet go on
	members  []*member                // all that ever ran
	changes  []change                 // of what was useful, in millionths of a device
	sums     sharingSums
	dividing []divide.Share // reused
}

func newBesides(s *Sharing) *besides {
	return &besides{Sharing: *s, devices: map[string]*sharedDevice{}}
}

// next is when what services keep busy changes, or a job goes on that starts again; Never: neither comes.
func (b *besides) next(now engine.Time) engine.Time {
	next := engine.Never
	if b == nil {
		return next
	}
	for _, m := range b.starting {
		next = min(next, m.resumed)
	}
	if b.services > 0 {
		next = min(next, (now/b.Duty.Step+1)*b.Duty.Step)
	}
	return next
}

// occupy puts a job on the devices where it was placed.
func (r *jobRun) occupy(m *member, tasks []engine.Placing) {
	b := r.beside
	if b == nil {
		return
	}
	if !m.shared {
		m.shared = true
		b.members = append(b.members, m)
	}
	if m.resumed > r.now {
		b.starting = append(b.starting, m)
	}
	var touched []*sharedDevice
	for _, task := range tasks {
		for i := range task.Grants {
			s := b.sharer(m, &task.Grants[i])
			b.settle(s.device, r.now)
			s.device.sharers = append(s.device.sharers, s)
			m.sharers = append(m.sharers, s)
			if s.service >= 0 {
				b.services++
			}
			if !slices.Contains(touched, s.device) {
				touched = append(touched, s.device)
			}
		}
	}
	for _, d := range touched {
		r.redivide(d)
	}
}

// sharer is a grant of a job on its device.
func (b *besides) sharer(m *member, g *engine.Grant) *sharer {
	d := b.devices[g.Device]
	if d == nil {
		d = &sharedDevice{uuid: g.Device}
		b.devices[g.Device] = d
		b.inOrder = append(b.inOrder, d)
	}
	s := &sharer{member: m, device: d, compute: g.Compute, weight: int64(g.Weight), program: -1, service: -1}
	if b.Interference != nil {
		s.program = b.Interference.index(m.job.Program)
	}
	if m.job.Service != "" {
		s.service = b.Duty.index(m.job.Service)
	}
	return s
}

// vacate takes a job off its devices.
func (r *jobRun) vacate(m *member) {
	for _, s := range m.sharers {
		r.beside.settle(s.device, r.now)
		s.device.sharers = slices.DeleteFunc(s.device.sharers, func(one *sharer) bool { return one == s })
		r.beside.setUseful(s, 0, r.now)
		if s.service >= 0 {
			r.beside.services--
		}
	}
	left := m.sharers
	m.sharers = nil
	for _, s := range left {
		r.redivide(s.device)
	}
}

// followDemand divides anew the devices on which a service wants more or less than before, or a job goes on that started again.
func (r *jobRun) followDemand() {
	if r.beside == nil {
		return
	}
	going := len(r.beside.starting)
	r.beside.starting = slices.DeleteFunc(r.beside.starting, func(m *member) bool { return m.resumed <= r.now || !m.running })
	if r.beside.services == 0 && len(r.beside.starting) == going {
		return
	}
	for _, d := range r.beside.inOrder {
		if slices.ContainsFunc(d.sharers, func(s *sharer) bool { return r.beside.demand(s, r.now) != s.demand }) {
			r.beside.settle(d, r.now)
			r.redivide(d)
		}
	}
}

// demand is what a grant would keep busy of its device now if it were alone: nothing until its job goes on where it was.
func (b *besides) demand(s *sharer, now engine.Time) api.Milli {
	if now < s.member.resumed {
		return 0
	}
	if s.service < 0 {
		return b.alone(s.member.job)
	}
	return b.Duty.at(s.service, s.member.job.FirstSample, now)
}

// redivide divides a device among what runs there, as of now, until when it is settled.
func (r *jobRun) redivide(d *sharedDevice) {
	b := r.beside
	b.dividing = b.dividing[:0]
	for _, s := range d.sharers {
		s.demand = b.demand(s, r.now)
	}
	for _, s := range d.sharers {
		s.kept = b.keeps(s)
		wants := int64(s.demand)
		if s.service >= 0 { // the same requests take longer
			wants = min(int64(api.WholeDevice), (wants*fullSpeed+s.kept-1)/s.kept)
		}
		b.dividing = append(b.dividing, divide.Share{Floor: int64(s.compute.Floor), Ceiling: int64(s.compute.Ceiling), Weight: s.weight, Demand: wants})
	}
	var busy int64
	for i, got := range divide.Divide(int64(api.WholeDevice), b.dividing) {
		s := d.sharers[i]
		busy += got
		s.got, s.speed = got, fullSpeed
		if s.demand > 0 {
			s.speed = min(fullSpeed, got*s.kept/int64(s.demand))
		}
	}
	r.energy.busy(d.uuid, busy, r.now)
	for _, s := range d.sharers {
		r.follow(s.member)
	}
}

// keeps is what a grant keeps of its speed beside those on its device, in millionths, at least 1.
func (b *besides) keeps(s *sharer) int64 {
	kept := int64(fullSpeed)
	if n := len(b.Beside); n > 0 {
		kept = b.Beside[min(n, len(s.device.sharers))-1]
	}
	if b.Interference == nil {
		return kept
	}
	for _, other := range s.device.sharers {
		if other != s {
			kept = max(1, kept*b.Interference.keeps(s.program, other.program, s.demand, other.demand)/fullSpeed)
		}
	}
	return kept
}

// follow has a job go on at the speed that its devices allow now.
func (r *jobRun) follow(m *member) {
	speed := int64(fullSpeed)
	for _, s := range m.sharers {
		if s.service < 0 {
			speed = min(speed, s.speed)
		}
	}
	for _, s := range m.sharers {
		of := speed
		if s.service >= 0 {
			of = s.speed
		}
		r.beside.settle(s.device, r.now)
		r.beside.setUseful(s, int64(s.demand)*of/int64(api.WholeDevice), r.now)
	}
	if speed != m.speed {
		m.settle(r.now)
		m.speed = speed
		r.expect(m)
	}
}

// setUseful notes what a grant does from now on.
func (b *besides) setUseful(s *sharer, useful int64, now engine.Time) {
	if useful != s.useful {
		b.changes = append(b.changes, change{now, s.member.job.Queue, useful - s.useful})
		s.useful = useful
	}
}

// progress is what is done in a time at a speed in millionths, rounded down.
func progress(time engine.Time, speed int64) engine.Time {
	high, low := bits.Mul64(uint64(time), uint64(speed)) //nolint:gosec // neither is negative
	done, _ := bits.Div64(high, low, fullSpeed)
	return engine.Time(done) //nolint:gosec // no more than the time
}

// takes is how long something takes at a speed in millionths above 0, rounded up.
func takes(left engine.Time, speed int64) engine.Time {
	high, low := bits.Mul64(uint64(max(0, left)), fullSpeed)
	if high >= uint64(speed) { //nolint:gosec // above 0
		return math.MaxInt64 / 4
	}
	whole, rest := bits.Div64(high, low, uint64(speed)) //nolint:gosec // above 0
	if rest > 0 {
		whole++
	}
	return engine.Time(min(whole, math.MaxInt64/4)) //nolint:gosec // bounded
}
