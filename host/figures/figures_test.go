package figures_test

import (
	"slices"
	"testing"
	"time"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/host/figures"
)

// What nothing is said of has no line, and what is not bounded is said to be none.
func TestLines(t *testing.T) {
	until := time.Date(2026, 12, 1, 18, 0, 0, 0, time.Local)
	little := api.Queue{QueueSpec: api.QueueSpec{Name: "little", Quota: api.Unlimited}}
	much := api.Queue{
		QueueSpec: api.QueueSpec{
			Name: "much", Quota: 2500, QuotaMemory: new(api.Bytes(320 << 30)), Limit: api.QueueAmounts{Compute: new(api.Quota(8000)), Devices: new(int64(16))},
			Models: []api.QueueModel{{Model: "H200", Quota: api.QueueAmounts{Compute: new(api.Quota(125))}}}, Hours: api.HoursQuota{Amount: 100_000, Per: api.Week},
			Weight: api.QueueWeight{All: 2, Memory: 3}, LongestRun: api.Duration(8 * time.Hour), MinRun: api.Duration(10 * time.Minute), Disruptions: api.DisruptionBudget{Most: 2, Per: api.Duration(24 * time.Hour)}, Priority: 5, PriorityUntil: &until, PriorityAfter: -1,
		},
		Use: api.QueueUse{Compute: 3000, Memory: 40 << 30, Devices: 4}, Borrowed: api.QueueUse{Compute: 500}, Burst: api.QueueUse{Devices: 1},
		HoursUsed: &api.HoursUsed{Amount: 37_500, End: until},
	}
	none := figures.Line{Amount: [3]string{"0.00", "0", "0"}}
	named := func(name string, l figures.Line) figures.Line { l.Name = name; return l }
	for _, c := range []struct {
		name      string
		got, want []figures.Line
	}{
		{"bounds of little", figures.Bounds(&little.QueueSpec), []figures.Line{{"quota", [3]string{"none", "none", "none"}}, {"limit", [3]string{"none", "none", "none"}}}},
		{"uses of little", figures.Uses(&little), []figures.Line{named("held", none), named("due now", none), named("borrowed", none), named("could be taken back", none), named("lent", none)}},
		{"rules of little", figures.Rules(&little.QueueSpec), nil},
		{"bounds of much", figures.Bounds(&much.QueueSpec), []figures.Line{
			{"quota", [3]string{"2.50", "320Gi", "none"}},
			{"limit", [3]string{"8.00", "none", "16"}},
			{"quota on H200", [3]string{"0.125", "none", "none"}},
			{"limit on H200", [3]string{"none", "none", "none"}},
		}},
		{"uses of much", figures.Uses(&much), []figures.Line{
			{"held", [3]string{"3.00", "40Gi", "4"}},
			named("due now", none),
			{"borrowed", [3]string{"0.50", "0", "0"}},
			{"of that burst", [3]string{"0.00", "0", "1"}},
			named("could be taken back", none), named("lent", none),
			{"device-hours", [3]string{"37.5 of 100 this week", "until 2026-12-01 18:00", ""}},
		}},
		{"rules of much", figures.Rules(&much.QueueSpec), []figures.Line{
			{"weight", [3]string{"2", "3", "2"}},
			{"longest run", [3]string{"8h", "", ""}},
			{"not evicted before", [3]string{"10m", "", ""}},
			{"evicted for others", [3]string{"at most 2/24h", "", ""}},
			{"priority", [3]string{"5 until 2026-12-01 18:00, then -1", "", ""}},
		}},
	} {
		if !slices.Equal(c.got, c.want) {
			t.Errorf("%s are %q, want %q", c.name, c.got, c.want)
		}
	}
}
