package main

import (
	"bytes"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

func wholeRun() bench {
	return bench{repeats: wholeRepeats, wakes: wholeWakes, burst: wholeBurst, window: wholeWindow, bare: wholeBare, only: regexp.MustCompile("")}
}

// A run that measures less of anything is one of a part, and says by what.
func TestPart(t *testing.T) {
	for want, less := range map[string]func(*bench){
		"":                            func(*bench) {},
		"-only idle":                  func(b *bench) { b.only = regexp.MustCompile("idle") },
		"-repeats 1 of 5":             func(b *bench) { b.repeats = 1 },
		"-wakes 300 of 1000":          func(b *bench) { b.wakes = 300 },
		"-burst 10 of 1000":           func(b *bench) { b.burst = 10 },
		"-bare 0 of 1":                func(b *bench) { b.bare = 0 },
		"-window 1s of 10s":           func(b *bench) { b.window = time.Second },
		"-only run$, -repeats 2 of 5": func(b *bench) { b.only, b.repeats = regexp.MustCompile("run$"), 2 },
	} {
		b := wholeRun()
		less(&b)
		if got := b.part(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	more := wholeRun()
	more.repeats, more.bare = 7, 5
	if got := more.part(); got != "" {
		t.Errorf("more than the whole is %q", got)
	}
}

// The report of a part says so, in the table and with every metric, and leaves the whole one's file alone.
func TestReportOfAPart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "bench", "share.json")
	read := func(path string) []map[string]any {
		t.Helper()
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var list []map[string]any
		if err := json.Unmarshal(text, &list); err != nil {
			t.Fatal(err)
		}
		return list
	}
	fill := func(part string) report {
		r := report{part: part}
		r.atMost("share_error", 2.63, 2, "points")
		r.beside("timer_late_max", 80, "µs")
		return r
	}
	whole, part := fill(""), fill("-repeats 1 of 5")
	for _, r := range []report{whole, part} {
		if err := r.write(path); err != nil {
			t.Fatal(err)
		}
	}
	for _, m := range read(path) {
		if keys := slices.Sorted(maps.Keys(m)); !slices.Equal(keys, []string{"goal", "metric", "ok", "unit", "value"}) {
			t.Errorf("the whole one's file has %v", m)
		}
	}
	for _, m := range read(filepath.Join(filepath.Dir(path), "share-part.json")) {
		if m["part"] != "-repeats 1 of 5" {
			t.Errorf("the part's file has %v", m)
		}
	}
	var table bytes.Buffer
	if err := part.table(&table); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"A PART of the benchmark (-repeats 1 of 5)", "Missed: share_error is 2.63 points, and the goal is ≤ 2"} {
		if !strings.Contains(table.String(), want) {
			t.Errorf("the table does not say %q:\n%s", want, table.String())
		}
	}
	table.Reset()
	if err := whole.table(&table); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(table.String(), "PART") {
		t.Errorf("the whole one's table:\n%s", table.String())
	}
}
