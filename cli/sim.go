package cli

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/aliquot-dev/aliquot/engine"
	"github.com/aliquot-dev/aliquot/engine/place"
	"github.com/aliquot-dev/aliquot/host/policy"
	"github.com/aliquot-dev/aliquot/host/sim"
)

func (c *invocation) simCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "sim",
		Short: "Run traces in virtual time: the same engine, no server needed",
		Args:  unknownCommand,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(c.simRunCommand(), c.simReplayCommand(), c.simCompareCommand(), c.simPredictCommand(), c.simTuneCommand())
	return cmd
}

const (
	traceHelp  = "openb:FOLDER/LIST, or generated:NODES for a made one"
	everyTrace = "openb:FOLDER/LIST, generated:NODES, " + predictable
)

// simRun is what `sim run` was asked for.
type simRun struct {
	trace, seeds, html string
	nodes, start       string
	ordered            bool // --order was given
	policies, orders   []string
	load               float64
	between, repair    time.Duration
	churn              []int32
	pods               int
	sharing            simSharing
	progress           *bool
}

func (c *invocation) simRunCommand() *cobra.Command {
	var o simRun
	cmd := &cobra.Command{
		Use:   "run --trace TRACE",
		Short: "Run a trace and say how much of the devices was allocated, or how long its jobs took",
		Long: `Runs a trace in virtual time. Traces of pods (openb, generated) run by the protocol that FGD was measured with: the pods in a
random order, some drawn twice, come one by one until they want 130 % of all devices; none leaves, and what does not fit when it
comes is given up. The table says how much of the devices was allocated when 50, 80, 100 and 130 % had come, in percent, as the
mean over the seeds. With --churn pods come and leave by their recorded times, so that they want 130 % of all devices at a time, and the table
says how much was allocated on average, against how many were moved.

Traces of jobs (muri, philly, jobs, generated-jobs, generated-mix) run from the first coming to the last end: jobs come, wait, run as long as the trace
says, and leave. The table says how long they took from their coming to their end (JCT) and how fair that was, for each order and policy; jobs
that could never run are counted and named with the reason.
With --interference or --duty, and for generated-mix, each device's time is divided among the jobs on it by their floors, ceilings and what they keep
busy, beside others they are slower, and the table says, too, what the devices did of use.
docs/simulator.md describes orders, figures and the format of own traces.`,
		Example: `  aliquot sim run --trace openb:traces/openb/default --policy default,fgd --seeds 42..51
  aliquot sim run --trace generated:100 -o json
  aliquot sim run --trace generated:12 --churn 0,10,30 --churn-pods 1500 --html churn.html
  aliquot sim run --trace muri:traces/muri/trace1.csv --order fifo,srtf,srsf
  aliquot sim run --trace muri:traces/muri/trace1.csv --order served --interleave --policy even
  aliquot sim run --trace generated-jobs:8 --order fifo,fair,las --html report.html
  aliquot sim run --trace philly:traces/sia/philly.csv --nodes 200x8:a100,100x4:l4
  aliquot sim run --trace generated-mix:4 --load 3 --horizon 22h --use 0.9
  aliquot sim run --trace generated-mix:4 --load 3 --horizon 22h --own`,
		Args: none,
	}
	cmd.Flags().StringVar(&o.trace, "trace", "generated:60", traceHelp+"; of jobs: muri:FILE, philly:FILE, jobs:FILE, generated-jobs:NODES or generated-mix:NODES")
	cmd.Flags().StringVar(&o.nodes, "nodes", "", "run on these nodes instead of the trace's own: "+nodesWords)
	cmd.Flags().StringSliceVar(&o.policies, "policy", []string{"default"}, "placement policies: "+strings.Join(sim.Policies(), ", ")+", or a file of one in JSON; of jobs also a policy file, see docs/policy.md")
	cmd.Flags().Int32SliceVar(&o.churn, "churn", nil, "of pods: they come and leave, and so many may be moved an hour: a run for each of these, for example 0,10,30,100")
	cmd.Flags().IntVar(&o.pods, "churn-pods", 10_000, "with --churn: how many pods come")
	cmd.Flags().StringVar(&o.start, "start", "2026-01-05T00:00", "of jobs: when the trace begins, for the windows of a policy file, in its zone")
	cmd.Flags().StringVar(&o.seeds, "seeds", "42..51", "one run for each: 42, 42..51 or several of these with commas; of jobs the first alone, for what is random")
	cmd.Flags().StringSliceVar(&o.orders, "order", []string{"backfill"}, "of jobs: "+strings.Join(sim.Orders(), ", "))
	cmd.Flags().Float64Var(&o.load, "load", 0.9, "of jobs: philly and the generated ones get as many nodes, or as close comings, as make this load")
	timeFlag(cmd, &o.between, "failures", "of jobs: each node fails at random, so long after it came back, on average; 0: none does")
	o.repair = time.Hour
	timeFlag(cmd, &o.repair, "repair", "of jobs: how long a node that failed is away")
	o.sharing.flags(cmd)
	o.progress = progressFlag(cmd)
	cmd.Flags().StringVar(&o.html, "html", "", "write a report with plots to this file, too")
	format := outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		runs, err := c.simulate(cmd, &o)
		if err != nil {
			return err
		}
		if o.html != "" {
			if err := sim.WriteHTML(o.html, runs); err != nil {
				return err
			}
		}
		if len(runs.Jobs) > 0 {
			return c.printJobs(*format, runs)
		}
		if len(runs.Churn) > 0 {
			return c.print(*format, runs, func(bool) table { return churnTable(runs.Churn) })
		}
		return c.print(*format, runs, func(bool) table { return seriesTable(runs.Series) })
	}
	return cmd
}

// simulate makes the runs of `sim run`.
func (c *invocation) simulate(cmd *cobra.Command, o *simRun) (*sim.File, error) {
	seeds, err := sim.ParseSeeds(o.seeds)
	if err != nil {
		return nil, usagef("--seeds: %w", err)
	}
	o.ordered = cmd.Flags().Changed("order")
	if err := o.checkChurn(cmd); err != nil {
		return nil, err
	}
	if sim.IsJobs(o.trace) {
		if _, err := (&policy.Policy{}).Moment(o.start); err != nil { // whether it counts or not
			return nil, usagef("--start: %w", err)
		}
		if o.nodes != "" && cmd.Flags().Changed("load") && strings.HasPrefix(o.trace, "philly:") {
			return nil, usagef("--load and --nodes: %s gets as many nodes as make a load, or those that are given: leave one of them out", o.trace)
		}
		return c.simulateJobs(cmd.Context(), o, seeds[0])
	}
	if !sim.IsPods(o.trace) {
		return nil, fmt.Errorf("there is no trace %q: write %s", o.trace, everyTrace)
	}
	if o.sharing != (simSharing{}) {
		return nil, usagef("--interference, --duty, --horizon, --own, --interleave and --use are for traces of jobs, and %s is one of pods: leave them out", o.trace)
	}
	for _, name := range []string{"order", "load", "failures", "repair", "start"} {
		if cmd.Flags().Changed(name) {
			return nil, usagef("--%s is for traces of jobs, and %s is one of pods: leave it out, or use %s", name, o.trace, predictable)
		}
	}
	nodes, err := readNodes(o.nodes)
	if err != nil {
		return nil, err
	}
	t, err := sim.Open(o.trace, nodes)
	if err != nil {
		return nil, err
	}
	out := &sim.File{Trace: o.trace, Nodes: o.nodes, Seeds: seeds}
	progress := c.progress(*o.progress)
	defer progress.over()
	with := sim.ChurnOptions{Percent: 130, Pods: o.pods, Moves: o.churn, Seeds: seeds}
	for _, name := range o.policies {
		policyFor, err := simPolicy(name, t.Pods)
		if err != nil {
			return nil, err
		}
		if len(o.churn) > 0 {
			curve, err := sim.RunChurn(cmd.Context(), t, name, with, progress.ofMoves(name), policyFor)
			if err != nil {
				return nil, err
			}
			out.Churn = append(out.Churn, curve)
			continue
		}
		series, err := sim.RunSeries(cmd.Context(), t, name, seeds, c.Now, progress.ofSeeds(name), policyFor)
		if err != nil {
			return nil, err
		}
		out.Series = append(out.Series, series)
	}
	return out, nil
}

// checkChurn says what is wrong with what was asked for of pods that come and leave.
func (o *simRun) checkChurn(cmd *cobra.Command) error {
	churn := cmd.Flags().Changed("churn")
	switch {
	case churn && sim.IsJobs(o.trace):
		return usagef("--churn is for traces of pods, and %s is one of jobs, which come and leave anyway: leave it out", o.trace)
	case !churn && cmd.Flags().Changed("churn-pods"):
		return usagef("--churn-pods %d: pods come and leave with --churn alone: give that, too", o.pods)
	case churn && (o.pods < 2 || o.pods > 10_000_000):
		return usagef("--churn-pods %d: give 2 to 10000000", o.pods)
	}
	for _, moves := range o.churn {
		if moves < 0 || moves > engine.MaxMoves {
			return usagef("--churn %d: give 0 to %d moves an hour", moves, engine.MaxMoves)
		}
	}
	return nil
}

// nodesWords say what --nodes takes.
const nodesWords = "64x8:h100 is 64 nodes of 8 devices of that model, several of these with commas; or a file: a node list of openb, or a trace in our own format, whose nodes count"

// readNodes are the nodes that --nodes names; nil: those of the trace.
func readNodes(named string) ([]engine.NodeSet, error) {
	if named == "" {
		return nil, nil
	}
	nodes, err := sim.ReadNodes(named)
	if err != nil {
		return nil, usagef("--nodes: %w", err)
	}
	return nodes, nil
}

// simPolicy is a policy by name, or what a file has.
func simPolicy(name string, known []sim.Job) (func(uint64) (*place.Policy, error), error) {
	if slices.Contains(sim.Policies(), name) {
		return func(seed uint64) (*place.Policy, error) { return sim.Policy(name, seed, known) }, nil
	}
	text, err := os.ReadFile(name)
	if err == nil && policy.IsPolicy(text) {
		return nil, usagef("--policy: %s is a policy file, and a trace of pods has no time and no queues: give a placement policy, or a trace of jobs", name)
	}
	if err != nil {
		return nil, fmt.Errorf("there is no placement policy %q, and no such file: use one of %s or a file", name, strings.Join(sim.Policies(), ", "))
	}
	var placement place.Policy
	if err := json.Unmarshal(text, &placement); err != nil {
		return nil, fmt.Errorf("placement policy %s: %w", name, err)
	}
	if err := placement.Validate(); err != nil {
		return nil, err
	}
	if !placement.Prefers() {
		return nil, fmt.Errorf(`placement policy %s: no feature counts, for "weights" has none but 0: give one a weight, as {"weights": {"remainder": 1}}, or a "device" rule`, name)
	}
	return func(seed uint64) (*place.Policy, error) {
		seeded := placement
		seeded.Seed = seed
		return &seeded, nil
	}, nil
}

func seriesTable(all []*sim.Series) table {
	out := table{head: []string{"POLICY", ">AT 50", ">AT 80", ">AT 100", ">AT 130", ">± 130", ">DECISIONS/S"}}
	for _, s := range all {
		row := []cell{{s.Policy, bold}}
		for _, m := range s.At {
			row = append(row, text(points(m.Mean)))
		}
		row = append(row, text(points(s.At[len(s.At)-1].Deviation)), text(strconv.Itoa(int(s.Speed))))
		out.rows = append(out.rows, row)
	}
	return out
}

func churnTable(all []*sim.Churn) table {
	out := table{head: []string{"POLICY", ">MOVES/H", ">MOVED/1000 PODS", ">ALLOCATED %", ">±", ">GIVEN UP %"}}
	for _, c := range all {
		for _, p := range c.Points {
			out.rows = append(out.rows, []cell{
				{c.Policy, bold}, text(strconv.Itoa(int(p.Allowed))), text(points(p.Moved)), text(points(p.Allocated)), text(points(p.Deviation)), text(points(p.GivenUp)),
			})
		}
	}
	return out
}

func points(x float64) string { return strconv.FormatFloat(x, 'f', 2, 64) }

// tuned is what `sim tune` found.
type tuned struct {
	Policy place.Policy `json:"policy"`
	Score  float64      `json:"score"`   // on the seeds it was trained on
	Held   float64      `json:"heldOut"` // on others
	Start  float64      `json:"heldOutBefore"`
}

func (c *invocation) simTuneCommand() *cobra.Command {
	var traces []string
	var seeds, held, start string
	var evaluations int
	var seed uint64
	cmd := &cobra.Command{
		Use:   "tune --trace TRACE",
		Short: "Look for weights of the placement score that allocate more",
		Long: `Looks for weights by an evolution strategy: each evaluation runs every trace with every seed. The score is by how many points the
weights are ahead of FGD, at 100 and 130 % of capacity alike, on average, and once more by the lead on the worst trace. What was found is
scored once more with seeds that it was not trained on. It stops at Ctrl-C with the best so far.`,
		Example: `  aliquot sim tune --trace openb:traces/openb/default,openb:traces/openb/cpu250 --seeds 100,101 --held-out 200..203 -o json`,
		Args:    none,
	}
	cmd.Flags().StringSliceVar(&traces, "trace", []string{"generated:60"}, "the traces, with commas: "+traceHelp)
	cmd.Flags().StringVar(&seeds, "seeds", "100,101", "the seeds to train on")
	cmd.Flags().StringVar(&held, "held-out", "200,201", "the seeds to judge on what was found")
	cmd.Flags().StringVar(&start, "start", "default", "the policy to begin with: a name, or a file in JSON")
	cmd.Flags().IntVar(&evaluations, "evaluations", 100, "how many weights to try")
	cmd.Flags().Uint64Var(&seed, "seed", 1, "of the search itself")
	format := outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		trained, judged, err := tuneSeeds(seeds, held)
		if err != nil {
			return err
		}
		train, err := openCases(traces, trained)
		if err != nil {
			return err
		}
		judge, err := openCases(traces, judged)
		if err != nil {
			return err
		}
		from, err := simPolicy(start, train.first.Pods)
		if err != nil {
			return err
		}
		policy, err := from(0)
		if err != nil {
			return err
		}
		search := sim.Tuning{Cases: train.cases, Start: *policy, Seed: seed, Evaluations: evaluations, Told: c.tell}
		out := tuned{}
		if out.Policy, out.Score, err = search.Run(cmd.Context()); err != nil {
			return err
		}
		search.Cases = judge.cases
		if out.Start, err = search.Score(policy); err != nil {
			return err
		}
		if out.Held, err = search.Score(&out.Policy); err != nil {
			return err
		}
		return c.print(*format, out, func(bool) table { return out.table() })
	}
	return cmd
}

// tell says on standard error how far the search is.
func (c *invocation) tell(evaluation int, score float64, _ place.Weights) {
	_, _ = fmt.Fprintf(c.Err, "%s evaluation %d: %.3f points\n", c.Now().Format(time.TimeOnly), evaluation, score)
}

func (t tuned) table() table {
	out := table{head: []string{"FEATURE", ">WEIGHT"}}
	for _, f := range place.Features() {
		if w := t.Policy.Weights[f]; w != 0 {
			out.rows = append(out.rows, []cell{text(f.String()), text(strconv.Itoa(int(w)))})
		}
	}
	for _, line := range []struct {
		name  string
		value float64
	}{{"(score, trained)", t.Score}, {"(score, held out)", t.Held}, {"(score before, held out)", t.Start}} {
		out.rows = append(out.rows, []cell{{line.name, dim}, text(strconv.FormatFloat(line.value, 'f', 3, 64))})
	}
	return out
}

// caseSet are the cases of several traces.
type caseSet struct {
	cases []*sim.Case
	first *sim.Openb
}

// tuneSeeds are the seeds to train on, and others to judge on.
func tuneSeeds(seeds, held string) (train, judge []uint64, err error) {
	if train, err = sim.ParseSeeds(seeds); err != nil {
		return nil, nil, usagef("--seeds: %w", err)
	}
	if judge, err = sim.ParseSeeds(held); err != nil {
		return nil, nil, usagef("--held-out: %w", err)
	}
	for _, seed := range judge {
		if slices.Contains(train, seed) {
			return nil, nil, usagef("--held-out %s: seed %d is one of --seeds, too, and what is found is to be judged on seeds that it was not trained on: give others", held, seed)
		}
	}
	return train, judge, nil
}

// openCases are the cases of traces, with each of the seeds.
func openCases(traces []string, list []uint64) (*caseSet, error) {
	set := &caseSet{}
	for _, name := range traces {
		o, err := sim.Open(name, nil)
		if err != nil {
			return nil, err
		}
		if set.first == nil {
			set.first = o
		}
		for _, seed := range list {
			one, err := sim.NewCase(o, name, seed)
			if err != nil {
				return nil, err
			}
			set.cases = append(set.cases, one)
		}
	}
	return set, nil
}
