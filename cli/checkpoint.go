package cli

import (
	"github.com/spf13/cobra"

	"github.com/aliquot-dev/aliquot/host/local/supervise"
)

const checkpointLong = `Say that a workload has just saved what it has done, from outside or as a line of the program itself, which needs no name. Where others
want what they are guaranteed, work that would lose less goes first: what it did since its last checkpoint, or its start, and what starting
again takes (--restart-time). Nothing is saved by this: that is the program's own.`

func checkpointArgs(cmd *cobra.Command, given []string) error {
	if len(given) == 0 {
		return nil
	}
	return args(1, "the name of a workload")(cmd, given)
}

func (c *invocation) checkpointCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:               "checkpoint [NAME]",
		Short:             "Say that a workload has just saved what it has done",
		Long:              checkpointLong,
		Example:           "  aliquot checkpoint night\n  python -c 'save()' && aliquot checkpoint",
		Args:              checkpointArgs,
		ValidArgsFunction: c.completion(workloadNames),
	}
	format := outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, given []string) error {
		name, _ := lookup(c.Env, supervise.Marker)
		if len(given) > 0 {
			name = given[0]
		}
		if name == "" {
			return usagef("%s needs the name of a workload, for it does not run in one: `%s`", cmd.CommandPath(), cmd.UseLine())
		}
		server := c.client()
		defer server.Close()
		work, err := server.Checkpoint(cmd.Context(), name)
		if err != nil {
			return err
		}
		return c.say(*format, work, work.Spec.Name+" saved what it has done")
	}
	return cmd
}
