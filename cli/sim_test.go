package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/aliquot-dev/aliquot/host/sim"
)

// Runs of jobs are printed, stored, compared and drawn; what cannot be is refused in one sentence.
func TestSimJobs(t *testing.T) {
	folder := t.TempDir()
	html := filepath.Join(folder, "report.html")
	file := func(order string) string {
		t.Helper()
		got := invoke(t, Program{}, "sim", "run", "--trace", "generated-jobs:1", "--order", order, "--html", html, "-o", "json")
		var f sim.File
		if err := json.Unmarshal([]byte(got.out), &f); err != nil || got.exit.Status != 0 || len(f.Jobs) != 1 || f.Jobs[0].Jobs != 100 {
			t.Fatalf("status %d, %v: %s%s", got.exit.Status, err, got.out, got.err)
		}
		path := filepath.Join(folder, order+".json")
		if err := os.WriteFile(path, []byte(got.out), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	fifo, las := file("fifo"), file("las")
	if text, err := os.ReadFile(html); err != nil || !strings.Contains(string(text), "las/default") {
		t.Errorf("the report is not of the last run: %v", err)
	}
	for _, c := range []struct {
		line   []string
		status int
		says   string
	}{
		{[]string{"compare", fifo, las}, 0, "fifo/default → las/default"},
		{[]string{"compare", fifo, fifo}, 0, "The figures of both are the same."},
		{[]string{"compare", fifo}, ExitUsage, "takes two files, and 1 were given"},
		{[]string{"compare", fifo, html}, ExitFailed, "is not what `aliquot sim run -o json` writes"},
		{[]string{"run", "--trace", "generated-jobs:1", "--order", "fifo,srsf"}, 0, "FAIRNESS P99"},
		{[]string{"run", "--trace", "generated-jobs:1", "--order", "first"}, ExitUsage, `there is no order "first"`},
		{[]string{"run", "--trace", "generated-jobs:1", "--load", "0"}, ExitUsage, "--load 0: give a part"},
		{[]string{"run", "--trace", "generated:2", "--order", "srtf"}, ExitUsage, "are for traces of jobs"},
		{[]string{"run", "--trace", "weather"}, ExitFailed, "there is no trace \"weather\""},
		{[]string{"run", "--trace", "generated:2", "--seeds", "1"}, 0, "AT 130"},
	} {
		got := invoke(t, Program{}, append([]string{"sim"}, c.line...)...)
		if got.exit.Status != c.status || !strings.Contains(got.out+got.err, c.says) {
			t.Errorf("sim %s: status %d, want %d with %q:\n%s%s", strings.Join(c.line, " "), got.exit.Status, c.status, c.says, got.out, got.err)
		}
	}
}
