package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/native"
	"github.com/aliquot-dev/aliquot/node/device"
)

// Agent is the agent of one machine. Its methods may be called from several goroutines.
type Agent struct {
	run     run
	log     *slog.Logger
	lock    *os.File
	backend device.Backend
	rule    api.UnenforcedRule
	grace   time.Duration // that a process has to end when it is told to
	every   time.Duration // between looks, while nobody reads the meters
	arbiter *arbiter
	sim     *simulator // nil with a real driver
	notices *notices

	telling sync.Mutex // held from a change of a device's health until it is told, so that both come in one order; taken before mu

	ops sync.Mutex // one Prepare, Update, Unprepare at a time; taken before mu

	mu      sync.Mutex // guards what follows
	devices map[string]*deviceState
	order   []string // UUIDs as the driver lists them
	tasks   map[string]*task
	unknown map[string]bool  // tasks of which it was said that their programs know functions the shim does not
	seen    map[stray]string // processes that a notice was given of, and the tasks that they belong to
	heavy   map[shareOn]bool // shares of which a notice was given that they hold more memory than they may
	ending  map[stray]bool   // processes that are being ended, without their device

	administering map[stray]bool // administrators' processes that a notice was given of

	stop  context.CancelFunc
	done  sync.WaitGroup
	close sync.Once
}

// Usable says why a machine has no device that containers could be given, with ErrNoDriver where it may have some later; nil: it has. No agent is opened for that.
func Usable(config Config) error {
	return device.Usable(device.Options{Folders: config.DriverFolders, Root: config.DriverRoot, Log: config.Log})
}

// DriverPresent says why this machine has no driver that an agent could use; nil when it has one.
func DriverPresent() error { return device.Present(nil) }

// DriverDevices says how many devices this machine's driver knows.
func DriverDevices() (int, error) { return device.Count(nil) }

// Open starts an agent: it installs the native parts, finds the devices (or starts simulated ones), finishes what an earlier agent
// left half done, and finds or starts the arbiter. Nothing that runs is disturbed by it.
func Open(ctx context.Context, config Config) (*Agent, error) {
	a, err := newAgent(config)
	if err != nil {
		return nil, err
	}
	if err := a.open(ctx, config); err != nil {
		return nil, errors.Join(err, a.Abandon(ctx))
	}
	return a, nil
}

// newAgent takes the run folder.
func newAgent(config Config) (*Agent, error) {
	log := config.Log
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	r, err := prepareRun(config.Run)
	if err != nil {
		return nil, err
	}
	lock, err := lockRun(r)
	if err != nil {
		return nil, err
	}
	if err = claimRun(r, config.Host); err == nil { // and none of another host's is touched
		err = r.allowPrograms()
	}
	if err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	a := &Agent{
		run: r, log: log, lock: lock, notices: newNotices(), rule: config.Unenforced, grace: endGrace, every: lookEvery,
		devices: map[string]*deviceState{}, tasks: map[string]*task{}, unknown: map[string]bool{}, seen: map[stray]string{},
		heavy: map[shareOn]bool{}, ending: map[stray]bool{}, administering: map[stray]bool{},
	}
	a.arbiter = &arbiter{run: r, log: log, notify: a.notify, patience: answerWithin, every: askEvery, taken: a.readopt}
	return a, nil
}

// open puts the native parts in place and gets hold of the devices.
func (a *Agent) open(ctx context.Context, config Config) error {
	if err := native.Install(string(a.run)); err != nil {
		return err
	}
	var err error
	if a.arbiter.group, err = openGroup(config.Group); err != nil {
		return err
	}
	if err := a.loadTasks(); err != nil {
		return err
	}
	if config.Simulate != "" {
		sim, err := openSimulator(ctx, a.run, a.arbiter.group, config.Simulate, a.log, len(a.tasks))
		if err != nil {
			return err
		}
		a.sim = sim
	}
	backend, err := device.Open(device.Options{
		Run: string(a.run), Simulated: config.Simulate != "", Socket: simSocket(a.run), Folders: config.DriverFolders, Root: config.DriverRoot, Log: a.log,
	})
	if err != nil {
		return err
	}
	a.backend = backend
	return a.takeOver(ctx)
}

// takeOver makes the pages of the devices, gets hold of the arbiter, finishes what an earlier agent began and starts to watch.
func (a *Agent) takeOver(ctx context.Context) error {
	if able := a.backend.Capabilities(); !able.LimitCompute || !able.LimitMemory {
		return errors.New("the devices of this machine cannot be held to shares: their backend does not limit compute and memory")
	}
	if err := a.loadDevices(); err != nil {
		return err
	}
	found, err := a.arbiter.open(ctx)
	if err != nil {
		return err
	}
	if err := a.repair(ctx, found); err != nil {
		return err
	}
	watching, stop := context.WithCancel(context.Background())
	a.stop = stop
	a.done.Go(func() { a.watchDevices(watching) })
	a.done.Go(func() { a.watchStalls(watching) })
	a.done.Go(func() { a.watchWanted(watching) })
	took := slices.Sorted(maps.Keys(a.tasks))
	a.done.Go(func() { a.watchStrays(watching, took) })
	if a.sim != nil {
		a.done.Go(func() { a.watchSimulator(watching) })
	}
	return nil
}

// Devices lists the devices that were found, as the driver lists them, then those that are gone but hold tasks.
func (a *Agent) Devices() []Device {
	a.mu.Lock()
	defer a.mu.Unlock()
	devices := make([]Device, len(a.order))
	for i, uuid := range a.order {
		devices[i] = a.devices[uuid].Device
	}
	return devices
}

// Simulated says whether the devices are simulated.
func (a *Agent) Simulated() bool { return a.sim != nil }

// Notes says what on this machine cannot be shared or is not held to a share, one sentence each.
func (a *Agent) Notes() []string { return slices.Clone(a.backend.Notes()) }

// DriverReplaced says that the driver that was found is not there any more: a process that opens another agent finds the one that is.
func (a *Agent) DriverReplaced() error { return a.backend.Replaced() }

// Mounts says whether programs find the shim by bind mounts; otherwise it is by library path alone.
func (a *Agent) Mounts() bool { return len(a.backend.Launch(nil).Mounts) > 0 }

// Notices gives what the agent sees, in order, until Close.
func (a *Agent) Notices() <-chan Notice { return a.notices.out }

func (a *Agent) notify(n Notice) {
	a.log.Warn("notice", "kind", n.Kind, "device", n.Device, "task", n.Task, "message", n.Message)
	a.notices.add(n)
}

// Close ends the agent and leaves arbiter, simulated devices, pages and whatever runs as they are.
func (a *Agent) Close() error {
	var err error
	a.close.Do(func() {
		err = a.halt()
		a.release()
	})
	return err
}

// Abandon ends the agent where nothing comes of what it was opened for: the arbiter and simulated devices that it started itself end
// with it, so that nothing is left behind. What it found running runs on, as does what tasks are prepared on.
func (a *Agent) Abandon(ctx context.Context) (err error) {
	ctx = context.WithoutCancel(ctx)
	a.ops.Lock()
	idle := len(a.Prepared()) == 0
	a.ops.Unlock()
	a.close.Do(func() {
		err = a.halt()
		if p := a.arbiter.current(); idle && a.arbiter.launched && p != nil {
			err = errors.Join(err, a.arbiter.end(ctx, p))
		}
		if idle && a.sim != nil && a.sim.launched {
			err = errors.Join(err, a.sim.end(ctx))
		}
		a.release()
	})
	return err
}

// halt ends everything that watches.
func (a *Agent) halt() (err error) {
	if a.stop != nil {
		a.stop()
	}
	a.arbiter.stopWatching()
	if a.backend != nil {
		err = a.backend.Close()
	}
	a.done.Wait() // what watches the devices' events ends when the backend closes them
	a.notices.close()
	return err
}

// release lets go of everything that is held.
func (a *Agent) release() {
	a.ops.Lock()
	defer a.ops.Unlock()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.arbiter.close()
	if a.sim != nil {
		a.sim.close()
	}
	for _, t := range a.tasks {
		t.close()
	}
	for _, d := range a.devices {
		d.page.Close()
	}
	_ = a.lock.Close()
}

// Shutdown ends the arbiter and the simulated devices, then the agent. It refuses while tasks are prepared, unless forced: then
// they run on within their floors, where their devices remain.
func (a *Agent) Shutdown(ctx context.Context, force bool) (err error) {
	a.ops.Lock()
	prepared := len(a.Prepared())
	a.ops.Unlock()
	if prepared > 0 && !force {
		return fmt.Errorf("end the arbiter: %d tasks are prepared; end them first, or force it", prepared)
	}
	a.close.Do(func() {
		err = errors.Join(a.halt(), a.arbiter.end(ctx, a.arbiter.current()))
		if a.sim != nil {
			err = errors.Join(err, a.sim.end(ctx))
		}
		if prepared == 0 {
			// What was held against a device (a fault that drained it) is forgotten with its page.
			for uuid := range a.devices {
				err = errors.Join(err, os.Remove(a.run.device(uuid)))
			}
			err = errors.Join(err, a.run.forbidPrograms())
		}
		a.release()
	})
	return err
}

func (a *Agent) find(uid string) *task {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.tasks[uid]
}

func (a *Agent) put(t *task) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.tasks[t.Task.UID] = t
}

func (a *Agent) device(uuid string) (Device, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if d := a.devices[uuid]; d != nil {
		return d.Device, true
	}
	return Device{}, false
}

// capacity is the memory that may be granted on a device; 0 for one that is not known.
func (a *Agent) capacity(uuid string) api.Bytes {
	d, _ := a.device(uuid)
	return d.Memory
}

// notices is a queue without end, so that whoever watches a device never waits for whoever reads.
type notices struct {
	out  chan Notice
	more chan struct{} // holds a token while there may be something to send
	stop chan struct{}
	done chan struct{}

	mu      sync.Mutex
	waiting []Notice
}

func newNotices() *notices {
	n := &notices{out: make(chan Notice), more: make(chan struct{}, 1), stop: make(chan struct{}), done: make(chan struct{})}
	go n.pump()
	return n
}

func (n *notices) add(notice Notice) {
	n.mu.Lock()
	n.waiting = append(n.waiting, notice)
	n.mu.Unlock()
	select {
	case n.more <- struct{}{}:
	default:
	}
}

func (n *notices) pump() {
	defer close(n.done)
	defer close(n.out)
	for {
		select {
		case <-n.stop:
			return
		case <-n.more:
		}
		n.mu.Lock()
		batch := n.waiting
		n.waiting = nil
		n.mu.Unlock()
		for _, notice := range batch {
			select {
			case <-n.stop:
				return
			case n.out <- notice:
			}
		}
	}
}

func (n *notices) close() {
	close(n.stop)
	<-n.done
}
