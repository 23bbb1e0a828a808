package api

import "time"

// Milli counts thousandths of one device: 1000 is a whole device.
type Milli int32

// WholeDevice is all the compute, or all the memory, of one device.
const WholeDevice Milli = 1000

// Bytes counts bytes of memory.
type Bytes int64

// Compute is a floor and a ceiling of a device's compute, 0 ≤ Floor ≤ Ceiling ≤ 1000 and Ceiling ≥ 1. Its text form is
// `0.25..0.80`, `0.25` (floor = ceiling) or `0.25..` (up to the whole device); `25%` is `0.25`.
type Compute struct {
	Floor   Milli
	Ceiling Milli
}

// Amount is an amount of device memory: so many bytes, or a part of the device's memory that is known in bytes only once the
// device is chosen. At most one of the two is set; both zero is no memory.
type Amount struct {
	Bytes Bytes
	Part  Milli
}

// Memory is a floor and a ceiling of a device's memory. Its text form is `10Gi..20Gi`, `10Gi` (floor = ceiling), `10Gi..` (up to the
// whole device) or `80%`.
type Memory struct {
	Floor   Amount
	Ceiling Amount
}

// Share is a part of one device. Weight (≥ 0; 0 means the default: the compute floor, at least 1) divides what is over the
// floors.
type Share struct {
	Compute Compute `json:"gpu"`
	Memory  Memory  `json:"memory"`
	Weight  int32   `json:"weight,omitempty"`
}

// Class is what kind of work a workload is.
type Class string

// The classes. Training is the default.
const (
	Interactive Class = "interactive"
	Inference   Class = "inference"
	Training    Class = "training"
	Batch       Class = "batch"
)

// WorkloadSpec is what a user submits.
type WorkloadSpec struct {
	Name     string `json:"name,omitempty"` // unique among live workloads; made up when empty
	Queue    string `json:"queue,omitempty"`
	Class    Class  `json:"class,omitempty"`
	Priority int32  `json:"priority,omitempty"`
	// PriorityUntil is when Priority is over: from then on PriorityAfter counts instead. nil: it holds as long as the workload is there.
	PriorityUntil *time.Time `json:"priorityUntil,omitempty"`
	PriorityAfter int32      `json:"priorityAfter,omitempty"`
	// Preemptible lets it hold what others are guaranteed and do not use; it is evicted when they want it, or when work of a higher
	// priority in its queue does not fit otherwise.
	Preemptible bool `json:"preemptible,omitempty"`
	// Requeue puts it back into the line when it is evicted, as a new workload of the same name that starts from the beginning.
	Requeue bool `json:"requeue,omitempty"`
	// OnReclaim says what is done with memory that it holds above its floor and that others have reserved; empty: it borrows none of that.
	OnReclaim ReclaimRule `json:"onReclaim,omitempty"`
	Share     Share       `json:"share"`
	Devices   int         `json:"devices,omitempty"` // distinct devices, each with Share; default 1
	// Replicas is how many processes of it run, each with Share on Devices, and between what bounds it grows and shrinks.
	Replicas Replicas `json:"replicas,omitzero"`
	// Roles are further processes that ask for something else, and start with these, all or none. A process of a role is listed with what that asks
	// for in the place of this, and this among Roles by the name main.
	Roles []Role `json:"roles,omitempty"`
	Model string `json:"model,omitempty"` // device model wanted: a name that `aliquot devices` prints, or a part that fits one alone; empty: any
	// MinCapability and MinBandwidth (of memory, GB/s) are what its devices must have at the least, MaxLatencyClass is the slowest latency class that will
	// do; 0: any do. A device of which it is not known does not.
	MinCapability   Capability `json:"minCapability,omitempty"`
	MinBandwidth    int32      `json:"minBandwidth,omitempty"`
	MaxLatencyClass int32      `json:"maxLatencyClass,omitempty"`
	TimeLimit       Duration   `json:"timeLimit,omitempty"` // of running time; 0: none
	// RestartTime is what it takes from its start until it goes on where it was; 0: not known, taken to be a minute. What would be lost by evicting it counts that.
	RestartTime Duration          `json:"restartTime,omitempty"`
	CPU         Milli             `json:"cpu,omitempty"` // limit in thousandths of a core; 0: none
	Memory      Bytes             `json:"hostMemory,omitempty"`
	Command     []string          `json:"command"`
	Dir         string            `json:"dir"`
	Env         map[string]string `json:"env,omitempty"`    // kept until it has ended
	Attach      bool              `json:"attach,omitempty"` // the program's standard streams are the client's own (`aliquot run`)
	// Exact is in JSON alone: what of Command, Dir and Env is not UTF-8. It is filled in and read by the methods for JSON.
	Exact *Exact `json:"exact,omitempty"`
}

// ReclaimRule says how memory that a workload borrowed comes back to those who have reserved it.
type ReclaimRule string

// The rules. Without one a workload borrows only memory that nobody has reserved, and keeps it for as long as it uses it.
const (
	ReclaimStop ReclaimRule = "stop" // it borrows idle memory floors, too, and is evicted when their owners want them
	ReclaimPark ReclaimRule = "park" // its memory is copied out instead; refused, since it is not built yet
)

// Duration is a time.Duration that reads and prints as text, `2h30m`.
type Duration time.Duration

// Phase is where a workload is in its life.
type Phase string

// The phases, in order. A workload that is Ended has an Outcome.
const (
	Waiting  Phase = "waiting"
	Starting Phase = "starting"
	Running  Phase = "running"
	Stopping Phase = "stopping"
	Ended    Phase = "ended"
)

// Outcome is how a workload ended.
type Outcome string

// The outcomes. Unknown means the exit status could not be had; WorkloadStatus.Reason says why.
const (
	Succeeded Outcome = "succeeded"
	Failed    Outcome = "failed"    // exited non-zero or by a signal
	Stopped   Outcome = "stopped"   // by a user
	TimedOut  Outcome = "timed out" // passed its time limit
	Evicted   Outcome = "evicted"   // by the engine or a lost device; Reason says why
	Refused   Outcome = "refused"   // could not be started
	Unknown   Outcome = "unknown"
)

// Workload is a workload as the API shows it.
type Workload struct {
	UID    string         `json:"uid"`
	User   string         `json:"user"`
	UserID uint32         `json:"userID"`
	Spec   WorkloadSpec   `json:"spec"`
	Status WorkloadStatus `json:"status"`
}

// WorkloadStatus is what has become of a workload.
type WorkloadStatus struct {
	Phase     Phase      `json:"phase"`
	Outcome   Outcome    `json:"outcome,omitempty"`
	ExitCode  *int       `json:"exitCode,omitempty"`
	Signal    string     `json:"signal,omitempty"` // that ended it, e.g. SIGKILL
	Reason    string     `json:"reason,omitempty"` // one sentence, where phase or outcome needs one
	Place     int        `json:"place,omitempty"`  // in line while waiting, from 1
	Submitted time.Time  `json:"submitted"`
	Requeued  int        `json:"requeued,omitempty"` // how often it was evicted and put back into the line before
	Started   *time.Time `json:"started,omitempty"`
	// Checkpoint is when it last said that what it has done is saved; nil: it did not.
	Checkpoint *time.Time `json:"checkpoint,omitempty"`
	Ended      *time.Time `json:"ended,omitempty"`
	Grants     []Grant    `json:"grants,omitempty"`
	PID        int        `json:"pid,omitempty"`
	LogPath    string     `json:"logPath,omitempty"`
	Notes      []string   `json:"notes,omitempty"` // enforcement off, limits that the machine does not allow
	Usage      []Usage    `json:"usage,omitempty"` // of each grant, now; once it has ended, in all
	// PriorityOver says that Spec.PriorityUntil has come: Spec.PriorityAfter counts.
	PriorityOver bool `json:"priorityOver,omitempty"`
	// Replica is which one it is, of a workload of several; nil: there is one, or none was placed.
	Replica *Replica `json:"replica,omitempty"`
	// Replicas is how many of them hold grants now; 0: it is one of one, or waits, or has ended.
	Replicas int `json:"replicas,omitempty"`
}

// Replica is one of several of a workload. Each is listed as a workload of its own; the first has the name of the workload, the others the same
// with their number, or with their role and their number in that.
type Replica struct {
	Of     string `json:"of"`     // the UID of the first
	Number int    `json:"number"` // from 0; a number comes again when the one that had it has ended
	// Role is its role, where the workload has roles, and InRole its number among those, from 0.
	Role   string `json:"role,omitempty"`
	InRole int    `json:"inRole,omitempty"`
}

// Grant is a share placed on a device.
type Grant struct {
	UID           string `json:"uid"`
	Device        string `json:"device"` // UUID
	DeviceIndex   int    `json:"deviceIndex"`
	ComputeFloor  Milli  `json:"computeFloor"`
	ComputeLimit  Milli  `json:"computeCeiling"`
	MemoryFloor   Bytes  `json:"memoryFloor"`
	MemoryCeiling Bytes  `json:"memoryCeiling"`
	Weight        int32  `json:"weight"`
}

// Usage is what one grant has used and uses now. Rates are means over Over, the last 10 s as far as they were watched since the
// last change of the share; nil means not known, or that it has ended.
type Usage struct {
	Workload       string        `json:"workload"`
	Grant          Grant         `json:"grant"`
	Compute        *Milli        `json:"compute"`        // device time held, in thousandths of the device
	Memory         *Bytes        `json:"memory"`         // bytes held, overhead included, as its processes account it
	MemoryByDriver *Bytes        `json:"memoryByDriver"` // bytes that these processes hold by the driver's word
	MemoryPeak     Bytes         `json:"memoryPeak"`     // the most held at once, since the grant
	Borrowing      Milli         `json:"borrowing"`      // compute above the floor
	Lending        Milli         `json:"lending"`        // of its floor, to others
	WaitedShare    Milli         `json:"waitedShare"`    // part of the time spent waiting at the gate
	Over           time.Duration `json:"over"`           // what the rates are means over; 0: there are none
	DeviceTime     time.Duration `json:"deviceTime"`     // since the grant
	Own            time.Duration `json:"own"`
	Burst          time.Duration `json:"burst"`
	Launches       uint64        `json:"launches"`
	Processes      int           `json:"processes"`
	Enforced       bool          `json:"enforced"`
	// UnknownCalls is how often the workload's processes that run now looked up functions of the driver that the shim does not know,
	// on all its devices together: calls of those pass it, and what they do is not held to the share.
	UnknownCalls uint64 `json:"unknownCalls,omitempty"`
}

// DeviceHealth says whether a device takes work.
type DeviceHealth string

// The states of health.
const (
	Healthy  DeviceHealth = "healthy"
	Draining DeviceHealth = "draining"
	Down     DeviceHealth = "down"
)

// Device is one accelerator as the API shows it.
type Device struct {
	UUID         string       `json:"uuid"`
	Index        int          `json:"index"` // of the driver, for display only
	Model        string       `json:"model"`
	Simulated    bool         `json:"simulated"`
	Memory       Bytes        `json:"memory"`     // that may be granted
	MemoryUsed   *Bytes       `json:"memoryUsed"` // nil: not known
	Busy         *Milli       `json:"busy"`
	ComputeFree  Milli        `json:"computeFree"` // not under any floor; 0 where it takes no work
	MemoryFree   Bytes        `json:"memoryFree"`
	Health       DeviceHealth `json:"health"`
	HealthReason string       `json:"healthReason,omitempty"`
	Grants       []Usage      `json:"grants"`
	Unenforced   []Process    `json:"unenforced,omitempty"`
	Unseen       Unseen       `json:"unseen,omitempty"`       // what the driver does not tell of its processes; empty: nothing
	Capability   Capability   `json:"capability,omitempty"`   // its compute capability; 0: not known
	Bandwidth    int32        `json:"bandwidth,omitempty"`    // of its memory, GB/s; 0: not known
	LatencyClass int32        `json:"latencyClass,omitempty"` // as it was declared, from 1, which answers fastest; 0: none was
	Link         string       `json:"link,omitempty"`         // devices with the same are linked with each other; empty: it is with none, or that is not known
	NUMA         string       `json:"numa,omitempty"`         // the memory node of its bus; empty: not known
	Stopped      uint64       `json:"stopped"`                // processes that were ended there because no share held them, since the server started
	MemoryDoubts uint64       `json:"memoryDoubts"`           // times that a share held more memory there than it may, likewise
}

// Process is a process found on a device that no share covers.
type Process struct {
	PID    int    `json:"pid"`
	Name   string `json:"name"`
	User   string `json:"user"`
	Memory *Bytes `json:"memory"`
}

// Unseen is what a driver does not tell of the processes on a device, a sentence without an end.
type Unseen string

// What a driver may not tell.
const (
	UnseenProcesses Unseen = "its driver does not list the processes on it"
	UnseenMemory    Unseen = "its driver does not say how much memory each process holds"
)

// UnenforcedRule says what a server does about processes that use a device and are not held to a share, and about work that does not end
// and takes others' floors.
type UnenforcedRule string

// The rules. Empty is to show them.
const (
	ShowUnenforced UnenforcedRule = "show" // in lists, metrics and events
	StopUnenforced UnenforcedRule = "stop" // and end them, where they are a task's; a root's server those of persons, too
)

// QueueSpec is a tenant in the tree of queues. Its quota is what it is guaranteed and its limit what it may never pass, for the
// floors of its workloads together, those of the queues under it included. Work that is not preemptible fits in the quota only;
// preemptible work may go over it, up to the limit, and gives way when the owner of the quota wants it back, and to work of a higher
// priority in its own queue. What is over all quotas goes by weight. Amounts that are not set are no bound: without a quota nothing is
// guaranteed.
type QueueSpec struct {
	Name         string       `json:"name"`
	Parent       string       `json:"parent,omitempty"`
	Quota        Quota        `json:"quota"` // of compute; Unlimited: none is set
	QuotaMemory  *Bytes       `json:"quotaMemory,omitempty"`
	QuotaDevices *int64       `json:"quotaDevices,omitempty"` // shares, each on one device
	Limit        QueueAmounts `json:"limit,omitzero"`
	Weight       QueueWeight  `json:"weight,omitzero"`
	Models       []QueueModel `json:"models,omitempty"`
	// MaxPriority, 0 to 1000, is the highest priority that users may give their work in it. Root, and the user that the server runs
	// as, may give any.
	MaxPriority int32 `json:"maxPriority,omitempty"`
	// Priority, -1000 to 1000, is added to the priorities of all work in it and in the queues under it, where these count in line. It ends
	// nothing that runs: work is preempted for what is in the same queue, and has the same added to it.
	Priority int32 `json:"priority,omitempty"`
	// PriorityUntil is when Priority is over: from then on PriorityAfter is added instead. nil: it always is.
	PriorityUntil *time.Time `json:"priorityUntil,omitempty"`
	PriorityAfter int32      `json:"priorityAfter,omitempty"`
	// ShortestFirst, 0 to 1000, lets work that is predicted to run shorter go first among that of one priority: it goes before what came
	// up to so many times the difference earlier. With 2 an hour less makes up for having come two hours later; so nothing waits behind
	// what came later than so many times what it is predicted to take itself. 0: first come.
	ShortestFirst Milli `json:"shortestFirst,omitzero"`
	// LongestRun is how long work in it, and in the queues under it, may run; 0: no bound. Work that asks for no time limit gets it as one when
	// it is submitted, and ends by it.
	LongestRun Duration `json:"longestRun,omitempty"`
	// MinRun is how long work in it, and in the queues under it, runs before it is evicted for other work: by reclaim, by preemption, as a guest of a
	// pool or to be moved. Replicas above those that elastic work is sure of go all the same. The longest of a queue and those above it counts; 0: none.
	MinRun Duration `json:"minRun,omitempty"`
	// Disruptions is how often a workload in it, or in a queue under it, may be evicted for other work, or moved, in any time so long, counted over the
	// times that it was put back in line. Replicas above those that elastic work is sure of are not counted. Each queue's counts, with those above it.
	Disruptions DisruptionBudget `json:"disruptions,omitzero"`
	// Hours is how many device-hours work in it, and in the queues under it, may use of each day, week or month.
	Hours HoursQuota `json:"hours,omitzero"`
	// HoursSpent is told the engine by its host, and says that these are used up: nothing with a compute floor is started. What users set it to
	// says nothing.
	HoursSpent bool `json:"hoursSpent,omitempty"`
	// Order is what else counts in its line.
	Order QueueOrder `json:"order,omitzero"`
}

// MaxShortestFirst is the largest ShortestFirst.
const MaxShortestFirst = 1000 * Milli(1000)

// QueueOrder is what counts in the line of a queue, beside who is predicted to run shorter and who came first. With the zero QueueOrder
// it is first the fair shares of the queues under it, then priority.
type QueueOrder struct {
	// OneLine has what waits in the queues under it stand in one line: neither their quotas nor their fair shares say whose turn it is, and
	// the rest of this order, with ShortestFirst, is that of all work under it. Of several such queues above each other it is the topmost's.
	OneLine bool `json:"oneLine,omitempty"`
	// NoPriority has priorities not count, neither in the line nor for preemption.
	NoPriority bool `json:"noPriority,omitempty"`
	// PriorityWorth, 0 to 30 days, has priorities age: each step of priority goes before what came up to so much earlier, and nothing is
	// preempted for it. 0: a higher priority goes first, whatever came when.
	PriorityWorth Duration `json:"priorityWorth,omitempty"`
	// Served, 1 s to 30 days, has work of one priority take turns by what it was served so far: as device-hours are counted, the time for which it ran
	// weighed by its compute floors. Work that was served less than Served is on the first level, and each level is twice as long as the one before; who is on
	// a lower one goes first, and preempts preemptible work of its queue that is on a higher one. 0: what it was served does not count.
	Served Duration `json:"served,omitempty"`
	// Held, with Served, has each device count as a whole for as long as work holds a share of it, however small its floor.
	Held bool `json:"held,omitempty"`
}

// The least and the most that Served may be.
const (
	LeastServed = Duration(time.Second)
	MostServed  = Duration(30 * 24 * time.Hour)
)

// MaxPriorityWorth is the largest PriorityWorth.
const MaxPriorityWorth = Duration(30 * 24 * time.Hour)

// QueueAmounts are amounts that a quota or limit is set to; nil: not set.
type QueueAmounts struct {
	Compute *Quota `json:"compute,omitempty"` // thousandths of a device
	Memory  *Bytes `json:"memory,omitempty"`
	Devices *int64 `json:"devices,omitempty"` // shares, each on one device
}

// QueueWeight divides what is over the quotas among the queues under one parent. All (default 1) is for each resource that has
// no weight of its own.
type QueueWeight struct {
	All     int32 `json:"all,omitempty"`
	Compute int32 `json:"compute,omitempty"`
	Memory  int32 `json:"memory,omitempty"`
	Devices int32 `json:"devices,omitempty"`
}

// QueueModel is the quota and limit of a queue on devices of one model, which count beside those overall, and its weight there. Where it, or one of the
// queues beside it, has a weight on a model, work that may go on that alone goes by what these hold and are due of the devices of that model, and of them by
// their weights there; what a queue says no weight of there goes by its overall one.
type QueueModel struct {
	Model  string       `json:"model"`
	Quota  QueueAmounts `json:"quota,omitzero"`
	Limit  QueueAmounts `json:"limit,omitzero"`
	Weight QueueWeight  `json:"weight,omitzero"` // of which All has no default
}

// Policy is a policy file (docs/policy.md), and what holds of it now.
type Policy struct {
	Name    string     `json:"name"` // of the file; empty: none is set
	Text    string     `json:"text"`
	Window  string     `json:"window,omitempty"`  // that holds now; empty: none
	Until   *time.Time `json:"until,omitempty"`   // when another holds, or none any more; nil: that never comes
	Warning string     `json:"warning,omitempty"` // why it does not hold as it says
	Moved   []Moved    `json:"moved,omitempty"`   // in the last hour, the earliest first
}

// Moved is a workload that a policy had moved: ended, to run again elsewhere.
type Moved struct {
	At       time.Time `json:"at"`
	Workload string    `json:"workload"` // the UID that it had until then
	Frees    string    `json:"frees"`    // what for, half a sentence
	Plan     uint64    `json:"plan"`     // those of one plan were moved for one purpose
}

// Quota is a limit in thousandths of a device, or Unlimited. Its text form is a number of devices (`2`, `0.5`) or `none`.
type Quota int64

// Unlimited is the absence of a quota.
const Unlimited Quota = -1

// Queue is a queue as the API shows it.
type Queue struct {
	QueueSpec
	Held    Milli `json:"held"` // floors granted to its workloads, subtree included
	Running int   `json:"running"`
	Waiting int   `json:"waiting"`

	Use      QueueUse `json:"use"`            // Held, and the other resources
	Fair     QueueUse `json:"fair"`           // its fair share now, of what it holds and wants
	Borrowed QueueUse `json:"borrowed"`       // held over its quota, and Burst; without a quota, all
	Burst    QueueUse `json:"burst,omitzero"` // of Borrowed, by replicas above those that their workloads are sure of: whoever waits may have it
	AtRisk   QueueUse `json:"atRisk"`         // of Borrowed, by preemptible work: the owners of quotas may take it back
	Lent     QueueUse `json:"lent"`           // left of its quota and borrowed by the queues beside it
	// OnModels is what it holds and is due of each model on which it, or a queue beside it, has a weight.
	OnModels []QueueOnModel `json:"onModels,omitempty"`
	// HoursUsed is what was used of Hours; nil: these are no bound.
	HoursUsed *HoursUsed `json:"hoursUsed,omitempty"`
}

// QueueUse is an amount of each resource of a queue.
type QueueUse struct {
	Compute Milli `json:"compute"`
	Memory  Bytes `json:"memory"`
	Devices int64 `json:"devices"` // shares, each on one device
}

// QueueOnModel is an amount of each resource of a queue on devices of one model.
type QueueOnModel struct {
	Model string   `json:"model"`
	Use   QueueUse `json:"use"`  // held
	Fair  QueueUse `json:"fair"` // its fair share of them now, of what it holds there and of what waits for this model alone
}

// DefaultQueue is where a workload goes that names none. It always exists.
const DefaultQueue = "default"

// Why says why a workload waits, or what became of it.
type Why struct {
	Workload string      `json:"workload"`
	Phase    Phase       `json:"phase"`
	Place    int         `json:"place,omitempty"`
	Code     string      `json:"code"`    // the dominant reason, stable
	Message  string      `json:"message"` // the same in one sentence
	Counts   []WhyCount  `json:"counts,omitempty"`
	Unblock  string      `json:"unblock,omitempty"`  // what would let it start
	Estimate *time.Time  `json:"estimate,omitempty"` // Start.Latest
	Start    *Start      `json:"start,omitempty"`    // of one that waits: when
	Ahead    []string    `json:"ahead,omitempty"`    // names of those in front that hold it back
	History  []WhyRecord `json:"history,omitempty"`
}

// Start is when a workload that waits is expected to start.
type Start struct {
	// Earliest and Latest are the interval. Latest is when it starts if all that runs takes its whole time limit and nothing goes
	// before it that does not now, but for windows, dates and device-hours to come; nil: not known, see Unknown. Work may end at any
	// moment, so Earliest is now, or when it is tried again, or when something comes without which it cannot start.
	Earliest *time.Time `json:"earliest,omitempty"`
	Latest   *time.Time `json:"latest,omitempty"`
	Unknown  string     `json:"unknown,omitempty"` // why Latest is not known, as half a sentence
	InWay    []string   `json:"inWay,omitempty"`   // names of running work without a time limit that is in its way
	// Expected is when it starts if all work takes the middle of what it is predicted to take by what was like it and has ended; From and
	// To, if all takes the low and the high tenth of that. None is after Latest: one that is the same says no more than time limits do. nil: nothing is
	// predicted, or it would not start. None is a promise.
	Expected *time.Time `json:"expected,omitempty"`
	From     *time.Time `json:"from,omitempty"`
	To       *time.Time `json:"to,omitempty"`

	Past *PastStart `json:"past,omitempty"` // how past estimates fared; nil: there are none
}

// PastStart is how the estimates fared that were given to the last workloads before they started. An error is how far the start was
// from the first Expected that was given of it, or the first Latest where none was, sooner or later.
type PastStart struct {
	Starts int      `json:"starts"` // how many are counted, the last 256 at most
	Median Duration `json:"median"` // of the errors
	P90    Duration `json:"p90"`
	Late   int      `json:"late"` // of Starts, those that started later than was said
}

// Plan is what would happen if a workload were submitted now. Nothing is changed by asking.
type Plan struct {
	Phase   Phase   `json:"phase"`            // Starting: it would start at once; Waiting: it would wait
	Message string  `json:"message"`          // the same in one sentence, with where or why
	Node    string  `json:"node,omitempty"`   // where it would start
	Grants  []Grant `json:"grants,omitempty"` // that it would have there

	// Of one that would wait:
	Place   int        `json:"place,omitempty"` // in line, from 1
	Code    string     `json:"code,omitempty"`  // the dominant reason, as in Why
	Counts  []WhyCount `json:"counts,omitempty"`
	Unblock string     `json:"unblock,omitempty"` // what would let it start
	Start   *Start     `json:"start,omitempty"`
	Ahead   []string   `json:"ahead,omitempty"`  // names of those in front that would hold it back
	Behind  int        `json:"behind,omitempty"` // how many would come after it in line

	Evict   []PlanEvict `json:"evict,omitempty"` // who would be evicted, so that its queue has what it is guaranteed, or for its priority
	Promise string      `json:"promise"`         // why nobody in front of it starts later by it, in one sentence
	Delays  []PlanDelay `json:"delays,omitempty"`
	Delayed int         `json:"delayed,omitempty"` // how many are delayed; the first 16 of them are in Delays
	Notes   []string    `json:"notes,omitempty"`   // limits that this server does not hold
	Use     *PlanUse    `json:"use,omitempty"`     // what it may be expected to use; nil: too little is known
}

// PlanUse is what work like a workload used of each of its devices: a guess by what was. The middle of the runs, and from and to, between which eight in ten
// of what is predicted so come.
type PlanUse struct {
	Like        string `json:"like"`    // what the work was
	Runs        int    `json:"runs"`    // how many of them are counted
	Compute     Milli  `json:"compute"` // the mean over a run
	ComputeFrom Milli  `json:"computeFrom"`
	ComputeTo   Milli  `json:"computeTo"`
	Memory      Bytes  `json:"memory"` // the most that a run held at once
	MemoryFrom  Bytes  `json:"memoryFrom"`
	MemoryTo    Bytes  `json:"memoryTo"`
}

// PlanEvict is a workload that would be evicted.
type PlanEvict struct {
	Workload string `json:"workload"`
	Reason   string `json:"reason"`
}

// PlanDelay is a workload that waits and would start later, by forecast.
type PlanDelay struct {
	Workload string     `json:"workload"`
	From     time.Time  `json:"from"`
	To       *time.Time `json:"to,omitempty"` // nil: not known any more
}

// WhyCount is how many devices are ruled out for one reason.
type WhyCount struct {
	Code    string     `json:"code"`
	Message string     `json:"message"`
	Devices int        `json:"devices"`
	Nodes   []WhyNodes `json:"nodes,omitempty"` // the same by node class, most devices first
}

// WhyNodes is how many devices are ruled out for one reason on the nodes of one class.
type WhyNodes struct {
	Class   string `json:"class"` // what their nodes have: "h100 x8", or "a100 x4 + h100 x4" where models are mixed
	Devices int    `json:"devices"`
}

// WhyRecord is one thing that happened to a workload.
type WhyRecord struct {
	At      time.Time `json:"at"`
	Message string    `json:"message"`
}

// Info says what a server is.
type Info struct {
	Version   string   `json:"version"`
	Node      string   `json:"node"`
	Simulated bool     `json:"simulated"`
	Devices   int      `json:"devices"`
	User      string   `json:"user"`      // whom the server takes the caller for
	AllUsers  bool     `json:"allUsers"`  // runs as root for every user of the machine
	Warnings  []string `json:"warnings"`  // what does not work as it should, each with what to do
	ShimMode  string   `json:"shimMode"`  // how programs find the shim: "mounts" or "library path"
	Native    string   `json:"native"`    // folder of the native parts
	SimSocket string   `json:"simSocket"` // of the simulated driver; empty when there is a real one
	Simulate  string   `json:"simulate"`  // the simulated devices, `h200x2,a10x4`; empty when they are real
	HTTP      string   `json:"http"`      // address on loopback; empty: none
	State     string   `json:"state"`     // folder of what survives a reboot

	Unenforced UnenforcedRule `json:"unenforced"` // what is done about processes that no share holds

	LatencyClass string `json:"latencyClass,omitempty"` // what was declared of devices, as LatencyClasses write it; empty: nothing
}

// Event is one change, as the server sends it to those who listen.
type Event struct {
	Seq      uint64    `json:"seq"`
	At       time.Time `json:"at"`
	Kind     string    `json:"kind"` // workload, device, queue, node, alert
	Workload string    `json:"workload,omitempty"`
	Message  string    `json:"message"`
}

// Error is a refusal: what was asked, what is true, what to do, in one sentence. The server sends it as RFC 9457.
type Error struct {
	Code    string `json:"code"` // stable: invalid, not_found, forbidden, conflict, unavailable
	Message string `json:"message"`
	// ExitCode is what shells end with for a program that cannot be run (126) or is not there (127), where that is what was refused.
	ExitCode int `json:"exit_code,omitempty"`
}

func (e *Error) Error() string { return e.Message }
