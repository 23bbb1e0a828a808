package cli

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/aliquot-dev/aliquot/host/policy"
	"github.com/aliquot-dev/aliquot/host/sim"
)

func (c *invocation) simReplayCommand() *cobra.Command {
	var orders, policies []string
	var html, nodes string
	cmd := &cobra.Command{
		Use:   "replay LOG",
		Short: "Take every decision of a server's event log again, and say what another policy would have made of that day",
		Long: `Reads a server's event log, of the folder STATE/events all files from the last start of the server on, or one of them (NUMBER.events), takes every decision
again and holds it against the log. Then it says how the workloads in it fared. With --order, --policy or --nodes the same workloads are run once more, coming when they
came, running as long as they ran, among the same nodes and queues, to say how they would have fared. Those that never started are left out; those that ran
when the log ended count as long as they had run. Those that could never run so are counted and named with the reason.

A workload that was evicted and came again (--requeue) is one, by the record as when it is run again: it runs as long as it did in the end, and where it is evicted
then it begins anew, but for what it saved (aliquot checkpoint).

With --nodes that is on other nodes, which are there from the beginning to the end: what the log says of its own nodes, that they came, went or
failed, does not happen, and which of them work could use counts for nothing. Work that asks for a model still does, runs as long as it did
whatever the device, and does without resources of nodes of which the new ones say nothing. What ` + "`recorded`" + ` says is how it was, on its own nodes.

It exits with 1 if this version decides otherwise than the log says.`,
		Example: `  aliquot sim replay /var/lib/aliquot/events
  aliquot sim replay 00000007.events --order fifo,fair --policy best_fit,default --html what-if.html
  aliquot sim replay 00000007.events --nodes 6x8:h200`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usagef("sim replay takes one event log, not %d: name the folder STATE/events, or one of its files", len(args))
			}
			return nil
		},
	}
	cmd.Flags().StringSliceVar(&orders, "order", nil, "run it again in these orders: "+strings.Join(sim.Orders(), ", ")+"; fair is a server's, and taken where none is given")
	cmd.Flags().StringSliceVar(&policies, "policy", nil, "run it again under these placement policies: "+strings.Join(sim.Policies(), ", ")+", or a file; best_fit where none is given")
	cmd.Flags().StringVar(&nodes, "nodes", "", "run it again on these nodes instead of its own: "+nodesWords)
	cmd.Flags().StringVar(&html, "html", "", "write a report with plots to this file, too")
	progress := progressFlag(cmd)
	format := outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		again, err := parseOrders(orders)
		if err != nil {
			return err
		}
		on, err := readNodes(nodes)
		if err != nil {
			return err
		}
		log, err := sim.ReadLog(args[0])
		if err != nil {
			return err
		}
		out := &sim.File{Trace: args[0], Nodes: nodes, Jobs: []*sim.JobResult{log.Was}}
		if on != nil {
			log.Trace.On(on)
		}
		if len(orders)+len(policies) > 0 || on != nil {
			if len(again) == 0 {
				again = []sim.Order{sim.Fair}
			}
			if len(policies) == 0 {
				policies = []string{"best_fit"}
			}
			runs, err := c.runJobs(cmd.Context(), log.Trace, sim.JobOptions{}, again, len(orders) > 0, policies, 0, c.progress(*progress), func(*policy.Policy) (time.Time, error) {
				return time.UnixMicro(int64(log.Start)), nil
			})
			if err != nil {
				return err
			}
			out.Jobs = append(out.Jobs, runs...)
		}
		if html != "" {
			if err := sim.WriteHTML(html, out); err != nil {
				return err
			}
		}
		if err := c.printJobs(*format, out); err != nil {
			return err
		}
		return c.toldReplay(log)
	}
	return cmd
}

// toldReplay says on standard error whether the log replays.
func (c *invocation) toldReplay(log *sim.Recording) error {
	if log.Left > 0 {
		_, _ = fmt.Fprintf(c.Err, "Left out: %s that never started.\n", counted(log.Left, "workload"))
	}
	if log.Differs != nil {
		return fmt.Errorf("this version of Aliquot decides otherwise than the one that wrote the log: %w", log.Differs)
	}
	_, _ = fmt.Fprintf(c.Err, "%s taken again with the same actions.\n", counted(log.Steps, "step"))
	return nil
}
