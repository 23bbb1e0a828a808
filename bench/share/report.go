package main

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

// metric is one line of the report. Goal is empty for figures that only stand beside: they are always ok.
type metric struct {
	Metric string  `json:"metric"`
	Value  float64 `json:"value"`
	Unit   string  `json:"unit"`
	Goal   string  `json:"goal"`
	OK     bool    `json:"ok"`
	Part   string  `json:"part,omitempty"` // by what the run was less than the whole, see bench.part
}

// report collects metrics in the order in which they are to be printed.
type report struct {
	part    string // by what it is less than the whole; empty: it is whole
	metrics []metric
}

func (r *report) add(m metric) {
	m.Part = r.part
	m.Value = math.Round(m.Value*1000) / 1000
	r.metrics = append(r.metrics, m)
}

// beside adds a figure without a goal.
func (r *report) beside(name string, value float64, unit string) {
	r.add(metric{Metric: name, Value: value, Unit: unit, OK: true})
}

func (r *report) atMost(name string, value, goal float64, unit string) {
	r.add(metric{Metric: name, Value: value, Unit: unit, Goal: fmt.Sprintf("≤ %g", goal), OK: value <= goal})
}

func (r *report) atLeast(name string, value, goal float64, unit string) {
	r.add(metric{Metric: name, Value: value, Unit: unit, Goal: fmt.Sprintf("≥ %g", goal), OK: value >= goal})
}

// missed is how many goals were missed.
func (r *report) missed() int {
	n := 0
	for _, m := range r.metrics {
		if !m.OK {
			n++
		}
	}
	return n
}

// table prints the report for people: first whether it is of a part, last which goals were missed.
func (r *report) table(to io.Writer) error {
	if r.part != "" {
		_, _ = fmt.Fprintf(to, "A PART of the benchmark (%s): its figures are not those of the whole.\n\n", r.part)
	}
	w := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(w, "METRIC\tVALUE\tUNIT\tGOAL\tOK")
	for _, m := range r.metrics {
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
	for _, m := range r.metrics {
		if !m.OK {
			_, _ = fmt.Fprintf(to, "Missed: %s is %g %s, and the goal is %s\n", m.Metric, m.Value, m.Unit, m.Goal)
		}
	}
	return nil
}

// write stores the report as JSON, whole or not at all. That of a part goes beside path, so that it takes no whole one's place.
func (r *report) write(path string) error {
	if r.part != "" {
		end := filepath.Ext(path)
		path = strings.TrimSuffix(path, end) + "-part" + end
	}
	text, err := json.MarshalIndent(r.metrics, "", "  ")
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
