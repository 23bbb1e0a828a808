package cli

import (
	"fmt"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/aliquot-dev/aliquot/api"
)

// versions is what `version` prints.
type versions struct {
	Client string `json:"client"`
	Go     string `json:"go"`
	Server string `json:"server,omitempty"` // empty: none answers
	Socket string `json:"socket"`
}

func (c *invocation) versionCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "version", Short: "The version of this program and of the server", Args: none}
	format := outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		server := c.client()
		defer server.Close()
		out := versions{Client: c.Version, Go: runtime.Version(), Socket: server.Socket()}
		if info, err := server.Info(cmd.Context()); err == nil {
			out.Server = info.Version
		}
		if *format == formatJSON || *format == formatYAML {
			return encode(c.Out, *format, out)
		}
		var lines fields
		lines.add("Client", out.Client+" ("+out.Go+")")
		lines.add("Server", orText(out.Server, "none answers at "+out.Socket))
		return lines.write(c.Out, c.style())
	}
	return cmd
}

func (c *invocation) debugCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "debug",
		Short: "Look into what the server did",
		Args:  unknownCommand,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(c.replayCommand())
	return cmd
}

func (c *invocation) replayCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "replay FILE",
		Short: "Feed an event log of the engine to a new engine and print what it decides",
		Long: `Feed an event log of the engine (STATE/events) to a new engine and print what it decides. The same events give the same
actions on any machine; where the log holds other ones, replay says which is the first.`,
		Args: args(1, "an event log"),
	}
	format := outputFlag(cmd)
	cmd.RunE = func(_ *cobra.Command, given []string) error {
		if c.Replay == nil {
			return fmt.Errorf("this program was built without the engine")
		}
		path := c.absolute(given[0])
		done, err := c.Replay(path)
		if err != nil {
			return err
		}
		out := replayed{path, done.Steps, done.Torn, len(done.Engine.Waiting()), done.Engine.Queues()}
		return c.say(*format, out, out.sentence())
	}
	return cmd
}

// replayed is what `debug replay` prints: every decision of the log came out the same.
type replayed struct {
	File    string      `json:"file"`
	Events  int         `json:"events"`
	Torn    int64       `json:"torn"`    // bytes of a last record that was not written to its end, and left out
	Waiting int         `json:"waiting"` // workloads in line at the end
	Queues  []api.Queue `json:"queues"`
}

func (r replayed) sentence() string {
	text := fmt.Sprintf("%s: %d events, and every decision came out the same\n", r.File, r.Events)
	if r.Torn > 0 {
		text += fmt.Sprintf("its last record was torn (%d bytes) and left out\n", r.Torn)
	}
	text += fmt.Sprintf("at its end %d workloads wait", r.Waiting)
	for _, queue := range r.Queues {
		text += fmt.Sprintf("; queue %s: %d running, %d waiting, %s of a device held", queue.Name, queue.Running, queue.Waiting, queue.Held)
	}
	return text
}

// superviseCommand lists what cmd/aliquot dispatches before any of this is made, so that `--help` on it says what it is.
func (c *invocation) superviseCommand() *cobra.Command {
	return &cobra.Command{
		Use:                "supervise FOLDER",
		Short:              "Start one task and hold its limits and exit status (started by the server)",
		Hidden:             true,
		DisableFlagParsing: true,
		Args:               args(1, "a task's folder"),
		RunE: func(_ *cobra.Command, given []string) error {
			if c.Supervise == nil {
				return fmt.Errorf("this program was built without the supervisor")
			}
			return exitStatus(c.Supervise(given))
		},
	}
}
