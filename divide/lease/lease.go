// Package lease is the rule by which the devices of a node are shared from moment to moment: who holds a device under a lease, until
// when, what that costs, and to which row of the ledger each nanosecond goes. It is a second, readable statement of the rule that the
// arbiter runs in C: native/arbiter/core.h tells it whole, under THE RULE, and that telling holds here too. Both decide identically, to
// the picosecond: the tests give the same calls to both and compare everything that comes out and what is kept in between (trace_test.go,
// native/arbiter/test/trace.c). It is also the model of a device for whoever simulates one from moment to moment.
//
// What comes in are devices and tasks with their grants' limits, the time, and through Tenants what a grant's processes say of themselves.
// What goes out are gates to be published, the time at which Run must be called again, and books. Integers only, rounded as in C; equal
// calls give equal results.
//
// It knows no clock and no device; over time what it grants converges to what divide says. A caller's mistake (a slot that was never given
// out) panics; what tenants say never does.
//
// The files: rule.go what comes in; choose.go who is next; holding.go leases begin and end; step.go what is due on a device; gang.go tasks
// that hold several devices together; word.go what tenants say; charge.go whose time was it; admit.go who owns up; ledger.go the rows;
// books.go what outlives an arbiter.
package lease

import (
	"math"

	"github.com/aliquot-dev/aliquot/api"
)

// NS is nanoseconds: an instant of the caller's clock, which never goes back, or a length of time.
type NS uint64

// PS is picoseconds, thousandths of a nanosecond: what a floor in thousandths of a device brings in a nanosecond is a whole number of
// these, so that books kept in them are exact.
type PS int64

const (
	// Never is the time of what will not happen.
	Never NS = math.MaxUint64

	microsecond NS = 1000
	millisecond    = 1000 * microsecond
	second         = 1000 * millisecond

	// perNS is how many PS a nanosecond has; milli is how many thousandths a device has.
	perNS           = 1000
	milli api.Milli = 1000
)

// What one node may have: the bounds of the arbiter's tables.
const (
	MaxDevices      = 64
	MaxTasks        = 1024
	MaxGrants       = 4096 // of all tasks
	MaxDeviceGrants = 512  // on one device
	MaxTaskGrants   = 16   // of one task, each on another device
)

// DeviceSlot, TaskSlot and GrantSlot number what a Rule holds, from 0. Slots of tasks that were removed are given out again, the lowest
// first. Where nothing else tells two grants apart, the one in the lower slot goes first.
type (
	DeviceSlot int
	TaskSlot   int
	GrantSlot  int
)

// DeviceState is the health of a device.
type DeviceState uint8

// A draining device gets no new grants and serves those that it has; one that is down serves nobody, and its time counts as down.
const (
	DeviceOK DeviceState = iota
	DeviceDraining
	DeviceDown
)

// Config holds the times of the rule.
type Config struct {
	Lease        NS // how long a device is held before it is asked again who is first
	IdleCap      NS // what an idle owner keeps of its credit
	LatencyCap   NS // the same for the latency class, at most
	LatencyReach NS // and within that, what its floor brings in so long
	Burst        NS // what a ceiling that was not used allows at once
	Ahead        NS // so long before its end a lease is extended
	Early        NS // so long before the device should be free the next gate opens
	Idle         NS // so long a holder may launch nothing, where it is worth holding the device for it
	Start        NS // so long for a holder that has launched nothing yet
	Overlap      NS // work that has not drained so long after its lease is overlapped
	Patience     NS // or so long after the end that it announced, if that is within so long
	Settle       NS // books are settled so often while a device is in use
}

// Defaults are the times that the arbiter uses.
func Defaults() Config {
	return Config{
		Lease:        4 * millisecond,
		IdleCap:      5 * millisecond,
		LatencyCap:   100 * millisecond,
		LatencyReach: 400 * millisecond,
		Burst:        20 * millisecond,
		Ahead:        300 * microsecond,
		Early:        200 * microsecond,
		Idle:         300 * microsecond,
		Start:        millisecond,
		Overlap:      10 * millisecond,
		Patience:     50 * millisecond,
		Settle:       100 * millisecond,
	}
}

// Policy is what a grant was promised and denied.
type Policy struct {
	Floor   api.Milli // 0..1000; the floors on a device never add up to more than 1000
	Ceiling api.Milli // max(1, Floor)..1000
	Weight  uint32    // what is over the floors goes by it; 0 counts as 1
	Latency bool      // of the latency class: first within its floor
	Stopped bool      // nothing new may launch: the task is being ended
	Clock   bool      // its word on what it used is not taken: it is charged for all the time that it holds
}

// Observation is what a grant's processes say, summed over them and clamped by the caller to what can be true.
type Observation struct {
	Waiting     bool // a process waits at the gate
	Outstanding bool // work let through has not ended
	Coming      bool // or a launch waits behind it
	Several     bool // of its processes have launched of late: what each measures holds the others' work too

	WaitSince     NS     // of the one that waits longest; not after now
	Launched      uint64 // launches; never falls
	Completed     uint64 // of those; at most Launched
	LaunchedNS    NS     // estimated device time of all launches; never falls
	OutstandingNS NS     // of those that have not completed; at most LaunchedNS
	BusyUntil     NS     // when outstanding work should end; 0: not said
	MeasuredNS    NS     // device time by the tenant's own measure; never falls
}

// Tenants says what the processes of a grant say now. It must not call the Rule, and answers the same for the length of a call of it.
type Tenants interface {
	// Observe fills in seen, which is zero before.
	Observe(grant GrantSlot, now NS, seen *Observation)
}

// Gate is what is published to a tenant: whether it may launch, and until when.
type Gate struct {
	Open     bool
	Ungated  bool // launch freely; metering goes on
	Extended bool // the lease goes on past the end that it had
	Lease    uint64
	Start    NS
	End      NS // Never where ungated
}

// Rows say where each nanosecond went, seen from one grant. Over the grants of a device and its DeviceBooks, all but BurstLent add up to
// the time that went by.
type Rows struct {
	Own          NS // it ran, within its floor
	Lent         NS // another ran on its idle floor: that other's BurstLent
	ReservedIdle NS // its floor, and nobody ran on it
	BurstFree    NS // it ran above its floor, on time that nobody reserved
	BurstLent    NS // it ran above its floor, on floors that others left idle
}

// Books are the debts and the ledger of a grant, as they survive an arbiter.
type Books struct {
	Credit     int64  // ns; what its floor owes it, negative is debt
	Bucket     int64  // ns; what its ceiling still allows, negative is debt
	VTime      uint64 // what it got above its floor over its weight, PS
	Held       NS     // device time charged, all told
	Leases     uint64
	Overlapped uint64 // leases that had not drained in time
	Revoked    uint64 // leases cut short for a waking owner
	Wait       NS     // from reaching the gate to a lease, summed
	WakeWorst  NS     // the worst such wait of an owner that woke with credit
	Wakes      uint64 // how often one did
	Rows       Rows
}

// DeviceBooks are a device's own rows, as they survive an arbiter.
type DeviceBooks struct {
	Since, Updated NS // the rows of the device and its grants add up to Updated − Since
	UnreservedIdle NS
	Down           NS
	Switches       uint64 // leases that went from one grant to another
	Ended          Rows   // of tasks that were removed
}
