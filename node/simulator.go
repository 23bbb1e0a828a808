package node

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/internal/point"
	"github.com/aliquot-dev/aliquot/native"
)

// simulator is the process that is the simulated devices. Unlike the arbiter it is not started again when it dies: with it
// everything on its devices is gone, as with a driver that is unloaded, and nobody should be made to think otherwise.
type simulator struct {
	process  *process
	launched bool // by this agent, which found none
}

func simSocket(r run) string { return r.path("sim", "simgpu.sock") }

// simControl is the one socket over which faults are made. No task sees it.
func simControl(r run) string { return r.path("simgpu.ctl") }

// openSimulator finds the simulated devices that run already or starts them.
func openSimulator(ctx context.Context, r run, within group, devices string, log *slog.Logger, prepared int) (*simulator, error) {
	spec := r.path("sim", "devices")
	if p := server(simSocket(r)); p != nil {
		have, err := os.ReadFile(spec)
		same := err == nil && strings.TrimSpace(string(have)) == devices
		if same && (prepared > 0 || p.sameProgram(r.path(native.SimGPU))) {
			log.Info("found the simulated devices", "pid", p.pid, "devices", devices)
			return &simulator{process: p}, nil
		}
		defer p.close()
		if prepared > 0 {
			tasks := fmt.Sprintf("%d tasks are", prepared)
			if prepared == 1 {
				tasks = "1 task is"
			}
			return nil, fmt.Errorf("start simulated devices %s: %s run already and %s prepared on them: end these with `aliquot down --all`, or start with --simulate %s",
				devices, strings.TrimSpace(string(have)), tasks, strings.TrimSpace(string(have)))
		}
		log.Info("the simulated devices that run are replaced", "pid", p.pid, "were", strings.TrimSpace(string(have)), "become", devices)
		if err := (&simulator{process: p}).end(ctx); err != nil {
			return nil, fmt.Errorf("replace the simulated devices: %w", err)
		}
	}
	if err := writeFile(spec, []byte(devices+"\n"), 0o644); err != nil {
		return nil, fmt.Errorf("start simulated devices: %w", err)
	}
	logFile := r.path("simgpu.log")
	p, err := startDetached(within, logFile, os.Environ(), r.path(native.SimGPU),
		"serve", "--devices", devices, "--socket", simSocket(r), "--control", simControl(r), "--record", r.path("sim", "record"))
	if err != nil {
		return nil, err
	}
	err = ready(ctx, p, logFile, func(context.Context) error {
		found := server(simSocket(r))
		if found == nil {
			return errors.New("nobody listens on " + simSocket(r))
		}
		found.close()
		return nil
	})
	if err != nil {
		_ = p.signal(unix.SIGKILL)
		p.close()
		if errors.Is(err, errEndedAtOnce) { // what it says of its arguments is for whoever chose them
			return nil, fmt.Errorf("simulate %s: %s", devices, strings.TrimPrefix(lastLine(logFile), filepath.Base(native.SimGPU)+": "))
		}
		return nil, fmt.Errorf("start simulated devices %s: %w", devices, err)
	}
	point.Here("node.simulator.started")
	return &simulator{process: p, launched: true}, nil
}

// end ends the process, by force if it does not listen.
func (s *simulator) end(ctx context.Context) error {
	if err := s.process.signal(unix.SIGTERM); err != nil && !errors.Is(err, unix.ESRCH) {
		return err
	}
	within, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	if s.process.waitFor(within) == nil {
		return nil
	}
	if err := s.process.signal(unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
		return err
	}
	return s.process.waitFor(ctx)
}

func (s *simulator) close() { s.process.close() }

// watchSimulator reports all devices down when the process that simulates them dies.
func (a *Agent) watchSimulator(ctx context.Context) {
	if a.sim.process.waitFor(ctx) != nil {
		return
	}
	a.mu.Lock()
	order := append([]string(nil), a.order...)
	a.mu.Unlock()
	for _, uuid := range order {
		a.setHealth(ctx, uuid, api.Down, a.simulatorGone())
	}
}

// simulatorGone says why no simulated device answers any more; empty: they are not simulated, or what simulates them lives. The devices
// going one by one is how the driver's library sees it, and the end of that process why.
func (a *Agent) simulatorGone() string {
	if a.sim == nil {
		return ""
	}
	// It stops listening a moment before it has ended for all to see, and stops answering a moment before that.
	if listens := server(simSocket(a.run)); listens != nil {
		listens.close()
		if !ending(a.sim.process.pid) {
			return ""
		}
	}
	return fmt.Sprintf("the process that simulates the devices (pid %d) has ended; `aliquot down`, then `aliquot up`, starts it again", a.sim.process.pid)
}

// ending says that a process is on its way out: the kernel has begun to take it down, or has done so.
func ending(pid int) bool {
	const exiting = 0x4 // PF_EXITING, linux/sched.h
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return true
	}
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:])) // proc_pid_stat(5): from the third on, the state
	if len(fields) < 7 {
		return false
	}
	flags, err := strconv.ParseUint(fields[6], 10, 64)
	return err == nil && flags&exiting != 0
}
