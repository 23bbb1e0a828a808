package engine

import (
	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/engine/fleet"
)

// Time is microseconds since an epoch that the host chooses. It never goes back.
type Time int64

// ActionID names a proposal. IDs rise by one, from 1 or Config.FirstAction, and are never used again, across Restore too.
type ActionID uint64

// Event is something that happened. Every event carries the time it happened at; the engine takes an earlier time than the last
// one seen as the last one seen.
type Event interface{ When() Time }

// At is the time of an event; every event embeds it.
type At struct {
	At Time `json:"at"`
}

// When is the time of the event.
func (a At) When() Time { return a.At }

// Resource is an amount of a named integer resource of a node or task: CPU in thousandths of a core, memory in bytes, pods, ports.
type Resource struct {
	Name   string `json:"name"`
	Amount int64  `json:"amount"`
}

// Device is one accelerator of a node.
type Device struct {
	UUID   string           `json:"uuid"`
	Index  int              `json:"index"` // for stable order and display
	Model  string           `json:"model"`
	Memory api.Bytes        `json:"memory"` // that may be granted
	Health api.DeviceHealth `json:"health"`
	Reason string           `json:"reason,omitempty"` // why it is not healthy
	Traits fleet.Traits     `json:"traits,omitzero"`  // what it can do, costs and draws, as far as known
	Link   string           `json:"link,omitempty"`   // devices of a node with the same are linked with each other; empty: with none
	NUMA   string           `json:"numa,omitempty"`   // the memory node that it is at; empty: not known
}

// NodeSet adds a node or replaces what is known of it. Grants on devices that remain stay; grants on devices that are gone are
// evicted.
type NodeSet struct {
	At
	Node      string     `json:"node"`
	Devices   []Device   `json:"devices"`
	Resources []Resource `json:"resources"` // capacity
	// Domains are what the node is in at each level of the topology that there is: rack r1, link domain l7.
	Domains []fleet.Domain `json:"domains,omitempty"`
}

// NodeGone removes a node. What ran there is evicted.
type NodeGone struct {
	At
	Node string `json:"node"`
}

// DeviceHealth changes one device's health. Draining takes no new grants; Down also evicts what runs there.
type DeviceHealth struct {
	At
	Node   string           `json:"node"`
	UUID   string           `json:"uuid"`
	Health api.DeviceHealth `json:"health"`
	Reason string           `json:"reason"`
}

// QueueSet adds or changes a queue.
type QueueSet struct {
	At
	Queue api.QueueSpec `json:"queue"`
}

// QueueGone removes a queue that holds nothing and that nothing waits in.
type QueueGone struct {
	At
	Queue string `json:"queue"`
}

// Workload is what the engine knows of a submission. Tasks start all or none. With a Max above that it is elastic: while nobody who waits could use
// it, it gets further replicas one by one, each with a Place and a task of its own, and they are ended before anything else is for another.
type Workload struct {
	ID          string      `json:"id"`             // never used again
	User        string      `json:"user,omitempty"` // whose it is; predictions go by it
	Name        string      `json:"name,omitempty"` // what its user calls it; predictions go by it, work of one name being alike
	Queue       string      `json:"queue"`
	Class       api.Class   `json:"class"`
	Priority    int32       `json:"priority"`
	Preemptible bool        `json:"preemptible,omitempty"` // may hold more than quotas, and is evicted when others want theirs
	Requeue     bool        `json:"requeue,omitempty"`     // its host submits it again once it was evicted, so that it may be moved
	Patient     bool        `json:"patient,omitempty"`     // nobody is evicted for it, and so it holds nobody back: it starts when it fits
	Tasks       int         `json:"tasks"`                 // ≥ 1
	Max         int         `json:"max,omitempty"`         // replicas in all, at least Tasks; 0: Tasks
	Devices     int         `json:"devices"`               // per task, distinct, on one node; ≥ 1
	Share       api.Share   `json:"share"`                 // of each device
	Model       string      `json:"model,omitempty"`
	Least       fleet.Least `json:"least,omitzero"`        // what its devices must be able to do; of each role's, too
	Resources   []Resource  `json:"resources,omitempty"`   // of the node, per task
	Same        string      `json:"same,omitempty"`        // level of the topology: all tasks and replicas are within one domain of it
	Prefer      string      `json:"prefer,omitempty"`      // level: they are where that can be, as far as they start together
	Feasibility string      `json:"feasibility,omitempty"` // class; empty: every node
	TimeLimit   Time        `json:"timeLimit,omitempty"`   // µs of running; 0: not known
	Restart     Time        `json:"restart,omitempty"`     // µs that it takes from its start until it goes on where it was; 0: a minute
	Roles       []Role      `json:"roles,omitempty"`       // further tasks, that ask for something else
}

// Submit adds a workload.
type Submit struct {
	At
	Workload Workload `json:"workload"`
	Waited   Time     `json:"waited,omitempty"` // µs for which it has waited already; 0 to 2^60
	Was      string   `json:"was,omitempty"`    // the ID that it had, of one that was evicted and comes again
	Served   Time     `json:"served,omitempty"` // µs of a whole device that its floors were served under earlier IDs; 0 to 2^60
	// Disrupted are when it was evicted for others (ForOthers) under earlier IDs, in µs before now, 0 to 2^60 each; at most api.MaxDisruptions, the last ones.
	Disrupted []Time `json:"disrupted,omitempty"`
}

// Change gives a waiting or running workload another share, priority or queue. For a running one the new floors must fit where
// it is.
type Change struct {
	At
	ID       string     `json:"id"`
	Share    *api.Share `json:"share,omitempty"`
	Priority *int32     `json:"priority,omitempty"`
	Queue    *string    `json:"queue,omitempty"`
}

// Cancel forgets a waiting workload, or asks that a running one be evicted.
type Cancel struct {
	At
	ID     string `json:"id"`
	Reason string `json:"reason"`
}

// Started says that a placed task runs.
type Started struct {
	At
	ID   string `json:"id"`
	Task int    `json:"task"`
}

// Ended says that a task is over and its grants are free, whatever the reason.
type Ended struct {
	At
	ID   string `json:"id"`
	Task int    `json:"task"`
	Used *Used  `json:"used,omitempty"` // nil: its host does not know
}

// Shrunk says that a running task holds less from here on, for it gave a part back: of the devices that are named these floors, or what it held
// where that is less, and nothing of its others. What holds nothing any more has Ended.
type Shrunk struct {
	At
	ID    string    `json:"id"`
	Task  int       `json:"task"`
	Holds []Holding `json:"holds"`
}

// Holding is what a task keeps of its grant on a device: floors.
type Holding struct {
	Device  string    `json:"device"`
	Compute api.Milli `json:"compute"` // thousandths of the device, at least 0
	Memory  api.Bytes `json:"memory"`  // at least 0
}

// Used is what a task used of each of its devices from its start to its end.
type Used struct {
	Compute api.Milli `json:"compute"` // the mean over the time and the devices; 0 to the whole device
	Memory  api.Bytes `json:"memory"`  // the most that it held at once of one of them; 0 to 2^50
}

// Checkpoint says that what a running workload has done, all its tasks together, is saved: ended now, it would lose what it did since.
type Checkpoint struct {
	At
	ID  string `json:"id"`
	Ago Time   `json:"ago,omitempty"` // µs since it was as it is saved; 0 to 2^60
}

// Usage says how much memory grants hold now: what their processes may hold without asking, whatever they use of it. The books
// count the larger of that and the floor as taken, for memory above a floor cannot be taken back while it is used. Where the host can take
// it back, by ending who holds it, it is not told: a floor may be placed on it. Of grants
// that are not named nothing changes; names that are not known (any more) are passed over, for use is measured beside the decisions.
type Usage struct {
	At
	Grants []GrantUsage `json:"grants"`
}

// GrantUsage is what one grant holds.
type GrantUsage struct {
	UID    string    `json:"uid"`
	Memory api.Bytes `json:"memory"`
}

// Feasibility says which nodes a class may use, by delta: Allowed nodes leave Barred and the other way round. A node of which
// nothing was said is allowed for the empty class and barred for every other.
//
// Prefer is no delta: it names the class on whose nodes, which are among this one's, its tasks go where one has room, and only else on the others.
// That class may prefer another in turn, so that nodes come in ranks. What would rather be elsewhere never waits for it, and goes to no node that
// its own class may not use.
type Feasibility struct {
	At
	Class   string       `json:"class"`
	Allowed []string     `json:"allowed,omitempty"`
	Barred  []NodeReason `json:"barred,omitempty"`
	Prefer  string       `json:"prefer,omitempty"` // empty: all its nodes are alike to it
}

// FeasibilityGone says that the host has nothing more to say of these classes: each that nothing uses is forgotten, with all that was said and
// refused of it; whoever names it again begins anew, as with a class never heard of. A class is used by the workloads that name it, themselves or in a
// role, from Submit until their Place is Done, and of those that are elastic or come again (Requeue) until they are over: any other that runs is of the
// empty class from here on, in all its roles, for nobody asks any more where it may run. It is used by a class that prefers it and is not forgotten with
// it, too, and by a policy's placement whose workload names it. What is used stays as it is, and what is not known is passed over, as is the empty class;
// neither is an error, and a host counts itself what its workloads name. What is known of the workload seen lately is kept: what came of a forgotten
// class counts as of the empty one.
type FeasibilityGone struct {
	At
	Classes []string `json:"classes"`
}

// NodeReason is why a node is barred.
type NodeReason struct {
	Node string `json:"node"`
	Code string `json:"code"`
}

// Done says that the host carried an action out.
type Done struct {
	At
	ID ActionID `json:"id"`
}

// Refused says that the host could not. The plan that the action belongs to is undone; with a Node that node is barred for the
// workload's feasibility class until either changes. A workload that could not be evicted is spared: for so long as Retry says, or for good.
type Refused struct {
	At
	ID     ActionID `json:"id"`
	Node   string   `json:"node,omitempty"`
	Reason string   `json:"reason"`
	Retry  Time     `json:"retry,omitempty"` // of an Evict: after so many µs it may be asked for again, 1 to 2^60; 0: never
}

// Adopt brings a workload that runs already, with its grants (restart, foreign scheduler). It is accepted even if the books then
// show a floor over capacity: what runs, runs; nothing new is placed there until it fits.
type Adopt struct {
	At
	Workload  Workload  `json:"workload"`
	Tasks     []Placing `json:"tasks"`
	Ran       Time      `json:"ran,omitempty"`       // µs for which it has run already; 0 to 2^60
	Served    Time      `json:"served,omitempty"`    // as in Submit
	Disrupted []Time    `json:"disrupted,omitempty"` // as in Submit
	Due       Time      `json:"due,omitempty"`       // as in Place; 0 to 2^60, and 0 for what is not preemptible
}

// Tick is time passing: the host sends one when Next says.
type Tick struct{ At }

// Action is a proposal to the host, or word of something decided.
type Action interface{ Action() ActionID }

// Grant is a share placed on a device. UIDs are made by the engine: `<workload>.<task>.<n>-<action>`, with the ID of the Place that
// it came with, so that they never repeat.
type Grant struct {
	UID     string      `json:"uid"`
	Device  string      `json:"device"`
	Compute api.Compute `json:"compute"`
	Floor   api.Bytes   `json:"memoryFloor"`
	Ceiling api.Bytes   `json:"memoryCeiling"`
	Weight  int32       `json:"weight"`
}

// Placing is where one task goes, all its grants together.
type Placing struct {
	Task   int     `json:"task"`
	Node   string  `json:"node"`
	Grants []Grant `json:"grants"`
}

// Place starts a workload: every task at its place, or none; or one more replica of an elastic one that runs, as a task from Tasks on. Numbers of
// replicas that are over come again. Answer Done or Refused; then Started and Ended for each task.
type Place struct {
	ID       ActionID  `json:"id"`
	Workload string    `json:"workload"`
	Tasks    []Placing `json:"tasks"`
	Due      Time      `json:"due,omitempty"` // it starts before the first in line, and is evicted for that if it is not over by then; 0: it does not
}

// Evict ends a task. Its grants stay in the books until Ended. Answer Done (being ended) or Refused.
type Evict struct {
	ID       ActionID `json:"id"`
	Workload string   `json:"workload"`
	Task     int      `json:"task"`
	Code     string   `json:"code"`
	Reason   string   `json:"reason"` // one sentence, for the user
}

// Resize changes grants in place. Until Done the books hold the larger of old and new.
type Resize struct {
	ID       ActionID `json:"id"`
	Workload string   `json:"workload"`
	Task     int      `json:"task"`
	Grants   []Grant  `json:"grants"`
}

// Reject says that an event could not be applied and nothing changed: what was asked, what is true, what to do. It needs no answer.
type Reject struct {
	ID       ActionID `json:"id"`
	Workload string   `json:"workload,omitempty"`
	Code     string   `json:"code"`
	Reason   string   `json:"reason"`
}

// Action is the proposal's ID.
func (a Place) Action() ActionID  { return a.ID }
func (a Evict) Action() ActionID  { return a.ID }
func (a Resize) Action() ActionID { return a.ID }
func (a Reject) Action() ActionID { return a.ID }
