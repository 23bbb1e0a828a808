package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/cli/client"
)

const downLong = `Stop the server. Tasks go on, held to their shares, and the next server finds them again. With --all they are stopped first, those
that wait leave the line, and the arbiter and simulated devices end too. Where no server answers, because it was killed, --all ends
the tasks, the arbiter and the simulated devices that it left behind; what waited in line then waits for the next server, which also
learns how the tasks ended.`

// downFlags are the flags of `down`.
type downFlags struct {
	all    bool
	state  string
	grace  time.Duration
	format string
}

// downed is what `down` prints.
type downed struct {
	Run     string         `json:"run"`     // folder of the server
	Server  bool           `json:"server"`  // one answered and has ended; else it was killed before
	GoOn    int            `json:"goOn"`    // workloads that run on
	InLine  int            `json:"inLine"`  // workloads that wait, and go on waiting with the next server
	Stopped []api.Workload `json:"stopped"` // by --all
	Ended   int            `json:"ended"`   // tasks that a killed server had left behind, ended by --all
}

func (c *invocation) downCommand() *cobra.Command {
	flags := downFlags{grace: defaultGrace}
	cmd := &cobra.Command{
		Use:   "down [flags]",
		Short: "Stop the server; tasks go on",
		Long:  downLong,
		Args:  none,
	}
	cmd.Flags().BoolVar(&flags.all, "all", false, "stop all workloads first, and everything that outlives the server")
	cmd.Flags().StringVar(&flags.state, "state", "", "with --all and no server: folder of its state")
	must(cmd.MarkFlagDirname("state"))
	cmd.Flags().DurationVar(&flags.grace, "grace", flags.grace, "with --all: time between SIGTERM and SIGKILL")
	format := outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		flags.format = *format
		out, sentence, err := c.down(cmd.Context(), flags)
		if err != nil {
			return err
		}
		return c.say(*format, out, sentence)
	}
	return cmd
}

// down ends the server and, with --all, what it runs. It returns what was done, and that in one sentence.
func (c *invocation) down(ctx context.Context, flags downFlags) (downed, string, error) {
	out := downed{Run: c.clientRun(), Stopped: []api.Workload{}} // before its socket is gone
	server := client.New(out.Run)
	defer server.Close()
	info, err := server.Info(ctx)
	var gone *client.Unreachable
	if errors.As(err, &gone) && !errors.Is(err, os.ErrPermission) {
		if flags.all {
			return c.haltWithoutServer(ctx, out, flags)
		}
		return out, "", fmt.Errorf("no server answers at %s: there is nothing to stop; `aliquot down --all` ends what a killed one left behind", gone.Socket)
	}
	if err != nil {
		return out, "", err
	}
	if !flags.all {
		out.GoOn, out.InLine = c.goOn(ctx, server)
	}
	pid, err := server.ServerPID(ctx)
	if err != nil {
		return out, "", err
	}
	if flags.all {
		if out.Stopped, pid, err = c.stopAllOn(ctx, server, pid, flags); err != nil {
			return out, "", err
		}
	}
	if err := endDaemon(ctx, pid, server.Socket()); err != nil {
		return out, "", err
	}
	out.Server = true
	if flags.all && c.Halt != nil {
		config := HaltConfig{Run: out.Run, Grace: flags.grace, Simulate: info.Simulate} // what simulates them may have died
		if _, err := c.Halt(ctx, config); err != nil {
			return out, "", err
		}
	}
	said := "aliquot is down"
	return out, said + out.left(), nil
}

// left says what outlives the server that has ended.
func (d downed) left() string {
	var parts []string
	if d.GoOn > 0 {
		parts = append(parts, plural(d.GoOn, "workload")+" will go on")
	}
	if d.InLine > 0 {
		parts = append(parts, fmt.Sprintf("%d in line will start no sooner than with the next `aliquot up`", d.InLine))
	}
	if len(parts) == 0 {
		return ""
	}
	them := "them"
	if d.GoOn+d.InLine == 1 {
		them = "it"
	}
	text := "; " + strings.Join(parts, ", ") + ": `aliquot up` finds " + them + " again"
	if d.GoOn > 0 {
		text += ", `aliquot down --all` ends what runs"
	}
	return text
}

// goOn counts the workloads that run on without the server, and those that stay in line; 0 where that cannot be had.
func (c *invocation) goOn(ctx context.Context, server *client.Client) (run, wait int) {
	works, err := server.Workloads(ctx, false)
	if err != nil {
		return 0, 0
	}
	for _, work := range works {
		if work.Status.Phase == api.Waiting {
			wait++
		} else {
			run++
		}
	}
	return run, wait
}

// ended stands for the process of a server that has ended.
const ended = -1

// stopAllOn stops all workloads of the server that is process pid: none if this user may not end it. It returns those, and the
// server's process then, which after so long may be another; ended: none is left.
func (c *invocation) stopAllOn(ctx context.Context, server *client.Client, pid int, flags downFlags) ([]api.Workload, int, error) {
	if err := endable(pid, server.Socket()); err != nil {
		return nil, pid, err
	}
	works, err := server.Workloads(ctx, false)
	if err != nil {
		return nil, pid, err
	}
	names := make([]string, len(works))
	for i, work := range works {
		names[i] = work.UID
	}
	stopped, err := c.stopAll(ctx, server, names, flags.grace, true, flags.format)
	if err != nil {
		return stopped, pid, err
	}
	pid, err = server.ServerPID(ctx)
	var gone *client.Unreachable
	if errors.As(err, &gone) {
		return stopped, ended, nil
	}
	return stopped, pid, err
}

// endable says why this user may not end the server's process; nil: it may, or that is not known yet.
func endable(pid int, socket string) error {
	if pid > 1 && errors.Is(syscall.Kill(pid, 0), syscall.EPERM) {
		return anothers(pid, socket)
	}
	return nil
}

func anothers(pid int, socket string) error {
	return fmt.Errorf("the server at %s (pid %d) belongs to another user: only that user or root can stop it", socket, pid)
}

// endDaemon asks the server's process to end and returns when it has.
func endDaemon(ctx context.Context, pid int, socket string) error {
	switch {
	case pid == ended:
		return nil
	case pid <= 1:
		return fmt.Errorf("the server at %s runs outside this container: stop it there", socket)
	}
	process, err := os.FindProcess(pid)
	if err == nil {
		defer func() { _ = process.Release() }()
		err = process.Signal(syscall.SIGTERM)
	}
	switch {
	case errors.Is(err, os.ErrProcessDone):
		return nil
	case errors.Is(err, syscall.EPERM):
		return anothers(pid, socket)
	case err != nil:
		return fmt.Errorf("stop the server (pid %d): %w", pid, err)
	}
	return waitGone(ctx, pid)
}
