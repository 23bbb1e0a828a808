package sim

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// File is what `sim run` writes with -o json and `sim compare` reads: the runs of one trace, by FGD's protocol, of pods that come and go, or of jobs.
type File struct {
	Trace  string       `json:"trace"`
	Nodes  string       `json:"nodes,omitempty"` // as they were named; empty: the trace's own
	Seeds  []uint64     `json:"seeds,omitempty"` // that its runs were made by; of jobs one, for what is random; none: of a recorded day, or not known
	Series []*Series    `json:"series,omitempty"`
	Jobs   []*JobResult `json:"jobs,omitempty"`
	Churn  []*Churn     `json:"churn,omitempty"`
}

// ReadFile reads what `sim run -o json` wrote.
func ReadFile(path string) (*File, error) {
	text, err := os.ReadFile(path) //nolint:gosec // the path is the user's own word
	if err != nil {
		return nil, fmt.Errorf("read the runs: %w", err)
	}
	from := json.NewDecoder(bytes.NewReader(text))
	from.DisallowUnknownFields()
	var f File
	if err := from.Decode(&f); err != nil {
		return nil, fmt.Errorf("%s is not what `aliquot sim run -o json` writes: %w", path, err)
	}
	if len(f.Series)+len(f.Jobs)+len(f.Churn) == 0 {
		return nil, fmt.Errorf("%s has no runs: give a file that `aliquot sim run -o json` wrote", path)
	}
	return &f, nil
}

// Of says what the runs are of: trace, seeds and nodes.
func (f *File) Of() string {
	of := "trace " + f.Trace
	if f.Nodes != "" {
		of += " on " + f.Nodes
	}
	switch len(f.Seeds) {
	case 0:
		return of
	case 1:
		return of + ", seed " + strconv.FormatUint(f.Seeds[0], 10)
	}
	var parts []string
	for i := 0; i < len(f.Seeds); { // as ParseSeeds has them
		last := i
		for last+1 < len(f.Seeds) && f.Seeds[last+1] == f.Seeds[last]+1 {
			last++
		}
		part := strconv.FormatUint(f.Seeds[i], 10)
		if last > i {
			part += ".." + strconv.FormatUint(f.Seeds[last], 10)
		}
		parts = append(parts, part)
		i = last + 1
	}
	return of + ", seeds " + strings.Join(parts, ",")
}

// Named is one figure of a run.
type Named struct {
	Name  string
	Value float64
	Unit  string
}

// Figures are the figures of a run by jobs, as they are shown.
func (r *JobResult) Figures() []Named {
	all := []Named{
		{"mean JCT", r.MeanJCT, "s"},
		{"median JCT", r.MedianJCT, "s"},
		{"p99 JCT", r.P99JCT, "s"},
		{"mean wait", r.MeanWait, "s"},
		{"p99 wait", r.P99Wait, "s"},
		{"p99 fairness", r.Fairness, ""},
		{"worst fairness", r.FairnessWorst, ""},
		{"unfair", r.Unfair, "%"},
		{"utilisation", r.Utilisation, "%"},
		{"makespan", r.Makespan, "s"},
		{"preemptions", float64(r.Preemptions), ""},
		{"timed out", float64(r.TimedOut), ""},
		{"moves", float64(r.Moves), ""},
		{"grown", float64(r.Grown), ""},
		{"shrunk", float64(r.Shrunk), ""},
		{"jobs", float64(r.Jobs), ""},
		{"never run", float64(len(r.NeverRun)), ""},
	}
	if r.Lost != nil {
		all = append(all, r.Lost.figures()...)
	}
	if r.Energy != nil {
		all = append(all, r.Energy.figures()...)
	}
	if r.Sharing != nil {
		all = append(all, r.Sharing.figures()...)
	}
	return all
}

// Figures are the figures of a series, as they are shown.
func (s *Series) Figures() []Named {
	var all []Named
	for _, m := range s.At {
		all = append(all, Named{fmt.Sprintf("allocated at %d %%", m.Arrived), m.Mean, "%"})
	}
	if n := len(s.At); n > 0 {
		all = append(all, Named{fmt.Sprintf("deviation at %d %%", s.At[n-1].Arrived), s.At[n-1].Deviation, "%"})
	}
	return all
}

// Difference is a figure in two files. Where one of them lacks it, its Has is false.
type Difference struct {
	Run      string  `json:"run"` // the order or policy, with both where they differ by both
	Figure   string  `json:"figure"`
	Unit     string  `json:"unit"`
	A        float64 `json:"a"`
	B        float64 `json:"b"`
	HasA     bool    `json:"inA"`
	HasB     bool    `json:"inB"`
	Relative float64 `json:"changePercent"` // of B against A; 0 where A is 0
}

// Compare puts the figures of two files side by side: runs of the same order and policy beside each other, or, where each file has one run,
// these. Only what differs is there.
func Compare(a, b *File) []Difference {
	runsA, runsB := a.runs(), b.runs()
	if len(runsA) == 1 && len(runsB) == 1 && runsA[0].name != runsB[0].name {
		name := runsA[0].name + " → " + runsB[0].name
		runsA[0].name, runsB[0].name = name, name
	}
	var all []Difference
	add := func(name string, x, y *Named) {
		d := Difference{Run: name}
		if x != nil {
			d.Figure, d.Unit, d.A, d.HasA = x.Name, x.Unit, x.Value, true
		}
		if y != nil {
			d.Figure, d.Unit, d.B, d.HasB = y.Name, y.Unit, y.Value, true
		}
		if x != nil && y != nil && x.Value != 0 {
			d.Relative = (y.Value - x.Value) / x.Value * 100
		}
		if d.A != d.B || d.HasA != d.HasB {
			all = append(all, d)
		}
	}
	for _, x := range runsA {
		y := findRun(runsB, x.name)
		for i := range x.figures {
			add(x.name, &x.figures[i], findFigure(y, x.figures[i].Name))
		}
	}
	for _, y := range runsB {
		x := findRun(runsA, y.name)
		for i := range y.figures {
			if findFigure(x, y.figures[i].Name) == nil {
				add(y.name, nil, &y.figures[i])
			}
		}
	}
	return all
}

// namedRun is a run by the name under which it is compared.
type namedRun struct {
	name    string
	figures []Named
}

func (f *File) runs() []*namedRun {
	var all []*namedRun
	for _, s := range f.Series {
		all = append(all, &namedRun{s.Policy, s.Figures()})
	}
	for _, c := range f.Churn {
		all = append(all, &namedRun{c.Policy, c.Figures()})
	}
	for _, r := range f.Jobs {
		all = append(all, &namedRun{string(r.Order) + "/" + r.Policy, r.Figures()})
	}
	return all
}

func findRun(all []*namedRun, name string) *namedRun {
	for _, r := range all {
		if r.name == name {
			return r
		}
	}
	return &namedRun{}
}

func findFigure(r *namedRun, name string) *Named {
	for i := range r.figures {
		if r.figures[i].Name == name {
			return &r.figures[i]
		}
	}
	return nil
}
