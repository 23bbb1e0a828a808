package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
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

func (c *invocation) downCommand() *cobra.Command {
	var all bool
	var state string
	grace := defaultGrace
	cmd := &cobra.Command{
		Use:   "down [flags]",
		Short: "Stop the server; tasks go on",
		Long:  downLong,
		Args:  none,
	}
	cmd.Flags().BoolVar(&all, "all", false, "stop all workloads first, and everything that outlives the server")
	cmd.Flags().StringVar(&state, "state", "", "with --all and no server: folder of its state")
	must(cmd.MarkFlagDirname("state"))
	cmd.Flags().DurationVar(&grace, "grace", grace, "with --all: time between SIGTERM and SIGKILL")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		run := c.clientRun() // before its socket is gone
		server := client.New(run)
		defer server.Close()
		info, err := server.Info(cmd.Context())
		var gone *client.Unreachable
		if all && errors.As(err, &gone) && !errors.Is(err, os.ErrPermission) {
			return c.haltWithoutServer(cmd.Context(), run, state, grace)
		}
		if errors.As(err, &gone) && !errors.Is(err, os.ErrPermission) {
			return fmt.Errorf("no server answers at %s: there is nothing to stop; `aliquot down --all` ends what a killed one left behind", gone.Socket)
		}
		if err != nil {
			return err
		}
		going := 0
		if !all {
			going = c.goOn(cmd.Context(), server)
		}
		pid, err := server.ServerPID(cmd.Context())
		if err != nil {
			return err
		}
		if all {
			if pid, err = c.stopAllOn(cmd.Context(), server, pid, grace); err != nil {
				return err
			}
		}
		if err := endDaemon(cmd.Context(), pid, server.Socket()); err != nil {
			return err
		}
		if all && c.Halt != nil {
			config := HaltConfig{Run: run, Grace: grace, Simulate: info.Simulate} // what simulates them may have died
			if _, err := c.Halt(cmd.Context(), config); err != nil {
				return err
			}
		}
		said := "aliquot is down"
		if going > 0 {
			said += "; " + plural(going, "workload") + " will go on: `aliquot up` finds them again, `aliquot down --all` ends them"
		}
		_, err = fmt.Fprintln(c.Out, said)
		return err
	}
	return cmd
}

// goOn counts the workloads that run on without the server; 0 where that cannot be had.
func (c *invocation) goOn(ctx context.Context, server *client.Client) int {
	works, err := server.Workloads(ctx, false)
	if err != nil {
		return 0
	}
	count := 0
	for _, work := range works {
		if work.Status.Phase == api.Running || work.Status.Phase == api.Starting || work.Status.Phase == api.Stopping {
			count++
		}
	}
	return count
}

// ended stands for the process of a server that has ended.
const ended = -1

// stopAllOn stops all workloads of the server that is process pid: none if this user may not end it. It returns the server's process
// then, which after so long may be another; ended: none is left.
func (c *invocation) stopAllOn(ctx context.Context, server *client.Client, pid int, grace time.Duration) (int, error) {
	if err := endable(pid, server.Socket()); err != nil {
		return pid, err
	}
	if err := c.stopEverything(ctx, server, grace); err != nil {
		return pid, err
	}
	pid, err := server.ServerPID(ctx)
	var gone *client.Unreachable
	if errors.As(err, &gone) {
		return ended, nil
	}
	return pid, err
}

func (c *invocation) stopEverything(ctx context.Context, server *client.Client, grace time.Duration) error {
	works, err := server.Workloads(ctx, false)
	if err != nil {
		return err
	}
	names := make([]string, len(works))
	for i, work := range works {
		names[i] = work.UID
	}
	return c.stopAll(ctx, server, names, grace, true, formatTable)
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
