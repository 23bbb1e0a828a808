package cli

import (
	"encoding"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/aliquot-dev/aliquot/api"
)

// workloadFlags are the flags that `run` and `submit` share.
type workloadFlags struct {
	shapeFlags
	timeLimit, restartTime string
	name, queue, class     string
	capability             string
	bandwidth, latency     int32
	roles                  []string
	dateFlags
	preemptible, requeue bool
	onReclaim            string
}

func (f *workloadFlags) define(c *invocation, cmd *cobra.Command) {
	flags := cmd.Flags()
	f.shapeFlags.define(flags)
	f.defineReplicas(flags)
	flags.StringArrayVar(&f.roles, "role", nil, "further processes with a share of their own, which start with these, all or none: 'worker --replicas 4 --gpu 0.5 --mem 4Gi -- ./worker', a name, flags of the share (--gpu, --mem, --weight, --devices, --model, --replicas, --cpu, --host-memory) and their program where it is another; once for each role")
	flags.StringVar(&f.capability, "min-capability", "", "only devices with this compute capability or a higher one, 8.0; see aliquot devices -o json")
	flags.Int32Var(&f.bandwidth, "min-bandwidth", 0, "only devices whose memory has a bandwidth of so many GB/s or more, where that is known")
	flags.Int32Var(&f.latency, "max-latency-class", 0, "only devices of this latency class or a faster one, 1 being the fastest, where one is declared; see aliquot devices -o wide")
	flags.StringVar(&f.name, "name", "", "a name; one is made up without it")
	flags.StringVar(&f.queue, "queue", "", "the queue that it counts for (default: "+api.DefaultQueue+")")
	flags.StringVar(&f.class, "class", "", "interactive, inference, training or batch (default: training)")
	flags.Int32Var(&f.priority, "priority", 0, "higher goes first; above 0 as far as its queue lets users")
	f.dateFlags.define(flags, "its priority")
	flags.BoolVar(&f.preemptible, "preemptible", false, "it may hold what others are guaranteed and do not use; it is ended when they want it, or when work of a higher priority in its queue does")
	flags.StringVar(&f.onReclaim, "on-reclaim", "", "stop: above its memory floor it may also use idle floors of others; it is ended when they want them (default: only memory that nobody has reserved)")
	flags.StringVar(&f.timeLimit, "time-limit", "", "end it after so much running time, 2h30m")
	flags.StringVar(&f.restartTime, "restart-time", "", "what it takes after a start until it goes on where it was, 5m: counted as lost where it would be evicted (default: a minute)")

	complete := func(flag string, values func(*invocation) []string) {
		must(cmd.RegisterFlagCompletionFunc(flag, c.completion(values)))
	}
	complete("queue", queueNames)
	complete("model", modelNames)
	fixed := func(flag string, values ...string) {
		must(cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)))
	}
	fixed("class", string(api.Interactive), string(api.Inference), string(api.Training), string(api.Batch))
	fixed("on-reclaim", string(api.ReclaimStop))
	fixed("gpu", "0.25", "0.25..0.80", "0.5..", "1")
	fixed("mem", "4Gi", "4Gi..8Gi", "50%")
}

// defineRequeue defines the flag of what is not run here and now.
func (f *workloadFlags) defineRequeue(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&f.requeue, "requeue", false, "when it is evicted it goes back into the line, and starts from the beginning; with --preemptible it may be moved where the policy says so")
}

// defineShare defines the flags of a share.
func defineShare(flags *pflag.FlagSet, gpu, memory *string, weight *int32) {
	flags.StringVar(gpu, "gpu", "", "compute, floor..ceiling in parts of a device: 0.25..0.80, 0.25, 0.25.., 25% (default: a whole device)")
	flags.StringVar(memory, "mem", "", "device memory, floor..ceiling: 4Gi..8Gi, 4Gi, 4Gi.., 50% (default: the same part as the compute floor)")
	flags.Int32Var(weight, "weight", 0, "how what is over the floors is divided (default: the compute floor in thousandths)")
}

// spec makes a submission of the flags. What is not said stays empty: the server knows the defaults.
func (f *workloadFlags) spec(c *invocation, command []string) (api.WorkloadSpec, error) {
	if c.DirLost != nil {
		return api.WorkloadSpec{}, fmt.Errorf("the folder you are in is gone (%w), and the program would run there: go to one that exists, for example with `cd ~`", c.DirLost)
	}
	if err := f.empty(); err != nil {
		return api.WorkloadSpec{}, err
	}
	out := api.WorkloadSpec{
		Name: f.name, Queue: f.queue, Class: api.Class(f.class), Priority: f.priority, PriorityAfter: f.after, Preemptible: f.preemptible, Requeue: f.requeue, OnReclaim: api.ReclaimRule(f.onReclaim), MinBandwidth: f.bandwidth, MaxLatencyClass: f.latency,
		Command: command, Dir: c.Dir, Env: environment(c.Env),
	}
	if out.Queue == "" {
		out.Queue = c.settings.Queue
	}
	own, err := f.shape()
	if err != nil {
		return out, err
	}
	out.Share, out.Devices, out.Model, out.CPU, out.Memory, out.Replicas = own.Share, own.Devices, own.Model, own.CPU, own.Memory, own.Replicas
	for _, text := range f.roles {
		role, err := parseRole(text)
		if err != nil {
			return out, err
		}
		out.Roles = append(out.Roles, role)
	}
	for _, one := range []struct {
		flag, text string
		into       encoding.TextUnmarshaler
	}{
		{"--min-capability", f.capability, &out.MinCapability},
		{"--time-limit", f.timeLimit, &out.TimeLimit},
		{"--restart-time", f.restartTime, &out.RestartTime},
	} {
		if err := parse(one.flag, one.text, one.into); err != nil {
			return out, err
		}
	}
	if out.PriorityUntil, err = f.date(f.given); err != nil {
		return out, err
	}
	if err := f.noTime(out); err != nil {
		return out, err
	}
	// What the server would refuse whatever its state is as little understood as what does not parse.
	checked := out
	if len(command) == 0 { // of a plan; roles that have no program of their own run it, too
		checked.Command = []string{"none"}
	}
	if err := checked.Default().Validate(); err != nil {
		return out, &usageError{err}
	}
	return out, nil
}

// empty refuses a flag that was given nothing.
func (f *workloadFlags) empty() error {
	return f.refuseEmpty(append(f.empties(), []emptied{
		{"min-capability", f.capability, "8.0, or leave it out for any"},
		{"name", f.name, "night, or leave it out to have one made up"},
		{"queue", f.queue, "one that `aliquot queue list` names, or leave it out for " + api.DefaultQueue},
		{"on-reclaim", f.onReclaim, "stop, or leave it out for memory that is never taken back"},
		{"class", f.class, "batch, or leave it out for training"},
		{"priority-until", f.until, "2026-12-01T18:00, or leave it out for a priority that always holds"},
		{"time-limit", f.timeLimit, "2h30m, or leave it out for no limit"},
		{"restart-time", f.restartTime, "5m, or leave it out for a minute"},
	}...))
}

func emptyFlag(name, instead string) error {
	return usagef("--%s: nothing was given: write for example %s", name, instead)
}

// noTime refuses a zero that was written, as nothing does.
func (f *workloadFlags) noTime(spec api.WorkloadSpec) error {
	switch {
	case f.given("time-limit") && spec.TimeLimit == 0:
		return usagef("--time-limit %s: a program without any time does nothing: give for example 2h30m, or leave it out for no limit", f.timeLimit)
	case f.given("min-bandwidth") && f.bandwidth <= 0:
		return usagef("--min-bandwidth %d: every device has that: give for example 900, or leave it out for any", f.bandwidth)
	case f.given("max-latency-class") && f.latency == 0:
		return usagef("--max-latency-class 0: the fastest class is 1: give 1 to %d, or leave it out for any", api.SlowestLatency)
	}
	return nil
}

func noWeight(weight int32) error {
	return usagef("--weight %d: of what is over the floors this is a share of nothing: give 1 to %d, or leave it out for the compute floor in thousandths", weight, api.MaxWeight)
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

func bareMemory(text string) error { return bare("--mem", text, api.LeastMemory, "context takes") }

// bare refuses memory in bytes that is less than least, which takes as much: whoever writes `--mem 4` means 4Gi. takes is the rest
// of the sentence.
func bare(flag, text string, least api.Bytes, takes string) error {
	parts := strings.SplitN(text, "..", 2)
	var few int64
	var place int // in text, of the first that is too little
	for i, one := range parts {
		value, err := strconv.ParseInt(one, 10, 64)
		if err != nil || value == 0 || api.Bytes(value) >= least {
			continue
		}
		if few == 0 {
			few = value
			place = i * (len(text) - len(one)) // the second part is text's end
		}
		switch {
		case value < 1<<10:
			parts[i] += "Gi"
		case value < 1<<20:
			parts[i] += "Mi"
		default:
			parts[i] = "1Gi"
		}
	}
	less := fmt.Sprintf("less than any %s (%s)", takes, least)
	if few == 0 {
		last := parts[len(parts)-1]
		ceiling, err := api.ParseAmount(last)
		if err != nil || ceiling.Bytes == 0 || ceiling.Bytes >= least {
			return nil
		}
		return pointed(text, len(text)-len(last), less, "%s %s: %s of memory is %s; give for example %s 8Gi", flag, text, ceiling, less, flag)
	}
	are := plural(int(few), "byte") + " are"
	if few == 1 {
		are = "1 byte is"
	}
	return pointed(text, place, less, "%s %s: %s %s; did you mean %s?", flag, text, are, less, strings.Join(parts, ".."))
}

// pointedAt is an error that shows its place in what was typed.
type pointedAt struct {
	error
	place api.ParseError
}

// Caret shows the place.
func (p *pointedAt) Caret() string { return p.place.Caret() }

// pointed is usagef with a caret at offset of the text of a flag, where problem is.
func pointed(text string, offset int, problem, format string, args ...any) error {
	return &usageError{&pointedAt{fmt.Errorf(format, args...), api.ParseError{Input: text, Offset: offset, Problem: problem}}}
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

// command is the rule for a program and its arguments. What follows the program is the program's; where nothing set it off, a word
// there that names a flag of ours may have been meant for us, and the two readings differ by a whole device.
func command(cmd *cobra.Command, given []string) error {
	if len(given) == 0 {
		return usagef("%s needs a program: `%s --gpu 0.25..0.80 -- python train.py`", cmd.CommandPath(), cmd.CommandPath())
	}
	if cmd.ArgsLenAtDash() == 0 {
		return nil
	}
	if ours, program := oursAmong(cmd.Flags(), given); len(ours) > 0 {
		path := cmd.CommandPath()
		before := flagsGiven(cmd.Flags())
		return usagef("%s stands after the program %s, where it would be the program's, and is a flag of %s: write `%s` if it is for %s, `%s` if it is for the program",
			ours[0], given[0], path, commandText(slices.Concat(strings.Fields(path), before, ours, []string{"--"}, program)), path,
			commandText(slices.Concat(strings.Fields(path), before, []string{"--"}, given)))
	}
	return nil
}

// oursAmong finds the words that name a flag of ours, each with its value, up to a `--` of the program's own, and what is left of
// the program without them.
func oursAmong(flags *pflag.FlagSet, words []string) (ours, program []string) {
	for i := 0; i < len(words); i++ {
		if words[i] == "--" {
			return ours, append(program, words[i+1:]...)
		}
		name, isLong := strings.CutPrefix(words[i], "--")
		name, _, hasValue := strings.Cut(name, "=")
		flag := flags.Lookup(name)
		if !isLong || flag == nil || name == "help" {
			program = append(program, words[i])
			continue
		}
		ours = append(ours, words[i])
		if !hasValue && flag.NoOptDefVal == "" && i+1 < len(words) {
			i++
			ours = append(ours, words[i])
		}
	}
	return ours, program
}

// flagsGiven are the flags that were given, as words.
func flagsGiven(flags *pflag.FlagSet) (words []string) {
	flags.Visit(func(flag *pflag.Flag) {
		if several, ok := flag.Value.(pflag.SliceValue); ok {
			for _, one := range several.GetSlice() {
				words = append(words, "--"+flag.Name, one)
			}
			return
		}
		if flag.NoOptDefVal != "" {
			words = append(words, "--"+flag.Name+"="+flag.Value.String())
			return
		}
		words = append(words, "--"+flag.Name, flag.Value.String())
	})
	return words
}

// shareText prints what was asked for: `0.25..0.80`, with the number of devices where there are several.
func shareText(spec api.WorkloadSpec) string {
	text := fmt.Sprint(spec.Share.Compute)
	if spec.Devices > 1 {
		text += fmt.Sprintf(" ×%d", spec.Devices)
	}
	return text
}
