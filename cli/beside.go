package cli

import (
	"context"
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
		return false, nil // whatever is wrong there, starting one says
	}
	if other := c.otherwise(flags, config, info); other != "" {
		return true, fmt.Errorf("%s, and the server that runs at %s has %s: stop that one first with `aliquot down`, or start another beside it with --run",
			other, server.Socket(), settingsOf(info))
	}
	if !flags.detach {
		return true, fmt.Errorf("a server runs at %s already (version %s, %s): use it, or stop it first with `aliquot down`", server.Socket(), info.Version, settingsOf(info))
	}
	return true, c.say(flags.format, info, fmt.Sprintf("A server answers at %s already (version %s).", server.Socket(), info.Version))
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
	return devices + ", --http " + orText(info.HTTP, off) + ", --state " + info.State
}
