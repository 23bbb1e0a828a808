package main

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/host/sim"
)

// The case of a company whose devices are 30 % busy: nodes of eight devices, and the goals for the same jobs and horizon on shared devices.
const (
	sharingNodes  = 20
	usefulGoal    = 65.0 // percent of all device-seconds
	missedGoal    = 1.0  // percent of the time in which floors are wanted
	slowedGoal    = 2.0  // percent of the progress that floors alone would have made
	sharingPolicy = "even"
)

// settings are what shares ask for, and up to which part of the devices of a node jobs are started by what they are expected to keep busy. The first is the
// mix as it is by default; in the other services ask for more and trainers for less, so that nearly all of what is wanted of services is served.
var settings = []struct {
	name              string
	trainers, service api.Milli
	quantile, use     float64
}{{"", 420, 100, 0.7, 0.93}, {"/serving", 350, 200, 0.9, 0.9}}

// The figures are means over these seeds; the settings were chosen on the seeds 100 to 103.
const firstSharingSeed, sharingSeeds = 42, 5

// sharing measures the same jobs on devices of their own and on shared ones, made of the programs and services of the traces, or of the
// built-in ones where there is no folder of traces.
func (b *bench) sharing() error {
	of, nodes, name := sim.MadeSharing(1), 4, "generated-mix"
	if b.folder != "" {
		var err error
		if of.Interference, err = sim.ReadInterference(filepath.Join(b.folder, "lucid", "colocate_info.csv")); err != nil {
			return err
		}
		if of.Duty, err = sim.ReadDuty(filepath.Join(b.folder, "genai", "pod_gpu_duty_cycle_anon.tar.gz")); err != nil {
			return err
		}
		nodes, name = sharingNodes, "sharing"
	}
	return b.shared(of, nodes, name, b.folder != "")
}

// shared measures a mix of so many nodes; goals says that its figures have goals.
func (b *bench) shared(of *sim.Sharing, nodes int, name string, goals bool) error {
	var own outcome
	both := make([]outcome, len(settings))
	for seed := range uint64(sharingSeeds) {
		mix := sim.DefaultMix(nodes, firstSharingSeed+seed)
		for i, set := range settings {
			mix.TrainerFloor, mix.ServiceFloor, mix.ServiceQuantile = set.trainers, set.service, set.quantile
			t, err := sim.GenerateMix(mix, of)
			if err != nil {
				return err
			}
			if i == 0 {
				if err := b.mix(t.OnOwn(), &mix, of, name+"/own", &own); err != nil {
					return err
				}
			}
			if err := b.mix(t.LimitUse(set.use, of), &mix, of, name+set.name, &both[i]); err != nil {
				return err
			}
		}
	}
	b.Beside(name+"/own/useful", own.useful/sharingSeeds, "%")
	b.Beside(name+"/own/ended", own.ended/sharingSeeds, "jobs")
	for i, set := range settings {
		b.outcome(name+set.name, &both[i], goals)
	}
	return nil
}

// outcome adds the metrics of shared devices.
func (b *bench) outcome(name string, o *outcome, goals bool) {
	least, most := b.AtLeast, b.AtMost
	if !goals {
		least = func(name string, value, _ float64, unit string) { b.Beside(name, value, unit) }
		most = least
	}
	least(name+"/useful", o.useful/sharingSeeds, usefulGoal, "%")
	least(name+"/useful_worst", o.least, usefulGoal, "%")
	most(name+"/floors_missed", o.missed/sharingSeeds, missedGoal, "%")
	most(name+"/slowed", o.slowed/sharingSeeds, slowedGoal, "%")
	b.Beside(name+"/slowed_p99_of_jobs", o.slowedP99/sharingSeeds, "%")
	b.Beside(name+"/speed", o.speed/sharingSeeds, "%")
	b.Beside(name+"/served", o.served/sharingSeeds, "%")
	b.Beside(name+"/at_once", o.atOnce/sharingSeeds, "jobs")
	b.Beside(name+"/ended", o.ended/sharingSeeds, "jobs")
}

// outcome is what the runs of all seeds came to, summed up.
type outcome struct {
	useful, missed, slowed, slowedP99, speed, served, atOnce, ended float64
	least                                                           float64 // useful, of the worst seed
	runs                                                            int
}

// mix runs a trace to its horizon and adds what it came to.
func (b *bench) mix(t *sim.Trace, mix *sim.Mix, of *sim.Sharing, name string, to *outcome) error {
	policy, err := sim.Policy(sharingPolicy, mix.Seed, nil)
	if err != nil {
		return err
	}
	start := time.Now()
	r, err := sim.RunJobs(b.ctx, t, sim.JobOptions{Order: sim.Backfill, Placement: policy, Sharing: of, Until: mix.Horizon})
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	s := r.Sharing
	fmt.Fprintf(os.Stderr, "%s, seed %d: %.1f %% useful (%.1f s)\n", name, mix.Seed, s.Useful, time.Since(start).Seconds())
	if to.runs == 0 || s.Useful < to.least {
		to.least = s.Useful
	}
	to.runs++
	to.useful += s.Useful
	to.missed += s.FloorsMissed
	to.slowed += s.Slowed
	to.slowedP99 += s.SlowedP99
	to.speed += s.Speed
	to.served += s.Served
	to.atOnce += s.AtOnce
	to.ended += float64(r.Jobs)
	return nil
}
