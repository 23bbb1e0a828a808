package testcluster

import (
	"context"
	"fmt"
)

// Restart kills a part of the cluster with SIGKILL, kube-apiserver, containerd or kubelet, and starts it again. The first two answer when it returns. Pods
// run on meanwhile.
func (c *Cluster) Restart(ctx context.Context, name string) error {
	run := map[string]func(context.Context) error{"kube-apiserver": c.runServer, "containerd": c.runContainerd, "kubelet": c.runKubelet}[name]
	if run == nil {
		return fmt.Errorf("restart %s: give kube-apiserver, containerd or kubelet", name)
	}
	one := c.processes.last(name)
	if one == nil {
		return fmt.Errorf("restart %s: it was never started", name)
	}
	one.Kill()
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	return run(ctx)
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
