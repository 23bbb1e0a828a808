package local

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/engine"
	"github.com/aliquot-dev/aliquot/engine/fleet"
	"github.com/aliquot-dev/aliquot/host/advice"
	"github.com/aliquot-dev/aliquot/host/local/internal/exact"
	"github.com/aliquot-dev/aliquot/host/local/supervise"
	"github.com/aliquot-dev/aliquot/node"
	"github.com/aliquot-dev/aliquot/store"
)

// work is a live workload, the loop's own.
type work struct {
	seq     int64
	now     api.Workload  // as decided
	shown   api.Workload  // as stored, for everyone to see
	keep    keep          // stored with it
	dirty   bool          // now or keep differ from what is stored
	changed chan struct{} // closed when shown changes

	place    engine.ActionID  // proposal that is being carried out; 0: none
	child    *supervise.Child // its program, once it runs
	signals  []syscall.Signal // that came while it was starting
	stopping chan struct{}    // closed when it is to end
	streams  chan *handed     // handed over by its client
	spare    *handed          // where its client has further replicas of it print
	attached int              // connections of its client
	resizing []func(error)    // who wait for the outcome of a resize
	orders   int              // to stop, given so far
	ordering int              // of these, on their way
	ordered  func()           // done once none is on its way any more
	sending  sync.Mutex       // over what tells its supervisor of an order; it guards sent
	sent     int              // the last order that its supervisor was told of
	alone    bool             // its program runs without a supervisor
	adopted  bool             // it was entered in the engine's books with the other replicas of its workload
	joined   bool             // the replicas that start with it are made
	over     bool             // it has ended; it is forgotten once that is stored
}

// keep is what the host must know of a workload after a restart, beside what everyone may see.
type keep struct {
	Program exact.Text `json:"program"`
	// The programs of the processes of each role, main among them, where there are roles.
	Programs map[string]exact.Text `json:"programs,omitempty"`
	User     *supervise.User       `json:"user,omitempty"`
	Placing  *engine.Placing       `json:"placing,omitempty"`
	Stop     *order                `json:"stop,omitempty"`
	// What was noted of processes of it that use a device around its share; none do where this is empty.
	Evasions []string `json:"evasions,omitempty"`
	// The first estimate of its start, expected or at the latest, that was given while it waited; nil: none was.
	Expected *time.Time `json:"expected,omitempty"`
	// Processes of it that were ended for that, and what its notes say of them.
	Stopped     int    `json:"stopped,omitempty"`
	StoppedNote string `json:"stoppedNote,omitempty"`
	// How often in a row it was evicted for memory of others' floors, as those before it of its name, and when it may be started again.
	Reclaimed int        `json:"reclaimed,omitempty"`
	Again     *time.Time `json:"again,omitempty"`
	// What it was served in the runs before this one, from which it was evicted and put back into the line: time weighed by compute floors.
	Served time.Duration `json:"served,omitempty"`
	// The name of the workload that it is a further replica of.
	Base string `json:"base,omitempty"`
	// That others of its workload were evicted with all of it, and have ended; nil: none did.
	Cut *cutShort `json:"cut,omitempty"`
	// When it was evicted for others in these, the last api.MaxDisruptions times.
	Disrupted []time.Time `json:"disrupted,omitempty"`
	// It was let in before the first in line, by what is predicted of it, and gives way to that if it is not over by then; nil: it was not.
	Due *time.Time `json:"due,omitempty"`
}

// order is why a workload is being ended, and how.
type order struct {
	Outcome api.Outcome   `json:"outcome"`
	Reason  string        `json:"reason"`
	Grace   time.Duration `json:"grace"`
	Memory  bool          `json:"memory,omitempty"` // it is evicted for memory that it has borrowed
	// It is evicted for the sake of other work, or moved.
	ForOthers bool `json:"forOthers,omitempty"`
	// It is one of several with which its workload started, and all of that is evicted.
	Whole bool `json:"whole,omitempty"`
}

// verdict is how a workload ended.
type verdict struct {
	outcome api.Outcome
	code    *int
	signal  string
	reason  string
	at      time.Time // zero: now
	never   bool      // its program was never started
	used    []node.Usage
}

func newWork(seq int64, shown api.Workload, kept keep) *work {
	return &work{
		seq: seq, now: shown, shown: shown, keep: kept, changed: make(chan struct{}), stopping: make(chan struct{}),
		streams: make(chan *handed, 1),
	}
}

// row is the workload as it is stored.
func (w *work) row() store.Workload {
	host, err := json.Marshal(w.keep)
	if err != nil { // it is made of strings and numbers
		panic(err)
	}
	return store.Workload{Seq: w.seq, Workload: w.now, Host: host}
}

// running says that it holds grants or is about to.
func (w *work) running() bool {
	return w.now.Status.Phase != api.Waiting && w.now.Status.Phase != api.Ended
}

// evaded says that a process of it uses a device around its share.
func (w *work) evaded() bool { return len(w.keep.Evasions) > 0 }

func (w *work) isStopping() bool {
	select {
	case <-w.stopping:
		return true
	default:
		return false
	}
}

// touch has the workload stored with the next commit.
func (h *Host) touch(w *work) {
	if !w.dirty {
		w.dirty = true
		h.dirty = append(h.dirty, w)
	}
}

// note keeps a sentence in a workload's history and tells those who listen.
func (h *Host) note(w *work, message string) { h.noteAt(w, h.Now(), message) }

// noteAt does so for what was at another time: a program may have started or ended while no daemon was there to see it.
func (h *Host) noteAt(w *work, at time.Time, message string) {
	h.pending.Records = append(h.pending.Records, store.Record{UID: w.now.UID, At: at.UTC(), Message: message})
	h.say("workload", w, message)
}

// say tells those who listen, once what is told is stored.
func (h *Host) say(kind string, w *work, message string) {
	event := api.Event{Kind: kind, Message: message}
	if w != nil {
		event.Workload = w.now.Spec.Name
	}
	h.after(func() { h.events.publish(event) })
}

// after has f done once everything decided so far is stored.
func (h *Host) after(f func()) { h.effects = append(h.effects, f) }

// engineWorkload is a workload as the engine knows it.
func engineWorkload(w *work) engine.Workload {
	spec := w.now.Whole()
	return engine.Workload{
		ID: w.gang(), User: w.now.User, Name: advice.Kind(&spec), Queue: spec.Queue, Class: spec.Class, Priority: w.now.Priority(),
		Tasks: spec.Replicas.Least(), Max: spec.Replicas.Most(), Devices: spec.Devices,
		Share: spec.Share, Model: spec.Model, Least: fleet.Least{Capability: int32(spec.MinCapability), Bandwidth: spec.MinBandwidth, Latency: spec.MaxLatencyClass}, TimeLimit: micros(time.Duration(spec.TimeLimit)), Restart: micros(time.Duration(spec.RestartTime)),
		Preemptible: spec.Preemptible, Requeue: spec.Requeue, Feasibility: w.class(), Roles: engineRoles(spec),
	}
}

// engineRoles are the roles of a submission as the engine knows them.
func engineRoles(spec api.WorkloadSpec) (roles []engine.Role) {
	for _, r := range spec.Roles {
		roles = append(roles, engine.Role{Name: r.Name, Tasks: r.Replicas.Least(), Devices: r.Devices, Share: r.Share, Model: r.Model})
	}
	return roles
}

// byOrder are the UIDs of the live workloads in order of submission.
func (h *Host) byOrder() []string {
	uids := slices.Collect(maps.Keys(h.work))
	slices.SortFunc(uids, func(a, b string) int { return cmp.Compare(h.work[a].seq, h.work[b].seq) })
	return uids
}
