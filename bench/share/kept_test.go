package main

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/aliquot-dev/aliquot/bench/judge"
	"github.com/aliquot-dev/aliquot/bench/report"
)

// What a run that was cut short has measured the next one takes from the file, to the last figure; one of other programs or flags takes nothing.
func TestKept(t *testing.T) {
	path := filepath.Join(t.TempDir(), "share.kept")
	first, err := readKept(path, "these")
	if err != nil {
		t.Fatal(err)
	}
	set := scenarios()[3]
	if _, ok := first.set(set); ok {
		t.Fatal("a set is known that was not measured")
	}
	o := outcome{
		scenario: set, with: judge.Verdict{ShareError: 0.7, Busy: 98.2, Got: []float64{25.1, 74.9}, Due: []float64{25, 75}, Lost: 0.1},
		without: judge.Verdict{ShareError: 25}, beyond: judge.Beyond{Used: 3, Allowed: 10, Window: 20}, arbiter: 4.25, again: 2, taken: 0.125,
	}
	metrics := []report.Metric{{Metric: "timer_late_max", Value: 80.125, Unit: "µs", OK: true}}
	if err := first.addSet(o); err != nil {
		t.Fatal(err)
	}
	if err := first.addStep("timer", metrics); err != nil {
		t.Fatal(err)
	}
	next, err := readKept(path, "these")
	if err != nil {
		t.Fatal(err)
	}
	if got, ok := next.set(set); !ok || !reflect.DeepEqual(got, o) {
		t.Errorf("%v: kept is %+v, was %+v", ok, got, o)
	}
	if got, ok := next.step("timer"); !ok || !reflect.DeepEqual(got, metrics) {
		t.Errorf("%v: kept is %+v, was %+v", ok, got, metrics)
	}
	if _, ok := next.set(scenarios()[4]); ok {
		t.Error("another set is known, too")
	}
	other, err := readKept(path, "those")
	if err != nil {
		t.Fatal(err)
	}
	_, step := other.step("timer")
	if _, ok := other.set(set); ok || step {
		t.Error("what other programs came to is taken")
	}
	if err := os.WriteFile(path, []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := readKept(path, "these"); err == nil || !strings.Contains(err.Error(), "-keep") {
		t.Errorf("of a file with something else: %v", err)
	}
}

// Without a file nothing is kept.
func TestKeptNowhere(t *testing.T) {
	var k *kept
	if err := k.addSet(outcome{}); err != nil {
		t.Error(err)
	}
	if err := k.addStep("timer", nil); err != nil {
		t.Error(err)
	}
	_, step := k.step("timer")
	if _, set := k.set(scenario{}); set || step {
		t.Error("something is known")
	}
}
