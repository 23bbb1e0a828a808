// Package page is the Go side of native/abi.h: the shared-memory pages through which the agent, the arbiter and the tenants'
// shims speak. In go paths of page files and policies to write; out come mapped pages and consistent readings of them. Every
// shared field is an atomic, so that it cannot be touched otherwise, and all access goes through Map.View, which turns a page
// cut short behind our back into an error instead of a crash. It decides nothing, and of folders it knows which of a task's files are its
// user's.
package page

import "sync/atomic"

// The constants of native/abi.h.
const (
	Magic     = 0x31514c41 // "ALQ1"
	Version   = 1
	Minor     = 2
	MaxGrants = 16 // devices of one task on one node
	MaxProcs  = 64 // processes of one task that use a device at the same time
	UUIDLen   = 96 // with the terminating NUL
	UIDLen    = 64 // with the terminating NUL
)

// Kind says what a page is.
type Kind uint32

// The kinds of page.
const (
	KindCtl    Kind = 1
	KindTel    Kind = 2
	KindBook   Kind = 3
	KindDevice Kind = 4
)

// String is the word for the kind in messages.
func (k Kind) String() string {
	switch k {
	case KindCtl:
		return "ctl"
	case KindTel:
		return "tel"
	case KindBook:
		return "book"
	case KindDevice:
		return "device"
	}
	return "unknown"
}

// Flags of a grant's policy.
const (
	PolicyLatency uint32 = 1 << 0
	PolicyLendMem uint32 = 1 << 1
	PolicyStopped uint32 = 1 << 2
	PolicyClock   uint32 = 1 << 3
)

// States of a slot of the tel page.
const (
	SlotFree uint32 = 0
	SlotLive uint32 = 1
)

// States of a device page.
const (
	DeviceOK       uint32 = 0
	DeviceDraining uint32 = 1
	DeviceDown     uint32 = 2
)

// Header opens every page: struct alq_header. It is written once, before the page gets its name.
type Header struct {
	Magic     uint32       `abi:"magic"`
	Version   uint32       `abi:"version"`
	Kind      uint32       `abi:"kind"`
	Size      uint32       `abi:"size"`
	Grants    uint32       `abi:"grants"`
	Minor     uint32       `abi:"minor"`
	CreatedNS uint64       `abi:"created_ns"`
	UID       [UIDLen]byte `abi:"uid"`
	_         [32]byte     `abi:"reserved"`
}

// CtlGrant is what a tenant must obey on one device: struct alq_ctl_grant. The fields up to Device are the agent's, those from
// Gate on the arbiter's.
type CtlGrant struct {
	PolicySeq      atomic.Uint32 `abi:"policy_seq"`
	PolicyFlags    atomic.Uint32 `abi:"policy_flags"`
	ComputeFloor   atomic.Uint32 `abi:"compute_floor"`
	ComputeCeiling atomic.Uint32 `abi:"compute_ceiling"`
	Weight         atomic.Uint32 `abi:"weight"`
	_              uint32        `abi:"reserved0"`
	MemFloor       atomic.Uint64 `abi:"mem_floor"`
	MemCeiling     atomic.Uint64 `abi:"mem_ceiling"`
	MemDevice      atomic.Uint64 `abi:"mem_device"`
	_              [16]byte      `abi:"reserved1"`
	Device         [UUIDLen]byte `abi:"device"`

	Gate             atomic.Uint32 `abi:"gate"`
	Park             atomic.Uint32 `abi:"park"`
	LeaseID          atomic.Uint64 `abi:"lease_id"`
	LeaseStartNS     atomic.Uint64 `abi:"lease_start_ns"`
	LeaseEndNS       atomic.Uint64 `abi:"lease_end_ns"`
	RunAheadNS       atomic.Uint32 `abi:"run_ahead_ns"`
	RunAheadLaunches atomic.Uint32 `abi:"run_ahead_launches"`
	MemGranted       atomic.Uint64 `abi:"mem_granted"`
	MemFreeHint      atomic.Uint64 `abi:"mem_free_hint"`
	RunAheadShareNS  atomic.Uint32 `abi:"run_ahead_share_ns"`
	_                [36]byte      `abi:"reserved2"`
}

// Ctl is the page that a tenant maps read-only: struct alq_ctl.
type Ctl struct {
	Header       Header              `abi:"header"`
	HeartbeatNS  atomic.Uint64       `abi:"heartbeat_ns"`
	ArbiterEpoch atomic.Uint64       `abi:"arbiter_epoch"`
	_            [112]byte           `abi:"reserved"`
	Grant        [MaxGrants]CtlGrant `abi:"grant"`
}

// TelGrant is one process' use of one device, by its own word: struct alq_tel_grant.
type TelGrant struct {
	WaitSinceNS    atomic.Uint64 `abi:"wait_since_ns"`
	Launched       atomic.Uint64 `abi:"launched"`
	Completed      atomic.Uint64 `abi:"completed"`
	LaunchedNS     atomic.Uint64 `abi:"launched_ns"`
	CompletedNS    atomic.Uint64 `abi:"completed_ns"`
	DeviceNS       atomic.Uint64 `abi:"device_ns"`
	DeviceLaunches atomic.Uint64 `abi:"device_launches"`
	BusyUntilNS    atomic.Uint64 `abi:"busy_until_ns"`
	LaunchLeaseID  atomic.Uint64 `abi:"launch_lease_id"`
	LastLaunchNS   atomic.Uint64 `abi:"last_launch_ns"`
	LongestNS      atomic.Uint64 `abi:"longest_ns"`
	GateWaits      atomic.Uint64 `abi:"gate_waits"`
	GateWaitNS     atomic.Uint64 `abi:"gate_wait_ns"`
	MemUsed        atomic.Uint64 `abi:"mem_used"`
	MemOverhead    atomic.Uint64 `abi:"mem_overhead"`
	MemRefused     atomic.Uint64 `abi:"mem_refused"`
	ParkState      atomic.Uint32 `abi:"park_state"`
	Captures       atomic.Uint32 `abi:"captures"`
	UnknownCalls   atomic.Uint64 `abi:"unknown_calls"`
	Coming         atomic.Uint32 `abi:"coming"`
	_              [4]byte       `abi:"reserved0"`
	_              [104]byte     `abi:"reserved"`
}

// Slot is one process of a task: struct alq_slot.
type Slot struct {
	State        atomic.Uint32       `abi:"state"`
	PID          atomic.Int32        `abi:"pid"`
	StartTime    atomic.Uint64       `abi:"start_time"`
	ShimVersion  atomic.Uint32       `abi:"shim_version"`
	Flags        atomic.Uint32       `abi:"flags"`
	RegisteredNS atomic.Uint64       `abi:"registered_ns"`
	_            [96]byte            `abi:"reserved"`
	Grant        [MaxGrants]TelGrant `abi:"grant"`
}

// Tel is what a tenant says of itself: struct alq_tel. Its owner may write anything into it and may cut the file short.
type Tel struct {
	Header     Header                   `abi:"header"`
	MemLock    atomic.Uint32            `abi:"mem_lock"`
	_          uint32                   `abi:"reserved0"`
	ScheduleNS [MaxGrants]atomic.Uint64 `abi:"schedule_ns"`
	_          [120]byte                `abi:"reserved"`
	Slot       [MaxProcs]Slot           `abi:"slot"`
}

// Split is where a grant's time went: struct alq_split.
type Split struct {
	OwnNS          atomic.Uint64 `abi:"own_ns"`
	LentNS         atomic.Uint64 `abi:"lent_ns"`
	ReservedIdleNS atomic.Uint64 `abi:"reserved_idle_ns"`
	BurstFreeNS    atomic.Uint64 `abi:"burst_free_ns"`
	BurstLentNS    atomic.Uint64 `abi:"burst_lent_ns"`
}

// BookGrant is what the arbiter holds against and for a grant: struct alq_book_grant.
type BookGrant struct {
	Seq           atomic.Uint32 `abi:"seq"`
	_             uint32        `abi:"reserved0"`
	CreditNS      atomic.Int64  `abi:"credit_ns"`
	BucketNS      atomic.Int64  `abi:"bucket_ns"`
	VtimeNS       atomic.Uint64 `abi:"vtime_ns"`
	HeldNS        atomic.Uint64 `abi:"held_ns"`
	Leases        atomic.Uint64 `abi:"leases"`
	Overlapped    atomic.Uint64 `abi:"overlapped"`
	Revoked       atomic.Uint64 `abi:"revoked"`
	WaitNS        atomic.Uint64 `abi:"wait_ns"`
	WakeWorstNS   atomic.Uint64 `abi:"wake_worst_ns"`
	Wakes         atomic.Uint64 `abi:"wakes"`
	MemGranted    atomic.Uint64 `abi:"mem_granted"`
	MemPeak       atomic.Uint64 `abi:"mem_peak"`
	Split         Split         `abi:"split"`
	UpdatedNS     atomic.Uint64 `abi:"updated_ns"`
	LaunchesEnded atomic.Uint64 `abi:"launches_ended"`
	_             [96]byte      `abi:"reserved"`
}

// Book is the arbiter's page of a task: struct alq_book.
type Book struct {
	Header Header               `abi:"header"`
	_      [128]byte            `abi:"reserved"`
	Grant  [MaxGrants]BookGrant `abi:"grant"`
}

// Device is a device's page: struct alq_device. UUID, MemCapacity and State are the agent's, the rest the arbiter's.
type Device struct {
	Header           Header        `abi:"header"`
	UUID             [UUIDLen]byte `abi:"uuid"`
	MemCapacity      atomic.Uint64 `abi:"mem_capacity"`
	State            atomic.Uint32 `abi:"state"`
	_                uint32        `abi:"reserved0"`
	Seq              atomic.Uint32 `abi:"seq"`
	Active           atomic.Uint32 `abi:"active"`
	SinceNS          atomic.Uint64 `abi:"since_ns"`
	UpdatedNS        atomic.Uint64 `abi:"updated_ns"`
	UnreservedIdleNS atomic.Uint64 `abi:"unreserved_idle_ns"`
	DownNS           atomic.Uint64 `abi:"down_ns"`
	Switches         atomic.Uint64 `abi:"switches"`
	MemReserved      atomic.Uint64 `abi:"mem_reserved"`
	Ended            Split         `abi:"ended"`

	StallSinceNS atomic.Uint64             `abi:"stall_since_ns"`
	StallUID     [UIDLen / 8]atomic.Uint64 `abi:"stall_uid"`
	StallPID     atomic.Int32              `abi:"stall_pid"`
	_            [4]byte                   `abi:"reserved1"`

	MemWanted        atomic.Uint64             `abi:"mem_wanted"`
	MemWantedSinceNS atomic.Uint64             `abi:"mem_wanted_since_ns"`
	MemWantedUID     [UIDLen / 8]atomic.Uint64 `abi:"mem_wanted_uid"`
	_                [16]byte                  `abi:"reserved"`
}
