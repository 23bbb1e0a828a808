package testcluster

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"
)

// Process is a process that the cluster runs, with its log.
type Process struct {
	name    string
	log     string
	command *exec.Cmd
	ended   chan struct{} // closed once it has ended
	away    bool          // it was killed to be away until it is started again
}

// processes are all that were started, in that order.
type processes struct {
	mu  sync.Mutex
	all []*Process
}

// Start runs a program beside the cluster's own: in its control group, so that it and what it starts end with the cluster at the latest,
// and with a log in its folder. The environment is added to this process' own.
func (c *Cluster) Start(name string, environment []string, program string, args ...string) (*Process, error) {
	path := c.state.path("log", name+".log")
	log, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	defer log.Close()
	command := exec.Command(program, args...)
	command.Env = append(os.Environ(), environment...)
	command.Stdout, command.Stderr = log, log
	command.Dir = string(c.state)
	command.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // Ctrl-C is for the test, which then ends the cluster in order
	if err := command.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	p := &Process{name: name, log: path, command: command, ended: make(chan struct{})}
	go func() {
		_ = command.Wait()
		close(p.ended)
	}()
	c.processes.mu.Lock()
	c.processes.all = append(c.processes.all, p)
	c.processes.mu.Unlock()
	if err := c.group.add(p.PID()); err != nil {
		p.Kill()
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	c.log.Info("started", "process", name, "pid", p.PID())
	return p, nil
}

// roomy has programs in Go, where several clusters share few processors, collect their garbage more seldom, as long as they are not large. A control plane alone,
// in which programs are measured, is as its users have it.
func (c *Cluster) roomy() []string {
	if c.control {
		return nil
	}
	return []string{"GOGC=400", "GOMEMLIMIT=512MiB"}
}

// PID is the process' number.
func (p *Process) PID() int { return p.command.Process.Pid }

// Ended is closed once the process has ended.
func (p *Process) Ended() <-chan struct{} { return p.ended }

// Kill ends it with SIGKILL and waits until it has ended; what it started runs on.
func (p *Process) Kill() {
	_ = p.command.Process.Kill() // it has ended already, at worst
	<-p.ended
}

// End asks it to end (SIGTERM) and waits until it has; what it started runs on.
func (p *Process) End() {
	_ = p.command.Process.Signal(syscall.SIGTERM) // it has ended already, at worst
	<-p.ended
}

// Log is what it has said so far.
func (p *Process) Log() string {
	said, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	return string(said)
}

// often is how far apart is looked whether something is so that nobody tells of.
const often = 50 * time.Millisecond

// answers is for how long one look waits for an answer: a process that is just starting may take a connection and never answer on it.
const answers = 10 * time.Second

// ready waits until check says nothing against it. It ends early where the process does.
func (p *Process) ready(ctx context.Context, check func(context.Context) error) error {
	look := time.NewTicker(often)
	defer look.Stop()
	for {
		one, cancel := context.WithTimeout(ctx, answers)
		err := check(one)
		cancel()
		if err == nil {
			return nil
		}
		select {
		case <-p.ended:
			return fmt.Errorf("%s has ended: %s\n%s", p.name, p.command.ProcessState, tail(p.Log()))
		case <-ctx.Done():
			return fmt.Errorf("%s is not ready: %w: %w\n%s", p.name, context.Cause(ctx), err, tail(p.Log()))
		case <-look.C:
		}
	}
}

// tail is the last lines of a log.
func tail(log string) string {
	const lines = 25
	all := bytes.Split(bytes.TrimSpace([]byte(log)), []byte("\n"))
	return string(bytes.Join(all[max(0, len(all)-lines):], []byte("\n")))
}
