package cli

import (
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/aliquot-dev/aliquot/api"
)

func (c *invocation) queueCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "queue",
		Aliases: []string{"queues"},
		Short:   "Who may hold how much: list, set, remove",
		Args:    unknownCommand,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(c.queueListCommand(), c.queueSetCommand(), c.queueRemoveCommand())
	return cmd
}

func (c *invocation) queueListCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "list", Short: "The queues with quota, what they hold and who waits", Args: none}
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
		return c.print(*format, queues, func(bool) table { return queueTable(queues) })
	}
	return cmd
}

func queueTable(queues []api.Queue) table {
	out := table{head: []string{"NAME", "PARENT", ">QUOTA", ">HELD", ">RUNNING", ">WAITING"}, empty: "No queues."}
	for _, one := range queues {
		held := text(part(one.Held))
		if one.Quota != api.Unlimited && int64(one.Held) > int64(one.Quota) {
			held.colour = yellow
		}
		out.rows = append(out.rows, []cell{
			{one.Name, bold},
			text(orUnknown(one.Parent)), text(fmt.Sprint(one.Quota)), held,
			text(strconv.Itoa(one.Running)), text(strconv.Itoa(one.Waiting)),
		})
	}
	return out
}

func (c *invocation) queueSetCommand() *cobra.Command {
	var quota, parent string
	cmd := &cobra.Command{
		Use:               "set NAME [flags]",
		Short:             "Make a queue, or change one",
		Long:              "Make a queue, or change one; what is not named stays as it is. A quota counts the floors that a queue's workloads hold together.",
		Example:           "  aliquot queue set vision --quota 2\n  aliquot queue set vision --quota none",
		Args:              args(1, "the name of a queue"),
		ValidArgsFunction: c.completion(queueNames),
	}
	cmd.Flags().StringVar(&quota, "quota", "", "devices that its workloads may hold as floors: 2, 0.5 or none")
	cmd.Flags().StringVar(&parent, "parent", "", "the queue that it is a part of")
	must(cmd.RegisterFlagCompletionFunc("parent", c.completion(queueNames)))
	format := outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, given []string) error {
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
		if err := parse("--quota", quota, &spec.Quota); err != nil {
			return err
		}
		if cmd.Flags().Changed("parent") {
			spec.Parent = parent
		}
		queue, err := server.SetQueue(cmd.Context(), spec)
		if err != nil {
			return err
		}
		return c.print(*format, queue, func(bool) table { return queueTable([]api.Queue{queue}) })
	}
	return cmd
}

func (c *invocation) queueRemoveCommand() *cobra.Command {
	return &cobra.Command{
		Use:               "remove NAME",
		Aliases:           []string{"rm"},
		Short:             "Remove a queue that holds nothing and that nothing waits in",
		Args:              args(1, "the name of a queue"),
		ValidArgsFunction: c.completion(queueNames),
		RunE: func(cmd *cobra.Command, given []string) error {
			server := c.client()
			defer server.Close()
			if err := server.RemoveQueue(cmd.Context(), given[0]); err != nil {
				return err
			}
			_, err := fmt.Fprintf(c.Out, "%s removed\n", given[0])
			return err
		},
	}
}
