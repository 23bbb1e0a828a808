package cli

import (
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/aliquot-dev/aliquot/api"
)

const waitLong = `Return when workloads have ended, and end as the program did: with its status, 128 and the number of its signal, or 1 where it
has none (it was stopped while it waited in line, for one). Of several the status is that of the first named that is not 0.`

func (c *invocation) waitCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:               "wait NAME... [flags]",
		Short:             "Return when workloads have ended, with their exit status",
		Long:              waitLong,
		Example:           "  aliquot submit --name night -- ./job && aliquot wait night && echo done",
		Args:              workloadArgs,
		ValidArgsFunction: c.completion(anyWorkloadNames),
	}
	format := outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, given []string) error {
		server := c.client()
		defer server.Close()
		works := make([]api.Workload, len(given))
		var err error
		for i, name := range given { // a name that there is not is refused before a wait of hours
			if works[i], err = server.Workload(cmd.Context(), name); err != nil {
				return err
			}
		}
		status := 0
		for i := range works {
			if works[i], err = server.Wait(cmd.Context(), works[i].UID, live...); err != nil {
				return err
			}
			if status == 0 {
				status = statusOf(works[i].Status)
			}
			if *format == formatTable || *format == formatWide {
				word, _ := state(works[i].Status)
				_, _ = fmt.Fprintf(c.Out, "%s %s\n", works[i].Spec.Name, word)
			}
		}
		if *format == formatJSON || *format == formatYAML {
			if err := encode(c.Out, *format, works); err != nil {
				return err
			}
		}
		if status != 0 {
			return exitStatus(status)
		}
		return nil
	}
	return cmd
}

// workloadArgs is the rule of commands that take the names of workloads.
func workloadArgs(cmd *cobra.Command, given []string) error {
	if len(given) == 0 {
		return usagef("%s needs the name of a workload: `%s`", cmd.CommandPath(), cmd.UseLine())
	}
	if cmd.CalledAs() != "" && slices.Contains(given, "") { // where words are completed the last may be empty
		return usagef("%s needs the names of workloads, and one that was given is empty: `%s`", cmd.CommandPath(), cmd.UseLine())
	}
	return nil
}

// statusOf is the exit status of a workload that has ended, as shells count it; 1 where it has none and did not succeed.
func statusOf(status api.WorkloadStatus) int {
	switch number := unix.SignalNum(status.Signal); {
	case number != 0:
		return 128 + int(number)
	case status.ExitCode != nil:
		return *status.ExitCode
	case status.Outcome == api.Succeeded:
		return 0
	default:
		return ExitFailed
	}
}
