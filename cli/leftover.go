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

// haltWithoutServer ends what a server that was killed left behind. It returns what that was, and that in one sentence.
func (c *invocation) haltWithoutServer(ctx context.Context, out downed, flags downFlags) (downed, string, error) {
	left := outlivingIn(out.Run)
	if left == (outliving{}) || c.Halt == nil {
		return out, fmt.Sprintf("aliquot is down: no server answers at %s, and nothing of an earlier one runs", out.Run), nil
	}
	state, err := c.stateOf(out.Run, flags.state)
	if err != nil {
		return out, "", err
	}
	out.Ended, err = c.Halt(ctx, HaltConfig{Run: out.Run, State: state, Simulate: left.simulated, Grace: flags.grace})
	if err != nil {
		return out, "", err
	}
	return out, fmt.Sprintf("aliquot is down: no server answered at %s, and what an earlier one left there was ended (%s)", out.Run, plural(out.Ended, "task")), nil
}

// stateOf is the STATE folder that belongs to a RUN folder; flag is --state.
func (c *invocation) stateOf(run, flag string) (string, error) {
	if run == c.allUsersRun() && flag == "" {
		return machineState, nil
	}
	return c.ownState(flag)
}
