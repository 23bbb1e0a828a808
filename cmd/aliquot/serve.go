package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/aliquot-dev/aliquot/cli"
	"github.com/aliquot-dev/aliquot/host/local"
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
	nodes, err := node.Open(ctx, node.Config{Run: config.Run, Simulate: config.Simulate, Log: log})
	if err != nil {
		return err
	}
	// From here on the host closes the agent, also when it cannot be opened.
	host, err := local.Open(ctx, local.Config{
		State: config.State, Run: config.Run, Version: config.Version, Agent: agent{nodes}, Supervisor: []string{self, superviseWord}, Log: log,
	})
	if err != nil {
		return err
	}
	err = server.Serve(ctx, server.Config{
		Host: host, Version: config.Version, Run: config.Run, Token: filepath.Join(config.State, "token"), HTTP: config.HTTP,
		Names: local.UserName, Log: log, Ready: ready,
	})
	return errors.Join(err, host.Close())
}

// agent is a node's agent as the host wants it.
type agent struct{ *node.Agent }

// Close ends the agent. What it could not let go of, the end of this process does.
func (a agent) Close() { _ = a.Agent.Close() }

// halt ends the arbiter and the simulated devices of a RUN folder that no daemon works on any more.
func halt(ctx context.Context, run string, simulated bool) error {
	config := node.Config{Run: run}
	if simulated {
		devices, err := os.ReadFile(filepath.Join(run, "sim", "devices"))
		if err != nil {
			return fmt.Errorf("end the simulated devices: %w", err)
		}
		config.Simulate = strings.TrimSpace(string(devices))
	}
	// An agent finds what runs there, or starts it anew: either way it can end it.
	agent, err := node.Open(ctx, config)
	if err != nil {
		return fmt.Errorf("end what outlives the server: %w", err)
	}
	return agent.Shutdown(ctx, false)
}
