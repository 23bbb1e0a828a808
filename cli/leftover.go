package cli

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// outliving is what lives in a RUN folder whether a server works on it or not.
type outliving struct {
	simulated string // the simulated devices that run, or on which there are tasks: `h200x2`; empty: none
	tasks     int    // prepared, as far as is known
	processes bool   // the arbiter or the simulated devices
}

// outlivingIn looks into a RUN folder.
func outlivingIn(run string) outliving {
	var out outliving
	entries, _ := os.ReadDir(filepath.Join(run, "tasks")) // no folder: no tasks
	for _, entry := range entries {
		if !strings.HasPrefix(entry.Name(), ".") { // half made or half removed
			out.tasks++
		}
	}
	simulator := served(filepath.Join(run, "sim", "simgpu.sock"))
	out.processes = simulator || served(filepath.Join(run, "arbiter.ctl"))
	if simulator || out.tasks > 0 {
		text, _ := os.ReadFile(filepath.Join(run, "sim", "devices")) // no file: no simulated devices
		out.simulated = strings.TrimSpace(string(text))
	}
	return out
}

// served says whether somebody listens on a Unix socket, whatever its type.
func served(path string) bool {
	for _, network := range []string{"unixpacket", "unix"} {
		if conn, err := net.DialTimeout(network, path, time.Second); err == nil {
			_ = conn.Close()
			return true
		}
	}
	return false
}

// haltWithoutServer ends what a server that was killed left behind.
func (c *invocation) haltWithoutServer(ctx context.Context, run, stateFlag string, grace time.Duration) error {
	left := outlivingIn(run)
	if left == (outliving{}) || c.Halt == nil {
		_, err := fmt.Fprintf(c.Out, "aliquot is down: no server answers at %s, and nothing of an earlier one runs\n", run)
		return err
	}
	state, err := c.stateOf(run, stateFlag)
	if err != nil {
		return err
	}
	ended, err := c.Halt(ctx, HaltConfig{Run: run, State: state, Simulate: left.simulated, Grace: grace})
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(c.Out, "aliquot is down: no server answered at %s, and what an earlier one left there was ended (%s)\n", run, plural(ended, "task"))
	return err
}

// stateOf is the STATE folder that belongs to a RUN folder; flag is --state.
func (c *invocation) stateOf(run, flag string) (string, error) {
	if run == machineRun && flag == "" {
		return machineState, nil
	}
	return c.ownState(flag)
}
