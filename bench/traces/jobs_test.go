package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/aliquot-dev/aliquot/host/sim"
)

func TestPart(t *testing.T) {
	for want, b := range map[string]bench{
		"":           {folder: "traces"},
		"-only muri": {folder: "traces", only: "muri"},
	} {
		if got := b.part(wholeSeeds); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	if got := (&bench{folder: "traces"}).part("42"); got != "-seeds 42" {
		t.Errorf("with one seed it is %q", got)
	}
}

// Each order has its figures under its name, the engine's own under the trace's, and only that has goals.
func TestFairnessMetrics(t *testing.T) {
	b := bench{ctx: t.Context()}
	if err := b.fairness(sim.GenerateJobs(1, 0.9, 1), "made", true); err != nil {
		t.Fatal(err)
	}
	goals := 0
	seen := map[string]bool{}
	for _, m := range b.Metrics {
		seen[m.Metric] = true
		if m.Goal != "" {
			goals++
		}
	}
	for _, want := range []string{"made/jct", "made/p99_jct", "made/fairness_p99", "made/fairness_worst", "made/fifo/fairness_worst", "made/unfair", "made/fifo/jct", "made/tiresias/p99_jct"} {
		if !seen[want] {
			t.Errorf("there is no metric %s", want)
		}
	}
	if goals != 2 {
		t.Errorf("%d metrics have goals, want 2", goals)
	}
}

// Pods that come and go have their figures for each number of moves that is measured.
func TestChurnMetrics(t *testing.T) {
	b := bench{ctx: t.Context(), seeds: []uint64{1, 2, 3}}
	if err := b.churned(sim.Generate(3, 1), "made", "default", 200); err != nil {
		t.Fatal(err)
	}
	figures := map[string]float64{}
	for _, m := range b.Metrics {
		figures[m.Metric] = m.Value
	}
	if len(figures) != 3*len(churnMoves) || figures["made@0"] <= 0 || figures["made/moves@0"] != 0 || figures["made/moves@100"] <= 0 || figures["made/refused@10"] <= 0 {
		t.Errorf("the figures are %v", figures)
	}
	if len(churnMoves) < 6 {
		t.Errorf("a curve of %d points", len(churnMoves))
	}
	b.Part = "-only churn"
	out := filepath.Join(t.TempDir(), "traces.json")
	if err := b.plot(out); err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join(filepath.Dir(out), "traces-part.html"))
	if err != nil || strings.Count(string(page), "<circle") != 2*len(churnMoves) {
		t.Errorf("the page beside the report has %d points (%v)", strings.Count(string(page), "<circle"), err)
	}
}
