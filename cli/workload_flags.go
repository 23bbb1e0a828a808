package cli

import (
	"encoding"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/aliquot-dev/aliquot/api"
)

// workloadFlags are the flags that `run` and `submit` share.
type workloadFlags struct {
	gpu, memory, timeLimit, cpu, hostMemory string
	name, model, queue, class               string
	devices                                 int
	priority, weight                        int32
	preemptible                             bool
	given                                   func(flag string) bool
}

func (f *workloadFlags) define(c *invocation, cmd *cobra.Command) {
	flags := cmd.Flags()
	f.given = flags.Changed
	// Everything from the first word that is no flag belongs to the program.
	flags.SetInterspersed(false)
	defineShare(flags, &f.gpu, &f.memory, &f.weight)
	flags.IntVar(&f.devices, "devices", 1, "how many devices, each with this share")
	flags.StringVar(&f.model, "model", "", "only devices of this model, as aliquot devices names it")
	flags.StringVar(&f.name, "name", "", "a name; one is made up without it")
	flags.StringVar(&f.queue, "queue", "", "the queue that it counts for (default: "+api.DefaultQueue+")")
	flags.StringVar(&f.class, "class", "", "interactive, inference, training or batch (default: training)")
	flags.Int32Var(&f.priority, "priority", 0, "higher goes first")
	flags.BoolVar(&f.preemptible, "preemptible", false, "it may hold what others are guaranteed and do not use; it is ended when they want it")
	flags.StringVar(&f.timeLimit, "time-limit", "", "end it after so much running time, 2h30m")
	flags.StringVar(&f.cpu, "cpu", "", "limit in cores, 2 or 0.5")
	flags.StringVar(&f.hostMemory, "host-memory", "", "limit of the machine's memory, 8Gi")

	complete := func(flag string, values func(*invocation) []string) {
		must(cmd.RegisterFlagCompletionFunc(flag, c.completion(values)))
	}
	complete("queue", queueNames)
	complete("model", modelNames)
	fixed := func(flag string, values ...string) {
		must(cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)))
	}
	fixed("class", string(api.Interactive), string(api.Inference), string(api.Training), string(api.Batch))
	fixed("gpu", "0.25", "0.25..0.80", "0.5..", "1")
	fixed("mem", "4Gi", "4Gi..8Gi", "50%")
}

// defineShare defines the flags of a share.
func defineShare(flags *pflag.FlagSet, gpu, memory *string, weight *int32) {
	flags.StringVar(gpu, "gpu", "", "compute, floor..ceiling in parts of a device: 0.25..0.80, 0.25, 0.25.., 25% (default: a whole device)")
	flags.StringVar(memory, "mem", "", "device memory, floor..ceiling: 4Gi..8Gi, 4Gi, 4Gi.., 50% (default: the same part as the compute floor)")
	flags.Int32Var(weight, "weight", 0, "how what is over the floors is divided (default: the compute floor in thousandths)")
}

// spec makes a submission of the flags. What is not said stays empty: the server knows the defaults.
func (f *workloadFlags) spec(c *invocation, command []string) (api.WorkloadSpec, error) {
	out := api.WorkloadSpec{
		Name: f.name, Queue: f.queue, Class: api.Class(f.class), Priority: f.priority, Preemptible: f.preemptible, Devices: f.devices, Model: f.model,
		Command: command, Dir: c.Dir, Env: environment(c.Env),
	}
	if out.Queue == "" {
		out.Queue = c.settings.Queue
	}
	out.Share.Weight = f.weight
	for _, one := range []struct {
		flag, text string
		into       encoding.TextUnmarshaler
	}{
		{"--gpu", f.gpu, &out.Share.Compute},
		{"--mem", f.memory, &out.Share.Memory},
		{"--time-limit", f.timeLimit, &out.TimeLimit},
		{"--host-memory", f.hostMemory, &out.Memory},
	} {
		if err := parse(one.flag, one.text, one.into); err != nil {
			return out, err
		}
	}
	var err error
	if out.CPU, err = cores(f.cpu); err != nil {
		return out, err
	}
	return out, f.nothing(out)
}

// nothing refuses a zero that was written: as a value it would mean the default, and whoever writes it means nothing.
func (f *workloadFlags) nothing(spec api.WorkloadSpec) error {
	switch {
	case f.given("devices") && spec.Devices == 0:
		return usagef("--devices 0: a share of no device is a share of nothing: give 1 to %d, or leave it out for 1", api.MaxDevices)
	case f.given("time-limit") && spec.TimeLimit == 0:
		return usagef("--time-limit %s: a program without any time does nothing: give for example 2h30m, or leave it out for no limit", f.timeLimit)
	case f.given("host-memory") && spec.Memory == 0:
		return usagef("--host-memory %s: a program without any memory does not run: give for example 8Gi, or leave it out for no limit", f.hostMemory)
	case f.given("weight") && f.weight == 0:
		return noWeight()
	}
	return nil
}

func noWeight() error {
	return usagef("--weight 0: of what is over the floors this is a share of nothing: give 1 to %d, or leave it out for the compute floor in thousandths", api.MaxWeight)
}

// parse reads a flag's text, if there is one.
func parse(flag, text string, into encoding.TextUnmarshaler) error {
	if text == "" {
		return nil
	}
	if err := into.UnmarshalText([]byte(text)); err != nil {
		return usagef("%s: %w", flag, err)
	}
	return nil
}

// cores reads a number of cores in thousandths.
func cores(text string) (api.Milli, error) {
	if text == "" {
		return 0, nil
	}
	value, err := strconv.ParseFloat(text, 64)
	milli := math.Round(value * 1000)
	switch {
	case err != nil || math.IsNaN(value) || math.IsInf(value, 0):
		return 0, usagef("--cpu %s: this is no number of cores: write 2 or 0.5", text)
	case milli < 1:
		return 0, usagef("--cpu %s: a limit is at least 0.001 of a core", text)
	case milli > math.MaxInt32:
		return 0, usagef("--cpu %s: no machine has so many cores", text)
	}
	return api.Milli(milli), nil
}

func environment(env []string) map[string]string {
	out := make(map[string]string, len(env))
	for _, entry := range env {
		if key, value, ok := strings.Cut(entry, "="); ok && key != "" {
			out[key] = value
		}
	}
	return out
}

// command is the rule for a program and its arguments.
func command(cmd *cobra.Command, given []string) error {
	if len(given) == 0 {
		return usagef("%s needs a program: `%s --gpu 0.25..0.80 -- python train.py`", cmd.CommandPath(), cmd.CommandPath())
	}
	return nil
}

// shareText prints what was asked for: `0.25..0.80`, with the number of devices where there are several.
func shareText(spec api.WorkloadSpec) string {
	text := fmt.Sprint(spec.Share.Compute)
	if spec.Devices > 1 {
		text += fmt.Sprintf(" ×%d", spec.Devices)
	}
	return text
}
