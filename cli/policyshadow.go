package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/aliquot-dev/aliquot/cli/client"
	"github.com/aliquot-dev/aliquot/host/sim"
)

// shadowRows is how many workloads the table names; -o wide names all.
const shadowRows = 20

func (c *invocation) policyShadowCommand() *cobra.Command {
	var record string
	var long time.Duration
	cmd := &cobra.Command{
		Use:   "shadow FILE",
		Short: "Run a policy file beside the one that holds, and say what would differ",
		Long: `Runs a second engine under a policy file beside the server's own, for the time of --for or until Ctrl-C, and says what would have differed: starts
earlier, later and elsewhere, evictions, waits by queue, how much of the devices is allocated. The server's engine decides as always and knows nothing of it. With
--record the same is said of what a server's event log has: one file of STATE/events, or of the folder all files from the last start of the server on.

The second engine begins as the server's own is at the begin, and is told what happens to nodes, queues and users when it happens. What it decides
otherwise is not carried out but taken as done at once: what it starts runs for as long as it ran on the server, or to the end where it did not end there, elastic
work until its replicas were there for as long together as on the server; what it evicts waits again and begins anew. Only root may ask a server, and the user that it runs as.`,
		Example: `  aliquot policy shadow office.policy --for 8h
  aliquot policy shadow office.policy --record /var/lib/aliquot/events -o json`,
		Args: args(1, "a policy file"),
	}
	cmd.Flags().StringVar(&record, "record", "", "take what happened from this file or folder of a server's event log")
	cmd.Flags().DurationVar(&long, "for", time.Hour, "for how long to run beside the server")
	format := outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, given []string) error {
		if record != "" && cmd.Flags().Changed("for") {
			return usagef("--for %s: a record is as long as it is: leave --for out, or --record", long)
		}
		if long < time.Second {
			return usagef("--for %s: give a second at least", long)
		}
		candidate, err := c.readPolicy(given[0])
		if err != nil {
			return err
		}
		var what *sim.Record
		if record != "" {
			what, err = sim.OpenRecord(record)
		} else {
			what, err = c.recordServer(cmd.Context(), long)
		}
		if err != nil {
			return err
		}
		out, err := sim.Shadow(cmd.Context(), what, candidate)
		if err != nil {
			return err
		}
		out.Policy = given[0]
		return c.printShadow(*format, out)
	}
	return cmd
}

// recordServer keeps what happens on the server for so long, or until Ctrl-C.
func (c *invocation) recordServer(ctx context.Context, long time.Duration) (*sim.Record, error) {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, long)
	defer cancel()
	server := c.client()
	defer server.Close()
	if isTerminal(c.Err) {
		_, _ = fmt.Fprintf(c.Err, "Listening to the server until %s; Ctrl-C ends it now.\n", clock(c.Now().Add(long)))
	}
	var text bytes.Buffer
	err := server.Record(ctx, &text)
	var lost *client.Unreachable
	switch {
	case errors.As(err, &lost) && text.Len() > 0:
		_, _ = fmt.Fprintf(c.Err, "aliquot: the server was lost, and what follows is of the time until then: %v\n", lost)
	case ctx.Err() == nil:
		return nil, err
	case text.Len() == 0:
		return nil, fmt.Errorf("the server told nothing in %s: give it longer with --for", long)
	}
	return sim.ReadRecord("what the server told", text.Bytes())
}

func (c *invocation) printShadow(format string, out *sim.ShadowResult) error {
	if format == formatJSON || format == formatYAML {
		return encode(c.Out, format, out)
	}
	if err := shadowFigures(out).write(c.Out, c.style()); err != nil {
		return err
	}
	if len(out.Changes) == 0 {
		_, err := fmt.Fprintf(c.Out, "\nNo workload would have fared otherwise in the %s from %s on.\n", age(out.To.Sub(out.From)), clock(out.From))
		return err
	}
	if _, err := fmt.Fprintln(c.Out); err != nil {
		return err
	}
	if err := shadowChanges(out, format == formatWide).write(c.Out, c.style()); err != nil {
		return err
	}
	if more := len(out.Changes) - shadowRows; more > 0 && format != formatWide {
		if _, err := fmt.Fprintf(c.Out, "and %d more: -o wide names all\n", more); err != nil {
			return err
		}
	}
	if out.Refused > 0 {
		_, err := fmt.Fprintf(c.Out, "The candidate would have refused %s that the server took.\n", counted(out.Refused, "request"))
		return err
	}
	return nil
}

// shadowFigures has a row for all work and one for each queue that had some.
func shadowFigures(out *sim.ShadowResult) table {
	t := table{head: []string{"QUEUE", ">STARTED", ">CANDIDATE", ">WAITING", ">CANDIDATE", ">MEAN WAIT", ">CANDIDATE", ">P95 WAIT", ">CANDIDATE", ">EVICTED", ">CANDIDATE", ">ALLOCATED %", ">CANDIDATE"}}
	elastic := out.Live.Grown+out.Candidate.Grown > 0
	if elastic {
		t.head = append(t.head, ">REPLICAS GROWN", ">CANDIDATE", ">SHRUNK", ">CANDIDATE")
	}
	row := func(name string, a, b sim.ShadowFigures) {
		cells := []cell{
			{name, bold},
			text(strconv.Itoa(a.Started)), text(strconv.Itoa(b.Started)), text(strconv.Itoa(a.Waiting)), text(strconv.Itoa(b.Waiting)),
			text(thousands(a.MeanWait)), text(thousands(b.MeanWait)), text(thousands(a.P95Wait)), text(thousands(b.P95Wait)),
			text(strconv.Itoa(a.Evictions)), text(strconv.Itoa(b.Evictions)), text(points(a.Allocated)), text(points(b.Allocated)),
		}
		if elastic {
			cells = append(cells, text(strconv.Itoa(a.Grown)), text(strconv.Itoa(b.Grown)), text(strconv.Itoa(a.Shrunk)), text(strconv.Itoa(b.Shrunk)))
		}
		t.rows = append(t.rows, cells)
	}
	row("(all)", out.Live, out.Candidate)
	for _, q := range out.Queues {
		row(q.Queue, q.Live, q.Candidate)
	}
	return t
}

// shadowWords say what differs for a workload.
var shadowWords = map[string]string{
	sim.ShadowEarlier: "starts earlier", sim.ShadowLater: "starts later", sim.ShadowElsewhere: "starts elsewhere",
	sim.ShadowOnlyLive: "does not start", sim.ShadowOnlyMine: "starts", sim.ShadowEvictions: "is evicted otherwise",
	sim.ShadowReplicas: "grows or shrinks otherwise",
}

func shadowChanges(out *sim.ShadowResult, all bool) table {
	t := table{head: []string{"WORKLOAD", "NAME", "QUEUE", "WITH THE CANDIDATE", "START", "DEVICES", "CANDIDATE", "DEVICES", ">EVICTED", ">CANDIDATE"}}
	for i, change := range out.Changes {
		if i == shadowRows && !all {
			break
		}
		start := func(f sim.ShadowFate) string {
			if f.Start == nil {
				return "-"
			}
			return clock(*f.Start)
		}
		t.rows = append(t.rows, []cell{
			{change.Workload, bold},
			text(change.Name), text(change.Queue), text(shadowWords[change.Change]),
			text(start(change.Live)), text(severalDevices(change.Live.Devices)),
			text(start(change.Candidate)), text(severalDevices(change.Candidate.Devices)),
			text(strconv.Itoa(change.Live.Evictions)), text(strconv.Itoa(change.Candidate.Evictions)),
		})
	}
	return t
}

// severalDevices names the first of several.
func severalDevices(all []string) string {
	switch len(all) {
	case 0:
		return "-"
	case 1:
		return all[0]
	}
	return fmt.Sprintf("%s +%d", all[0], len(all)-1)
}
