package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/cli/client"
)

func (c *invocation) resizeCommand() *cobra.Command {
	var gpu, memory string
	var weight int32
	cmd := &cobra.Command{
		Use:               "resize NAME [flags]",
		Short:             "Give a workload another share while it runs",
		Long:              "Give a workload another share, while it runs and without a restart. What is not named stays as it is.",
		Example:           "  aliquot resize night --gpu 0.25..0.60",
		Args:              args(1, "the name of a workload"),
		ValidArgsFunction: c.completion(workloadNames),
	}
	defineShare(cmd.Flags(), &gpu, &memory, &weight)
	cmd.Flags().Lookup("gpu").Usage = "compute, floor..ceiling in parts of a device: 0.25..0.80, 0.25, 0.25.., 25%"
	cmd.Flags().Lookup("mem").Usage = "device memory, floor..ceiling: 4Gi..8Gi, 4Gi, 4Gi.., 50%"
	cmd.Flags().Lookup("weight").Usage = "how what is over the floors is divided"
	format := outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, names []string) error {
		var change client.ShareChange
		given := cmd.Flags().Changed
		switch {
		case gpu == "" && given("gpu"):
			return emptyFlag("gpu", "0.25..0.60, or leave it out to keep what it has")
		case memory == "" && given("mem"):
			return emptyFlag("mem", "4Gi..8Gi, or leave it out to keep what it has")
		case given("weight") && weight <= 0:
			return noWeight(weight)
		}
		if gpu != "" {
			change.Compute = new(api.Compute)
			if err := parse("--gpu", gpu, change.Compute); err != nil {
				return err
			}
		}
		if memory != "" {
			change.Memory = new(api.Memory)
			if err := parse("--mem", memory, change.Memory); err != nil {
				return err
			}
			if err := bareMemory(memory); err != nil {
				return err
			}
		}
		if given("weight") {
			change.Weight = &weight
		}
		if change == (client.ShareChange{}) {
			return usagef("%s needs what to change: --gpu, --mem or --weight", cmd.CommandPath())
		}
		server := c.client()
		defer server.Close()
		work, err := server.Resize(cmd.Context(), names[0], change)
		if err != nil {
			return err
		}
		if *format == formatJSON || *format == formatYAML {
			return encode(c.Out, *format, work)
		}
		has := fmt.Sprintf("%s has %s of compute and %s of memory", work.Spec.Name, shareText(work.Spec), memoryText(work))
		if work.Spec.Share.Weight > 0 {
			has += ", with a weight of " + weightText(work.Spec.Share)
		}
		_, err = fmt.Fprintln(c.Out, has)
		return err
	}
	return cmd
}
