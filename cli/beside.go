package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/cli/client"
)

// beside answers `up` where a server answers already. In the background there is nothing to do, if that server is as it was asked
// for; one that was asked for otherwise, or in the foreground, is refused: nothing would come of what was asked.
func (c *invocation) beside(ctx context.Context, flags upFlags, config ServeConfig) (answered bool, err error) {
	server := client.New(config.Run)
	defer server.Close()
	info, err := server.Info(ctx)
	if err != nil {
		return c.servedByRoot(ctx, flags, config) // whatever is wrong with one's own, starting one says
	}
	if other := c.otherwise(flags, config, info); other != "" {
		down := "stop that one first with `aliquot down`"
		if info.Simulated && strings.TrimSpace(config.Simulate) != info.Simulate {
			down = "simulated devices outlive their server, so end it with them and all that runs on them with `aliquot down --all`"
		}
		return true, fmt.Errorf("%s, and the server that runs at %s has %s: %s, or start another beside it with --run and --state",
			other, server.Socket(), settingsOf(info), down)
	}
	if !flags.detach {
		return true, fmt.Errorf("a server runs at %s already (version %s, %s): use it, or stop it first with `aliquot down`", server.Socket(), info.Version, settingsOf(info))
	}
	return true, c.say(flags.format, info, fmt.Sprintf("A server answers at %s already (version %s).", server.Socket(), info.Version))
}

// servedByRoot answers `up` of a user whom root's server serves already: a second one would hide from that user what runs on the first.
// Whoever names a RUN folder wants one of their own.
func (c *invocation) servedByRoot(ctx context.Context, flags upFlags, config ServeConfig) (answered bool, err error) {
	run := c.otherRun(config.Run)
	if run == "" {
		return false, nil
	}
	server := client.New(run)
	defer server.Close()
	info, err := server.Info(ctx)
	if err != nil || !info.AllUsers {
		return false, nil // it serves nobody now
	}
	said := fmt.Sprintf("root's server at %s serves all users, %s too (version %s, %s): every command talks to it. One of your own beside it: `aliquot up --run FOLDER`, and --run FOLDER or ALIQUOT_RUN=FOLDER with every command that means it",
		server.Socket(), orText(info.User, "you"), info.Version, settingsOf(info))
	if flags.simulate != "" || flags.http != "" || flags.state != "" || flags.latency != "" {
		return true, errors.New(said)
	}
	return true, c.say(flags.format, info, said)
}

// otherwise says what was asked for, in flags or settings, that the server that runs does not have; empty: nothing.
func (c *invocation) otherwise(flags upFlags, config ServeConfig, has api.Info) string {
	if has.State == "" {
		return "" // it is of a version that does not say
	}
	var asked []string
	if (flags.simulate != "" || c.settings.Simulate != "") && strings.TrimSpace(config.Simulate) != has.Simulate {
		asked = append(asked, "--simulate "+config.Simulate)
	}
	if (flags.http != "" || c.settings.HTTP != "") && config.HTTP != has.HTTP {
		asked = append(asked, "--http "+orText(config.HTTP, off))
	}
	if (flags.state != "" || c.settings.State != "") && config.State != has.State {
		asked = append(asked, "--state "+config.State)
	}
	if (flags.unenforced != "" || c.settings.Unenforced != "") && config.Unenforced != cmp.Or(has.Unenforced, api.ShowUnenforced) {
		asked = append(asked, "--unenforced "+string(config.Unenforced))
	}
	if len(config.LatencyClasses) > 0 && config.LatencyClasses.String() != has.LatencyClass {
		asked = append(asked, "--latency-class "+config.LatencyClasses.String())
	}
	if len(asked) == 0 {
		return ""
	}
	return strings.Join(asked, " and ") + " was asked for"
}

// settingsOf says with what a server was started.
func settingsOf(info api.Info) string {
	devices := "the machine's own devices"
	if info.Simulated {
		devices = "--simulate " + info.Simulate
	}
	classes := ""
	if info.LatencyClass != "" {
		classes = ", --latency-class " + info.LatencyClass
	}
	return devices + ", --http " + orText(info.HTTP, off) + ", --state " + info.State + ", --unenforced " + string(cmp.Or(info.Unenforced, api.ShowUnenforced)) + classes
}
