package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// server is a server of this run's own, in folders of its own.
type server struct {
	home string // everything of it
	run  string
}

func (s *server) state() string { return filepath.Join(s.home, "state") }

// startServer starts the server that all shares of this run are had from.
func (s *suite) startServer(ctx context.Context) (figures, error) {
	home, err := os.MkdirTemp("", "aliquot-gpu-") // a socket's path must be short
	if err != nil {
		return nil, err
	}
	s.server = &server{home: home, run: filepath.Join(home, "run")}
	args := []string{"up", "--detach", "--http", "off", "--state", s.server.state()}
	if s.simulate {
		args = append(args, "--simulate", "h200x1")
	}
	out, err := s.aliquot(ctx, args...)
	if err != nil {
		return nil, errors.Join(err, s.stopServer())
	}
	if !s.simulate && strings.Contains(out, "simulated device") {
		missing := errors.New("no NVIDIA driver was found, so there is nothing to measure here; --simulate runs the same on simulated devices")
		return nil, errors.Join(missing, s.stopServer())
	}
	said, _, _ := strings.Cut(out, "\n")
	version, err := s.aliquot(ctx, "version")
	return figures{"version": strings.TrimSpace(version), "said": said}, err
}

// stopServer ends the server, all that it started and its folders.
func (s *suite) stopServer() error {
	if s.server == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	_, err := s.aliquot(ctx, "down", "--all", "--grace", "1s", "--state", s.server.state())
	home := s.server.home
	s.server = nil
	if err != nil {
		return fmt.Errorf("stop the server (its folders stay: %s): %w", home, err)
	}
	return os.RemoveAll(home)
}

// aliquot runs one of aliquot's commands against this run's server. What it printed comes back also when it failed.
func (s *suite) aliquot(ctx context.Context, args ...string) (string, error) {
	if s.server == nil {
		return "", notRun("there is no server: see the first step")
	}
	return s.output(ctx, line{append([]string{filepath.Join(s.folder, "aliquot"), "--run", s.server.run}, args...), clean(os.Environ())})
}

// clean is an environment that says nothing of another server of this machine.
func clean(env []string) []string {
	return slices.DeleteFunc(slices.Clone(env), func(pair string) bool { return strings.HasPrefix(pair, "ALIQUOT_") })
}

// bare is a command that no share holds: on a real GPU as it stands, else with the simulated driver.
func (s *suite) bare(args ...string) (line, error) {
	l := line{args, clean(os.Environ())}
	if !s.simulate {
		return l, nil
	}
	if s.server == nil {
		return l, notRun("there is no server, and it is what serves simulated devices: see the first step")
	}
	sim := filepath.Join(s.server.run, "sim")
	l.env = append(l.env, "LD_LIBRARY_PATH="+filepath.Join(sim, "driver"), "ALIQUOT_SIMGPU="+filepath.Join(sim, "simgpu.sock"))
	return l, nil
}

// share is what a program asks for, as aliquot run takes it.
type share struct {
	name, gpu, mem, class string
	weight                int32 // 0: the default
}

// shared is the same command under a share.
func (s *suite) shared(of share, args ...string) (line, error) {
	if s.server == nil {
		return line{}, notRun("there is no server: see the first step")
	}
	start := []string{filepath.Join(s.folder, "aliquot"), "--run", s.server.run, "run", "--gpu", of.gpu, "--mem", of.mem}
	if of.name != "" {
		start = append(start, "--name", of.name)
	}
	if of.class != "" {
		start = append(start, "--class", of.class)
	}
	if of.weight != 0 {
		start = append(start, "--weight", fmt.Sprint(of.weight))
	}
	return line{slices.Concat(start, []string{"--"}, args), clean(os.Environ())}, nil
}

func (s *suite) program(name string) string { return filepath.Join(s.folder, "programs", name) }
func (s *suite) example(name string) string { return filepath.Join(s.folder, "examples", name) }

// placed is where the server has put a workload.
type placed struct {
	Spec struct {
		Name string `json:"name"`
	} `json:"spec"`
	Status struct {
		PID    int `json:"pid"`
		Grants []struct {
			Device string `json:"device"`
		} `json:"grants"`
	} `json:"status"`
}

// onOneDevice fails unless all these workloads are on the same device, and returns their processes: on a machine with several
// devices tenants beside each other may not be.
func (s *suite) onOneDevice(ctx context.Context, names []string) ([]int, error) {
	out, err := s.aliquot(ctx, "ps", "-o", "json")
	if err != nil {
		return nil, err
	}
	var all []placed
	if err := json.Unmarshal([]byte(out), &all); err != nil {
		return nil, fmt.Errorf("read what ps prints: %w", err)
	}
	var pids []int
	device := ""
	for _, name := range names {
		at := slices.IndexFunc(all, func(p placed) bool { return p.Spec.Name == name })
		if at < 0 || len(all[at].Status.Grants) != 1 {
			return nil, fmt.Errorf("%s should hold one grant and does not", name)
		}
		on := all[at].Status.Grants[0].Device
		if device != "" && device != on {
			return nil, errors.New("the tenants were placed on several devices, so they do not share one: run this on a machine with one device")
		}
		device = on
		pids = append(pids, all[at].Status.PID)
	}
	return pids, nil
}
