package cli

import (
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/aliquot-dev/aliquot/engine/predict"
	"github.com/aliquot-dev/aliquot/host/sim"
)

// predictable is what traces `sim predict` takes, and predictSeed what those are made by that are made.
const (
	predictable = "muri:FILE, philly:FILE, jobs:FILE, generated-jobs:NODES or generated-mix:NODES"
	predictSeed = 42
)

func (c *invocation) simPredictCommand() *cobra.Command {
	var trace string
	halfLife := 7 * 24 * time.Hour
	var samples, enough int
	var sharing simSharing
	cmd := &cobra.Command{
		Use:   "predict --trace TRACE",
		Short: "Say how well it can be predicted how long a trace's jobs run, and what they use",
		Long: `Predicts how long each job of a trace runs, when it comes, by the jobs like it that had ended by then, and says how far off that was: by
the same user, name and shape, else by the same user and shape, the same user, the same queue, or all. Every job runs from its coming.
OFF is the larger of predicted and real over the smaller, for half and for nine tenths of the predictions; BETWEEN, how many came
between the low and the high end that were predicted, which is 80 % for predictions that are neither too sure nor too wide; WIDE, how many
times the low end the high one is, for half of them; ORDER, how often
of two jobs that came one after the other the shorter one was told, 50 % by chance.

Where it is known what the jobs do to their devices (--interference, --duty, or busy in the trace), the same is said of the compute that
they use and of the memory that they hold at the most. OFF is then in percent: of a device, and of the memory that was held.

A server estimates starts by the same predictions. No floor or ceiling hangs on one, and the first in line starts no later for one that is wrong.`,
		Example: `  aliquot sim predict --trace philly:traces/sia/philly.csv
  aliquot sim predict --trace jobs:day.trace --half-life 24h
  aliquot sim predict --trace generated-mix:20`,
		Args: none,
	}
	cmd.Flags().StringVar(&trace, "trace", "", "of jobs: "+predictable)
	sharing.files(cmd)
	timeFlag(cmd, &halfLife, "half-life", "what ended so much earlier counts half")
	cmd.Flags().IntVar(&samples, "samples", 64, "how many of the last jobs that are alike are counted")
	cmd.Flags().IntVar(&enough, "enough", 4, "how many of them make a prediction")
	format := outputFlag(cmd)
	cmd.RunE = func(*cobra.Command, []string) error {
		if trace == "" {
			return usagef("%s needs --trace: %s", cmd.CommandPath(), predictable)
		}
		if halfLife < time.Microsecond || samples < 1 || enough < 1 {
			return usagef("--half-life %v --samples %d --enough %d: each must be over 0", halfLife, samples, enough)
		}
		config := predict.Config{Samples: samples, Enough: enough, HalfLife: halfLife.Microseconds()}
		if err := config.Validate(); err != nil {
			return usagef("--half-life %v --samples %d --enough %d: %w", halfLife, samples, enough, err)
		}
		if !sim.IsJobs(trace) {
			return usagef("--trace %s is not one of jobs: use %s", trace, predictable)
		}
		of, err := sharing.read(sim.IsMix(trace), predictSeed)
		if err != nil {
			return err
		}
		jobs, err := sim.OpenJobs(trace, 0.9, predictSeed, of, nil)
		if err != nil {
			return err
		}
		found, err := sim.PredictJobs(trace, jobs, of, config)
		if err != nil {
			return err
		}
		return c.print(*format, found, func(bool) table { return predictedTable(found) })
	}
	return cmd
}

func predictedTable(found *sim.Predictions) table {
	out := table{head: []string{"PREDICTED", ">JOBS", ">OFF p50", ">OFF p90", ">BETWEEN", ">WIDE", ">ORDER"}}
	for _, row := range found.Rows {
		between, wide := unknown, unknown
		if row.Between >= 0 {
			between, wide = fmt.Sprintf("%.1f %%", row.Between), factor(row.Wide)
		}
		out.rows = append(out.rows, []cell{
			text(row.By), text(strconv.Itoa(row.Jobs)), text(factor(row.Off50)), text(factor(row.Off90)), text(between), text(wide), text(fmt.Sprintf("%.1f %%", row.Order)),
		})
	}
	for _, row := range found.Use {
		between := unknown
		if row.Between >= 0 {
			between = fmt.Sprintf("%.1f %%", row.Between)
		}
		out.rows = append(out.rows, []cell{
			text(row.Of + ": " + row.By), text(strconv.Itoa(row.Jobs)), text(fmt.Sprintf("%.1f %%", row.Off50)), text(fmt.Sprintf("%.1f %%", row.Off90)), text(between), text(unknown), text(unknown),
		})
	}
	return out
}

// factor is how many times too much or too little.
func factor(times float64) string {
	if times >= 100 {
		return fmt.Sprintf("× %.0f", times)
	}
	return fmt.Sprintf("× %.2f", times)
}
