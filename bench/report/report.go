// Package report is what a benchmark prints and stores: metrics with their goals, as a table for people and as JSON. It measures and
// judges nothing but whether a value keeps its goal.
package report

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"
)

// Metric is one line of the report. Goal is empty for figures that only stand beside: they are always ok.
type Metric struct {
	Metric string  `json:"metric"`
	Value  float64 `json:"value"`
	Unit   string  `json:"unit"`
	Goal   string  `json:"goal"`
	OK     bool    `json:"ok"`
	Part   string  `json:"part,omitempty"` // by what the run was less than the whole, empty: it was whole
}

// Report collects metrics in the order in which they are to be printed. The zero value is a whole one without metrics.
type Report struct {
	Part    string // by what it is less than the whole; empty: it is whole
	Metrics []Metric
}

// Add adds a metric, its value rounded to thousandths.
func (r *Report) Add(m Metric) {
	m.Part = r.Part
	m.Value = math.Round(m.Value*1000) / 1000
	r.Metrics = append(r.Metrics, m)
}

// Beside adds a figure without a goal.
func (r *Report) Beside(name string, value float64, unit string) {
	r.Add(Metric{Metric: name, Value: value, Unit: unit, OK: true})
}

// AtMost adds a figure that must not be over its goal.
func (r *Report) AtMost(name string, value, goal float64, unit string) {
	r.Add(Metric{Metric: name, Value: value, Unit: unit, Goal: fmt.Sprintf("≤ %g", goal), OK: value <= goal})
}

// AtLeast adds a figure that must not be under its goal.
func (r *Report) AtLeast(name string, value, goal float64, unit string) {
	r.Add(Metric{Metric: name, Value: value, Unit: unit, Goal: fmt.Sprintf("≥ %g", goal), OK: value >= goal})
}

// Missed is how many goals were missed.
func (r *Report) Missed() int {
	n := 0
	for _, m := range r.Metrics {
		if !m.OK {
			n++
		}
	}
	return n
}

// Table prints the report for people: first whether it is of a part, last which goals were missed.
func (r *Report) Table(to io.Writer) error {
	if r.Part != "" {
		_, _ = fmt.Fprintf(to, "A PART of the benchmark (%s): its figures are not those of the whole.\n\n", r.Part)
	}
	w := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(w, "METRIC\tVALUE\tUNIT\tGOAL\tOK")
	for _, m := range r.Metrics {
		ok := "yes"
		switch {
		case m.Goal == "":
			ok = ""
		case !m.OK:
			ok = "NO"
		}
		_, _ = fmt.Fprintf(w, "%s\t%g\t%s\t%s\t%s\n", m.Metric, m.Value, m.Unit, m.Goal, ok)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, m := range r.Metrics {
		if !m.OK {
			_, _ = fmt.Fprintf(to, "Missed: %s is %g %s, and the goal is %s\n", m.Metric, m.Value, m.Unit, m.Goal)
		}
	}
	return nil
}

// Path is where a report goes: that of a part beside a whole one's place.
func (r *Report) Path(path string) string {
	if r.Part == "" {
		return path
	}
	end := filepath.Ext(path)
	return strings.TrimSuffix(path, end) + "-part" + end
}

// Write stores the report as JSON, whole or not at all. That of a part goes beside path, so that it takes no whole one's place.
func (r *Report) Write(path string) error {
	path = r.Path(path)
	text, err := json.MarshalIndent(r.Metrics, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	if err := os.WriteFile(path+".new", append(text, '\n'), 0o644); err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	return os.Rename(path+".new", path)
}
