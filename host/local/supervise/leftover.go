package supervise

import (
	"context"
	"errors"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/aliquot-dev/aliquot/internal/proc"
)

// Ended blocks until the process has ended, or ctx has.
func (p Process) Ended(ctx context.Context) error {
	fd, there, err := p.Open()
	if err != nil || !there {
		return err
	}
	file := os.NewFile(uintptr(fd), "process") // non-blocking, so the runtime waits for all of them in one place
	defer func() { _ = file.Close() }()
	stop := context.AfterFunc(ctx, func() { _ = file.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	raw, err := file.SyscallConn()
	if err != nil {
		return err
	}
	err = raw.Read(func(fd uintptr) bool {
		ready := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		n, err := unix.Poll(ready, 0)
		return err == nil && n > 0
	})
	if errors.Is(err, os.ErrDeadlineExceeded) && ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

// Status takes the exit status of an ended process whose parent has become this one; false if it cannot be had.
func (p Process) Status() (syscall.WaitStatus, bool) {
	var status syscall.WaitStatus
	pid, err := syscall.Wait4(p.PID, &status, syscall.WNOHANG, nil)
	return status, err == nil && pid == p.PID
}

// Reap takes the exit statuses of processes that tasks without a supervisor left to this process, which is their parent now, and
// that nobody waits for: those that have ended and lead no session. Each would stay a zombie until this process ends.
func Reap() error {
	list, err := all()
	if err != nil {
		return err
	}
	self, err := readStat(os.Getpid())
	if err != nil {
		return err
	}
	for _, one := range list {
		if one.state == 'Z' && one.parent == self.PID && one.session != self.session && one.session != one.PID {
			one.Status()
		}
	}
	return nil
}

// Task is a task without a supervisor, as its processes are known by.
type Task struct {
	UID   string
	User  uint32 // whom it runs as
	Child *Child // its first process; nil: not known
}

// Leftover lists what lives of a task without a supervisor: what is in the session of its first process, if that is known, and what
// carries its marker, as far as its user started it, and what descends from these. Another user's processes are not even looked
// at: a marker is what anybody may write.
func Leftover(task Task) ([]Process, error) {
	list, err := all()
	if err != nil {
		return nil, err
	}
	session := -1
	if child := task.Child; child != nil && child.here() {
		session = child.PID
		for _, one := range list {
			if one.PID == child.PID && one.Start != child.Start {
				session = -1 // the number is another's now, and so is the session
			}
		}
	}
	self := os.Getpid()
	return belonging(list, func(one stat) bool {
		if one.PID == self || one.PID == 1 {
			return false
		}
		if user, err := proc.RealUser(one.PID); err != nil || user != task.User {
			return false
		}
		return one.session == session && one.Start >= task.Child.Start || marked(one.PID, task.UID)
	}), nil
}

// First finds the first process of a task whose supervisor died before it wrote down which that is: the one that leads a session and
// carries the task's marker, if there is just one. Nil: there is none, or it cannot be told.
func First(task Task, supervisor Process) (*Child, error) {
	list, err := all()
	if err != nil {
		return nil, err
	}
	var found *Child
	for _, one := range list {
		if one.PID != one.session || one.Start < supervisor.Start || one.state == 'Z' || one.state == 'X' {
			continue
		}
		if user, err := proc.RealUser(one.PID); err != nil || user != task.User || !marked(one.PID, task.UID) {
			continue
		}
		if found != nil {
			return nil, nil
		}
		found = &Child{Process: one.Process, At: time.Now(), Guessed: true}
	}
	return found, nil
}

// EndLeftover ends what lives of a task without a supervisor: SIGTERM, after grace SIGKILL, until nothing is left or ctx ends.
func EndLeftover(ctx context.Context, task Task, grace time.Duration) error {
	patience, cancel := context.WithTimeout(ctx, grace)
	defer cancel()
	for sig := unix.SIGTERM; ; {
		list, err := Leftover(task)
		if err != nil || len(list) == 0 {
			return err
		}
		for _, process := range list {
			err = errors.Join(err, process.Send(sig))
		}
		if err != nil {
			return err
		}
		wait := ctx
		if sig == unix.SIGTERM {
			wait = patience
		}
		for _, process := range list {
			if err := process.Ended(wait); err != nil && (wait.Err() == nil || ctx.Err() != nil) {
				return err
			}
			process.Status() // or it would stay a zombie, if it became ours
		}
		if patience.Err() != nil {
			sig = unix.SIGKILL
		}
	}
}

// Signal sends a signal to the group of the task's first process, if that lives.
func (c *Child) Signal(sig syscall.Signal) error {
	if !c.Alive() {
		return os.ErrProcessDone
	}
	if err := unix.Kill(-c.PID, sig); err != nil && !errors.Is(err, unix.ESRCH) {
		return err
	}
	return nil
}
