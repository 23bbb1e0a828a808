// Package local is the host of one server: it takes workloads in, asks the engine where and when they run, and runs them as
// processes under supervisors that outlive it. What comes in are requests of users (it implements server.Host), exits of
// processes and notices of the node; what goes out are processes, grants made real by the node, and a record of everything in a
// store and in the engine's event log.
//
// One goroutine, the loop, owns the engine and all state. What it decided is stored before it is acted upon, and many decisions
// are stored together; so whatever dies when, the store knows of everything that can be running, and a new daemon finds it.
// It decides nothing about who gets what: that is the engine's.
package local

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/engine"
	"github.com/aliquot-dev/aliquot/host/local/cgroup"
	"github.com/aliquot-dev/aliquot/host/local/supervise"
	"github.com/aliquot-dev/aliquot/host/policy"
	"github.com/aliquot-dev/aliquot/node"
	"github.com/aliquot-dev/aliquot/store"
)

// Agent is what the host needs of the node; *node.Agent is one.
type Agent interface {
	Devices() []node.Device
	Prepare(ctx context.Context, task node.Task) (node.Launch, error)
	Update(ctx context.Context, uid string, grants []node.Grant, flags node.Flags) error
	Unprepare(ctx context.Context, uid string) error
	Prepared() []node.Task
	Used(ctx context.Context, uid string) []node.Usage // of a prepared task; nil: not known
	Sample(ctx context.Context) (node.Sample, error)
	MemoryHeld() []node.MemoryHeld // cheap: it is called before every decision
	Notices() <-chan node.Notice
	Simulated() bool // its devices are simulated
	Mounts() bool    // programs find the shim by mounts, else by the library path
	Notes() []string // what does not work as it should on this machine
	Close()
}

// Config says how a host works. State, Run, Agent and Supervisor must be given.
type Config struct {
	State, Run string // folders of docs/architecture.md; made if they are not there
	Version    string
	Agent      Agent    // closed by Close
	Supervisor []string // command that supervises a task's folder, its last argument
	Log        *slog.Logger
	Now        func() time.Time // the clock; nil: time.Now

	LogLimit    int64              // bytes kept of what a task printed; 0: 64 MiB
	AttachGrace time.Duration      // how long an attached workload waits for its client's streams; 0: 30 s
	EventLimit  int64              // size behind its snapshot at which a new event log is begun; 0: 16 MiB
	SamplePace  time.Duration      // between looks at the meters while tasks hold grants and nobody else looks; 0: 5 s
	Unenforced  api.UnenforcedRule // what the agent does about processes that no share holds, for Info
	KeepEnded   int                // workloads that have ended are forgotten beyond this many; 0: 10,000

	LatencyClasses api.LatencyClasses // that are declared of devices
}

// Host runs workloads on one server.
type Host struct {
	Config
	name   string                            // of the node
	began  time.Time                         // by the clock as it was then
	passed func(now time.Time) time.Duration // since then, by a reading of Now, whatever the clock was set to meanwhile
	uid    uint32                            // the daemon's own
	store  *store.Store
	locks  []*os.File
	groups *cgroup.Tree
	events *broadcast
	opened tally // by clients
	meter  *meter

	inbox   chan message
	quit    chan struct{}
	running sync.WaitGroup // loop and everything it started
	ctx     context.Context
	cancel  context.CancelFunc

	// The rest is the loop's own.
	engine   *engine.Engine
	journal  *journal
	work     map[string]*work
	names    map[string]*work // live workloads by name
	seq      int64
	devices  map[string]*node.Device
	order    []string // devices by index
	alarms   map[node.NoticeKind]string
	pending  store.Batch // beside the dirty workloads
	dirty    []*work
	effects  []func()
	replies  []func(error)
	broken   error // why the last commit failed; nothing is acted upon until one succeeds
	tick     *time.Timer
	memory   memory
	starts   starts
	actions  engine.ActionID // the last ID that is set aside in the store
	orphaned []string        // found at the start, for Info
	failed   []*work         // lately, with grants: see faulted
	machine  machine
	ruling   rules
	dates    dates
	hours    policy.Hours
	counting bool          // hours are counted: all that ran when the host started is in the books
	usesKept time.Duration // since the start, when what queues used was last stored
	entering bool          // what runs is being entered in the books: nothing is put in line before all of it is
}

// Open starts a host on what the last one left: it finds tasks that still run, takes up those that ended meanwhile, puts those
// that wait in line again, and cleans up what belongs to nobody.
func Open(ctx context.Context, config Config) (*Host, error) {
	if config.Now == nil {
		config.Now = time.Now
	}
	setDefault(&config.LogLimit, 64<<20)
	setDefault(&config.AttachGrace, 30*time.Second)
	setDefault(&config.EventLimit, 16<<20)
	setDefault(&config.SamplePace, 5*time.Second)
	setDefault(&config.KeepEnded, 10_000)
	h := &Host{
		Config: config, uid: uint32(os.Geteuid()), inbox: make(chan message), quit: make(chan struct{}),
		work: map[string]*work{}, names: map[string]*work{}, devices: map[string]*node.Device{}, alarms: map[node.NoticeKind]string{},
		events: newBroadcast(config.Now), began: config.Now().Round(0),
		tick: time.NewTimer(time.Hour), machine: thisMachine(),
	}
	began := config.Now()
	h.passed = func(now time.Time) time.Duration { return now.Sub(began) }
	h.ctx, h.cancel = context.WithCancel(context.WithoutCancel(ctx))
	err := h.open(ctx)
	var streams *net.UnixListener
	if err == nil {
		streams, err = h.listenAttach()
	}
	if err != nil {
		h.cancel()
		h.running.Wait()
		return nil, errors.Join(err, h.release())
	}
	h.spawn(func(ctx context.Context) { h.takeStreams(ctx, streams) })
	h.running.Add(1)
	go h.loop()
	h.spawn(h.watchNode)
	h.spawn(func(ctx context.Context) { h.meter.watch(ctx, h.SamplePace) })
	return h, nil
}

func setDefault[T comparable](value *T, otherwise T) {
	var zero T
	if *value == zero {
		*value = otherwise
	}
}

func (h *Host) open(ctx context.Context) error {
	for path, mode := range map[string]os.FileMode{
		h.State: 0o711, filepath.Join(h.State, "events"): 0o700, filepath.Join(h.State, "tasks"): 0o700,
		filepath.Join(h.State, "logs"): 0o711, h.Run: 0o755,
	} {
		if err := os.MkdirAll(path, mode); err != nil {
			return fmt.Errorf("make the server's folders: %w", err)
		}
		if err := os.Chmod(path, mode); err != nil {
			return fmt.Errorf("make the server's folders: %w", err)
		}
	}
	for _, folder := range []string{h.Run, h.State} {
		lock, err := lockFolder(ctx, folder)
		if err != nil {
			return err
		}
		h.locks = append(h.locks, lock)
	}
	// What a killed supervisor leaves behind comes to this process, which then learns its exit status.
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("become the parent of what a killed supervisor leaves behind: %w", err)
	}
	var err error
	if h.name, err = os.Hostname(); err != nil {
		return fmt.Errorf("find the name of this machine: %w", err)
	}
	if h.store, err = h.openStore(ctx); err != nil {
		return err
	}
	h.groups = cgroup.Open()
	h.meter = newMeter(h.Agent, h.Now)
	return h.recover(ctx)
}

// openStore opens the database. It is the first that a new server writes: where there are tasks, logs or event logs, there was one.
func (h *Host) openStore(ctx context.Context) (*store.Store, error) {
	path := filepath.Join(h.State, "aliquot.db")
	for _, name := range []string{"events", "tasks", "logs"} {
		beside, err := os.ReadDir(filepath.Join(h.State, name))
		if err != nil {
			return nil, fmt.Errorf("look for what an earlier server left: %w", err)
		}
		if len(beside) > 0 {
			return store.OpenKept(ctx, path)
		}
	}
	return store.Open(ctx, path)
}

// lockPatience is how long a lock may be held by what a killed daemon was just starting: between fork and exec a child holds what
// its parent did.
const lockPatience = 2 * time.Second

// lockFolder sees to it that one daemon works on a folder.
func lockFolder(ctx context.Context, folder string) (*os.File, error) {
	file, err := os.OpenFile(filepath.Join(folder, "daemon.lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock %s: %w", folder, err)
	}
	ctx, cancel := context.WithTimeout(ctx, lockPatience)
	defer cancel()
	again := time.NewTicker(10 * time.Millisecond)
	defer again.Stop()
	for {
		err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return file, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return nil, errors.Join(fmt.Errorf("lock %s: %w", folder, err), file.Close())
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			_ = file.Close()
			return nil, fmt.Errorf("a server works on %s already: use it, or stop it with `aliquot down`", folder)
		}
	}
}

// Close stops the host. Tasks run on; the next host finds them.
func (h *Host) Close() error {
	close(h.quit)
	h.cancel()
	h.running.Wait()
	return h.release()
}

func (h *Host) release() error {
	var err error
	if h.journal != nil {
		err = errors.Join(err, h.journal.close())
	}
	if h.store != nil {
		err = errors.Join(err, h.store.Close())
	}
	h.Agent.Close()
	for _, lock := range h.locks {
		err = errors.Join(err, lock.Close())
	}
	return err
}

// spawn runs f beside the loop, until Close at the latest: f must end with its context.
func (h *Host) spawn(f func(ctx context.Context)) {
	h.running.Add(1)
	go func() {
		defer h.running.Done()
		f(h.ctx)
	}()
}

// time is the engine's: microseconds since 1970 by the clock that never goes back.
func (h *Host) time() engine.At { return engine.At{At: engine.Time(h.steady(h.Now()).UnixMicro())} }

// steady is the clock as it was at the start with the time that has passed since, by a reading of it now: what was set to a time by a clock
// that is later set right still comes when it was to come.
func (h *Host) steady(now time.Time) time.Time { return h.began.Add(h.passed(now)) }

// wall is what the clock shows at a time of the engine's, as far as it is known now. Both clocks are one reading of it: what passes between two
// would make all times early by as much.
func (h *Host) wall(at engine.Time) time.Time {
	now := h.Now()
	return now.Round(0).Add(time.UnixMicro(int64(at)).Sub(h.steady(now)))
}

// shown is wall for people and programs, to the millisecond: the engine counts whole microseconds, rounded down, and what is a little before a
// full second would be shown as the one before.
func (h *Host) shown(at engine.Time) time.Time { return h.wall(at).Round(time.Millisecond).UTC() }

// folder is a task's.
func (h *Host) folder(uid string) supervise.Folder {
	return supervise.Folder(filepath.Join(h.State, "tasks", uid))
}

func (h *Host) logPath(uid string) string { return filepath.Join(h.State, "logs", uid+".log") }

func refuse(code, format string, args ...any) error {
	return &api.Error{Code: code, Message: fmt.Sprintf(format, args...)}
}
