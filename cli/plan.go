package cli

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/cli/safe"
)

const planLong = `Say what would happen if a program were submitted now, and submit nothing: whether it would start at once and where, or why it would
wait, at which place in line, until when at the latest, who would be evicted for it, whose start would come later, and what work like it
used before, where that is known. It takes the flags of "submit" and is refused as that is. The program may be left out. What is true
now need not be true when it is submitted.`

func (c *invocation) planCommand() *cobra.Command {
	var flags workloadFlags
	cmd := &cobra.Command{
		Use:   "plan [flags] [-- COMMAND [ARG...]]",
		Short: "What would happen if a program were submitted now",
		Long:  planLong,
		Example: `  aliquot plan --gpu 0.5 --mem 10Gi
  aliquot plan --devices 2 --time-limit 2h -- python train.py`,
		Args: cobra.ArbitraryArgs,
	}
	format := outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, given []string) error {
		spec, err := flags.spec(c, given)
		if err != nil {
			return err
		}
		server := c.client()
		defer server.Close()
		plan, err := server.Plan(cmd.Context(), spec)
		if err != nil {
			return err
		}
		if *format == formatJSON || *format == formatYAML {
			return encode(c.Out, *format, plan)
		}
		return c.showPlan(plan, *format == formatWide)
	}
	flags.define(c, cmd)
	flags.defineRequeue(cmd)
	return cmd
}

// showPlan prints what would happen. Wide says how past estimates fared.
func (c *invocation) showPlan(plan api.Plan, wide bool) error {
	head := "It would start at once " + plan.Message
	if plan.Phase == api.Waiting {
		why := api.Why{Phase: plan.Phase, Place: plan.Place, Message: plan.Message}
		head = fmt.Sprintf("It would wait, %s in line%s", ordinal(plan.Place), becauseOfLine(why))
	}
	if _, err := fmt.Fprintln(c.Out, safe.Line(head)); err != nil {
		return err
	}
	var out fields
	for i, text := range api.CountTexts(plan.Counts) {
		out.add("  "+plural(plan.Counts[i].Devices, "device"), text)
	}
	out.add("  Ahead", strings.Join(plan.Ahead, ", "))
	out.add("  To start", plan.Unblock)
	c.addStart(&out, plan.Start, wide)
	if plan.Behind > 0 {
		out.add("  Behind it", plural(plan.Behind, "waiting workload"))
	}
	for i, one := range plan.Evict {
		name := "  Evicts"
		if i > 0 {
			name = "  and"
		}
		out.paint(name, one.Workload+": "+one.Reason, yellow)
	}
	out.add("  Promise", plan.Promise)
	if use := plan.Use; use != nil {
		out.add("  Likely use", fmt.Sprintf("%s of each device (%s to %s), and %s of its memory at the most (%s to %s), by %s of %s",
			percent(&use.Compute), percent(&use.ComputeFrom), percent(&use.ComputeTo), size(use.Memory), size(use.MemoryFrom), size(use.MemoryTo),
			plural(use.Runs, "run"), use.Like))
	}
	c.addDelays(&out, plan)
	out.paint("  Notes", strings.Join(plan.Notes, "\n"), yellow)
	return out.write(c.Out, c.style())
}

// addDelays says whose start would come later.
func (c *invocation) addDelays(out *fields, plan api.Plan) {
	if plan.Delayed == 0 {
		out.add("  Delays", "nobody whose start is known")
		return
	}
	lines := make([]string, 0, len(plan.Delays)+1)
	for _, one := range plan.Delays {
		to := "no known time"
		if one.To != nil {
			to = clock(*one.To)
		}
		lines = append(lines, fmt.Sprintf("%s, from %s at the latest to %s", one.Workload, clock(one.From), to))
	}
	if more := plan.Delayed - len(plan.Delays); more > 0 {
		lines = append(lines, fmt.Sprintf("and %d more", more))
	}
	out.paint("  Delays", strings.Join(lines, "\n"), yellow)
}

// addStart says when one that waits is expected to start; wide also how past estimates fared.
func (c *invocation) addStart(out *fields, start *api.Start, wide bool) {
	if start == nil {
		return
	}
	if start.Expected != nil && start.Expected.Sub(c.Now()) >= time.Second {
		out.add("  Expected", c.expected(start))
	}
	switch {
	case start.Latest != nil:
		out.add("  Starts", c.interval(start))
	case start.Unknown != "":
		text := "not known when, because " + start.Unknown
		if start.Expected != nil {
			text = "not known by when at the latest, because " + start.Unknown
		}
		if len(start.InWay) > 0 {
			text += ": " + strings.Join(start.InWay, ", ")
		}
		out.add("  Starts", text)
	}
	if past := start.Past; wide && past != nil {
		out.add("  Estimates", fmt.Sprintf("the last %s came %s from what was said (median; 90%% within %s), %d of them later",
			plural(past.Starts, "start"), apart(past.Median), apart(past.P90), past.Late))
	}
}

// interval is from when to when a start is expected.
func (c *invocation) interval(start *api.Start) string {
	if start.Latest.Sub(c.Now()) < time.Second {
		return "as soon as what is being ended, or would be, has ended"
	}
	text := "by " + clock(*start.Latest) + ", in " + age(start.Latest.Sub(c.Now())) + " at the latest"
	if start.Earliest != nil && start.Earliest.Sub(c.Now()) > time.Second {
		return text + "; not before " + clock(*start.Earliest)
	}
	return text + "; at any time before if work ends early"
}

// expected is when a start is expected, and between which times.
func (c *invocation) expected(start *api.Start) string {
	text := "about " + clock(*start.Expected) + ", in " + age(start.Expected.Sub(c.Now()))
	switch from, to := start.From, start.To; {
	case from != nil && to != nil && to.Sub(*from) >= time.Second:
		text += "; between " + clock(*from) + " and " + clock(*to)
	case from != nil && to == nil:
		text += "; not before " + clock(*from)
	}
	if start.Latest != nil && !start.Expected.Before(*start.Latest) {
		return text + ", by time limits: nothing that it waits for is predicted to end early enough for it to start sooner"
	}
	return text + ", by how long such work ran before"
}

// clock is a time as people read it here.
func clock(at time.Time) string { return at.Local().Format("2006-01-02 15:04:05") }

// apart is how far two times are apart.
func apart(d api.Duration) string {
	if time.Duration(d) < time.Second {
		return "less than 1s"
	}
	return age(time.Duration(d))
}
