package cli

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/cli/client"
	"github.com/aliquot-dev/aliquot/cli/top"
)

const topLong = `Show live what happens: per device a bar of use now, its shares with marks at floor and ceiling, who lends and who borrows, and
who waits for what. Press ? for how to read it. With --once, -o json or -o yaml, or when the output is no terminal, it prints one
snapshot and ends.`

func (c *invocation) topCommand() *cobra.Command {
	var once, ascii bool
	cmd := &cobra.Command{
		Use:   "top",
		Short: "Live: devices, shares with floor and ceiling, use now, who lends, who borrows",
		Long:  topLong,
		Args:  none,
	}
	cmd.Flags().BoolVar(&once, "once", false, "print one snapshot and end")
	cmd.Flags().BoolVar(&ascii, "ascii", false, "draw in ASCII (default where the locale is not UTF-8)")
	format := outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		server := c.client()
		defer server.Close()
		source := top.Source{
			Snapshot: func(ctx context.Context) (top.Snapshot, error) { return c.snapshot(ctx, server) },
			Why:      server.Why,
		}
		look := top.Look{Width: c.width(), Colour: c.colourful(c.Out), ASCII: ascii || !c.unicode()}
		if isTerminal(c.Out) && isTerminal(c.In) && !once && *format == formatTable {
			return top.Run(cmd.Context(), source, look, c.In, c.Out, c.Env)
		}
		snapshot, err := source.Snapshot(cmd.Context())
		if err != nil {
			return err
		}
		if *format == formatJSON || *format == formatYAML {
			return encode(c.Out, *format, snapshot)
		}
		_, err = c.Out.WriteString(top.Text(snapshot, look))
		return err
	}
	return cmd
}

// snapshot asks for everything that the screen shows.
func (c *invocation) snapshot(ctx context.Context, server *client.Client) (top.Snapshot, error) {
	out := top.Snapshot{Devices: []api.Device{}, Workloads: []api.Workload{}}
	var err error
	if out.Info, err = server.Info(ctx); err != nil {
		return out, err
	}
	devices, err := server.Devices(ctx)
	if err != nil {
		return out, err
	}
	works, err := server.Workloads(ctx, false)
	if err != nil {
		return out, err
	}
	out.At = c.Now()
	out.Devices = append(out.Devices, devices...)
	out.Workloads = append(out.Workloads, works...)
	c.fillReasons(ctx, server, out.Workloads)
	return out, nil
}

// mostReasons is for how many waiting workloads the reason is asked: more than a screen shows.
const mostReasons = 50

// fillReasons asks why those in front of the line wait. A reason that cannot be had stays empty: not known.
func (c *invocation) fillReasons(ctx context.Context, server *client.Client, works []api.Workload) {
	asked := 0
	for i := range works {
		status := &works[i].Status
		if status.Phase != api.Waiting || status.Reason != "" || status.Place > mostReasons || asked == mostReasons {
			continue
		}
		asked++
		if why, err := server.Why(ctx, works[i].UID); err == nil {
			status.Reason = why.Message
		}
	}
}

// snapshotWidth is the width of a snapshot that goes to a file or a pipe.
const snapshotWidth = 100

func (c *invocation) width() int {
	if isTerminal(c.Out) {
		return terminalWidth(c.Out)
	}
	return snapshotWidth
}

// unicode says whether the locale can show blocks: where none is set, terminals of today can.
func (c *invocation) unicode() bool {
	for _, name := range []string{"LC_ALL", "LC_CTYPE", "LANG"} {
		if locale, _ := lookup(c.Env, name); locale != "" {
			locale = strings.ToLower(locale)
			return strings.Contains(locale, "utf-8") || strings.Contains(locale, "utf8")
		}
	}
	terminal, _ := lookup(c.Env, "TERM")
	return terminal != "linux"
}
