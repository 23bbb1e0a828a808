package cli

import (
	"fmt"
	"runtime"

	"github.com/spf13/cobra"
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
	cmd.AddCommand(&cobra.Command{
		Use:   "replay FILE",
		Short: "Feed an event log of the engine to a new engine and print what it decides",
		Long: `Feed an event log of the engine (STATE/events) to a new engine and print what it decides. The same events give the same
actions on any machine; where the log holds other ones, replay says which is the first.`,
		Args: args(1, "an event log"),
		RunE: func(_ *cobra.Command, given []string) error {
			if c.Replay == nil {
				return fmt.Errorf("this program was built without the engine")
			}
			return c.Replay(c.absolute(given[0]), c.Out)
		},
	})
	return cmd
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
