package cli

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/aliquot-dev/aliquot/cli/safe"
	"github.com/aliquot-dev/aliquot/host/policy"
)

func (c *invocation) policyCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "policy",
		Short: "Policy files: queues, orders and placement by day, by night and at weekends",
		Args:  unknownCommand,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(c.policyCheckCommand(), c.policyExplainCommand(), c.policyShadowCommand(), c.policySetCommand(), c.policyShowCommand(), c.policyRemoveCommand())
	return cmd
}

// readPolicy reads a policy file, and says what is wrong with it.
func (c *invocation) readPolicy(path string) (*policy.Policy, error) {
	text, err := os.ReadFile(path) //nolint:gosec // the path is the user's own word
	if err != nil {
		return nil, fmt.Errorf("read the policy: %w", err)
	}
	return policy.Parse(path, string(text), c.Now())
}

// simRules are the rules of a policy file; nil: the file is none, or none of that name is there.
func (c *invocation) simRules(path string) (*policy.Policy, error) {
	text, err := os.ReadFile(path) //nolint:gosec // the path is the user's own word
	if err != nil || !policy.IsPolicy(text) {
		return nil, nil //nolint:nilnil // it is then the name of a placement policy, or a file of one
	}
	return policy.Parse(path, string(text), c.Now())
}

// policyMeant is the policy of a file that was given, or the server's.
func (c *invocation) policyMeant(ctx context.Context, given []string) (*policy.Policy, error) {
	if len(given) > 0 {
		return c.readPolicy(given[0])
	}
	server := c.client()
	defer server.Close()
	set, err := server.Policy(ctx)
	if err != nil {
		return nil, err
	}
	if set.Name == "" {
		return nil, fmt.Errorf("no policy is set on the server: name a file to explain, or set one with `aliquot policy set`")
	}
	return policy.Parse(set.Name, set.Text, c.Now())
}

// policyChecked is what `policy check` says of a file that is right.
type policyChecked struct {
	File    string `json:"file"`
	Queues  int    `json:"queues"`
	Windows int    `json:"windows"`
	// Models are what it names models by: whether there are devices of them is seen where it is set.
	Models []string `json:"models,omitempty"`
	// Nodes are those that its pools name: whether they are there is seen where it is set, too.
	Nodes []string `json:"nodes,omitempty"`
}

func (c *invocation) policyCheckCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "check FILE",
		Short: "Say what is wrong with a policy file, and in which line",
		Long: `Reads a policy file and says what is wrong with it, in one sentence with file and line: a word that is not known, quotas that come to more
than their parent's or than their limit, a queue under itself, windows that overlap in the next 400 days, a placement in which no feature counts,
a policy that names nothing. It asks no server: which nodes and models there are is seen where the policy is set. docs/policy.md says what may be in the file.`,
		Example: "  aliquot policy check office.policy",
		Args:    args(1, "a policy file"),
	}
	format := outputFlag(cmd)
	cmd.RunE = func(_ *cobra.Command, given []string) error {
		p, err := c.readPolicy(given[0])
		if err != nil {
			return err
		}
		out := policyChecked{given[0], len(p.Queues), len(p.Windows), p.Models, p.Nodes}
		text := fmt.Sprintf("%s is right: %s, %s.", safe.Line(out.File), counted(out.Queues, "queue"), counted(out.Windows, "window"))
		if len(out.Models) > 0 {
			text += " It can be set where there are devices of " + safe.Line(strings.Join(out.Models, ", ")) + "."
		}
		if len(out.Nodes) > 0 {
			text += " Its pools name nodes " + safe.Line(strings.Join(out.Nodes, ", ")) + ": that they are there is not looked at here, and where it is set a pool that no device is in is a warning."
		}
		return c.say(*format, out, text)
	}
	return cmd
}

func counted(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// policyPart is what holds always, or in one window.
type policyPart struct {
	Window string     `json:"window,omitempty"` // empty: always, but where a window says otherwise
	When   string     `json:"when,omitempty"`
	Zone   string     `json:"zone,omitempty"`
	Now    bool       `json:"now"` // it holds now
	Begins *time.Time `json:"begins,omitempty"`
	Ends   *time.Time `json:"ends,omitempty"`
	Says   []string   `json:"says"`
}

// explained is a policy in words. What is wanted of times is reckoned from a moment.
func explained(p *policy.Policy, now time.Time) []policyPart {
	holds := p.At(now)
	all := []policyPart{{Says: p.Always(now), Now: true}}
	for _, w := range p.Windows {
		part := policyPart{Window: w.Name, When: w.When(), Zone: w.Zone(), Now: w == holds, Says: p.In(w, now)}
		part.Begins, part.Ends = p.Coming(w, now)
		all = append(all, part)
	}
	return all
}

func (c *invocation) policyExplainCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "explain [FILE]",
		Short: "Say what a policy file means: what holds always, in which window what, and when each comes next",
		Long: `Says what a policy file means, without one that of the server: what holds always and what each window changes, a sentence for each word that is
said of a queue or a pool, with dates in the zone of the policy; whether a window holds now and when it next begins and ends, in its own zone.`,
		Example: "  aliquot policy explain office.policy",
		Args: func(cmd *cobra.Command, given []string) error {
			if len(given) == 0 {
				return nil
			}
			return args(1, "a policy file")(cmd, given)
		},
	}
	format := outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, given []string) error {
		p, err := c.policyMeant(cmd.Context(), given)
		if err != nil {
			return err
		}
		parts := explained(p, c.Now())
		return c.print(*format, parts, func(bool) table { return policyTable(parts) })
	}
	return cmd
}

func policyTable(parts []policyPart) table {
	out := table{head: []string{"WINDOW", "WHEN", "NEXT", "WHAT HOLDS"}}
	for _, part := range parts {
		name, next := cell{part.Window, bold}, "-"
		if part.Window == "" {
			name = text("always")
		}
		const layout = "Mon 2 Jan 15:04 MST"
		switch {
		case part.Now && part.Ends != nil:
			next = "now, until " + part.Ends.Format(layout)
		case part.Now && part.Window != "":
			next = "now"
		case part.Begins != nil:
			next = part.Begins.Format(layout)
		}
		for i, line := range part.Says {
			if i > 0 {
				out.rows = append(out.rows, []cell{text(""), text(""), text(""), text(line)})
				continue
			}
			out.rows = append(out.rows, []cell{name, text(orUnknown(strings.TrimSpace(part.When + " " + part.Zone))), text(next), text(line)})
		}
	}
	return out
}
