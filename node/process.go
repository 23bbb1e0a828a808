package node

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/aliquot-dev/aliquot/internal/proc"
)

// process is another process, held by its pidfd so that it cannot be mistaken for a later one of the same pid.
type process struct {
	pid  int
	file *os.File
}

// hold takes a process by its pid.
func hold(pid int) (*process, error) {
	fd, err := proc.Open(pid)
	if err != nil {
		return nil, fmt.Errorf("hold process %d: %w", pid, err)
	}
	return &process{pid: pid, file: os.NewFile(uintptr(fd), fmt.Sprintf("pidfd of %d", pid))}, nil
}

// waitFor waits until the process has ended, or the context has: then it returns its error.
func (p *process) waitFor(ctx context.Context) error {
	// A file of its own, so that several may wait and each has its deadline.
	var fd int
	var duplicated error
	conn, err := p.file.SyscallConn()
	if err == nil {
		err = conn.Control(func(have uintptr) { fd, duplicated = unix.FcntlInt(have, unix.F_DUPFD_CLOEXEC, 0) })
	}
	if err = errors.Join(err, duplicated); err != nil {
		return fmt.Errorf("wait for process %d: %w", p.pid, err)
	}
	file := os.NewFile(uintptr(fd), p.file.Name())
	defer file.Close()
	if conn, err = file.SyscallConn(); err != nil {
		return fmt.Errorf("wait for process %d: %w", p.pid, err)
	}
	defer context.AfterFunc(ctx, func() { _ = file.SetReadDeadline(time.Unix(1, 0)) })()
	ended := false
	// A pidfd is readable once its process has ended; the runtime's poller waits, no thread does.
	err = conn.Read(func(fd uintptr) bool {
		poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		n, err := unix.Poll(poll, 0)
		ended = err == nil && n == 1 && poll[0].Revents&unix.POLLIN != 0
		return ended
	})
	if ended {
		return nil
	}
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	return fmt.Errorf("process %d has not ended: %w", p.pid, err)
}

func (p *process) signal(s unix.Signal) error {
	conn, err := p.file.SyscallConn()
	if err != nil {
		return err
	}
	var sent error
	err = conn.Control(func(fd uintptr) { sent = unix.PidfdSendSignal(int(fd), s, nil, 0) })
	return errors.Join(err, sent)
}

func (p *process) close() { _ = p.file.Close() }

// startDetached starts a program that outlives us: its own session, in the group, nothing on standard input, its output at the end of a log file.
func startDetached(within group, log string, environment []string, program string, arguments ...string) (*process, error) {
	const keep = 1 << 20 // bytes: a longer log is set aside first
	if info, err := os.Stat(log); err == nil && info.Size() > keep {
		_ = os.Rename(log, log+".1")
	}
	out, err := os.OpenFile(log, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", program, err)
	}
	defer out.Close()
	command := exec.Command(program, arguments...)
	command.Env, command.Dir = environment, "/"
	command.Stdout, command.Stderr = out, out
	command.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := command.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", program, err)
	}
	// Not reaped yet, so the pid is its own even if it has ended already.
	p, err := hold(command.Process.Pid)
	if err != nil {
		_ = command.Process.Kill()
	} else if err = within.take(p.pid); err != nil {
		_ = command.Process.Kill()
		p.close()
		p = nil
	}
	go func() { _ = command.Wait() }() // reaps it whenever it ends
	return p, err
}

// server holds the process that listens on a Unix socket, whatever the socket's type; nil if nobody does.
func server(socket string) *process {
	for _, network := range []string{"unixpacket", "unix"} {
		conn, err := net.Dial(network, socket)
		if err != nil {
			continue
		}
		p := peer(conn.(*net.UnixConn))
		_ = conn.Close()
		return p
	}
	return nil
}

// peer holds the process at the other end of a connection. While the connection stands the process does.
func peer(conn *net.UnixConn) *process {
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil
	}
	var p *process
	_ = raw.Control(func(fd uintptr) {
		if cred, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil && cred.Pid > 0 {
			p, _ = hold(int(cred.Pid))
		}
	})
	return p
}

// sameProgram says whether a process runs the file that is installed at path now. One that may not be looked at is taken to.
func (p *process) sameProgram(path string) bool {
	running, err := os.Stat(fmt.Sprintf("/proc/%d/exe", p.pid))
	if err != nil {
		return !errors.Is(err, os.ErrNotExist)
	}
	installed, err := os.Stat(path)
	return err == nil && os.SameFile(running, installed)
}

// facts is what /proc says of a process.
type facts struct {
	name, user string
	parent     int
	session    int
	start      uint64 // field 22 of stat
	dead       bool   // a zombie: it holds nothing any more
	stopped    bool   // by a signal or a tracer: it says nothing of itself
}

// factsOf reads /proc; false when there is no such process.
func factsOf(pid int) (facts, bool) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return facts{}, false
	}
	// The name is in parentheses and may itself contain any character.
	open, closed := bytes.IndexByte(stat, '('), bytes.LastIndexByte(stat, ')')
	if open < 0 || closed < open {
		return facts{}, false
	}
	fields := bytes.Fields(stat[closed+1:]) // from field 3, the state
	if len(fields) < 20 {
		return facts{}, false
	}
	state := fields[0][0]
	f := facts{name: string(stat[open+1 : closed]), dead: state == 'Z' || state == 'X', stopped: state == 'T' || state == 't'}
	f.parent, _ = strconv.Atoi(string(fields[1]))
	f.session, _ = strconv.Atoi(string(fields[3]))
	f.start, _ = strconv.ParseUint(string(fields[19]), 10, 64)
	var owner unix.Stat_t
	if err := unix.Stat(fmt.Sprintf("/proc/%d", pid), &owner); err == nil {
		f.user = strconv.Itoa(int(owner.Uid))
		if known, err := user.LookupId(f.user); err == nil {
			f.user = known.Username
		}
	}
	return f, true
}
