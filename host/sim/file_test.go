package sim

import (
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/aliquot-dev/aliquot/engine/place"
)

func stored(t *testing.T, f *File) *File {
	t.Helper()
	text, err := json.Marshal(f)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "runs.json")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	back, err := ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return back
}

func TestCompare(t *testing.T) {
	trace := few(t, "nodes 1", "job long at=0 run=100s devices=8", "job short at=10s run=10s devices=8")
	a := stored(t, &File{Trace: "few", Jobs: []*JobResult{runJobs(t, trace, FirstCome)}})
	b := stored(t, &File{Trace: "few", Jobs: []*JobResult{runJobs(t, trace, ShortestTime)}})
	if got := Compare(a, a); len(got) != 0 {
		t.Errorf("a file differs from itself by %+v", got)
	}
	found := false
	for _, d := range Compare(a, b) {
		if d.Figure == "mean JCT" {
			found = true
			if d.Run != "fifo/ → srtf/" || d.A != 100 || d.B != 60 || d.Relative != -40 || !d.HasA || !d.HasB {
				t.Errorf("mean JCT is compared as %+v", d)
			}
		}
		if d.Figure == "makespan" {
			t.Errorf("the makespan is the same and is listed: %+v", d)
		}
	}
	if !found {
		t.Error("the mean JCT is not compared")
	}
	both := &File{Jobs: append(a.Jobs, b.Jobs...)}
	for _, d := range Compare(a, both) {
		if d.Run != "srtf/" || d.HasA || !d.HasB {
			t.Errorf("what only one file has is compared as %+v", d)
		}
	}
	path := filepath.Join(t.TempDir(), "none.json")
	for text, want := range map[string]string{"{}": "has no runs", "[": "is not what", `{"trace":"x","weather":1}`: "is not what"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := ReadFile(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is read with %v", text, err)
		}
	}
}

// The report's drawings are well-formed, name every run and tenant, ask for nothing from elsewhere and cannot be broken by names.
func TestHTML(t *testing.T) {
	trace := GenerateJobs(2, 0.9, 1)
	for i := range trace.Jobs {
		trace.Jobs[i].Queue = "<" + trace.Jobs[i].Queue + "&"
	}
	jobs := &File{Trace: "<made>", Jobs: []*JobResult{runJobs(t, trace, FirstCome), runJobs(t, trace, LeastService)}}
	series, err := RunSeries(t.Context(), Generate(3, 1), "best_fit", []uint64{1, 2}, nil, nil, func(seed uint64) (*place.Policy, error) { return Policy("best_fit", seed, nil) })
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range []*File{jobs, {Trace: "pods", Series: []*Series{series}}} {
		path := filepath.Join(t.TempDir(), "report.html")
		if err := WriteHTML(path, f); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		page := string(text)
		for _, run := range f.runs() {
			if !strings.Contains(page, run.name) {
				t.Errorf("the report of %s does not name %s", f.Trace, run.name)
			}
		}
		if strings.Contains(page, "<made>") || strings.Contains(page, "<research") || strings.Contains(page, "NaN") || strings.Contains(page, "Inf") ||
			strings.Contains(page, "src=") || strings.Contains(page, "href") || strings.Contains(page, "@import") {
			t.Errorf("the report of %s has what it must not have", f.Trace)
		}
		drawings := strings.Count(page, "<svg")
		if want := 4*min(1, len(f.Jobs)) + 2*len(f.Jobs) + 2*len(f.Series); drawings != want {
			t.Errorf("the report of %s has %d drawings, want %d", f.Trace, drawings, want)
		}
		for part := range strings.SplitSeq(page, "<svg") {
			if end := strings.Index(part, "</svg>"); end >= 0 {
				wellFormed(t, "<svg"+part[:end]+"</svg>")
			}
		}
	}
}

// The report names the first of the jobs that never ran, whatever they are called, says how many there are, and nothing of them where there are none.
func TestNeverRunInReports(t *testing.T) {
	lines := []string{"nodes 1", "job ok run=1s"}
	for i := range neverRunRows + 3 {
		lines = append(lines, fmt.Sprintf("job <%d> run=1s devices=9 name=<n>", i))
	}
	r := runJobs(t, few(t, lines...), FirstCome)
	back := stored(t, &File{Trace: "few", Jobs: []*JobResult{r, runJobs(t, few(t, lines...), Backfill)}})
	if n := back.Jobs[0].NeverRun; len(n) != neverRunRows+3 || n[1].Job != "<1>" || n[1].Code != "impossible" || n[1].Reason != r.NeverRun[1].Reason {
		t.Errorf("what is stored of them is read as %+v", n)
	}
	page := back.html()
	for want, times := range map[string]int{
		"<h2>Never run: fifo/, backfill/</h2>": 1, "first 10 of 13": 1, "<td>&lt;n&gt;</td>": neverRunRows, "workload &lt;9&gt; wants 9 devices on one node": 1, "&lt;10&gt;": 0, "<td>never run</td><td>13</td><td>13</td>": 1,
	} {
		if n := strings.Count(page, want); n != times {
			t.Errorf("the report has %q %d times, want %d", want, n, times)
		}
	}
	if page := (&File{Trace: "few", Jobs: []*JobResult{runJobs(t, few(t, lines[:2]...), FirstCome)}}).html(); strings.Contains(page, "Never run") {
		t.Error("a report of a run in which all ran has a table of those that did not")
	}
}

func wellFormed(t *testing.T, text string) {
	t.Helper()
	for d := xml.NewDecoder(strings.NewReader(text)); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Fatalf("a drawing is not well-formed: %v", err)
		}
	}
}

func TestAxes(t *testing.T) {
	for most, want := range map[float64]string{0: "seconds", 100: "seconds", 1000: "minutes", 20_000: "hours", 1e7: "days"} {
		a := timeAxis(most)
		if a.title != want || len(a.ticks) < 2 || len(a.ticks) > 10 {
			t.Errorf("an axis of %g s is in %s with %d ticks", most, a.title, len(a.ticks))
		}
	}
	for most, want := range map[float64]string{1: "[0 0.2 0.4 0.6 0.8 1] 1", 13.3: "[0 5 10 15] 15", 100: "[0 20 40 60 80 100] 100"} {
		a := upAxis("", most, 1)
		var labels []string
		for _, v := range a.ticks {
			labels = append(labels, a.label(v))
		}
		if got := fmt.Sprint(labels, " ", a.label(a.max)); got != want {
			t.Errorf("an axis up to %g has %s, want %s", most, got, want)
		}
	}
	if got := grouped(16335720.4); got != "16\u202f335\u202f720" {
		t.Errorf("a large number is written %q", got)
	}
	if got := grouped(1.234); got != "1.23" {
		t.Errorf("a small number is written %q", got)
	}
}
