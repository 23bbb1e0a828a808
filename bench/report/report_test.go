package report

import (
	"bytes"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

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
	fill := func(part string) Report {
		r := Report{Part: part}
		r.AtMost("share_error", 2.63, 2, "points")
		r.Beside("timer_late_max", 80, "µs")
		return r
	}
	whole, part := fill(""), fill("-repeats 1 of 5")
	for _, r := range []Report{whole, part} {
		if err := r.Write(path); err != nil {
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
	if err := part.Table(&table); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"A PART of the benchmark (-repeats 1 of 5)", "Missed: share_error is 2.63 points, and the goal is ≤ 2"} {
		if !strings.Contains(table.String(), want) {
			t.Errorf("the table does not say %q:\n%s", want, table.String())
		}
	}
	table.Reset()
	if err := whole.Table(&table); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(table.String(), "PART") {
		t.Errorf("the whole one's table:\n%s", table.String())
	}
}
