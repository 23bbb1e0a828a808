package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/aliquot-dev/aliquot/cli"
	"github.com/aliquot-dev/aliquot/host/local"
	"github.com/aliquot-dev/aliquot/host/local/supervise"
	"github.com/aliquot-dev/aliquot/node"
	"github.com/aliquot-dev/aliquot/server"
)

// superviseWord is the command that supervises one task.
const superviseWord = "supervise"

// serve is the daemon: node, host and server, until ctx ends. Tasks outlive it.
func serve(ctx context.Context, config cli.ServeConfig, ready func()) error {
	log := slog.New(slog.NewTextHandler(config.Log, nil))
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	// First, because it may be taken: then nothing has been started yet.
	loopback, without, err := listen(ctx, config)
	if err != nil {
		return err
	}
	if loopback != nil {
		defer func() { _ = loopback.Close() }() // of a server that comes to serve it is closed by then
	}
	opened, err := node.Open(ctx, node.Config{Run: config.Run, Host: "local", Simulate: config.Simulate, Log: log, Unenforced: config.Unenforced})
	if err != nil {
		return err
	}
	// From here on the host closes the agent, also when it cannot be opened.
	nodes := &agent{Agent: opened}
	host, err := local.Open(ctx, local.Config{
		State: config.State, Run: config.Run, Version: config.Version, Agent: nodes, Supervisor: []string{self, superviseWord}, Log: log,
		Unenforced: config.Unenforced, LatencyClasses: config.LatencyClasses,
	})
	if err != nil {
		return err
	}
	err = server.Serve(ctx, server.Config{
		Host: host, Version: config.Version, Run: config.Run, Token: filepath.Join(config.State, "token"), HTTP: loopback, Warnings: without,
		Names: local.UserName, Log: log,
		Ready: func() { nodes.answered.Store(true); ready() },
	})
	return errors.Join(err, host.Close())
}

// listen takes the address of HTTP, if there is to be one. An address that nobody asked for may be another's: then the server does
// without, and without says so.
func listen(ctx context.Context, config cli.ServeConfig) (loopback net.Listener, without []string, err error) {
	if config.HTTP == "" {
		return nil, nil, nil
	}
	loopback, err = server.Listen(ctx, config.HTTP)
	if config.Usual && errors.Is(err, unix.EADDRINUSE) {
		return nil, []string{fmt.Sprintf("HTTP is not served: %s is taken, perhaps by another user's server; commands do not need it; "+
			"`aliquot down` and `aliquot up --http ADDRESS` serve it at another address, `--http off` goes without", config.HTTP)}, nil
	}
	return loopback, nil, err
}

// agent is a node's agent as the host wants it.
type agent struct {
	*node.Agent
	answered atomic.Bool // the server has answered
}

// Close ends the agent. What outlives a server ends with one that never answered, if that started it. What could not be let go of,
// the end of this process does.
func (a *agent) Close() {
	if a.answered.Load() {
		_ = a.Agent.Close()
	} else {
		_ = a.Abandon(context.Background())
	}
}

// halt ends what outlives the daemon, in folders that none works on any more.
func halt(ctx context.Context, config cli.HaltConfig) (int, error) {
	// An agent finds what runs there, or starts it anew: either way it can end it, and no daemon starts meanwhile.
	agent, err := node.Open(ctx, node.Config{Run: config.Run, Host: "local", Simulate: config.Simulate})
	if err != nil {
		return 0, fmt.Errorf("end what outlives the server: %w", err)
	}
	ended, err := endTasks(ctx, agent, config)
	if err != nil {
		return 0, errors.Join(err, agent.Close())
	}
	return ended, agent.Shutdown(ctx, false)
}

// endTasks ends the tasks of STATE, and those of RUN that are not there: they are another STATE's, or nobody's.
func endTasks(ctx context.Context, agent *node.Agent, config cli.HaltConfig) (ended int, err error) {
	if config.State != "" {
		if ended, err = local.EndTasks(ctx, config.State, config.Grace); err != nil {
			return 0, err
		}
	}
	for _, task := range agent.Prepared() {
		one := supervise.Task{UID: task.UID, User: task.UserID}
		if left, err := supervise.Leftover(one); err == nil && len(left) > 0 {
			ended++
		}
		if err := supervise.EndLeftover(ctx, one, config.Grace); err != nil {
			return 0, fmt.Errorf("end task %s: %w", task.UID, err)
		}
		if err := agent.Unprepare(ctx, task.UID); err != nil {
			return 0, fmt.Errorf("take back what task %s held: %w", task.UID, err)
		}
	}
	return ended, nil
}
