package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/aliquot-dev/aliquot/host/kube/scheduler"
	"github.com/aliquot-dev/aliquot/host/kube/testcluster"
)

// ours is our scheduler as a process of its own, as the chart runs it: under its account, and holding a Lease.
type ours struct {
	*testcluster.Process
	metrics string // address
}

func (f *fleet) startOurs(ctx context.Context, program string, more ...string) (*ours, error) {
	kubeconfig, err := f.schedulers(ctx)
	if err != nil {
		return nil, err
	}
	free, err := testcluster.FreePorts(1)
	if err != nil {
		return nil, err
	}
	address := fmt.Sprint("127.0.0.1:", free[0])
	args := append([]string{"scheduler", "--kubeconfig", kubeconfig, "--namespace", "aliquot", "--identity", "bench", "--metrics", address, "--profiles"}, more...)
	p, err := f.Start("aliquot-scheduler", nil, program, args...)
	return &ours{Process: p, metrics: address}, err
}

// startStock starts the stock scheduler without a limit of its own on calls.
func (f *fleet) startStock() (*testcluster.Process, error) {
	config := filepath.Join(f.Folder(), "kube-scheduler.yaml")
	text := fmt.Sprintf(`apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection: {leaderElect: false}
clientConnection: {kubeconfig: %s, contentType: application/vnd.kubernetes.protobuf, qps: 100000, burst: 100000}
`, f.Kubeconfig())
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		return nil, err
	}
	return f.Start("kube-scheduler", nil, f.Program("kube-scheduler"), "--config="+config, "--secure-port=0")
}

// began is what the scheduler says when it has seen what there is and begins to decide.
var began = regexp.MustCompile(`time=(\S+) level=INFO msg=scheduling `)

// begun waits until the only scheduler of ours that was started on a fleet has begun, and returns when that was and the CPU time spent until then.
func (f *fleet) begun(ctx context.Context, o *ours) (at time.Time, spent time.Duration, err error) {
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	for {
		if said := began.FindStringSubmatch(o.Log()); said != nil {
			if spent, err = f.spent(); err == nil {
				at, err = time.Parse(time.RFC3339Nano, said[1])
			}
			return at, spent, err
		}
		select {
		case <-ctx.Done():
			return at, 0, context.Cause(ctx)
		case <-o.Ended():
			return at, 0, fmt.Errorf("wait until the scheduler has seen what there is: %w\n%s", errEnded, tail(o.Log()))
		case <-look.C:
		}
	}
}

// drained is what a scheduler did with pods that all waited when it was started.
type drained struct {
	rate   float64       // pods bound per second, since it had seen what there is
	seeing time.Duration // until it had
	memory float64       // at most, MiB
	own    time.Duration // CPU time of the scheduler, from its start
	cpu    time.Duration // CPU time of everything, since the scheduler had seen what there is
}

// drain has our scheduler place what waits, and leaves it running.
func (f *fleet) drain(ctx context.Context, program string, tasks int, profile string, more ...string) (*ours, drained, error) {
	bound := f.bound(ctx)
	defer bound.stop()
	started := time.Now()
	o, err := f.startOurs(ctx, program, more...)
	if err != nil {
		return nil, drained{}, err
	}
	profiled := make(chan error, 1)
	go func() {
		profiled <- o.profile(ctx, profile, "cpu", fmt.Sprintf("profile?seconds=%d", min(40, max(2, tasks/300))))
	}()
	begun, before, err := f.begun(ctx, o)
	if err != nil {
		return nil, drained{}, err
	}
	if err := bound.await(ctx, tasks, o.Process); err != nil {
		return nil, drained{}, fmt.Errorf("place %d pods: %w\n%s", tasks, err, tail(o.Log()))
	}
	_, last := bound.count()
	d := drained{rate: float64(tasks) / last.Sub(begun).Seconds(), seeing: begun.Sub(started)}
	if d.memory, err = peak(o.PID()); err != nil {
		return nil, d, err
	}
	after, err := f.spent()
	if err != nil {
		return nil, d, err
	}
	d.cpu = after - before
	if d.own, err = o.CPU(); err != nil {
		return nil, d, err
	}
	return o, d, errors.Join(<-profiled, o.profile(ctx, profile, "heap", "heap"))
}

// profile keeps one of the scheduler's profiles in a folder; none is asked for where that is empty.
func (o *ours) profile(ctx context.Context, folder, name, path string) error {
	if folder == "" {
		return nil
	}
	for ctx.Err() == nil {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+o.metrics+"/debug/pprof/"+path, nil)
		if err != nil {
			return err
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil { // it does not listen yet
			select {
			case <-o.Ended():
				return fmt.Errorf("profile the scheduler: %w", err)
			case <-time.After(50 * time.Millisecond):
			}
			continue
		}
		defer response.Body.Close()
		all, err := io.ReadAll(response.Body)
		if err != nil {
			return fmt.Errorf("profile the scheduler: %w", err)
		}
		return os.WriteFile(filepath.Join(folder, "kube-"+name+".pprof"), all, 0o644)
	}
	return context.Cause(ctx)
}

// drainStock has the stock scheduler place what waits, for a time at most; it returns how many it placed and its pods per second since it placed
// the first.
func (f *fleet) drainStock(ctx context.Context, tasks int, limit time.Duration) (placed int, rate float64, err error) {
	bound := f.bound(ctx)
	defer bound.stop()
	p, err := f.startStock()
	if err != nil {
		return 0, 0, err
	}
	defer p.Kill()
	if err := bound.await(ctx, 1, p); err != nil {
		return 0, 0, fmt.Errorf("have the stock scheduler place pods: %w\n%s", err, tail(p.Log()))
	}
	_, first := bound.count()
	within, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	err = bound.await(within, tasks, p)
	placed, last := bound.count()
	if err != nil && (within.Err() == nil || ctx.Err() != nil) {
		return placed, 0, fmt.Errorf("have the stock scheduler place pods: %w\n%s", err, tail(p.Log()))
	}
	return placed, float64(placed) / last.Sub(first).Seconds(), nil
}

// restart ends the scheduler, gives it a pod that waits, and starts it again; it returns how long it took from its start until the pod had a
// node.
func (f *fleet) restart(ctx context.Context, end func(), program, prefix string, more ...string) (*ours, time.Duration, error) {
	end()
	if _, err := f.submit(ctx, prefix, 1, scheduler.Name); err != nil {
		return nil, 0, err
	}
	bound := follow(ctx, f.client.CoreV1().Pods(namespace), &corev1.Pod{}, "metadata.name="+prefix+"-000000", func(p *corev1.Pod) bool { return p.Spec.NodeName != "" })
	defer bound.stop()
	started := time.Now()
	next, err := f.startOurs(ctx, program, more...)
	if err != nil {
		return nil, 0, err
	}
	if err := bound.await(ctx, 1, next.Process); err != nil {
		return nil, 0, fmt.Errorf("start the scheduler again: %w\n%s", err, tail(next.Log()))
	}
	_, at := bound.count()
	return next, at.Sub(started), nil
}

// arrive makes pods one after the other at a steady rate, beside those that have a node, and returns how long each took from just before it was
// made until it had a node.
func (f *fleet) arrive(ctx context.Context, prefix string, already, n int, rate float64) ([]time.Duration, error) {
	bound := f.bound(ctx)
	defer bound.stop()
	specs, err := specs()
	if err != nil {
		return nil, err
	}
	if err := bound.await(ctx, already, nil); err != nil {
		return nil, err
	}
	tick := time.NewTicker(time.Duration(float64(time.Second) / rate))
	defer tick.Stop()
	tasks := make([]task, n)
	err = each(ctx, n, creators, func(ctx context.Context, i int) (err error) {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		tasks[i], err = f.makeOne(ctx, fmt.Sprintf("%s-%06d", prefix, i), specs[i%len(specs)], scheduler.Name)
		return err
	})
	if err == nil {
		err = bound.await(ctx, already+n, nil)
	}
	if err != nil {
		return nil, fmt.Errorf("have %d pods arrive: %w", n, err)
	}
	took := make([]time.Duration, n)
	for i, t := range tasks {
		took[i] = bound.when(t.pod.Name).Sub(t.made)
	}
	return took, nil
}

// peak is the most memory that a process had, MiB.
func peak(pid int) (float64, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kib, err := strconv.ParseFloat(strings.Fields(rest)[0], 64)
			return kib / 1024, err
		}
	}
	return 0, fmt.Errorf("process %d has no VmHWM", pid)
}

// tail is the end of a log.
func tail(log string) string {
	const most = 4000
	return log[max(0, len(log)-most):]
}
