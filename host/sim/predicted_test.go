package sim

import (
	"bytes"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/engine"
	"github.com/aliquot-dev/aliquot/engine/predict"
)

// recurring is a trace in which ann's "train" takes 10 minutes, her "eval" one, and bob's jobs take 20 s and 2,000 s in turns; one comes each
// two minutes.
func recurring(jobs int) *Trace {
	t := &Trace{}
	for i := range jobs {
		j := Job{Workload: engine.Workload{ID: fmt.Sprint("job-", i), Queue: "all", Tasks: 1, Devices: 1}, Submit: engine.Time(i) * 120_000_000}
		j.Share.Compute = api.Compute{Floor: 1000, Ceiling: 1000}
		switch i % 4 {
		case 0:
			j.User, j.Name, j.Duration = "ann", "train", 600_000_000
		case 1:
			j.User, j.Name, j.Duration = "ann", "eval", 60_000_000
		case 2:
			j.User, j.Duration = "bob", 20_000_000
		default:
			j.User, j.Duration = "bob", 2_000_000_000
		}
		t.Jobs = append(t.Jobs, j)
	}
	return t
}

func TestPredictJobs(t *testing.T) {
	out, err := PredictJobs("recurring", recurring(400), nil, predict.Config{})
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string]Predictor{}
	for _, row := range out.Rows {
		rows[row.By] = row
	}
	// Four of each name must have ended: "eval" after 4 × 8 minutes, "train" after 10 more.
	named := rows["by "+predict.SameName.String()]
	if named.Jobs < 180 || named.Jobs > 200 || math.Abs(named.Off50-1) > 1e-9 || math.Abs(named.Off90-1) > 1e-9 || named.Between != 100 || named.Wide != 1 || named.Order != 100 {
		t.Errorf("jobs that take as long as their names say are predicted so: %+v", named)
	}
	shaped := rows["by "+predict.SameShape.String()]
	if shaped.Jobs < 150 || math.Abs(shaped.Off90-100) > 1e-6 || shaped.Between < 75 || shaped.Wide < 50 {
		t.Errorf("of bob's jobs nobody knows which kind comes: %+v", shaped)
	}
	latest := rows["the last of the same user"]
	if latest.Between != -1 || latest.Wide != -1 || latest.Off90 < 9 {
		t.Errorf("%+v", latest)
	}
	all := rows["all predictions"]
	if all.Jobs > 396 || all.Jobs < 380 || all.Jobs != rows["the median of all before"].Jobs {
		t.Errorf("%d of %d jobs are predicted", all.Jobs, out.Jobs)
	}
}

// A prediction knows nothing of what has not ended.
func TestPredictionsKnowNoFuture(t *testing.T) {
	trace := recurring(40)
	for i := range trace.Jobs {
		trace.Jobs[i].Submit = 0
	}
	if _, err := PredictJobs("at once", trace, nil, predict.Config{}); err == nil || !strings.Contains(err.Error(), "longer") {
		t.Errorf("jobs that all come at once are predicted: %v", err)
	}
}

// Of what jobs use is known what they say, or what their program or service does. Programs that recur are predicted as they are.
func TestPredictUse(t *testing.T) {
	trace, of := recurring(400), MadeSharing(1)
	service := of.Duty.Services[0]
	for i := range trace.Jobs {
		switch j := &trace.Jobs[i]; i % 4 {
		case 0:
			j.Program = of.Interference.programs[0].Name
		case 1:
			j.Busy = 300
		case 2:
			j.Service, j.FirstSample = service.Name, i
		}
	}
	out, err := PredictJobs("recurring", trace, of, predict.Config{})
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string]UsePredictor{}
	for _, row := range out.Use {
		rows[row.Of+" "+row.By] = row
	}
	named := predict.SameName.String()
	if got := rows["compute by "+named]; got.Jobs < 180 || got.Off50 != 0 || got.Off90 != 0 || got.Between != 100 {
		t.Errorf("programs that do the same each time are predicted so: %+v", got)
	}
	if got := rows["memory by "+named]; got.Jobs < 85 || got.Jobs > 100 || got.Off90 != 0 {
		t.Errorf("of those that say what they keep busy alone nothing is known of memory: %+v", got)
	}
	if got := rows["compute by "+predict.SameShape.String()]; got.Jobs < 90 || got.Jobs > 100 || got.Off50 == 0 || got.Off50 > 5 {
		t.Errorf("bob's service swings by a few percent: %+v", got)
	}
	if got, all := rows["compute all predictions"], rows["compute the median of all before"]; got.Jobs < 280 || got.Off90 >= all.Off90 || all.Between != -1 {
		t.Errorf("predictions are off by %+v, and by the median of all by %+v", got, all)
	}
	if out, err = PredictJobs("recurring", recurring(400), nil, predict.Config{}); err != nil || out.Use != nil {
		t.Errorf("of a trace that says nothing of use is predicted %+v, %v", out.Use, err)
	}
}

// The mean of a service is that of its samples, however often they come again.
func TestMeanOfAService(t *testing.T) {
	duty := &Duty{Step: 10, Services: []Service{{Busy: []api.Milli{100, 200, 600}}}}
	for _, c := range []struct {
		first    int
		from, to engine.Time
	}{{0, 0, 10}, {0, 0, 11}, {1, 5, 25}, {2, 20, 20}, {0, 35, 95}, {1, 0, 1000}} {
		var sum, samples int64
		for at := c.from / 10; at <= max(c.from, c.to-1)/10; at++ {
			sum += int64(duty.at(0, c.first, at*10))
			samples++
		}
		if got := duty.meanOf(0, c.first, c.from, c.to); int64(got) != sum/samples {
			t.Errorf("%+v: %d, want %d", c, got, sum/samples)
		}
	}
}

// What jobs got of devices that they share is what the engine learns that they use.
func TestRunsTeachUse(t *testing.T) {
	lines := []string{"aliquot trace 1", "nodes 1 devices=1"}
	for i := range 10 {
		lines = append(lines, fmt.Sprintf("job j%d at=%ds run=50s gpu=0.5..1 busy=0.6 user=ann name=train", i, i/2*1000))
	}
	trace, err := scanLines("shared", strings.NewReader(strings.Join(lines, "\n")), nil)
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	writer, err := engine.NewLogWriter(&log, engine.New(engine.Config{}).Snapshot())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := RunJobs(t.Context(), trace, JobOptions{Order: Backfill, Sharing: &Sharing{}, Log: writer}); err != nil {
		t.Fatal(err)
	}
	replayed, err := engine.Replay(&log)
	if err != nil {
		t.Fatal(err)
	}
	got, ok := replayed.Engine.PredictUse(&trace.Jobs[0].Workload)
	if !ok || got.Compute.Median != 500 || got.Compute.Samples != 10 {
		t.Errorf("two that want 0.6 and get half are predicted to use %+v %v", got, ok)
	}
}
