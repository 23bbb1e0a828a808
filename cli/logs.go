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
	var part client.LogPart
	var tail int
	cmd := &cobra.Command{
		Use:               "logs NAME [flags]",
		Short:             "What a workload printed",
		Long:              logsLong,
		Example:           "  aliquot logs night --follow --tail 20",
		Args:              args(1, "the name of a workload"),
		ValidArgsFunction: c.completion(anyWorkloadNames),
	}
	cmd.Flags().BoolVarP(&part.Follow, "follow", "f", false, "go on until it has ended")
	cmd.Flags().IntVarP(&tail, "tail", "n", 0, "of what is there now only the last so many lines (default: all)")
	format := outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, given []string) error {
		if cmd.Flags().Changed("tail") {
			if tail < 0 {
				return usagef("--tail %d: give how many of the last lines to show, 0 or more, or leave it out for all", tail)
			}
			part.Tail = &tail
		}
		server := c.client()
		defer server.Close()
		if *format == formatJSON || *format == formatYAML {
			var text strings.Builder
			if err := server.Logs(cmd.Context(), given[0], part, &text); err != nil {
				return err
			}
			return encode(c.Out, *format, logged{given[0], lines(text.String())})
		}
		if !isTerminal(c.Out) {
			return server.Logs(cmd.Context(), given[0], part, c.Out)
		}
		return c.logsToTerminal(cmd.Context(), server, given[0], part)
	}
	return cmd
}

// logsToTerminal shows what a user's own program printed as the program itself would have, and what another's did without harm.
func (c *invocation) logsToTerminal(ctx context.Context, server *client.Client, name string, part client.LogPart) error {
	work, err := server.Workload(ctx, name)
	if err != nil {
		return err
	}
	if int64(work.UserID) == int64(os.Getuid()) {
		return server.Logs(ctx, work.UID, part, c.Out)
	}
	shown := &safe.Writer{To: c.Out}
	err = server.Logs(ctx, work.UID, part, shown)
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
