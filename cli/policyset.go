package cli

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/cli/safe"
	"github.com/aliquot-dev/aliquot/host/policy"
)

func (c *invocation) policySetCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "set FILE",
		Short: "Have a policy file hold on the server, from now on and after restarts",
		Long: `Sends a policy file to the server, which holds it from now on, in place of the one before: it keeps the text, so later changes of the file mean
nothing until it is set again. It is refused whole where anything in it does not add up with the queues that there are, or names a model that
no device is of; a pool that no device is in is a warning, for one may come. What it says of a queue cannot be set otherwise meanwhile; the
rest can, with aliquot queue set. Only root may, and the user that the server runs as.`,
		Example: "  aliquot policy set office.policy",
		Args:    args(1, "a policy file"),
	}
	format := outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, given []string) error {
		text, err := os.ReadFile(given[0])
		if err != nil {
			return fmt.Errorf("read the policy: %w", err)
		}
		server := c.client()
		defer server.Close()
		set, err := server.SetPolicy(cmd.Context(), api.Policy{Name: given[0], Text: string(text)})
		if err != nil {
			return err
		}
		if set.Warning != "" {
			_, _ = fmt.Fprintf(c.Err, "aliquot: %s\n", safe.Line(set.Warning))
		}
		return c.say(*format, set, "The policy "+safe.Line(set.Name)+" is set: "+holding(set))
	}
	return cmd
}

// holding says what of a policy holds, and until when, in its own zone.
func holding(set api.Policy) string {
	text := "no window of it holds now"
	if set.Window != "" {
		text = "its window " + safe.Line(set.Window) + " holds now"
	}
	if set.Until == nil {
		return text + "."
	}
	return text + ", until " + inZone(*set.Until, zoneOf(set)) + "."
}

// zoneOf is the zone of the window of a policy that holds, or of the policy where none does.
func zoneOf(set api.Policy) *time.Location {
	p, err := policy.Read(set.Name, set.Text)
	if err != nil {
		return time.UTC
	}
	name := p.Zone
	if i := slices.IndexFunc(p.Windows, func(w *policy.Window) bool { return w.Name == set.Window }); i >= 0 {
		name = p.Windows[i].Zone()
	}
	zone, err := time.LoadLocation(name)
	if err != nil {
		return time.UTC
	}
	return zone
}

// inZone is a time as clocks of a zone show it, with the zone.
func inZone(at time.Time, zone *time.Location) string {
	text := at.In(zone).Format("Mon 2 Jan 15:04 MST")
	if zone.String() != "UTC" {
		text += " (" + zone.String() + ")"
	}
	return text
}

func (c *invocation) policyShowCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "show",
		Short: "The policy file that holds on the server, as it was set",
		Long:  "Prints the policy file that holds on the server, as it was set, so that it can be changed and set again. On standard error it says what of it holds now, until when in its own zone, and how much it had moved in the last hour; -o json lists that.",
		Args:  none,
	}
	format := outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		server := c.client()
		defer server.Close()
		set, err := server.Policy(cmd.Context())
		if err != nil {
			return err
		}
		if *format == formatJSON || *format == formatYAML {
			return encode(c.Out, *format, set)
		}
		note := "no policy is set: `aliquot policy set FILE` sets one"
		if set.Name != "" {
			note = "this is " + safe.Line(set.Name) + ": " + holding(set)
			if _, err := fmt.Fprint(c.Out, safe.Lines(set.Text)); err != nil {
				return err
			}
		}
		if set.Warning != "" {
			note += " " + safe.Line(set.Warning)
		}
		if n := len(set.Moved); n > 0 {
			last := set.Moved[n-1]
			note += fmt.Sprintf(" It had %s in the last hour, the last one %s, so that %s.", moved(n), inZone(last.At, zoneOf(set)), safe.Line(last.Frees))
		}
		_, err = fmt.Fprintf(c.Err, "aliquot: %s\n", note)
		return err
	}
	return cmd
}

func moved(n int) string {
	if n == 1 {
		return "1 workload moved"
	}
	return strconv.Itoa(n) + " workloads moved"
}

func (c *invocation) policyRemoveCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "remove",
		Aliases: []string{"rm"},
		Short:   "Have no policy file hold any more: queues are as aliquot queue set has them",
		Args:    none,
	}
	format := outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		server := c.client()
		defer server.Close()
		if err := server.RemovePolicy(cmd.Context()); err != nil {
			return err
		}
		return c.say(*format, struct{}{}, "The policy is removed.")
	}
	return cmd
}
