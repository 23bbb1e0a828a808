package cli

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/aliquot-dev/aliquot/engine"
	"github.com/aliquot-dev/aliquot/host/sim"
)

// simSharing is what `sim run` was asked for of devices that jobs share.
type simSharing struct {
	interference, duty string
	horizon            time.Duration
	own, interleave    bool
	use                float64
}

// made is what names the built-in generator instead of a file.
const made = "made"

func (s *simSharing) flags(cmd *cobra.Command) {
	s.files(cmd)
	timeFlag(cmd, &s.horizon, "horizon", "of jobs: end the run after so long, with what runs and waits then; 0: when all have ended")
	cmd.Flags().BoolVar(&s.own, "own", false, "of jobs: each has whole devices for itself, whatever it asks for: to compare with")
	cmd.Flags().BoolVar(&s.interleave, "interleave", false, "of jobs: those whose stages are known (Muri's) share devices, as far as together they need no more than all of host, device and network")
	cmd.Flags().Float64Var(&s.use, "use", 0, "of jobs: start only what keeps busy, with all on its node, at most this part of its devices, by what each does alone; 0: no limit")
}

// files are the flags that say what is known of programs and services.
func (s *simSharing) files(cmd *cobra.Command) {
	cmd.Flags().StringVar(&s.interference, "interference", "", "of jobs: how programs slow each other on a device, a file of pairs as measured with Lucid with single_data.csv beside it; "+made+": without a file")
	cmd.Flags().StringVar(&s.duty, "duty", "", "of jobs: how busy services keep a device over time, Alibaba's file pod_gpu_duty_cycle_anon.tar.gz with that of the memory beside it; "+made+": without a file")
}

// options are what all runs have in common.
func (s *simSharing) options(trace string, seed uint64) (sim.JobOptions, error) {
	with := sim.JobOptions{Until: engine.Time(s.horizon / time.Microsecond)}
	switch {
	case s.horizon > 0 && s.horizon < time.Second:
		return with, usagef("--horizon %v: a run takes at least 1s; give 0 for one that ends when all jobs have", s.horizon)
	case !(s.use >= 0 && s.use <= 1):
		return with, usagef("--use %g: give a part of the devices, from 0, which is no limit, to 1", s.use)
	case s.use > 0 && s.own:
		return with, usagef("--own and --use: a job with whole devices for itself shares them with nobody: leave one of them out")
	case s.interleave && (s.own || s.use > 0 || s.interference != "" || s.duty != "" || sim.IsMix(trace)):
		return with, usagef("--interleave: what jobs do beside each other is told by their stages alone: leave out --own, --use, --interference and --duty, and take no generated-mix")
	case s.interference == "" && s.duty == "" && !sim.IsMix(trace):
		if s.use > 0 {
			return with, usagef("--use: without --interference or --duty nothing is known of what jobs keep busy: give one of them")
		}
		return with, nil
	}
	var err error
	with.Sharing, err = s.read(sim.IsMix(trace), seed)
	return with, err
}

// read is what devices do that are shared: a mix has what is not named made.
func (s *simSharing) read(mix bool, seed uint64) (*sim.Sharing, error) {
	of := &sim.Sharing{}
	var err error
	switch {
	case s.interference == made || s.interference == "" && mix:
		of.Interference = sim.MadeInterference()
	case s.interference != "":
		if of.Interference, err = sim.ReadInterference(s.interference); err != nil {
			return nil, err
		}
	}
	switch {
	case s.duty == made || s.duty == "" && mix:
		of.Duty = sim.MadeDuty(seed)
	case s.duty != "":
		if of.Duty, err = sim.ReadDuty(s.duty); err != nil {
			return nil, err
		}
	}
	return of, nil
}

// apply makes of a trace what was asked for, and of what is known of sharing.
func (s *simSharing) apply(t *sim.Trace, with *sim.JobOptions) (_ *sim.Trace, err error) {
	switch {
	case s.own:
		return t.OnOwn(), nil
	case s.use > 0:
		return t.LimitUse(s.use, with.Sharing), nil
	case s.interleave:
		t, with.Sharing, err = t.Interleave()
	}
	return t, err
}
