package lease

import (
	"fmt"
	"slices"

	"github.com/aliquot-dev/aliquot/api"
)

// phase is where a grant stands with its lease.
type phase uint8

const (
	phaseIdle     phase = iota // no lease, nothing outstanding
	phaseOpen                  // holds a lease
	phaseDraining              // its lease is over, its work is not
	phaseUngated
)

// grant is a share of one device with what the rule keeps of it.
type grant struct {
	slot   GrantSlot
	task   *task
	device *device
	policy Policy
	gate   Gate

	phase      phase
	used       bool // has ever launched or waited
	owner      bool // its lease is an owner's: use comes off its credit
	wakeLease  bool // its lease was given to an owner who had just woken
	overlapped bool // its late work runs beside others'
	barred     bool // by its ceiling
	quick      bool // came back soon from its last pause
	demand     bool // waits at the gate
	waking     bool // woke with credit and has not been served since
	yielded    bool // its last lease ended because it idled, and it does not come back soon as a rule, or was about to idle

	// What was last heard of its processes.
	outstanding   bool
	coming        bool
	stillSince    NS // when it was last seen to have launched
	demandSince   NS
	wokeAt        NS
	busyUntil     NS
	launched      uint64
	completed     uint64
	outstandingNS NS

	// Its lease.
	openAt, endedAt NS
	idleSince       NS // drained and launching nothing; 0: not idle
	launchedAtOpen  uint64
	late            NS // by so much its word on its end is too early, while lateCompleted stands
	lateCompleted   uint64

	// What it is charged by its word.
	paid            NS // of its launches' time: charged already, where time is apportioned
	measured        NS // of its measured time: charged already
	unsettled       NS // held at nobody's or only at borrowers' cost and not yet charged
	unsettledWanted NS // of that, at borrowers'
	settledWordAt   NS // when it was last charged by its word
	mayHold         NS // so long it may hold at borrowers' cost without charge
	unheard         NS // not charged, since nothing said yet that it ran then; at most Settle
	lookedAt        NS // when its processes were last asked; 0: never

	// Pauses.
	pause      NS // for how long it last launched nothing before it came back
	lostIdleAt NS // idleSince of the lease that it lost for idling
	retryAt    NS // it waited and then launched nothing under its lease: not chosen before
	retrySince NS // demandSince of that wait
	misses     uint32

	// Admissions.
	asked          bool  // toldNS and heldAtTold have been read
	toldNS         NS    // what it said that it had used,
	measuredAtTold NS    // had measured,
	heldAtTold     NS    // and had been charged when it was last asked
	spared         NS    // of the time that it held, what was not charged since it was last asked
	claim          int64 // ns that it says it used beyond its charges; negative: was charged beyond its use

	accruedAt      NS
	credit, bucket PS
	floorAccount   PS
	vtime          uint64 // PS over weight
	burstPending   NS     // use under borrowers' leases, not yet settled
	books          Books  // Credit, Bucket and VTime are filled in when they are asked for
}

// task is a workload's process or pod: one grant a device.
type task struct {
	slot     TaskSlot
	grants   []*grant
	gatherAt NS // when the last lease on the devices that are set aside for it ends
}

type device struct {
	slot       DeviceSlot
	state      DeviceState
	grants     []*grant // in the order in which they came
	holder     *grant   // with the lease, or nil
	setAside   *task    // that gathers this device, or nil
	lastHolder *grant

	chargedAt, settledAt, since NS
	idlePending, downPending    NS
	freeAccount                 PS // of what no floor reserves
	vmin                        uint64
	handoff                     bool // work of a lease that is over has just drained

	askedAt       NS // when its grants were last asked what they used
	admitted      NS // of their claims, what can be charged in place of others
	latelyHeld    NS // for how long they held it,
	latelySaid    NS // what they said they used; both fade
	spare         NS // of latelyHeld: switching
	switching     NS // the most that switches can have taken of late; fades
	switchesAsked uint64

	unreservedIdle, down NS
	switches             uint64
	ended                Rows
	next                 NS // when something is due
}

// Rule shares the devices of one node. It is made by New and used by one goroutine at a time.
type Rule struct {
	config  Config
	tenants Tenants
	now     NS // of the call before or this one
	devices []*device
	tasks   []*task  // nil: a free slot
	grants  []*grant // nil: a free slot

	changed []GrantSlot // whose gates are to be published, in order; each once
	dirty   []bool      // by slot: stands there

	seen Observation // room for observe
	who  []*grant    // room for chargeable
	have []NS        // room for takeFloors
}

// New returns a rule without devices.
func New(config Config, tenants Tenants) *Rule {
	return &Rule{config: config, tenants: tenants}
}

// AddDevice takes in a device whose books begin now.
func (r *Rule) AddDevice(now NS, state DeviceState) (DeviceSlot, error) {
	if len(r.devices) == MaxDevices {
		return 0, fmt.Errorf("add a device: there are %d already, the most that one node may have", MaxDevices)
	}
	d := &device{slot: DeviceSlot(len(r.devices)), state: state, chargedAt: now, settledAt: now, since: now, next: now}
	r.devices = append(r.devices, d)
	return d.slot, nil
}

// Share is a grant to be: a device and the limits on it.
type Share struct {
	Device DeviceSlot
	Policy Policy
}

// AddTask takes in a task with a grant for each share, each on another device. Their gates are closed until it is their turn.
func (r *Rule) AddTask(now NS, shares []Share) (TaskSlot, error) {
	if err := r.room(shares); err != nil {
		return 0, err
	}
	r.now = now
	t := &task{slot: TaskSlot(freeSlot(&r.tasks))}
	r.tasks[t.slot] = t
	for _, share := range shares {
		d := r.devices[share.Device]
		r.Settle(share.Device, now)
		g := &grant{
			slot: GrantSlot(freeSlot(&r.grants)), task: t, device: d, policy: share.Policy, quick: true, accruedAt: now,
			bucket: PS(r.config.Burst) * perNS, vtime: d.vmin,
		}
		g.policy.Weight = max(g.policy.Weight, 1)
		r.grants[g.slot] = g
		for len(r.dirty) <= int(g.slot) {
			r.dirty = append(r.dirty, false)
		}
		t.grants = append(t.grants, g)
		d.grants = append(d.grants, g)
		d.next = now
		r.publish(g)
	}
	return t.slot, nil
}

// room says why a task with these shares cannot be taken in.
func (r *Rule) room(shares []Share) error {
	count := func(taken int) string { return fmt.Sprintf("add a task with %d grants: %d", len(shares), taken) }
	switch tasks, grants := taken(r.tasks), taken(r.grants); {
	case len(shares) == 0 || len(shares) > MaxTaskGrants:
		return fmt.Errorf("add a task with %d grants: one has 1 to %d", len(shares), MaxTaskGrants)
	case tasks == MaxTasks:
		return fmt.Errorf("%s tasks are there already, the most that one node may have", count(tasks))
	case grants+len(shares) > MaxGrants:
		return fmt.Errorf("%s grants are there already, and one node may have %d", count(grants), MaxGrants)
	}
	for _, share := range shares {
		if len(r.devices[share.Device].grants) >= MaxDeviceGrants {
			return fmt.Errorf("%s are on device %d already, the most that it may have", count(MaxDeviceGrants), share.Device)
		}
	}
	return nil
}

func taken[T any](slots []*T) int {
	n := 0
	for _, slot := range slots {
		if slot != nil {
			n++
		}
	}
	return n
}

// freeSlot is the lowest free slot; there is one afterwards.
func freeSlot[T any](slots *[]*T) int {
	for i, slot := range *slots {
		if slot == nil {
			return i
		}
	}
	*slots = append(*slots, nil)
	return len(*slots) - 1
}

// RemoveTask ends a task's leases and forgets it; its rows go to its devices.
func (r *Rule) RemoveTask(slot TaskSlot, now NS) {
	t := r.tasks[slot]
	r.now = now
	for _, g := range t.grants {
		d := g.device
		if g.phase == phaseOpen {
			r.endLease(g)
		}
		r.Settle(d.slot, now)
		d.ended.add(&g.books.Rows)
		d.freeAccount += g.floorAccount
		d.grants = slices.DeleteFunc(d.grants, func(other *grant) bool { return other == g })
		if d.setAside == t {
			d.setAside = nil
		}
		if d.lastHolder == g {
			d.lastHolder = nil
		}
		d.next = now
		r.grants[g.slot] = nil
	}
	r.tasks[slot] = nil
}

// SetDeviceState says how a device is. One that goes down closes all its gates.
func (r *Rule) SetDeviceState(slot DeviceSlot, now NS, state DeviceState) {
	d := r.devices[slot]
	if d.state == state {
		return
	}
	r.now = now
	r.Settle(slot, now)
	if state == DeviceDown {
		for _, g := range d.grants {
			if g.phase == phaseOpen {
				r.endLease(g)
			}
			g.phase, g.overlapped = phaseIdle, false
			g.gate.Open, g.gate.Ungated = false, false
			r.publish(g)
		}
	}
	d.state = state
	d.next = now
}

// SetPolicy changes the limits of a grant; what was is booked under what was promised then.
func (r *Rule) SetPolicy(slot GrantSlot, now NS, policy Policy) {
	g := r.grants[slot]
	r.now = now
	r.Settle(g.device.slot, now)
	g.policy = policy
	g.policy.Weight = max(g.policy.Weight, 1)
	if g.phase == phaseOpen {
		r.endLease(g) // its length came from the old ceiling
	}
	g.device.next = now
}

// Touch says that something may have changed for a task: it began to wait, its work has drained, a process came or went. Then, once for
// all, Run.
func (r *Rule) Touch(slot TaskSlot, now NS) {
	r.now = now
	for _, g := range r.tasks[slot].grants {
		r.charge(g.device, now)
		r.listen(g)
		g.device.next = now
	}
}

// retryNS is when Run is to be called again where devices could not agree.
const retryNS = 100 * microsecond

// Run does what is due and returns when it must be called next, after now; Never: nothing is going on.
func (r *Rule) Run(now NS) NS {
	r.now = now
	// A step may make another device due, where a task has several; each pass settles at least one of them, and two passes more than a
	// node may have devices mean a disagreement that a little time resolves.
	for pass := 0; pass < MaxDevices+2; pass++ {
		stepped := false
		for _, d := range r.devices {
			if d.next <= now {
				r.step(d)
				stepped = true
			}
		}
		if !stepped {
			break
		}
	}
	next := Never
	for _, d := range r.devices {
		next = min(next, d.next)
	}
	if next <= now {
		return now + retryNS
	}
	return next
}

func (r *Rule) publish(g *grant) {
	if !r.dirty[g.slot] {
		r.dirty[g.slot] = true
		r.changed = append(r.changed, g.slot)
	}
}

// Gates calls publish for each gate that has changed since the last call, in the order in which they are to be published.
func (r *Rule) Gates(publish func(GrantSlot, Gate)) {
	for _, slot := range r.changed {
		r.dirty[slot] = false
		if g := r.grants[slot]; g != nil {
			publish(slot, g.gate)
		}
	}
	r.changed = r.changed[:0]
}

// Gate is the gate of a grant as it is now.
func (r *Rule) Gate(slot GrantSlot) Gate { return r.grants[slot].gate }

// TaskGrants are the slots of a task's grants, in the order of its shares.
func (r *Rule) TaskGrants(slot TaskSlot) []GrantSlot {
	slots := make([]GrantSlot, 0, MaxTaskGrants)
	for _, g := range r.tasks[slot].grants {
		slots = append(slots, g.slot)
	}
	return slots
}

// Active counts the grants of a device that have work or wait.
func (r *Rule) Active(slot DeviceSlot) int {
	n := 0
	for _, g := range r.devices[slot].grants {
		if g.phase == phaseUngated && g.outstanding || !g.idle() {
			n++
		}
	}
	return n
}

// idle says that nothing is going on: no lease, no work, no wish.
func (g *grant) idle() bool {
	return g.phase == phaseUngated || g.phase == phaseIdle && !g.demand
}

// hasCredit makes a grant an owner: its floor owes it.
func (g *grant) hasCredit() bool { return g.policy.Floor > 0 && g.credit > 0 }

func (d *device) due(at NS) { d.next = min(d.next, at) }

// observe is what a grant's processes say now; it stands until the next call.
func (r *Rule) observe(g *grant) *Observation {
	r.seen = Observation{}
	r.tenants.Observe(g.slot, r.now, &r.seen)
	return &r.seen
}

func psOf(part api.Milli, time NS) PS { return PS(part) * PS(time) }
