package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/bench/judge"
	"github.com/aliquot-dev/aliquot/cli/client"
)

// patience is how long anything may take that is not measured.
const patience = 2 * time.Minute

// daemon is a server of the benchmark's own, with simulated devices, in folders of its own.
type daemon struct {
	binary string // build/aliquot
	home   string // everything of it
	run    string
	info   api.Info
	client *client.Client
	record *record
	pid    int
	device string // as --simulate has it
}

// startDaemon starts a server with these simulated devices.
func startDaemon(ctx context.Context, binary, simulate string) (*daemon, error) {
	home, err := os.MkdirTemp("", "aliquot-bench-")
	if err != nil {
		return nil, err
	}
	d := &daemon{binary: binary, home: home, run: filepath.Join(home, "run"), device: simulate}
	if err := d.start(ctx, simulate); err != nil {
		return nil, errors.Join(err, d.stop())
	}
	return d, nil
}

func (d *daemon) start(ctx context.Context, simulate string) error {
	state := filepath.Join(d.home, "state")
	if out, err := d.command(ctx, "up", "--detach", "--state", state, "--simulate", simulate, "--http", "off"); err != nil {
		return fmt.Errorf("start the server: %w: %s", err, out)
	}
	d.client = client.New(d.run)
	var err error
	if d.info, err = d.client.Info(ctx); err != nil {
		return err
	}
	if d.pid, err = d.client.ServerPID(ctx); err != nil {
		return err
	}
	d.record, err = openRecord(d.run, d.info.SimSocket)
	return err
}

// command runs one of aliquot's commands against this server and returns all it printed.
func (d *daemon) command(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, d.binary, append([]string{"--run", d.run}, args...)...)
	out, err := cmd.CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

// stop ends the server, all its tasks and the simulated devices, and removes its folders.
func (d *daemon) stop() error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var closed error
	if d.record != nil {
		closed = d.record.close()
	}
	if d.client != nil {
		defer d.client.Close()
		if out, err := d.command(ctx, "down", "--all", "--grace", "1s"); err != nil {
			return fmt.Errorf("stop the server (its folders stay: %s): %w: %s", d.home, err, out)
		}
	}
	return errors.Join(closed, os.RemoveAll(d.home))
}

// submit hands a program in with a share.
func (d *daemon) submit(ctx context.Context, share api.Share, class api.Class, line []string) (api.Workload, error) {
	return d.client.Submit(ctx, api.WorkloadSpec{
		Share: share, Class: class, Command: line, Dir: d.home, Env: map[string]string{"PATH": os.Getenv("PATH"), "HOME": d.home},
	})
}

// running waits until a workload runs and returns it; one that is over already is an error that says how it ended.
func (d *daemon) running(ctx context.Context, uid string) (api.Workload, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	w, err := d.client.Wait(ctx, uid, api.Waiting, api.Starting)
	if err != nil {
		return w, err
	}
	if w.Status.Phase != api.Running || w.Status.PID == 0 {
		return w, fmt.Errorf("%s should run and is %s (%s): %s%s", w.Spec.Name, w.Status.Phase, w.Status.Outcome, w.Status.Reason, d.printed(ctx, uid))
	}
	return w, nil
}

// ended waits until a workload is over and returns what it printed; anything but success is an error.
func (d *daemon) ended(ctx context.Context, uid string) (string, error) {
	w, err := d.client.Wait(ctx, uid, api.Waiting, api.Starting, api.Running, api.Stopping)
	if err != nil {
		return "", err
	}
	if w.Status.Outcome != api.Succeeded {
		return "", fmt.Errorf("%s %s: %s%s", w.Spec.Name, w.Status.Outcome, w.Status.Reason, d.printed(ctx, uid))
	}
	return d.said(ctx, uid)
}

// said is what a workload has printed so far.
func (d *daemon) said(ctx context.Context, uid string) (string, error) {
	var text bytes.Buffer
	err := d.client.Logs(ctx, uid, client.LogPart{}, &text)
	return text.String(), err
}

// printed is the same where there is an error already: then one more is only told.
func (d *daemon) printed(ctx context.Context, uid string) string {
	text, err := d.said(ctx, uid)
	if err != nil {
		return err.Error()
	}
	return text
}

// end stops workloads and waits until they are over.
func (d *daemon) end(uids []string) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var all error
	for _, uid := range uids {
		if _, err := d.client.Stop(ctx, uid, api.Duration(2*time.Second)); err != nil {
			all = errors.Join(all, err)
		}
	}
	for _, uid := range uids {
		if _, err := d.client.Wait(ctx, uid, api.Waiting, api.Starting, api.Running, api.Stopping); err != nil {
			all = errors.Join(all, err)
		}
	}
	return all
}

// bare is how a program is started on the simulated devices without Aliquot: with the driver's own library.
func (d *daemon) bare(ctx context.Context, line []string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, line[0], line[1:]...)
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "LD_LIBRARY_PATH=" + filepath.Join(d.run, "sim", "driver"), "ALIQUOT_SIMGPU=" + d.info.SimSocket,
	}
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = patience
	return cmd
}

// arbiter finds the process of the arbiter of this server.
func (d *daemon) arbiter() (int, error) { return judge.Process(d.run, "aliquot-arbiter") }

// driver finds the process of the simulated driver of this server.
func (d *daemon) driver() (int, error) { return judge.Process(d.run, "aliquot-simgpu") }
