package sim

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// lines reads a trace in our own format.
func lines(t *testing.T, text string) (*Trace, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "test.trace")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return ReadLines(path, nil)
}

// elasticTrace is two nodes of two devices and an elastic job of one replica that takes 100 s alone, with more jobs.
const elasticTrace = "aliquot trace 1\nnodes 2 devices=2\njob grows run=100s tasks=1..4\n"

// TestElasticJob: alone it has all four devices from the first moment, and takes a quarter of the time; while others want devices it gives them
// back, and goes on with what is left.
func TestElasticJob(t *testing.T) {
	for _, c := range []struct {
		more          string
		mean          float64
		grown, shrunk int
	}{
		{"", 25, 3, 0},
		// 10 s with four do 40 s of work; 20 s with two do 40 more; four again do the last 20 in 5 s.
		{"job two run=20s tasks=2 at=10s\n", (35 + 20) / 2.0, 5, 2},
		// It is sure of one: 10 s with four do 40 s, 20 s with one do 20, four do the last 40 in 10 s.
		{"job three run=20s tasks=3 at=10s\n", (40 + 20) / 2.0, 6, 3},
		// What waits for more than there is keeps it from growing on what it could use, and not from what it holds.
		{"job four run=20s tasks=4 at=10s preemptible=no\n", (25 + 35) / 2.0, 3, 0},
	} {
		trace, err := lines(t, elasticTrace+c.more)
		if err != nil {
			t.Fatal(err)
		}
		for _, order := range []Order{FirstCome, Backfill} {
			r := runJobs(t, trace, order)
			if r.MeanJCT != c.mean || r.Grown != c.grown || r.Shrunk != c.shrunk || r.Preemptions != 0 {
				t.Errorf("%s with %q: mean JCT %g s, %d grown, %d shrunk, %d preempted; want %g, %d, %d, 0", order, c.more, r.MeanJCT, r.Grown, r.Shrunk, r.Preemptions, c.mean, c.grown, c.shrunk)
			}
		}
		if r := runJobs(t, trace, ShortestTime); r.Grown != 0 {
			t.Errorf("an order of the simulator had %d replicas grow", r.Grown)
		}
	}
	if _, err := lines(t, "aliquot trace 1\nnodes 1\njob a run=1s tasks=4..2\n"); err == nil || !strings.Contains(err.Error(), "smaller number first") {
		t.Errorf("4..2 tasks: %v", err)
	}
}

// TestSameRack: nodes of a trace are in racks, and a job that is to be in one waits for that, while another that prefers one does not.
func TestSameRack(t *testing.T) {
	const racks = "aliquot trace 1\nnodes 2 devices=2 in=rack/r1,row/a\nnodes 2 devices=2 in=rack/r2,row/a\njob first run=10s tasks=2 devices=1\n"
	for job, want := range map[string]float64{
		"same=rack": 5, "same=row tasks=6": 5, "prefer=rack tasks=5": 5, "same=rack tasks=4": 5,
	} {
		trace, err := lines(t, racks+"job second at=1s run=5s tasks=3 "+job+"\n")
		if strings.Contains(job, "tasks=") {
			trace, err = lines(t, racks+"job second at=1s run=5s "+job+"\n")
		}
		if err != nil {
			t.Fatal(err)
		}
		if r := runJobs(t, trace, Backfill); r.MeanJCT != (10+want)/2 {
			t.Errorf("%s: mean JCT %g s, want %g", job, r.MeanJCT, (10+want)/2)
		}
	}
	trace, err := lines(t, racks+"job wide at=1s run=5s tasks=3 same=rack\njob third at=2s run=5s tasks=4 same=rack\n")
	if err != nil {
		t.Fatal(err)
	}
	if r := runJobs(t, trace, FirstCome); r.MeanJCT != (10+5+9)/3.0 { // the third waits until the second has ended at 6 s, for r1 has two free until 10 s
		t.Errorf("two that want a rack: mean JCT %g s", r.MeanJCT)
	}
	if _, err := lines(t, "aliquot trace 1\nnodes 1 in=rack\njob a run=1s\n"); err == nil || !strings.Contains(err.Error(), "rack/r1") {
		t.Errorf("a rack without a name: %v", err)
	}
}
