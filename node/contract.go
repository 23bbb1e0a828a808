// Package node is the agent: it finds the devices of one machine, makes grants real and meters them. What comes in are
// grants (Prepare, Update, Unprepare, by the task's UID; it assumes no process that it started); what goes out are pages for the
// arbiter and the shim, usage, and word of devices that fail and of processes that no share covers. It never decides who gets
// what: that is the engine's, and moment to moment the arbiter's.
//
// Everything it must remember is in the files under Config.Run (a task's pages and its task.json), so a new agent finds what the last one prepared.
package node

import (
	"log/slog"
	"time"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/node/device"
)

// Config says where an agent works.
type Config struct {
	Run      string // RUN of docs/architecture.md; made if it is not there
	Host     string // whose the folder is, local or kube: another's is refused. Empty: not asked, not written down
	Simulate string // simulated devices and their costs, `h200x2,a10x4,switch_ns=100000`; empty: the machine's own driver
	Log      *slog.Logger

	// Group is the control group, as a path in each hierarchy of the machine, for the processes that outlive the agent; made if it is not
	// there. Empty: they stay in the agent's, which is right unless that ends with the agent, as a container's does.
	Group string

	// Unenforced is what is done about processes that are not held to a share; empty: they are shown.
	Unenforced api.UnenforcedRule

	// DriverFolders is where in DriverRoot the machine's driver is looked for; empty: the linker's cache and the usual folders.
	DriverFolders []string
	DriverRoot    device.Root // the file system that the driver is installed in; empty: the agent's own
}

// ErrNoDriver is a machine without a driver.
var ErrNoDriver = device.ErrNoDriver

// Device is an accelerator that was found.
type Device struct {
	UUID      string
	Index     int // the driver's
	Model     string
	Memory    api.Bytes // that may be granted: total less what the driver keeps
	Simulated bool
	Health    api.DeviceHealth
	Reason    string
	About     device.About
}

// Task is what Prepare makes real: all grants of one task on this node.
type Task struct {
	UID         string
	UserID      uint32 // who may open its tel page and socket
	UserUnknown bool   `json:",omitempty"` // it is not known yet who may: page.Give says it, when its programs begin. Until then the agent's user may; UserID is 0
	Grants      []Grant
	Flags       Flags
}

// Grant is one share on one device, in the units of the pages.
type Grant struct {
	UID                  string
	Device               string // UUID
	Floor, Ceiling       api.Milli
	Weight               int32 // ≥ 1
	MemFloor, MemCeiling api.Bytes
}

// Flags are a task's policy flags.
type Flags struct {
	LatencyClass bool
	Revocable    bool `json:",omitempty"` // it may borrow idle memory floors, and what it holds above its own can be taken back: it is ended for that
}

// Mount is a file or folder to bind over another in the task's private mount namespace, in the order of the list.
type Mount struct {
	Source, Target string
	ReadOnly       bool
}

// Launch is how a process of a prepared task must be started to be held to its share.
type Launch struct {
	Env    []string // KEY=VALUE, to be added; LD_LIBRARY_PATH is to be put in front of the user's own
	Mounts []Mount  // empty where the library path alone is used; where they cannot be made, the library path remains
	Notes  []string // what of it does not hold on this machine, one sentence each
}

// Container is how a container of a prepared task must be made to be held to its share, or one of an administrator's, who has none. Sources are paths of the machine.
type Container struct {
	Env     []string // KEY=VALUE
	Mounts  []Mount
	Devices []string // device files, to be had under the same path

	// An image may have libraries of the driver's itself. Each file of one of these names is to be covered, wherever programs find it, but for those Behind the
	// shim: only then these are held to the share.
	Libraries []device.Library
	Behind    []string

	// Pages is the task's folder, which is to be given (page.Give) to the user that the container runs as, before its programs begin: with a task whose user was
	// known it is made sure that it is that user's. Empty: it has none.
	Pages string
}

// Usage is what one grant has used since it was prepared, and holds now.
type Usage struct {
	Task      string
	Grant     Grant
	Held      time.Duration // device time charged by the arbiter
	Own       time.Duration // within the floor
	Burst     time.Duration // above it
	BurstLent time.Duration // of Burst, on floors that others left idle
	Lent      time.Duration // of its floor, to others
	Reserved  time.Duration // its floor, idle
	Waited    time.Duration // summed over processes, waiting at the gate
	Launches  uint64
	Memory    api.Bytes // overhead included
	MemPeak   api.Bytes
	Processes []int // registered, by pid on the node

	// MemoryByDriver is what these processes hold by the driver's word; nil: it does not say.
	MemoryByDriver *api.Bytes

	// UnknownCalls is how often its processes looked up functions of the driver that the shim does not know; calls of those pass it.
	// It is of the whole task, and of the processes that run now.
	UnknownCalls uint64
}

// MemoryHeld is the memory of one grant, now.
type MemoryHeld struct {
	Task    string
	Grant   Grant
	Granted api.Bytes // that its processes may hold without asking; less than the floor where that is lent
	Firm    api.Bytes // of that, what cannot be taken back
	Used    api.Bytes // that they say they hold, overhead included
}

// DeviceUsage is what a device did since its books began.
type DeviceUsage struct {
	UUID           string
	Since          time.Duration // length of the books
	Own, Burst     time.Duration // summed over grants; Burst is what ran on time nobody reserved
	Lent, Reserved time.Duration
	Idle, Down     time.Duration // unreserved idle; down
	MemoryUsed     *api.Bytes    // by the driver's word; nil: not known
	Busy           *api.Milli    // by the driver's word
	Unenforced     []api.Process
	Unseen         api.Unseen
	Stopped        uint64 // processes that were ended there because no share held them, since this agent was opened
	MemoryDoubts   uint64 // times that a share was found to hold more memory there than it may, likewise
}

// Sample is one reading of all meters.
type Sample struct {
	At      time.Time
	Tasks   []Usage
	Devices []DeviceUsage
}

// Notice is something the agent saw.
type Notice struct {
	Kind    NoticeKind
	Device  string // UUID, if it is about a device
	Task    string
	Message string   // one sentence
	Reason  string   // for devices and broken tasks: what is wrong, without the name
	Reclaim *Reclaim // of memory that is wanted back
	Stall   bool     // of a device that is sick: of work that does not end, Task's or, where that is empty, several tasks'
}

// NoticeKind says what a notice is about.
type NoticeKind string

// The kinds of notice.
const (
	DeviceDown   NoticeKind = "device down" // gone from the bus or fatal XID: drain it, evict what runs there
	DeviceSick   NoticeKind = "device sick" // an XID that policy says to look at; or (Stall) work does not end and takes others' floors
	DeviceBack   NoticeKind = "device back"
	DeviceFault  NoticeKind = "device fault"  // a program on it failed; the device is as it was
	Unenforced   NoticeKind = "unenforced"    // a process uses a device and no share covers it, or a share's processes hold more memory than they may
	Enforced     NoticeKind = "enforced"      // nothing of the task does so any more
	Administers  NoticeKind = "administers"   // a process of an administrator's container computes on a device, which no share covers and none has to
	Stalled      NoticeKind = "stalled"       // such work has gone on for so long that the rule says to end its task
	Stopped      NoticeKind = "stopped"       // a process was told to end because it did so
	Doubted      NoticeKind = "doubted"       // a device was busy for longer than its shares were charged
	UnknownCalls NoticeKind = "unknown calls" // a task's program knows functions of the driver that the shim does not; said once a task
	MemoryWanted NoticeKind = "memory wanted" // an owner waits for what is lent of its floor: end borrowers
	Broken       NoticeKind = "broken"        // a task cannot be held to its grants any more: end it
	ArbiterGone  NoticeKind = "arbiter gone"  // died; a new one is being started
	ArbiterBack  NoticeKind = "arbiter back"
)
