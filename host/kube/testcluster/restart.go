package testcluster

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"syscall"
	"time"
)

// runs is how each part of the cluster is started that may be killed.
func (c *Cluster) runs() map[string]func(context.Context) error {
	return map[string]func(context.Context) error{
		"kube-apiserver": c.runServer, "kube-controller-manager": c.runControllers, "kube-scheduler": c.runScheduler,
		"containerd": c.runContainerd, "kubelet": c.runKubelet,
	}
}

// Kill kills a part of the cluster with SIGKILL: kube-apiserver, kube-controller-manager, kube-scheduler, containerd or kubelet. Pods run on without it.
// It is away until Restart. To kill one that is away is no error.
func (c *Cluster) Kill(name string) error {
	one := c.processes.last(name)
	if c.runs()[name] == nil || one == nil {
		return fmt.Errorf("kill %s: give kube-apiserver, kube-controller-manager, kube-scheduler, containerd or kubelet, of a cluster that has it", name)
	}
	one.away = true
	one.Kill()
	return nil
}

// Restart kills a part of the cluster, if it is there, as Kill does, and starts it again. API server and containerd answer when it returns. Pods
// run on meanwhile.
func (c *Cluster) Restart(ctx context.Context, name string) error {
	if err := c.Kill(name); err != nil {
		return fmt.Errorf("restart: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	return c.runs()[name](ctx)
}

// revive starts again what has ended by itself of the API server's clients, as kubelet does where they are pods: who finds no API server when it begins ends.
func (c *Cluster) revive(ctx context.Context) error {
	for _, name := range c.processes.lost("kube-controller-manager", "kube-scheduler") {
		if err := c.runs()[name](ctx); err != nil {
			return err
		}
	}
	return nil
}

// RestartServer restarts the API server with more options, as its administrator may choose: features off, so that it drops fields of what is written to
// it, or on that are off by default. With none it is as at first.
func (c *Cluster) RestartServer(ctx context.Context, options ...string) error {
	c.more = options
	return c.Restart(ctx, "kube-apiserver")
}

// endsWithin is how long what was started beside a cluster has to end once it was told to.
const endsWithin = 10 * time.Second

// EndBeside ends what Start started beside the cluster's own parts, and forgets what it said: it is told to end (SIGTERM), and killed if it has not ten
// seconds later. What that started runs on.
func (c *Cluster) EndBeside() error {
	all := c.processes.takeBeside()
	for _, one := range all {
		_ = one.command.Process.Signal(syscall.SIGTERM) // it has ended already, at worst
	}
	late := time.After(endsWithin)
	var failed []error
	for _, one := range all {
		select {
		case <-one.ended:
		case <-late:
			one.Kill()
			late = time.After(0)
		}
		if err := os.Remove(one.log); err != nil && !errors.Is(err, fs.ErrNotExist) { // several of a name have one log
			failed = append(failed, err)
		}
	}
	return errors.Join(failed...)
}

// own are the names of the cluster's own processes.
var own = []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "containerd", "kubelet"}

// takeBeside takes out all but the cluster's own.
func (p *processes) takeBeside() (taken []*Process) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.all = slices.DeleteFunc(p.all, func(one *Process) bool {
		beside := !slices.Contains(own, one.name)
		if beside {
			taken = append(taken, one)
		}
		return beside
	})
	return taken
}

// lost are those of these names whose last process has ended and is not to be away.
func (p *processes) lost(names ...string) (lost []string) {
	for _, name := range names {
		one := p.last(name)
		if one == nil || one.away {
			continue
		}
		select {
		case <-one.ended:
			lost = append(lost, name)
		default:
		}
	}
	return lost
}

// last is the process of a name that was started last; nil: none was.
func (p *processes) last(name string) (found *Process) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, one := range p.all {
		if one.name == name {
			found = one
		}
	}
	return found
}
