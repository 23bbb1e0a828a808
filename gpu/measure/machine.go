package main

import (
	"context"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// machine says on what the run was made; what cannot be had is left out. It looks for Python on the way.
func (s *suite) machine(ctx context.Context) map[string]string {
	facts := map[string]string{"cores": strconv.Itoa(runtime.NumCPU()), "user": strconv.Itoa(os.Geteuid())}
	var name unix.Utsname
	if err := unix.Uname(&name); err == nil {
		facts["kernel"] = unix.ByteSliceToString(name.Release[:]) + " " + unix.ByteSliceToString(name.Version[:])
	}
	if load, err := os.ReadFile("/proc/loadavg"); err == nil {
		facts["load at the start"] = strings.TrimSpace(string(load))
	}
	if text, err := os.ReadFile("/etc/os-release"); err == nil {
		for each := range strings.Lines(string(text)) {
			if value, ok := strings.CutPrefix(strings.TrimSpace(each), "PRETTY_NAME="); ok {
				facts["system"] = strings.Trim(value, `"`)
			}
		}
	}
	if path, err := exec.LookPath("python3"); err == nil {
		s.python = path
	}
	// What these print goes in as it is: their formats differ between versions.
	for fact, args := range map[string][]string{
		"GPU":    {"nvidia-smi", "--query-gpu=name,uuid,driver_version,memory.total,compute_mode,persistence_mode,mig.mode.current,clocks.sm", "--format=csv,noheader"},
		"CUDA":   {"nvcc", "--version"},
		"python": {"python3", "--version"},
		"glibc":  {"ldd", "--version"},
	} {
		if _, err := exec.LookPath(args[0]); err != nil {
			continue
		}
		bounded, cancel := context.WithTimeout(ctx, 10*time.Second)
		out, err := s.output(bounded, line{args, os.Environ()})
		cancel()
		if err != nil {
			continue
		}
		lines := strings.Split(strings.TrimSpace(out), "\n")
		switch fact {
		case "CUDA":
			facts[fact] = lines[len(lines)-1]
		case "GPU":
			facts[fact] = strings.Join(lines, "; ")
		default:
			facts[fact] = lines[0]
		}
	}
	return facts
}
