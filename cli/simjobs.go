package cli

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/aliquot-dev/aliquot/cli/safe"
	"github.com/aliquot-dev/aliquot/engine"
	"github.com/aliquot-dev/aliquot/host/policy"
	"github.com/aliquot-dev/aliquot/host/sim"
)

// simulateJobs runs the trace of jobs that sim run names.
func (c *invocation) simulateJobs(ctx context.Context, o *simRun, seed uint64) (*sim.File, error) {
	if !(o.load > 0 && o.load <= 10) {
		return nil, usagef("--load %g: give a part of the devices, above 0 and at most 10", o.load)
	}
	if o.between > 0 && o.between < time.Minute || o.repair < time.Second {
		return nil, usagef("--failures %v --repair %v: nodes fail each minute at most, and a repair takes a second at least", o.between, o.repair)
	}
	orders, err := parseOrders(o.orders)
	if err != nil {
		return nil, err
	}
	with, err := o.sharing.options(o.trace, seed)
	if err != nil {
		return nil, err
	}
	nodes, err := readNodes(o.nodes)
	if err != nil {
		return nil, err
	}
	trace, err := sim.OpenJobs(o.trace, o.load, seed, with.Sharing, nodes)
	if err != nil {
		return nil, err
	}
	if trace, err = o.sharing.apply(trace, &with); err != nil {
		return nil, err
	}
	if o.between > 0 {
		trace.Fail(engine.Time(o.between/time.Microsecond), engine.Time(o.repair/time.Microsecond), seed)
	}
	out := &sim.File{Trace: o.trace, Nodes: o.nodes, Seeds: []uint64{seed}}
	out.Jobs, err = c.runJobs(ctx, trace, with, orders, o.ordered, o.policies, seed, c.progress(*o.progress), func(p *policy.Policy) (time.Time, error) { return p.Moment(o.start) })
	return out, err
}

func parseOrders(names []string) ([]sim.Order, error) {
	orders := make([]sim.Order, len(names))
	for i, name := range names {
		var err error
		if orders[i], err = sim.ParseOrder(name); err != nil {
			return nil, usagef("--order: %w", err)
		}
	}
	return orders, nil
}

// jobsDone is what is said of jobs that are over.
const jobsDone = "jobs have ended"

// runJobs runs a trace of jobs in each order under each policy. A policy file rules the order itself, so the orders must not have been
// asked for; start is when the trace begins, and with has what else is the same of all.
func (c *invocation) runJobs(ctx context.Context, trace *sim.Trace, with sim.JobOptions, orders []sim.Order, ordered bool, policies []string, seed uint64, progress *simProgress, start func(*policy.Policy) (time.Time, error)) ([]*sim.JobResult, error) {
	defer progress.over()
	var all []*sim.JobResult
	for _, name := range policies {
		rules, err := c.simRules(name)
		if err != nil {
			return nil, err
		}
		if rules != nil {
			if ordered {
				return nil, usagef("--order: the policy file %s rules the order itself: leave --order out", name)
			}
			begin, err := start(rules)
			if err != nil {
				return nil, usagef("--start: %w", err)
			}
			one := with
			one.Order, one.Rules, one.Told = sim.Fair, &sim.Rules{Policy: rules, Start: begin}, progress.of(name, jobsDone)
			r, err := sim.RunJobs(ctx, trace, one)
			if err != nil {
				return nil, err
			}
			all = append(all, c.ranJobs(r, name, name, progress))
			continue
		}
		policyFor, err := simPolicy(name, trace.Jobs)
		if err != nil {
			return nil, err
		}
		policy, err := policyFor(seed)
		if err != nil {
			return nil, err
		}
		for _, order := range orders {
			one := with
			one.Order, one.Placement, one.Told = order, policy, progress.of(string(order)+"/"+name, jobsDone)
			r, err := sim.RunJobs(ctx, trace, one)
			if err != nil {
				return nil, err
			}
			all = append(all, c.ranJobs(r, name, string(order)+"/"+name, progress))
		}
	}
	return all, nil
}

// ranJobs is the result of a run under a policy. It says on standard error what time limits made of that run.
func (c *invocation) ranJobs(r *sim.JobResult, policy, run string, progress *simProgress) *sim.JobResult {
	r.Policy = policy
	if r.TimedOut > 0 {
		progress.over()
		_, _ = fmt.Fprintf(c.Err, "%s: time limits ended %s that had more to do\n", safe.Line(run), counted(r.TimedOut, "job"))
	}
	return r
}

// printJobs prints the runs of a trace of jobs, and in a table of their own the jobs that never ran.
func (c *invocation) printJobs(format string, runs *sim.File) error {
	if err := c.print(format, runs, func(bool) table { return jobsTable(runs.Jobs) }); err != nil {
		return err
	}
	if format == formatJSON || format == formatYAML || !slices.ContainsFunc(runs.Jobs, neverRun) {
		return nil
	}
	t, more := neverRunTable(runs.Jobs, format == formatWide)
	if _, err := fmt.Fprintln(c.Out); err != nil {
		return err
	}
	if err := t.write(c.Out, c.style()); err != nil || more == 0 {
		return err
	}
	_, err := fmt.Fprintf(c.Out, "and %d more: -o wide names all\n", more)
	return err
}

func neverRun(r *sim.JobResult) bool { return len(r.NeverRun) > 0 }

// neverRunRows is how many of the jobs of one run that never ran are named.
const neverRunRows = 10

// neverRunTable names jobs that never ran, the first of each run or all, and says how many more there are.
func neverRunTable(runs []*sim.JobResult, all bool) (t table, more int) {
	t.head = []string{"NEVER RAN", "NAME", "QUEUE", "ORDER", "POLICY", "WHY"}
	for _, r := range runs {
		for i, n := range r.NeverRun {
			if i == neverRunRows && !all {
				more += len(r.NeverRun) - i
				break
			}
			why := n.Reason
			if n.Ran > 0 {
				why = "after it had run for " + thousands(n.Ran) + ": " + why
			}
			t.rows = append(t.rows, []cell{{n.Job, bold}, text(cmp.Or(n.Name, "-")), text(cmp.Or(n.Queue, "-")), text(string(r.Order)), text(r.Policy), text(why)})
		}
	}
	return t, more
}

func jobsTable(all []*sim.JobResult) table {
	out := table{head: []string{"ORDER", "POLICY", ">JOBS", ">MEAN JCT", ">P99 JCT", ">MEAN WAIT", ">FAIRNESS P99", ">WORST FAIRNESS", ">UNFAIR %", ">USED %", ">PREEMPTED"}}
	never := slices.ContainsFunc(all, neverRun)
	if never {
		out.head = append(out.head, ">NEVER RUN")
	}
	lost := slices.ContainsFunc(all, func(r *sim.JobResult) bool { return r.Lost != nil })
	if lost {
		out.head = append(out.head, ">LOST %")
	}
	known := slices.ContainsFunc(all, func(r *sim.JobResult) bool { return r.Energy != nil })
	if known {
		out.head = append(out.head, ">KWH")
	}
	if slices.ContainsFunc(all, func(r *sim.JobResult) bool { return r.Sharing != nil }) {
		out.head = append(out.head, ">USEFUL %", ">FLOORS MISSED %", ">SLOWED %", ">SPEED %", ">SERVED %", ">AT ONCE")
	}
	for _, r := range all {
		out.rows = append(out.rows, []cell{
			{string(r.Order), bold},
			text(r.Policy), text(strconv.Itoa(r.Jobs)), text(thousands(r.MeanJCT)), text(thousands(r.P99JCT)),
			text(thousands(r.MeanWait)), text(points(r.Fairness)), text(points(r.FairnessWorst)), text(points(r.Unfair)), text(points(r.Utilisation)), text(strconv.Itoa(r.Preemptions)),
		})
		row := &out.rows[len(out.rows)-1]
		if never {
			*row = append(*row, text(strconv.Itoa(len(r.NeverRun))))
		}
		if l := r.Lost; l != nil {
			*row = append(*row, text(points(l.Percent)))
		} else if lost {
			*row = append(*row, text("-"))
		}
		if e := r.Energy; e != nil {
			*row = append(*row, text(points(e.All)))
		} else if known {
			*row = append(*row, text("-"))
		}
		if s := r.Sharing; s != nil {
			for _, v := range []float64{s.Useful, s.FloorsMissed, s.Slowed, s.Speed, s.Served, s.AtOnce} {
				*row = append(*row, text(points(v)))
			}
		}
	}
	return out
}

// thousands are seconds, in thousands from ten thousand on.
func thousands(s float64) string {
	if s >= 10_000 {
		return strconv.FormatFloat(s/1000, 'f', 1, 64) + " ks"
	}
	return strconv.FormatFloat(s, 'f', 1, 64) + " s"
}

func (c *invocation) simCompareCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "compare A.json B.json",
		Short: "Say what differs between the runs of two files",
		Long: `Puts side by side the runs that two calls of sim run wrote with -o json: those of the same order and policy, or, where each file has one
run, these two. The table has the figures that differ, and by how much B is above or below A. Where the two files are of other traces, seeds or nodes it is
said on standard error which each is of.`,
		Example: `  aliquot sim run --trace generated-jobs:8 --order fifo -o json >a.json
  aliquot sim run --trace generated-jobs:8 --order las -o json >b.json
  aliquot sim compare a.json b.json`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 2 {
				return usagef("sim compare takes two files, not %d: name the two to compare", len(args))
			}
			return nil
		},
	}
	format := outputFlag(cmd)
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		a, err := sim.ReadFile(args[0])
		if err != nil {
			return err
		}
		b, err := sim.ReadFile(args[1])
		if err != nil {
			return err
		}
		if ofA, ofB := a.Of(), b.Of(); ofA != ofB {
			_, _ = fmt.Fprintf(c.Err, "The runs are not of the same: A is of %s, and B of %s.\n", safe.Line(ofA), safe.Line(ofB))
		}
		all := sim.Compare(a, b)
		return c.print(*format, all, func(bool) table { return differenceTable(all) })
	}
	return cmd
}

func differenceTable(all []sim.Difference) table {
	out := table{head: []string{"RUN", "FIGURE", ">A", ">B", ">CHANGE", "UNIT"}, empty: "The figures of both are the same."}
	for _, d := range all {
		a, b, change := points(d.A), points(d.B), "-"
		if !d.HasA {
			a = "-"
		}
		if !d.HasB {
			b = "-"
		}
		if d.HasA && d.HasB && d.A != 0 {
			change = fmt.Sprintf("%+.1f %%", d.Relative)
		}
		out.rows = append(out.rows, []cell{{d.Run, bold}, text(d.Figure), text(a), text(b), text(change), {d.Unit, dim}})
	}
	return out
}
