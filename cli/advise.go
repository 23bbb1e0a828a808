package cli

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/host/advice"
)

func (c *invocation) adviseCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "advise",
		Short: "Who asks for more than they use, and what to ask for",
		Long: `Who asks for more than they use, and what to ask for.

Work of one user and queue that asked for the same and has the same name, but for the number at its end, is told of together, once it
has run for a minute in all. What its floors kept from others without need comes first.

USE is the mean of a device over all devices and runs, MOST that of the device that one run used most. PEAK is the most memory held at once
on one device. IDLE is device time that its floors kept from being granted to others and that it did not use; others used it only as long
as it lent it. ASK FOR has floors that would have done for each run on each of its devices, with a tenth to spare, and fewer devices where no
run did anything on all of them: used one for 5 % of the time, or held 1Gi there. Ceilings stay: above its floor work uses what is idle.
FITS TOO are smaller devices here in whose memory it would have had room; how fast they are it does not say.`,
		Args: none,
	}
	only := c.onlyFlags(cmd, "work")
	format := outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		server := c.client()
		defer server.Close()
		if err := only.check(cmd, server); err != nil {
			return err
		}
		works, err := server.Workloads(cmd.Context(), true)
		if err != nil {
			return err
		}
		if works, err = only.of(works); err != nil {
			return err
		}
		devices, err := server.Devices(cmd.Context())
		if err != nil {
			return err
		}
		all := advice.Of(works, devices, c.Now())
		return c.print(*format, all, func(bool) table { return adviceTable(all) })
	}
	return cmd
}

func adviceTable(all []advice.Advice) table {
	out := table{
		head:  []string{"NAME", "USER", "QUEUE", ">RUNS", ">RAN", "GPU", ">USE", ">MOST", "MEMORY", ">PEAK", ">IDLE", "ASK FOR", "FITS TOO"},
		empty: "Nothing can be said yet: no work whose use was metered has run for a minute in all.",
	}
	for i := range all {
		a := &all[i]
		asked := unknown
		if m := a.Share.Memory; !m.IsZero() {
			asked = m.String()
		}
		out.rows = append(out.rows, []cell{
			{a.Name, bold},
			text(a.User), text(a.Queue), text(strconv.Itoa(a.Runs)), text(age(time.Duration(a.Ran))),
			text(shareText(api.WorkloadSpec{Share: a.Share, Devices: a.Devices})), text(percent(&a.Use)), text(percent(&a.MostUse)),
			text(asked), text(size(a.MostMemory)), text(age(time.Duration(a.Idle))), text(askText(a)), text(orUnknown(strings.Join(a.Fits, ", "))),
		})
	}
	return out
}

// askText are the flags that ask for what would have done; what stays as it is is left out.
func askText(a *advice.Advice) string {
	var flags []string
	if a.AskDevices < a.Devices {
		flags = append(flags, fmt.Sprintf("--devices %d", a.AskDevices))
	}
	if a.Ask.Compute != a.Share.Compute {
		flags = append(flags, fmt.Sprintf("--gpu %s", a.Ask.Compute))
	}
	if a.Ask.Memory != a.Share.Memory {
		flags = append(flags, fmt.Sprintf("--mem %s", a.Ask.Memory))
	}
	if len(flags) == 0 {
		return "the same"
	}
	return strings.Join(flags, " ")
}
