package cli

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/cli/top"
)

func (c *invocation) showCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:               "show NAME",
		Short:             "All about one workload",
		Args:              args(1, "the name of a workload"),
		ValidArgsFunction: c.completion(anyWorkloadNames),
	}
	format := outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, given []string) error {
		server := c.client()
		defer server.Close()
		work, err := server.Workload(cmd.Context(), given[0])
		if err != nil {
			return err
		}
		filled := []api.Workload{work}
		c.fillReasons(cmd.Context(), server, filled)
		work = filled[0]
		if *format == formatJSON || *format == formatYAML {
			return encode(c.Out, *format, work)
		}
		return c.showWorkload(work, *format == formatWide)
	}
	return cmd
}

func (c *invocation) showWorkload(work api.Workload, wide bool) error {
	spec, status := work.Spec, work.Status
	var out fields
	word, colour := state(status)
	out.add("Name", spec.Name)
	out.paint("State", word, colour)
	out.add("Reason", status.Reason)
	out.add("Command", commandText(spec.Command))
	out.add("Directory", spec.Dir)
	out.add("User", fmt.Sprintf("%s (%d)", orUnknown(work.User), work.UserID))
	out.add("Queue", spec.Queue)
	out.add("Class", string(spec.Class))
	out.add("Priority", workPriority(work))
	if spec.Preemptible {
		out.add("Preemptible", "yes: it is ended when others want what they are guaranteed")
	}
	if spec.OnReclaim == api.ReclaimStop {
		out.add("On reclaim", "stop: it is ended when others want the memory floors that it uses")
	}
	if spec.Share.Weight > 0 {
		out.add("Weight", strconv.Itoa(int(spec.Share.Weight)))
	}
	out.add("Share", fmt.Sprintf("%s of compute, %s of memory", shareText(spec), memoryText(work)))
	if spec.Several() {
		out.add("Replicas", replicasOf(work))
	}
	for _, r := range spec.Roles {
		out.add("With "+r.Name, roleText(r))
	}
	out.add("Model", spec.Model)
	out.add("At least", leastText(spec))
	out.add("Limits", limits(spec))
	if spec.RestartTime > 0 {
		out.add("Restart time", age(time.Duration(spec.RestartTime)))
	}
	out.add("Submitted", c.moment(status.Submitted))
	if status.Started != nil {
		out.add("Started", c.moment(*status.Started))
	}
	if status.Checkpoint != nil {
		out.add("Checkpoint", c.moment(*status.Checkpoint))
	}
	if status.Ended != nil {
		out.add("Ended", c.moment(*status.Ended))
	}
	if status.PID != 0 {
		out.add("PID", strconv.Itoa(status.PID))
	}
	out.add("Log", status.LogPath)
	out.add("UID", work.UID)
	if wide {
		out.add("Environment", strings.Join(sortedEnv(spec.Env), "\n"))
	}
	out.paint("Notes", strings.Join(status.Notes, "\n"), yellow)
	used := status.Usage
	out.paint("Past the shim", pastShim(used), yellow)
	if err := out.write(c.Out, c.style()); err != nil {
		return err
	}
	if len(status.Grants) == 0 || status.Phase == api.Ended && len(used) == 0 {
		return nil
	}
	if _, err := fmt.Fprintln(c.Out); err != nil {
		return err
	}
	if status.Phase == api.Ended {
		return usedTable(used).write(c.Out, c.style())
	}
	return grantTable(status.Grants, used).write(c.Out, c.style())
}

// pastShim says that a workload's programs know functions of the driver that the shim does not; empty: none were seen to.
func pastShim(used []api.Usage) string {
	for _, one := range used {
		if one.UnknownCalls > 0 { // of the whole workload
			return plural(int(one.UnknownCalls), "look-up") + " of functions of the driver that this aliquot does not know: what they do is not held to the share"
		}
	}
	return ""
}

// limits says what a workload may not pass besides its share.
func limits(spec api.WorkloadSpec) string {
	var all []string
	if spec.TimeLimit > 0 {
		all = append(all, age(time.Duration(spec.TimeLimit))+" of running time")
	}
	if spec.CPU > 0 {
		all = append(all, part(spec.CPU)+" cores")
	}
	if spec.Memory > 0 {
		all = append(all, size(spec.Memory)+" of the machine's memory")
	}
	return strings.Join(all, ", ")
}

// grantTable shows the grants of one workload with what each uses and has used.
func grantTable(grants []api.Grant, used []api.Usage) table {
	out := table{head: []string{
		">DEVICE", "GPU", ">USE", ">BORROWS", ">LENDS", "MEMORY", ">HELD", ">DEVICE TIME", ">OWN", ">BURST", ">LAUNCHES", "ENFORCED",
	}}
	for _, grant := range grants {
		row := []cell{text(strconv.Itoa(grant.DeviceIndex)), text(computeText(grant))}
		usage := find(used, grant.UID)
		if usage == nil {
			row = append(row, text(unknown), text(unknown), text(unknown), text(span(grant.MemoryFloor, grant.MemoryCeiling)),
				text(unknown), text(unknown), text(unknown), text(unknown), text(unknown), text(unknown))
		} else {
			row = append(row, text(percent(usage.Compute)), text(percent(&usage.Borrowing)), text(percent(&usage.Lending)),
				text(span(grant.MemoryFloor, grant.MemoryCeiling)), text(maybeSize(usage.Memory)), text(held(usage.DeviceTime)),
				text(held(usage.Own)), text(held(usage.Burst)), text(strconv.FormatUint(usage.Launches, 10)), enforcedCell(*usage))
		}
		out.rows = append(out.rows, row)
	}
	return out
}

// usedTable shows what a workload that has ended used in all.
func usedTable(used []api.Usage) table {
	out := table{head: []string{">DEVICE", "GPU", "MEMORY", ">MOST HELD", ">DEVICE TIME", ">OWN", ">BURST", ">LAUNCHES"}}
	for _, one := range used {
		out.rows = append(out.rows, []cell{
			text(strconv.Itoa(one.Grant.DeviceIndex)), text(computeText(one.Grant)), text(span(one.Grant.MemoryFloor, one.Grant.MemoryCeiling)),
			text(size(one.MemoryPeak)), text(held(one.DeviceTime)), text(held(one.Own)), text(held(one.Burst)), text(strconv.FormatUint(one.Launches, 10)),
		})
	}
	return out
}

func find(used []api.Usage, uid string) *api.Usage {
	for i := range used {
		if used[i].Grant.UID == uid {
			return &used[i]
		}
	}
	return nil
}

func enforcedCell(usage api.Usage) cell {
	switch {
	case usage.Processes == 0:
		return text(unknown) // nothing has come to the device yet
	case usage.Enforced:
		return cell{"yes", green}
	default:
		return cell{"NO", red}
	}
}

func (c *invocation) whyCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:               "why NAME",
		Short:             "Why a workload waits, or what became of it",
		Args:              args(1, "the name of a workload"),
		ValidArgsFunction: c.completion(anyWorkloadNames),
	}
	format := outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, given []string) error {
		server := c.client()
		defer server.Close()
		why, err := server.Why(cmd.Context(), given[0])
		if err != nil {
			return err
		}
		if *format == formatJSON || *format == formatYAML {
			return encode(c.Out, *format, why)
		}
		var since *time.Time
		var used []api.Usage
		if why.Phase == api.Running {
			if work, err := server.Workload(cmd.Context(), why.Workload); err == nil {
				since, used = work.Status.Started, work.Status.Usage
			}
		}
		return c.showWhy(why, since, used, *format == formatWide)
	}
	return cmd
}

// showWhy prints an answer; for one that runs also since when, and what it uses now, as far as that is known. Wide says how past
// estimates fared.
func (c *invocation) showWhy(why api.Why, since *time.Time, used []api.Usage, wide bool) error {
	var out fields
	if _, err := fmt.Fprintln(c.Out, standing(why.Workload, why)); err != nil {
		return err
	}
	if since != nil {
		out.add("  Since", c.moment(*since))
	}
	for _, one := range used {
		if one.Compute != nil {
			out.add("  Now", fmt.Sprintf("uses %s of device %d, borrows %s, lends %s (mean of %s)", percent(one.Compute), one.Grant.DeviceIndex,
				percent(&one.Borrowing), percent(&one.Lending), orUnknown(top.Span(one.Over))))
		}
	}
	for i, text := range api.CountTexts(why.Counts) {
		out.add("  "+plural(why.Counts[i].Devices, "device"), text)
	}
	if len(why.Ahead) > 0 {
		out.add("  Ahead", strings.Join(why.Ahead, ", "))
	}
	out.add("  To start", why.Unblock)
	c.addStart(&out, why.Start, wide)
	for i, record := range why.History {
		name := "  "
		if i == 0 {
			name = "  History"
		}
		out.rows = append(out.rows, [2]cell{{name, dim}, {record.At.Local().Format("15:04:05") + "  " + record.Message, plain}})
	}
	return out.write(c.Out, c.style())
}

func sortedEnv(env map[string]string) []string {
	out := make([]string, 0, len(env))
	for key, value := range env {
		out = append(out, key+"="+value)
	}
	slices.Sort(out)
	return out
}

// leastText is what a workload wants its devices to have at the least; empty: nothing.
func leastText(spec api.WorkloadSpec) string {
	var least []string
	if spec.MinCapability > 0 {
		least = append(least, "compute capability "+spec.MinCapability.String())
	}
	if spec.MinBandwidth > 0 {
		least = append(least, fmt.Sprintf("%d GB/s of memory bandwidth", spec.MinBandwidth))
	}
	if spec.MaxLatencyClass > 0 {
		least = append(least, fmt.Sprintf("latency class %d or a faster one", spec.MaxLatencyClass))
	}
	return strings.Join(least, " and ")
}
