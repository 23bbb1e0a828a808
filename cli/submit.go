package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/cli/safe"
)

const submitLong = `Hand a program in and go: it starts when its share is free, with this directory and environment, and prints into a log
that "aliquot logs" shows. What is printed here is its name and where it stands. A program that is not there, or cannot be run, is
refused with status 1 like everything else that is refused; "run" ends with 127 or 126 then.`

func (c *invocation) submitCommand() *cobra.Command {
	var flags workloadFlags
	cmd := &cobra.Command{
		Use:   "submit [flags] -- COMMAND [ARG...]",
		Short: "Hand a program in, to run when its share is free",
		Long:  submitLong,
		Example: `  aliquot submit --name night --gpu 0.5.. --time-limit 2h -- ./job
  aliquot logs -f night
  aliquot submit --name rl --gpu 0.25 --role 'worker --replicas 4 --gpu 0.5 --mem 4Gi -- ./worker' -- ./leader`,
		Args: command,
	}
	format := outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, given []string) error {
		spec, err := flags.spec(c, given)
		if err != nil {
			return err
		}
		server := c.client()
		defer server.Close()
		work, err := server.Submit(cmd.Context(), spec)
		if err != nil {
			return err
		}
		if *format == formatJSON || *format == formatYAML {
			return encode(c.Out, *format, work)
		}
		c.tellNotes(work)
		// It is handed in: if the reason cannot be had now, `why` will say it later.
		why, err := server.Why(cmd.Context(), work.UID)
		if err != nil {
			why = api.Why{Phase: work.Status.Phase, Place: work.Status.Place, Message: work.Status.Reason}
		}
		_, err = fmt.Fprintln(c.Out, standing(work.Spec.Name, why))
		return err
	}
	flags.define(c, cmd)
	flags.defineRequeue(cmd)
	return cmd
}

// tellNotes says on standard error what does not hold of what was asked for.
func (c *invocation) tellNotes(work api.Workload) {
	for _, note := range work.Status.Notes {
		_, _ = fmt.Fprintf(c.Err, "aliquot: %s: %s\n", work.Spec.Name, safe.Line(note))
	}
}

// standing is where a workload stands in one sentence that begins with its name.
func standing(name string, why api.Why) string {
	text := name + " " + string(why.Phase)
	switch {
	case why.Phase == api.Waiting && why.Place > 0:
		text = fmt.Sprintf("%s waits, %s in line", name, ordinal(why.Place))
	case why.Phase == api.Waiting:
		text = name + " waits"
	case why.Phase == api.Running:
		text = name + " runs"
	case why.Phase == api.Starting:
		text = name + " starts"
	}
	return safe.Line(text + becauseOfLine(why))
}

// becauseOfLine is the reason as the end of a sentence that has said the place in line already.
func becauseOfLine(why api.Why) string {
	if rest, ok := strings.CutPrefix(why.Message, "it is first in line for "); ok && why.Phase == api.Waiting && why.Place == 1 {
		return " for " + rest
	}
	return because(why.Message)
}
