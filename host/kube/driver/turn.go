package driver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"

	"github.com/aliquot-dev/aliquot/node"
)

// Turn is one agent's turn to serve kubelet on its node. Where a pod's agent is replaced by another pod's, both run for a while, and kubelet is never
// without one of them: the next waits, known to nobody, until the one that serves is told to end. Then it registers with kubelet, which calls it from
// then on, and keeps these calls until the other has finished its own and let go of the run folder, when it takes over.
//
// Who stands where is known by locks on two files beside kubelet's sockets, which end with their processes: one is held by who serves, the other by
// the next until kubelet knows it. An agent without a pod takes the turn where nobody has it, and is refused otherwise.
type Turn struct {
	config        Config
	door          *door
	helper        *kubeletplugin.Helper // nil: kubelet does not know it yet
	serving, next *os.File              // nil: not held
}

// leaveWithin is how long an agent that is told to end serves on until the next one is registered and its own calls are done. A pod's grace period
// is longer.
const leaveWithin = 8 * time.Second

// arriveWithin is how long an agent that is told to end serves on where no next one waits yet. One may have begun and not come so far: where agents use
// their node's network, probes of the next one are answered by the port of this one, so that it counts as ready from its first moment.
const arriveWithin = 5 * time.Second

// lookEvery is how often it is looked whether a lock is free.
const lookEvery = 20 * time.Millisecond

// AwaitTurn waits until no other agent works in the run folder; of the config it needs no Agent yet. Where one served kubelet until then, kubelet's calls
// are kept from now on until Open. After an error, and at the end, Leave gives the turn to the next.
func AwaitTurn(ctx context.Context, config Config) (*Turn, error) {
	t := &Turn{config: config, door: newDoor(config)}
	if err := os.MkdirAll(t.folder(), 0o750); err != nil {
		return t, fmt.Errorf("make the plugin's folder: %w", err)
	}
	if config.PodUID == "" {
		return t, nil
	}
	var err error
	if t.next, err = lockWhenFree(ctx, t.path("next.lock")); err != nil {
		return t, err
	}
	if t.serving, err = lock(t.path("serving.lock")); err != nil {
		return t, err
	}
	before, err := node.Occupied(config.Run) // also by one that knows nothing of turns
	if err != nil {
		return t, err
	}
	if before || t.serving == nil {
		t.door.log.Info("another agent serves this node; it is waited for")
		if config.Waits != nil {
			config.Waits()
		}
		if err := t.succeed(ctx); err != nil {
			return t, err
		}
	}
	t.next = unlock(t.next)
	return t, awaitVacant(ctx, config.Run)
}

// succeed waits until the agent that serves is told to end, and has kubelet call this one from then on.
func (t *Turn) succeed(ctx context.Context) (err error) {
	if t.serving == nil {
		if t.serving, err = lockWhenFree(ctx, t.path("serving.lock")); err != nil {
			return err
		}
	}
	if err := t.register(ctx); err != nil {
		return err
	}
	select {
	case <-t.door.registered:
		return nil
	case <-time.After(t.leaves()): // as long as the other waits
		t.door.log.Warn("kubelet has not registered this agent yet; it takes over all the same")
		return nil
	case err := <-t.door.failed:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// register has kubelet find the agent, unless it has already. It is served until Leave, whatever becomes of the context.
func (t *Turn) register(ctx context.Context) (err error) {
	if t.helper != nil {
		return nil
	}
	t.helper, err = kubeletplugin.Start(context.WithoutCancel(ctx), t.door, kubeletplugin.DriverName(Name), kubeletplugin.NodeName(t.config.Node),
		kubeletplugin.KubeClient(t.config.Client), kubeletplugin.PluginDataDirectoryPath(t.folder()), kubeletplugin.RegistrarDirectoryPath(t.config.registry()),
		kubeletplugin.RollingUpdate(types.UID(t.config.instance())), kubeletplugin.GRPCInterceptor(t.door.hears), kubeletplugin.PluginListener(t.door.listen),
		kubeletplugin.Serialize(false)) // one claim at a time is the driver's own rule, and the helper's would hold its lock while a call waits for the other agent's
	if err != nil {
		return fmt.Errorf("register with kubelet: %w", err)
	}
	return nil
}

// serve has the driver answer kubelet, with the calls that came before. The folder is this agent's: sockets of others are of such as were killed.
func (t *Turn) serve(ctx context.Context, d *Driver) error {
	if err := t.removeStale(); err != nil {
		return err
	}
	t.door.open(plugin{Driver: d})
	return t.register(ctx)
}

// Leave ends the turn: the next agent, if one waits, has kubelet know it first, and calls that kubelet has made are finished.
func (t *Turn) Leave() {
	t.pass()
	t.stop()
}

// pass has the next agent, if one waits, take over from here. It waits until kubelet calls that one, and has its answers to what it asked of this one,
// which shows by its hanging up.
func (t *Turn) pass() {
	t.serving = unlock(t.serving)
	if !t.door.isOpen() { // nobody has been answered, and the next one is none of its
		return
	}
	comes := t.config.PodUID != "" && t.nextComes()
	within, cancel := context.WithTimeout(context.Background(), t.leaves())
	defer cancel()
	defer t.door.calls.idle(within)
	if !comes {
		return
	}
	next, err := lockWhenFree(within, t.path("next.lock"))
	if err != nil {
		t.door.log.Warn("the next agent is not registered with kubelet in time", "error", err)
		return
	}
	unlock(next)
	t.door.calls.idle(within)
	if err := os.Remove(t.registered()); err != nil { // by which kubelet knows that it is to hang up
		t.door.log.Warn("kubelet is not told that this agent ends", "error", err)
		return
	}
	t.door.lines.idle(within)
}

// nextComes waits until a next agent waits, and says whether one does.
func (t *Turn) nextComes() bool {
	within, cancel := context.WithTimeout(context.Background(), cmp.Or(t.config.arrives, arriveWithin))
	defer cancel()
	return untilSo(within, func() (bool, error) {
		free, err := lock(t.path("next.lock"))
		unlock(free)
		return free == nil, err
	}) == nil
}

// stop ends what kubelet calls.
func (t *Turn) stop() {
	t.helper.Stop()
	t.next = unlock(t.next)
}

func (t *Turn) leaves() time.Duration { return cmp.Or(t.config.leaves, leaveWithin) }

func (t *Turn) folder() string { return t.config.plugin() }

func (t *Turn) path(name string) string { return filepath.Join(t.folder(), name) }

func (c Config) plugin() string   { return filepath.Join(c.Kubelet, "plugins", Name) }
func (c Config) registry() string { return filepath.Join(c.Kubelet, "plugins_registry") }

// registered is the socket by which kubelet finds this agent.
func (t *Turn) registered() string {
	return filepath.Join(t.config.registry(), Name+"-"+t.config.instance()+"-reg.sock")
}

// instance is in the names of this agent's sockets. It is not all of the UID, for paths of sockets are short, and that much tells apart the few agents of a
// node; empty: it is no pod.
func (c Config) instance() string { return c.PodUID[:min(8, len(c.PodUID))] }

// removeStale removes the sockets of other agents, none of which is there any more.
func (t *Turn) removeStale() error {
	for _, pattern := range []string{filepath.Join(t.config.registry(), Name+"*-reg.sock"), filepath.Join(t.folder(), "dra*.sock")} {
		sockets, err := filepath.Glob(pattern)
		if err != nil {
			return err
		}
		for _, socket := range sockets {
			if t.config.PodUID != "" && strings.Contains(filepath.Base(socket), "-"+t.config.instance()) {
				continue
			}
			if err := os.Remove(socket); err != nil && !errors.Is(err, os.ErrNotExist) {
				return fmt.Errorf("remove the socket of an agent that is gone: %w", err)
			}
		}
	}
	return nil
}

// lock takes a lock if it is free; nil where another process has it.
func lock(path string) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, err
	}
	switch err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB); {
	case err == nil:
		return file, nil
	case errors.Is(err, unix.EWOULDBLOCK):
		return nil, file.Close()
	default:
		return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), file.Close())
	}
}

// unlock gives a lock back, if it is held.
func unlock(file *os.File) *os.File {
	if file != nil {
		_ = file.Close()
	}
	return nil
}

// lockWhenFree waits until a lock can be taken.
func lockWhenFree(ctx context.Context, path string) (file *os.File, err error) {
	err = untilSo(ctx, func() (bool, error) {
		file, err = lock(path)
		return file != nil, err
	})
	return file, err
}

// awaitVacant waits until no agent works in a run folder.
func awaitVacant(ctx context.Context, run string) error {
	return untilSo(ctx, func() (bool, error) {
		occupied, err := node.Occupied(run)
		return !occupied, err
	})
}

// untilSo looks again and again, until it is so or the context ends.
func untilSo(ctx context.Context, so func() (bool, error)) error {
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	for {
		if is, err := so(); is || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-look.C:
		}
	}
}

// stuckAfter is how long a call of kubelet's may take until the agent is taken for stuck; kubelet itself gives up after 45 s, and asks again.
const stuckAfter = 5 * time.Minute

// Alive says that the driver is stuck, and at what: its process is then better started anew, which nothing that runs is harmed by.
func (d *Driver) Alive() error {
	if longest := d.turn.door.calls.longest(time.Now()); longest > stuckAfter {
		return fmt.Errorf("a call of kubelet's has not been answered for %v", longest.Round(time.Second))
	}
	return nil
}
