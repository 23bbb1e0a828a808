package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/aliquot-dev/aliquot/cli/client"
	"github.com/aliquot-dev/aliquot/cli/doctor"
)

const doctorLong = `Say what works on this machine, what does not, and what to do about it: kernel, permissions, folders, driver, server, arbiter,
devices, and a self test. It works without a server and ends with status 1 if something fails. It changes nothing, but for the
self test: that is a workload of a moment, aliquot-probe-…, which stays among those that have ended (--self-test=false: none).`

func (c *invocation) doctorCommand() *cobra.Command {
	var state string
	probe := true
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "What works on this machine, what does not, what to do about it",
		Long:  doctorLong,
		Args:  none,
	}
	cmd.Flags().StringVar(&state, "state", "", "folder of the server's state")
	cmd.Flags().BoolVar(&probe, "self-test", probe, "run a tiny program with a share, if the server has room for it")
	must(cmd.MarkFlagDirname("state"))
	format := outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		run := c.clientRun()
		folder, err := c.stateOf(run, state)
		if err != nil {
			return err
		}
		server := client.New(run)
		defer server.Close()
		findings := doctor.Judge(c.facts(cmd.Context(), server, run, folder, probe))
		if err := c.print(*format, findings, func(wide bool) table { return findingTable(findings, wide) }); err != nil {
			return err
		}
		if doctor.Worst(findings) == doctor.Fail {
			return exitStatus(ExitFailed)
		}
		return nil
	}
	return cmd
}

// facts gathers everything that there is to judge.
func (c *invocation) facts(ctx context.Context, server *client.Client, run, state string, probe bool) doctor.Facts {
	facts := doctor.Machine(ctx, run, state)
	facts.Version = c.Version
	facts.Driver = errNoDriverKnown
	if c.Driver != nil {
		facts.Driver = c.Driver()
	}
	if facts.Driver == nil && c.Devices != nil {
		facts.NVMLDevices, facts.NVML = c.Devices()
	}
	facts.Info, facts.Server = server.Info(ctx)
	facts.Socket, facts.OtherRun = server.Socket(), c.otherRun(run)
	if facts.Server != nil {
		return facts
	}
	facts.ArbiterSays, facts.ArbiterHidden, facts.Arbiter = doctor.PingArbiter(run)
	if devices, err := server.Devices(ctx); err == nil {
		facts.Devices = devices
	}
	if probe {
		doctor.SelfTest(ctx, server, run, &facts)
	}
	return facts
}

var errNoDriverKnown = fmt.Errorf("this program was built without knowledge of drivers")

// findingTable draws findings; the wide one has the codes by which scripts know them.
func findingTable(findings []doctor.Finding, wide bool) table {
	out := table{head: []string{"", "WHAT", "HOW IT IS"}}
	if wide {
		out.head = []string{"", "CODE", "WHAT", "HOW IT IS"}
	}
	add := func(mark cell, code string, rest ...cell) {
		row := []cell{mark}
		if wide {
			row = append(row, text(code))
		}
		out.rows = append(out.rows, append(row, rest...))
	}
	for _, one := range findings {
		colour := map[doctor.Severity]string{doctor.OK: green, doctor.Warn: yellow, doctor.Fail: red}[one.Severity]
		add(cell{string(one.Severity), colour}, one.Code, text(one.Title), text(one.Detail))
		if one.Do != "" {
			add(cell{}, "", cell{}, cell{"→ " + one.Do, dim})
		}
	}
	return out
}
