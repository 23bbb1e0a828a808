package cli

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/cli/client"
	"github.com/aliquot-dev/aliquot/cli/safe"
	"github.com/aliquot-dev/aliquot/host/figures"
)

func (c *invocation) queueCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "queue",
		Aliases: []string{"queues"},
		Short:   "Who may hold how much: list, show, set, remove",
		Args:    unknownCommand,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(c.queueListCommand(), c.queueShowCommand(), c.queueSetCommand(), c.queueRemoveCommand())
	return cmd
}

func (c *invocation) queueListCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list",
		Short: "The queues with quota, what they hold and who waits",
		Long:  "The queues with quota, what they hold and who waits; with -o wide also limit, weight, the highest priority that users may give, what is added to that of all its work, and what counts in its line.",
		Args:  none,
	}
	format := outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		server := c.client()
		defer server.Close()
		queues, err := server.Queues(cmd.Context())
		if err != nil {
			return err
		}
		if queues == nil {
			queues = []api.Queue{}
		}
		return c.print(*format, queues, func(wide bool) table { return queueTable(queues, wide) })
	}
	return cmd
}

func queueTable(queues []api.Queue, wide bool) table {
	out := table{head: []string{"NAME", "PARENT", ">QUOTA", ">HELD", ">RUNNING", ">WAITING"}, empty: "No queues."}
	if wide {
		out.head = append(out.head, ">LIMIT", ">WEIGHT", ">MAX PRIORITY", ">PRIORITY", "ORDER")
	}
	for _, one := range queues {
		held := text(part(one.Held))
		if one.Quota != api.Unlimited && int64(one.Held) > int64(one.Quota) {
			held.colour = yellow
		}
		row := []cell{
			{one.Name, bold},
			text(orUnknown(one.Parent)), text(figures.Quota(one.Quota)), held,
			text(strconv.Itoa(one.Running)), text(strconv.Itoa(one.Waiting)),
		}
		if wide {
			limit := api.Unlimited
			if one.Limit.Compute != nil {
				limit = *one.Limit.Compute
			}
			row = append(row, text(figures.Quota(limit)), text(strconv.Itoa(int(max(one.Weight.All, 1)))), text(strconv.Itoa(int(one.MaxPriority))), text(figures.Priority(&one.QueueSpec)), text(api.FormatOrder(one.Order, one.ShortestFirst)))
		}
		out.rows = append(out.rows, row)
	}
	return out
}

func (c *invocation) queueShowCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:               "show NAME",
		Short:             "All about one queue: quota, what it is due now, what it lends and borrows, what could be taken back",
		Args:              args(1, "the name of a queue"),
		ValidArgsFunction: c.completion(queueNames),
	}
	format := outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, given []string) error {
		server := c.client()
		defer server.Close()
		queues, err := server.Queues(cmd.Context())
		if err != nil {
			return err
		}
		at := slices.IndexFunc(queues, func(queue api.Queue) bool { return queue.Name == given[0] })
		if at < 0 {
			return noQueue(given[0])
		}
		return c.print(*format, queues[at], func(bool) table { return queueUses(queues[at]) })
	}
	return cmd
}

// queueUses are the figures of a queue, one kind a line.
func queueUses(queue api.Queue) table {
	out := table{head: []string{"QUEUE " + queue.Name}}
	for _, head := range figures.Heads {
		out.head = append(out.head, ">"+head)
	}
	for _, line := range slices.Concat(figures.Bounds(&queue.QueueSpec), figures.Uses(&queue), figures.Rules(&queue.QueueSpec)) {
		row := []cell{{line.Name, bold}}
		for _, amount := range line.Amount {
			row = append(row, text(amount))
		}
		out.rows = append(out.rows, row)
	}
	return out
}

// queueFlags are the flags of `queue set`.
type queueFlags struct {
	boundFlags
	parent              string
	shortest, order     string
	longest, hours      string
	minRun, disruptions string
	maxPriority         int32
	dateFlags
}

// define defines them.
func (f *queueFlags) define(flags *pflag.FlagSet) {
	f.boundFlags.define(flags)
	flags.Int32Var(&f.maxPriority, "max-priority", 0, "the highest priority that users may give their work in it (default: 0)")
	flags.Int32Var(&f.priority, "priority", 0, "added to the priority of all work in it and in the queues under it (default: 0)")
	f.dateFlags.define(flags, "what is added")
	flags.StringVar(&f.shortest, "shortest-first", "", "work predicted to run shorter goes before what came up to so many times the difference earlier: 2; 0 is first come (default)")
	flags.StringVar(&f.order, "order", "", "what counts in its line, joined by +: fair (of the queues under it), priority or priority:1h, served:1m or held:1m, shortest:2, fifo (default: fair+priority)")
	flags.StringVar(&f.longest, "longest-run", "", "how long work in it may run: 8h, 2d; work that asks for no time limit gets this one; 0s is no bound (default)")
	flags.StringVar(&f.minRun, "min-run", "", "how long work in it runs before it is evicted for other work: 10m; 0s is not at all (default)")
	flags.StringVar(&f.disruptions, "disruptions", "", "how often each of its workloads may be evicted for other work, or moved, in any time so long: 2/24h; none is without bound (default)")
	flags.StringVar(&f.hours, "hours", "", "device-hours that its work may use of each day, week or month: 100/week, 0.5/day or none (default); nothing is started once they are used up")
	flags.StringVar(&f.parent, "parent", "", "the queue that it is a part of")
}

// apply changes what was given in a queue's specification; the rest stays.
func (f queueFlags) apply(spec *api.QueueSpec, given func(flag string) bool, models []string) error {
	if err := f.boundFlags.apply(spec, models); err != nil {
		return err
	}
	if given("max-priority") {
		spec.MaxPriority = f.maxPriority
	}
	if until, err := f.date(given); err != nil {
		return err
	} else if given("priority") {
		spec.Priority, spec.PriorityUntil, spec.PriorityAfter = f.priority, until, f.after
	}
	if given("parent") {
		spec.Parent = f.parent
	}
	if given("longest-run") {
		var err error
		if spec.LongestRun, err = api.ParseDuration(f.longest); err != nil {
			return usagef("--longest-run: %w", err)
		}
	}
	if given("min-run") {
		var err error
		if spec.MinRun, err = api.ParseDuration(f.minRun); err != nil {
			return usagef("--min-run: %w", err)
		}
	}
	if given("disruptions") {
		var err error
		if spec.Disruptions, err = api.ParseDisruptions(f.disruptions); err != nil {
			return usagef("--disruptions: %w", err)
		}
	}
	if given("hours") {
		var err error
		if spec.Hours, err = api.ParseHours(f.hours); err != nil {
			return usagef("--hours: %w", err)
		}
	}
	if given("order") {
		if given("shortest-first") {
			return usagef("--order and --shortest-first say the same: write --order fair+priority+shortest:%s", f.shortest)
		}
		var err error
		if spec.Order, spec.ShortestFirst, err = api.ParseOrder(f.order); err != nil {
			return usagef("--order: %w", err)
		}
	}
	if given("shortest-first") {
		return parse("--shortest-first", f.shortest, &spec.ShortestFirst)
	}
	return nil
}

const queueSetLong = `Make a queue, or change one; what is not named stays as it is. Quota and limit count the floors that a queue's workloads hold
together: the quota is guaranteed, only preemptible work goes over it, and nothing over the limit. Each is of devices, of their memory
and of how many shares there are, overall and on single models; all of them hold. What is over all quotas goes by weight; where queues have weights on a model, work that asks for that model goes by
what they hold and are due of its devices. A priority above --max-priority only root may give, and the user that the server runs as. What
--priority adds to the priority of all its work counts for whose turn it is, beside other queues that have what they are guaranteed; it
ends nothing that runs.`

func (c *invocation) queueSetCommand() *cobra.Command {
	var flags queueFlags
	cmd := &cobra.Command{
		Use:               "set NAME [flags]",
		Short:             "Make a queue, or change one",
		Long:              queueSetLong,
		Example:           "  aliquot queue set vision --quota 2\n  aliquot queue set vision --quota none\n  aliquot queue set vision --quota 4 --quota 2@H200 --limit-mem 320Gi --weight-mem 3 --weight 2@H200",
		Args:              args(1, "the name of a queue"),
		ValidArgsFunction: c.completion(queueNames),
	}
	flags.define(cmd.Flags())
	must(cmd.RegisterFlagCompletionFunc("parent", c.completion(queueNames)))
	format := outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, given []string) error {
		for _, one := range [][3]string{
			{"shortest-first", flags.shortest, "2, or 0 for first come, or leave it out to keep what it has"},
			{"priority-until", flags.until, "2026-12-01T18:00, or leave it out for a priority that always holds"},
		} {
			if one[1] == "" && cmd.Flags().Changed(one[0]) {
				return emptyFlag(one[0], one[2])
			}
		}
		for i, word := range boundWords {
			if slices.Contains(flags.amounts[i], "") {
				return emptyFlag(word, "2 or none, or 2@H200 for one model, or leave it out to keep what it has")
			}
		}
		for i, word := range weightWords {
			if slices.Contains(flags.weights[i], "") {
				return emptyFlag(word, "3, or 3@H200 for one model, or leave it out to keep what it has")
			}
		}
		server := c.client()
		defer server.Close()
		spec := api.QueueSpec{Name: given[0], Quota: api.Unlimited}
		queues, err := server.Queues(cmd.Context())
		if err != nil {
			return err
		}
		for _, one := range queues {
			if one.Name == given[0] {
				spec = one.QueueSpec
			}
		}
		models, err := flags.modelsKnown(cmd.Context(), server, &spec)
		if err != nil {
			return err
		}
		if err := flags.apply(&spec, cmd.Flags().Changed, models); err != nil {
			return err
		}
		queue, err := server.SetQueue(cmd.Context(), spec)
		if err != nil {
			return err
		}
		// All columns, for any of them may be what was set; all figures of the queue where none of them is.
		show := func(bool) table { return queueTable([]api.Queue{queue}, true) }
		if beyondTable(cmd.Flags().Changed, &flags.boundFlags) {
			show = func(bool) table { return queueUses(queue) }
		}
		if err := c.print(*format, queue, show); err != nil {
			return err
		}
		note, err := promised(cmd.Context(), server, queue)
		if note != "" {
			_, _ = fmt.Fprintf(c.Err, "aliquot: %s\n", safe.Line(note))
		}
		return err
	}
	return cmd
}

// promised says so where the quotas of a queue and its neighbours come to more than there is to be had.
func promised(ctx context.Context, server *client.Client, queue api.Queue) (string, error) {
	if queue.Quota <= 0 {
		return "", nil
	}
	queues, err := server.Queues(ctx)
	if err != nil {
		return "", err
	}
	devices, err := server.Devices(ctx)
	if err != nil {
		return "", err
	}
	has, of := api.Quota(len(devices)*int(api.WholeDevice)), "this server has"
	sum, names := queue.Quota, []string{queue.Name}
	for _, one := range queues {
		switch {
		case one.Name == queue.Parent && one.Quota >= 0:
			has, of = one.Quota, "queue "+one.Name+" has"
		case one.Name != queue.Name && one.Parent == queue.Parent && one.Quota > 0:
			sum += one.Quota
			names = append(names, one.Name)
		}
	}
	if sum <= has {
		return "", nil
	}
	what := "the quota of queue " + queue.Name + " comes"
	if len(names) > 1 {
		what = "the quotas of " + strings.Join(names, ", ") + " together come"
	}
	return fmt.Sprintf("%s to %s devices and %s %s: not all of it can be had at once", what, figures.Quota(sum), of, figures.Quota(has)), nil
}

func (c *invocation) queueRemoveCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:               "remove NAME",
		Aliases:           []string{"rm"},
		Short:             "Remove a queue that holds nothing and that nothing waits in",
		Args:              args(1, "the name of a queue"),
		ValidArgsFunction: c.completion(queueNames),
	}
	format := outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, given []string) error {
		server := c.client()
		defer server.Close()
		if err := server.RemoveQueue(cmd.Context(), given[0]); err != nil {
			return err
		}
		return c.say(*format, removed{given[0]}, given[0]+" removed")
	}
	return cmd
}

// removed is what `queue remove` prints.
type removed struct {
	Name string `json:"removed"` // the queue that is no more
}
