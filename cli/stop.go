package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/cli/client"
)

// defaultGrace is how long a program has after SIGTERM before it gets SIGKILL.
const defaultGrace = 10 * time.Second

const stopLong = `End workloads: SIGTERM to all their processes and, when the grace is over, SIGKILL. One that waits is taken out of the line. One that
has ended already is as it was asked to be: that is said, and is no failure. A name that there is not is one, whatever becomes of the
others.`

func (c *invocation) stopCommand() *cobra.Command {
	grace, wait := defaultGrace, true
	cmd := &cobra.Command{
		Use:               "stop NAME... [flags]",
		Short:             "End workloads, or take them out of the line",
		Long:              stopLong,
		Args:              workloadArgs,
		ValidArgsFunction: c.completion(workloadNames),
	}
	cmd.Flags().DurationVar(&grace, "grace", grace, "time between SIGTERM and SIGKILL")
	cmd.Flags().BoolVar(&wait, "wait", wait, "return when they have ended")
	format := outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, given []string) error {
		if grace < 0 {
			return usagef("--grace %s: a grace is not less than nothing", grace)
		}
		server := c.client()
		defer server.Close()
		stopped, err := c.stopAll(cmd.Context(), server, given, grace, wait, *format)
		if *format == formatJSON || *format == formatYAML {
			err = oneError([]error{err, encode(c.Out, *format, stopped)})
		}
		return err
	}
	return cmd
}

// stopAll stops each of the named workloads, whatever becomes of the others, and returns those that it could. As tables it says of each
// what became of it.
func (c *invocation) stopAll(
	ctx context.Context, server *client.Client, names []string, grace time.Duration, wait bool, format string,
) ([]api.Workload, error) {
	var failed []error
	asked := []api.Workload{}
	for _, name := range names {
		work, err := server.Stop(ctx, name, api.Duration(grace))
		if err != nil && isGone(err) { // it may have ended before it was asked to
			if was, found := server.Workload(ctx, name); found == nil && was.Status.Phase == api.Ended {
				work, err = was, nil
				if format == formatTable || format == formatWide {
					_, _ = fmt.Fprintf(c.Err, "aliquot: %s had ended already\n", was.Spec.Name)
				}
			}
		}
		if err != nil {
			failed = append(failed, err)
			continue
		}
		asked = append(asked, work)
	}
	for i, work := range asked {
		var err error
		if wait {
			if asked[i], err = server.Wait(ctx, work.UID, live...); err != nil {
				failed = append(failed, err)
				asked[i] = work
				continue
			}
		}
		if format == formatTable || format == formatWide {
			word, _ := state(asked[i].Status)
			_, _ = fmt.Fprintf(c.Out, "%s %s\n", asked[i].Spec.Name, word)
		}
	}
	return asked, oneError(failed)
}

// oneError is the only error there is, or all of them joined.
func oneError(all []error) error {
	var real []error
	for _, err := range all {
		if err != nil {
			real = append(real, err)
		}
	}
	if len(real) == 1 {
		return real[0]
	}
	return errors.Join(real...)
}
