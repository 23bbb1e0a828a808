package sim

import (
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
	out, err := PredictJobs("recurring", recurring(400), predict.Config{})
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
	if _, err := PredictJobs("at once", trace, predict.Config{}); err == nil || !strings.Contains(err.Error(), "longer") {
		t.Errorf("jobs that all come at once are predicted: %v", err)
	}
}
