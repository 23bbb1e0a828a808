package sim

import (
	"strings"
	"testing"
)

// A report of shared devices has what was useful over time and a row for each tenant; one of others has not.
func TestReportOfSharedDevices(t *testing.T) {
	lines := []string{"nodes 1 devices=1", "queue a<b", "job a run=100s gpu=0.5 busy=0.4 queue=a<b", "job b at=50s run=50s gpu=0.5 queue=plain"}
	shared := runShared(t, few(t, lines...), Sharing{}, 0)
	alone := runJobs(t, few(t, lines...), Backfill)
	page := (&File{Trace: "few", Jobs: []*JobResult{alone, shared}}).html()
	for _, want := range []string{
		"<h2>Useful over time</h2>", "<h2>Useful by tenant: backfill/</h2>", "a&lt;b: 40.00 % of all devices", "plain: 50.00 % of all devices", "useful, %",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the report lacks %q", want)
		}
	}
	if n := strings.Count(page, "<h2>Useful by tenant"); n != 1 {
		t.Errorf("%d heatmaps of what was useful, want one of the run that shares", n)
	}
	if strings.Contains((&File{Trace: "few", Jobs: []*JobResult{alone}}).html(), "Useful") {
		t.Error("a report without shared devices says something of them")
	}
}
