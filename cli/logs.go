package cli

import (
	"context"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/aliquot-dev/aliquot/cli/client"
	"github.com/aliquot-dev/aliquot/cli/safe"
)

const logsLong = `What a workload printed, byte for byte. On a terminal, what another user's workload printed is shown as characters alone: what would
give the terminal orders is written out, as \x1b. As JSON or YAML it is the list of its lines; with --follow that comes when it has ended.`

// logged is what `logs` prints as JSON or YAML.
type logged struct {
	Workload string   `json:"workload"`
	Lines    []string `json:"lines"` // bytes that are no character of UTF-8 are U+FFFD
}

func (c *invocation) logsCommand() *cobra.Command {
	var follow bool
	cmd := &cobra.Command{
		Use:               "logs NAME [flags]",
		Short:             "What a workload printed",
		Long:              logsLong,
		Args:              args(1, "the name of a workload"),
		ValidArgsFunction: c.completion(anyWorkloadNames),
	}
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "go on until it has ended")
	format := outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, given []string) error {
		server := c.client()
		defer server.Close()
		if *format == formatJSON || *format == formatYAML {
			var text strings.Builder
			if err := server.Logs(cmd.Context(), given[0], follow, &text); err != nil {
				return err
			}
			return encode(c.Out, *format, logged{given[0], lines(text.String())})
		}
		if !isTerminal(c.Out) {
			return server.Logs(cmd.Context(), given[0], follow, c.Out)
		}
		return c.logsToTerminal(cmd.Context(), server, given[0], follow)
	}
	return cmd
}

// logsToTerminal shows what a user's own program printed as the program itself would have, and what another's did without harm.
func (c *invocation) logsToTerminal(ctx context.Context, server *client.Client, name string, follow bool) error {
	work, err := server.Workload(ctx, name)
	if err != nil {
		return err
	}
	if int64(work.UserID) == int64(os.Getuid()) {
		return server.Logs(ctx, work.UID, follow, c.Out)
	}
	shown := &safe.Writer{To: c.Out}
	err = server.Logs(ctx, work.UID, follow, shown)
	return oneError([]error{err, shown.Flush()})
}

// lines are the lines of a text, without their ends.
func lines(text string) []string {
	out := []string{}
	for line := range strings.Lines(text) {
		out = append(out, strings.ToValidUTF8(strings.TrimSuffix(line, "\n"), "\ufffd"))
	}
	return out
}
