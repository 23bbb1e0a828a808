package sim

import (
	"context"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aliquot-dev/aliquot/engine"
	"github.com/aliquot-dev/aliquot/engine/place"
)

// Open reads the trace that a word names: `openb:FOLDER/LIST`, or `generated:NODES` for a made one. Its pods are to run on the given nodes, or
// where these are nil on its own.
func Open(name string, on []engine.NodeSet) (*Openb, error) {
	o, err := openPods(name)
	if err != nil || on == nil {
		return o, err
	}
	return o.on(on, strings.HasPrefix(name, "generated:")), nil
}

func openPods(name string) (*Openb, error) {
	kind, rest, _ := strings.Cut(name, ":")
	switch kind {
	case "openb":
		folder, list := filepath.Split(rest)
		if list == "" {
			return nil, fmt.Errorf("trace %q names no pod list: write openb:FOLDER/LIST, for example openb:traces/openb/default", name)
		}
		return ReadOpenb(folder, list)
	case "generated":
		nodes, err := strconv.Atoi(rest)
		if err != nil || nodes < 1 || nodes > 100_000 {
			return nil, fmt.Errorf("trace %q: write generated:NODES with 1 to 100000 nodes", name)
		}
		return Generate(nodes, 1), nil
	}
	if IsJobs(name) {
		return nil, fmt.Errorf("trace %q is one of jobs, and one of pods is wanted: write openb:FOLDER/LIST or generated:NODES", name)
	}
	return nil, fmt.Errorf("there is no trace %q: write openb:FOLDER/LIST or generated:NODES", name)
}

// IsPods says that a word names a trace of pods, which Open reads.
func IsPods(name string) bool {
	kind, _, _ := strings.Cut(name, ":")
	return kind == "openb" || kind == "generated"
}

// IsJobs says that a word names a trace of jobs that come, run and leave, which OpenJobs reads; Open reads the others.
func IsJobs(name string) bool {
	kind, _, _ := strings.Cut(name, ":")
	return IsMix(name) || slices.Contains([]string{"muri", "philly", "jobs", "generated-jobs"}, kind)
}

// IsMix says that a word names a trace that is made of programs and services: OpenJobs needs to know of which.
func IsMix(name string) bool {
	kind, _, _ := strings.Cut(name, ":")
	return kind == "generated-mix"
}

// OpenJobs reads the trace of jobs that a word names. Traces that name no nodes get as many as keep the load at or under a part of
// them, which is above 0; made ones are made by the seed, and a mix of the programs and services of what is shared. Where nodes are given the jobs are to run
// on those instead of the trace's own, and those that want whole devices go to as few of them as the largest allows.
func OpenJobs(name string, load float64, seed uint64, of *Sharing, on []engine.NodeSet) (*Trace, error) {
	kind, rest, _ := strings.Cut(name, ":")
	switch kind {
	case "muri":
		if on == nil {
			return ReadMuri(rest)
		}
		return readMuri(rest, on)
	case "philly":
		return readPhilly(rest, load, on)
	case "jobs":
		return ReadLines(rest, on)
	}
	nodes, err := strconv.Atoi(rest)
	if err != nil || nodes < 1 || nodes > 10_000 {
		return nil, fmt.Errorf("trace %q: write %s:NODES with 1 to 10000 nodes", name, kind)
	}
	if IsMix(name) {
		m := DefaultMix(nodes, seed)
		m.Load = load
		t, err := GenerateMix(m, of)
		if err == nil && on != nil {
			t.Nodes = on
		}
		return t, err
	}
	if on == nil {
		return GenerateJobs(nodes, load, seed), nil
	}
	return generateJobs(nodes, load, seed, on), nil
}

// ParseSeeds reads `42`, `42..51` or a list of these with commas.
func ParseSeeds(text string) ([]uint64, error) {
	var seeds []uint64
	for part := range strings.SplitSeq(text, ",") {
		first, last, ranged := strings.Cut(part, "..")
		if !ranged {
			last = first
		}
		a, err := strconv.ParseUint(first, 10, 63)
		b, err2 := strconv.ParseUint(last, 10, 63)
		if err != nil || err2 != nil || b < a || b-a >= 1000 {
			return nil, fmt.Errorf("seeds %q: write numbers or ranges of at most 1000 like 42..51, with commas between them", text)
		}
		for s := a; s <= b; s++ {
			seeds = append(seeds, s)
		}
	}
	return seeds, nil
}

// Series is a trace run under a policy once for each seed.
type Series struct {
	Policy string    `json:"policy"`
	Runs   []SeedRun `json:"runs"`
	At     []Mean    `json:"allocated"` // when 50, 80, 100 and 130 percent of capacity had arrived
	Speed  float64   `json:"decisionsPerSecond,omitempty"`
	// Curve is what was allocated when so many percent of capacity had arrived, the mean over the seeds.
	Curve []float64 `json:"curve"`
	// Fragmented is what was free then and of no use to pods like those of the list, the mean over the seeds.
	Fragmented []float64 `json:"fragmented,omitempty"`
}

// SeedRun is one run of a series.
type SeedRun struct {
	Seed    uint64    `json:"seed"`
	Jobs    int       `json:"jobs"`
	Placed  int       `json:"placed"`
	GivenUp int       `json:"givenUp"`
	At      []float64 `json:"allocated"`
}

// Mean is a mean over the seeds with its standard deviation, in percent of capacity.
type Mean struct {
	Arrived   int     `json:"arrivedPercent"`
	Mean      float64 `json:"mean"`
	Deviation float64 `json:"deviation"`
}

// Arrivals are the percentages of capacity at which a series is looked at.
var arrivals = []int{50, 80, 100, 130}

// RunSeries runs a trace by FGD's protocol under a policy, which policyFor makes for each seed. Where told is not nil, it is called after each pod that came.
func RunSeries(ctx context.Context, o *Openb, name string, seeds []uint64, clock func() time.Time, told func(seed uint64, of Progress), policyFor func(uint64) (*place.Policy, error)) (*Series, error) {
	s := &Series{Policy: name}
	var decisions int
	var took time.Duration
	for _, seed := range seeds {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		policy, err := policyFor(seed)
		if err != nil {
			return nil, err
		}
		options := Options{Config: engine.Config{Placement: policy}, GiveUp: true, Fragments: true, Clock: clock}
		if told != nil {
			options.Told = func(p Progress) { told(seed, p) }
		}
		r, err := Run(o.Inflated(seed, 130), options)
		if err != nil {
			return nil, err
		}
		one := SeedRun{Seed: seed, Jobs: r.Jobs, Placed: r.Placed, GivenUp: r.GivenUp}
		for _, percent := range arrivals {
			one.At = append(one.At, r.At(percent))
		}
		s.Runs = append(s.Runs, one)
		if s.Curve == nil {
			s.Curve = make([]float64, arrivals[len(arrivals)-1]+1)
			s.Fragmented = make([]float64, len(s.Curve))
		}
		for percent := range s.Curve {
			s.Curve[percent] += r.At(percent) / float64(len(seeds))
			s.Fragmented[percent] += r.fragmentedAt(percent) / float64(len(seeds))
		}
		decisions += r.Jobs
		took += r.Deciding
	}
	if took > 0 {
		s.Speed = float64(decisions) / took.Seconds()
	}
	for i, percent := range arrivals {
		s.At = append(s.At, s.mean(i, percent))
	}
	return s, nil
}

func (s *Series) mean(i, percent int) Mean {
	var values []float64
	for _, r := range s.Runs {
		values = append(values, r.At[i])
	}
	return Mean{percent, mean(values), deviation(values)}
}

// deviation is the standard deviation of all there is.
func deviation(values []float64) float64 {
	var squares float64
	of := mean(values)
	for _, v := range values {
		squares += (v - of) * (v - of)
	}
	return math.Sqrt(squares / float64(max(1, len(values))))
}

// MeanAt is the mean when percent of capacity had arrived; percent is one of 50, 80, 100, 130.
func (s *Series) MeanAt(percent int) float64 {
	for _, m := range s.At {
		if m.Arrived == percent {
			return m.Mean
		}
	}
	return math.NaN()
}
