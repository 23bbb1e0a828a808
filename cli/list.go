package cli

import (
	"context"
	"fmt"
	"os/user"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/cli/client"
	"github.com/aliquot-dev/aliquot/cli/top"
)

// useMeans says what stands under USE.
const useMeans = "USE is the mean of the last 10 s, or of as long as it was watched since the share last changed."

func (c *invocation) devicesCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "devices",
		Aliases: []string{"device"},
		Short:   "The devices: what is free, what is granted, what is used",
		Long:    "The devices: what is free, what is granted, what is used.\n" + useMeans,
		Args:    none,
	}
	format := outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		server := c.client()
		defer server.Close()
		devices, err := server.Devices(cmd.Context())
		if err != nil {
			return err
		}
		if devices == nil {
			devices = []api.Device{}
		}
		return c.print(*format, devices, func(wide bool) table { return deviceTable(devices, wide) })
	}
	return cmd
}

func deviceTable(devices []api.Device, wide bool) table {
	out := table{
		head:  []string{">INDEX", "MODEL", "HEALTH", ">USE", ">GPU FREE", ">MEM USED", ">MEM FREE", ">MEMORY", "SHARES"},
		empty: "No devices: `aliquot doctor` says why, `aliquot up --simulate h200x2` simulates some.",
	}
	noted := slices.ContainsFunc(devices, func(one api.Device) bool { return deviceNote(one) != unknown })
	switch {
	case wide:
		out.head = append(out.head, "UUID", ">DRIVER SAYS", "LINKED WITH", "NUMA", ">LATENCY CLASS", "NOTE")
	case noted:
		out.head = append(out.head, "NOTE")
	}
	for _, one := range devices {
		model := one.Model
		if one.Simulated {
			model += " (simulated)"
		}
		free, memoryFree := part(one.ComputeFree), room(one.MemoryFree)
		if one.Health != api.Healthy {
			free, memoryFree = unknown, unknown // it takes nothing new
		}
		row := []cell{
			text(strconv.Itoa(one.Index)), text(model), healthCell(one.Health), text(percent(top.Used(one))), text(free),
			text(maybeSize(one.MemoryUsed)), text(memoryFree), text(room(one.Memory)), text(sharesText(one.Grants)),
		}
		switch {
		case wide:
			class := unknown
			if one.LatencyClass > 0 {
				class = strconv.Itoa(int(one.LatencyClass))
			}
			row = append(row, text(one.UUID), text(busyText(one.Busy)), text(orUnknown(linkedWith(devices, one))), text(orUnknown(one.NUMA)), text(class), text(deviceNote(one)))
		case noted:
			row = append(row, text(deviceNote(one)))
		}
		out.rows = append(out.rows, row)
	}
	return out
}

// linkedWith are the indices of the devices that one is linked with.
func linkedWith(devices []api.Device, one api.Device) string {
	var all []string
	for _, other := range devices {
		if one.Link != "" && other.Link == one.Link && other.UUID != one.UUID {
			all = append(all, strconv.Itoa(other.Index))
		}
	}
	return strings.Join(all, ", ")
}

// busyText is how busy the driver says a device is, with all that is on it; USE is what the shares were charged.
func busyText(busy *api.Milli) string {
	if busy == nil {
		return unknown
	}
	return percent(busy) + " busy"
}

func healthCell(health api.DeviceHealth) cell {
	switch health {
	case api.Healthy:
		return cell{string(health), green}
	case api.Draining:
		return cell{string(health), yellow}
	default:
		return cell{orUnknown(string(health)), red}
	}
}

// sharesText names the shares of a device: `night 0.50..1.00, train 0.25..0.80`.
func sharesText(grants []api.Usage) string {
	names := make([]string, len(grants))
	for i, one := range grants {
		names[i] = one.Workload + " " + computeText(one.Grant)
	}
	return orUnknown(strings.Join(names, ", "))
}

func computeText(grant api.Grant) string {
	return fmt.Sprint(api.Compute{Floor: grant.ComputeFloor, Ceiling: grant.ComputeLimit})
}

// deviceNote is what a user of the device should know.
func deviceNote(one api.Device) string {
	var notes []string
	if one.HealthReason != "" {
		notes = append(notes, one.HealthReason)
	}
	if len(one.Unenforced) > 0 {
		names := make([]string, len(one.Unenforced))
		for i, process := range one.Unenforced {
			names[i] = fmt.Sprintf("%s (pid %d)", process.Name, process.PID)
		}
		notes = append(notes, "outside any share: "+strings.Join(names, ", "))
	}
	return orUnknown(strings.Join(notes, "; "))
}

func (c *invocation) psCommand() *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use:     "ps",
		Aliases: []string{"list"},
		Short:   "The workloads: running, waiting and, with -a, ended",
		Long:    "The workloads: running, waiting and, with -a, ended.\n" + useMeans,
		Args:    none,
	}
	cmd.Flags().BoolVarP(&all, "all", "a", false, "also those that have ended")
	only := c.onlyFlags(cmd, "those")
	format := outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		server := c.client()
		defer server.Close()
		if err := only.check(cmd, server); err != nil {
			return err
		}
		works, err := c.list(cmd.Context(), server, all, *format)
		if err != nil {
			return err
		}
		if works, err = only.of(works); err != nil {
			return err
		}
		return c.print(*format, works, func(wide bool) table {
			out := c.workloadTable(works, all, wide)
			if *only != (onlyOf{}) {
				out.empty = noneOf(only.queue, only.user, all)
			}
			return out
		})
	}
	return cmd
}

// onlyOf chooses workloads by queue and user; empty is any.
type onlyOf struct{ queue, user string }

// onlyFlags are the flags of a command that shows workloads; what says what it shows.
func (c *invocation) onlyFlags(cmd *cobra.Command, what string) *onlyOf {
	only := &onlyOf{}
	cmd.Flags().StringVar(&only.queue, "queue", "", "only "+what+" of this queue")
	cmd.Flags().StringVar(&only.user, "user", "", "only "+what+" of this user")
	must(cmd.RegisterFlagCompletionFunc("queue", c.completion(queueNames)))
	return only
}

// check refuses flags that were given empty, and a queue that there is not.
func (o *onlyOf) check(cmd *cobra.Command, server *client.Client) error {
	switch {
	case o.queue == "" && cmd.Flags().Changed("queue"):
		return emptyFlag("queue", "one that `aliquot queue list` names, or leave it out for all")
	case o.user == "" && cmd.Flags().Changed("user"):
		return emptyFlag("user", "your own name, or leave it out for all users")
	}
	return knownQueue(cmd.Context(), server, o.queue)
}

// of are those of the workloads that were chosen. A user whom nobody knows is refused.
func (o *onlyOf) of(works []api.Workload) ([]api.Workload, error) {
	if err := knownUser(o.user, works); err != nil {
		return nil, err
	}
	return slices.DeleteFunc(works, func(work api.Workload) bool {
		return o.queue != "" && work.Spec.Queue != o.queue || o.user != "" && work.User != o.user
	}), nil
}

// knownQueue refuses the name of a queue that there is not, as a submission does; empty is any.
func knownQueue(ctx context.Context, server *client.Client, name string) error {
	if name == "" {
		return nil
	}
	queues, err := server.Queues(ctx)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(queues, func(one api.Queue) bool { return one.Name == name }) {
		return noQueue(name)
	}
	return nil
}

func noQueue(name string) error {
	return &api.Error{Code: api.CodeNotFound, Message: fmt.Sprintf("there is no queue %s: see `aliquot queue list`", name)}
}

// knownUser refuses a name that is neither a user of this machine nor one who has workloads; empty is any.
func knownUser(name string, works []api.Workload) error {
	if name == "" || slices.ContainsFunc(works, func(one api.Workload) bool { return one.User == name }) {
		return nil
	}
	if _, err := user.Lookup(name); err != nil {
		return &api.Error{Code: api.CodeNotFound, Message: fmt.Sprintf("there is no user %s on this machine, nor workloads of one: see `aliquot ps -a`", name)}
	}
	return nil
}

// noneOf says that nothing passes a filter.
func noneOf(queue, user string, all bool) string {
	text := "No workloads"
	if queue != "" {
		text += " in queue " + queue
	}
	if user != "" {
		text += " of user " + user
	}
	if all {
		return text + "."
	}
	return text + " that run or wait; `aliquot ps -a` shows those that have ended."
}

// list asks for the workloads; all formats but the plain table also have why those that wait do.
func (c *invocation) list(ctx context.Context, server *client.Client, all bool, format string) ([]api.Workload, error) {
	works, err := server.Workloads(ctx, all)
	if err != nil {
		return nil, err
	}
	if works == nil {
		works = []api.Workload{}
	}
	if format != formatTable {
		c.fillReasons(ctx, server, works)
	}
	return works, nil
}

// usedNow sums what a workload uses over its grants; nil where any part of it is not known.
func usedNow(work api.Workload) (compute *api.Milli, memory *api.Bytes) {
	grants := work.Status.Usage
	if len(grants) == 0 || work.Status.Phase == api.Ended || work.Status.Phase == api.Waiting {
		return nil, nil
	}
	compute, memory = new(api.Milli), new(api.Bytes)
	for _, one := range grants {
		if compute != nil && one.Compute != nil {
			*compute += *one.Compute
		} else {
			compute = nil
		}
		if memory != nil && one.Memory != nil {
			*memory += *one.Memory
		} else {
			memory = nil
		}
	}
	return compute, memory
}

func (c *invocation) workloadTable(works []api.Workload, all, wide bool) table {
	out := table{
		head:  []string{"NAME", "STATE", "GPU", ">USE", "MEMORY", ">HELD", "DEVICE", "QUEUE", "USER", ">AGE"},
		empty: "No workloads: `aliquot run --gpu 0.25..0.80 -- COMMAND` starts one; `aliquot ps -a` shows those that have ended.",
	}
	if all {
		out.head = append(out.head, ">ENDED")
	}
	// Columns for what hardly anyone asks for come where someone did.
	weights := slices.ContainsFunc(works, func(work api.Workload) bool { return work.Spec.Share.Weight > 0 })
	preemptible := slices.ContainsFunc(works, func(work api.Workload) bool { return work.Spec.Preemptible })
	if wide {
		out.head = append(out.head, "CLASS", ">PRIORITY")
		if weights {
			out.head = append(out.head, ">WEIGHT")
		}
		if preemptible {
			out.head = append(out.head, "PREEMPTIBLE")
		}
		out.head = append(out.head, ">PID", "UID", "COMMAND", "REASON")
	}
	for _, work := range works {
		word, colour := state(work.Status)
		compute, memory := usedNow(work)
		row := []cell{
			{work.Spec.Name, bold},
			{word + replicasText(work), colour},
			text(askedText(work)), text(percent(compute)), text(memoryText(work)),
			text(maybeSize(memory)), text(devicesText(work.Status.Grants)), text(work.Spec.Queue), text(work.User), text(c.workloadAge(work)),
		}
		if all {
			ended := unknown
			if at := work.Status.Ended; at != nil {
				ended = age(c.Now().Sub(*at)) + " ago"
			}
			row = append(row, text(ended))
		}
		if wide {
			row = append(row, text(orUnknown(string(work.Spec.Class))), text(strconv.Itoa(int(work.Priority()))))
			if weights {
				row = append(row, text(weightText(work.Spec.Share)))
			}
			if preemptible {
				row = append(row, text(map[bool]string{true: "yes", false: "no"}[work.Spec.Preemptible]))
			}
			pid := unknown
			if work.Status.PID != 0 {
				pid = strconv.Itoa(work.Status.PID)
			}
			row = append(row, text(pid), text(work.UID), text(commandText(work.Spec.Command)), text(orUnknown(work.Status.Reason)))
		}
		out.rows = append(out.rows, row)
	}
	return out
}

// weightText is by what a share is given of what is over the floors: its floor in thousandths where nothing else was asked for.
func weightText(share api.Share) string {
	if share.Weight > 0 {
		return strconv.Itoa(int(share.Weight))
	}
	return strconv.Itoa(int(max(share.Compute.Floor, 1)))
}

// memoryText is the memory of a workload: in bytes once it is placed, else as it was asked for.
func memoryText(work api.Workload) string {
	if len(work.Status.Grants) > 0 {
		grant := work.Status.Grants[0]
		return span(grant.MemoryFloor, grant.MemoryCeiling)
	}
	if work.Spec.Share.Memory == (api.Memory{}) {
		return unknown
	}
	asked := work.Spec.Share.Memory
	if asked.Floor == asked.Ceiling {
		return amount(asked.Floor)
	}
	return amount(asked.Floor) + ".." + amount(asked.Ceiling)
}

func devicesText(grants []api.Grant) string {
	names := make([]string, len(grants))
	for i, grant := range grants {
		names[i] = strconv.Itoa(grant.DeviceIndex)
	}
	return orUnknown(strings.Join(names, ","))
}

// workloadAge is how long a workload has run, or has waited so far.
func (c *invocation) workloadAge(work api.Workload) string {
	status := work.Status
	from, to := status.Submitted, c.Now()
	if status.Started != nil {
		from = *status.Started
	}
	if status.Ended != nil {
		to = *status.Ended
	}
	return age(to.Sub(from))
}
