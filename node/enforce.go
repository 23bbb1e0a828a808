package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/internal/proc"
	"github.com/aliquot-dev/aliquot/node/device"
)

// What is ended under api.StopUnenforced: a process that was found at two looks in a row, with one and the same arbiter in place, to use a
// device past the shim, or to be of a share that holds more memory than it may; see spared for the exceptions.
const (
	endGrace = 5 * time.Second // from SIGTERM to SIGKILL

	// firstPerson is the least number of a person's user, UID_MIN of login.defs(5): below are root and the users of services.
	firstPerson = 1000
)

// suspect is a process that uses a device as it may not.
type suspect struct {
	key  stray
	task string // whose it is; empty: no task's
	what string // it does there
}

// suspects are the processes that were suspect at the last look.
type suspects struct {
	arbiter *process
	seen    map[stray]bool
}

// look returns those that were suspect at the look before, too. An arbiter that comes anew begins the looks again: its processes may just
// be registering.
func (s *suspects) look(arbiter *process, now []suspect) (again []suspect) {
	before := s.seen
	if arbiter == nil || arbiter != s.arbiter {
		before = nil
	}
	s.arbiter, s.seen = arbiter, map[stray]bool{}
	for _, one := range now {
		id := one.key.anywhere()
		if before[id] && !s.seen[id] {
			again = append(again, one)
		}
		s.seen[id] = true
	}
	return again
}

// anywhere is the process without its device.
func (s stray) anywhere() stray { return stray{pid: s.pid, start: s.start} }

// enforce ends processes, each beside the caller, until ctx ends.
func (a *Agent) enforce(ctx context.Context, list []suspect) {
	if a.rule != api.StopUnenforced {
		return
	}
	for _, one := range list {
		id := one.key.anywhere()
		a.mu.Lock()
		known := a.ending[id]
		a.ending[id] = true
		a.mu.Unlock()
		if known {
			continue
		}
		a.done.Go(func() {
			if err := a.end(ctx, one); err != nil && ctx.Err() == nil {
				a.log.Error("a process that no share holds could not be ended", "pid", one.key.pid, "error", err)
			}
			a.mu.Lock()
			delete(a.ending, id)
			a.mu.Unlock()
		})
	}
}

// end ends one process: SIGTERM, after the grace SIGKILL. It is held by a pidfd before it is looked at, so no other is met.
func (a *Agent) end(ctx context.Context, s suspect) error {
	p, err := hold(s.key.pid)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return err
	}
	defer p.close()
	fact, ok := factsOf(s.key.pid)
	if !ok || fact.start != s.key.start || a.spared(s) {
		return nil
	}
	if err := p.signal(unix.SIGTERM); err != nil {
		if errors.Is(err, unix.ESRCH) {
			return nil
		}
		return err
	}
	a.noticeStopped(s, fact)
	patience, cancel := context.WithTimeout(ctx, a.grace)
	defer cancel()
	if p.waitFor(patience) == nil || ctx.Err() != nil {
		return nil
	}
	if err := p.signal(unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
		return err
	}
	return p.waitFor(ctx)
}

func (a *Agent) noticeStopped(s suspect, fact facts) {
	a.mu.Lock()
	if d := a.devices[s.key.device]; d != nil {
		d.stopped++
	}
	a.mu.Unlock()
	whose := "user " + fact.user
	if s.task != "" {
		whose = "task " + s.task
	}
	a.notify(Notice{Kind: Stopped, Device: s.key.device, Task: s.task, Message: fmt.Sprintf(
		"Process %d (%s) of %s is ended, as --unenforced stop says: on device %s %s.", s.key.pid, fact.name, whose, s.key.device, s.what)})
}

// spared says that a process is never ended: Aliquot's own (this one, the arbiter, what simulates devices); one of a task that another user
// runs than the task's; and one of no task, unless this is root's agent and a person runs it, and not as a service of the driver. Services
// (the driver's and others) run as root or as users of their own, with numbers below firstPerson.
func (a *Agent) spared(s suspect) bool {
	own := []int{os.Getpid(), 1}
	if arbiter := a.arbiter.current(); arbiter != nil {
		own = append(own, arbiter.pid)
	}
	if a.sim != nil {
		own = append(own, a.sim.process.pid)
	}
	if slices.Contains(own, s.key.pid) {
		return true
	}
	user, err := proc.RealUser(s.key.pid)
	if err != nil {
		return true
	}
	if t := a.find(s.task); t != nil {
		return user != t.user(t.Task)
	}
	return os.Geteuid() != 0 || user < firstPerson || isService(s.key.pid)
}

// isService says that a process runs a program of the driver's, by the file that it runs: one of root's that nobody else may write to.
func isService(pid int) bool {
	link := fmt.Sprintf("/proc/%d/exe", pid)
	program, err := os.Readlink(link)
	if err != nil || !slices.Contains(device.Services, filepath.Base(program)) {
		return false
	}
	var stat unix.Stat_t
	return unix.Stat(link, &stat) == nil && stat.Uid == 0 && stat.Mode&0o022 == 0
}
