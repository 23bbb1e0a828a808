package cli

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/aliquot-dev/aliquot/api"
)

// traceTime is a length of time as traces and policy files have it, also in days: 90m, 1.5h, 30d.
type traceTime struct{ to *time.Duration }

// timeFlag has a command take a length of time, which is what the variable holds where it is not given.
func timeFlag(cmd *cobra.Command, to *time.Duration, name, usage string) {
	cmd.Flags().Var(traceTime{to}, name, usage)
}

func (s traceTime) Set(text string) error {
	d, err := api.ParseDuration(text)
	if err == nil {
		*s.to = time.Duration(d)
	}
	return err
}

// String is what Set reads; of none it is what help leaves out.
func (s traceTime) String() string {
	if s.to == nil || *s.to == 0 {
		return "0"
	}
	if days := *s.to / (24 * time.Hour); days > 1 && *s.to == days*24*time.Hour {
		return fmt.Sprintf("%dd", days)
	}
	return api.Duration(*s.to).String()
}

// Type has a time that cannot be read refused as every other is.
func (s traceTime) Type() string { return "duration" }
