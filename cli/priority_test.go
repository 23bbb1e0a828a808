package cli

import (
	"strings"
	"testing"
	"time"

	"github.com/aliquot-dev/aliquot/api"
)

// A priority until a date goes to the server as a moment, and is shown as what counts now and until when.
func TestPriorityUntil(t *testing.T) {
	f := newFakeServer(t)
	furnish(f)
	until := time.Date(2026, 12, 1, 18, 0, 0, 0, time.Local)
	for text, want := range map[string]time.Time{
		"2026-12-01T18:00": until, "2026-12-01 18:00": until, "2026-12-01": until.Add(-18 * time.Hour), "2026-12-01T18:00:00+02:00": time.Date(2026, 12, 1, 16, 0, 0, 0, time.UTC),
	} {
		got := f.command("submit", "--name", "paper", "--priority", "50", "--priority-until", text, "--priority-after", "-1", "--", "true")
		spec := f.works[len(f.works)-1].Spec
		if got.exit != (Exit{}) || spec.Priority != 50 || spec.PriorityAfter != -1 || spec.PriorityUntil == nil || !spec.PriorityUntil.Equal(want) {
			t.Errorf("%s: sent %+v, want until %s (%q)", text, spec, want, got.err)
		}
	}
	work := api.Workload{Spec: api.WorkloadSpec{Priority: 50, PriorityUntil: &until, PriorityAfter: -1}}
	if text := workPriority(work); text != "50 until 2026-12-01 18:00, then -1" {
		t.Errorf("before the date it is shown as %q", text)
	}
	work.Status.PriorityOver = true
	if text := workPriority(work); text != "-1, 50 until 2026-12-01 18:00" {
		t.Errorf("after the date it is shown as %q", text)
	}
	stamp := until.UTC().Format(time.RFC3339)
	if got := f.command("queue", "set", "vision", "--priority", "5", "--priority-until", "2026-12-01T18:00"); got.exit != (Exit{}) || !strings.Contains(got.out, "5 until 2026-12-01 18:00, then 0") ||
		!f.called(`PUT /v1/queues/vision {"name":"vision","parent":"default","quota":"2","limit":{"compute":"3"},"priority":5,"priorityUntil":"`+stamp+`"}`) {
		t.Errorf("queue set: %q %q %q", got.out, got.err, f.calls)
	}
	if got := f.command("queue", "set", "vision", "--hours", "100/week"); got.exit != (Exit{}) || !f.called(`PUT /v1/queues/vision {"name":"vision","parent":"default","quota":"2","limit":{"compute":"3"},"hours":"100/week"}`) {
		t.Errorf("queue set --hours: %q %q", got.err, f.calls)
	}
	shown := api.Queue{HoursUsed: &api.HoursUsed{Amount: 37_500, End: until}, QueueSpec: api.QueueSpec{Name: "vision", Hours: api.HoursQuota{Amount: 100_000, Per: api.Week}, Priority: 5, PriorityUntil: &until}}
	var lines []string
	for _, row := range queueUses(shown).rows[7:] {
		lines = append(lines, row[0].text+": "+row[1].text+" "+row[2].text)
	}
	if got := strings.Join(lines, "; "); got != "device-hours: 37.5 of 100 this week until 2026-12-01 18:00; priority: 5 until 2026-12-01 18:00, then 0 " {
		t.Errorf("queue show says %q", got)
	}
	for command, want := range map[string]string{
		"queue set vision --hours 100":                            "--hours: device-hours",
		"submit --priority-until 2026-12-01 -- true":              "--priority-until 2026-12-01: it is not said which priority holds until then",
		"submit --priority 5 --priority-until soon -- true":       `--priority-until "soon": this is no date: write 2026-12-01T18:00`,
		"submit --priority 5 --priority-after 1 -- true":          "--priority-after 1: it is not said after what",
		"submit --priority 5 --priority-until= -- true":           "--priority-until: nothing was given: write for example 2026-12-01T18:00",
		"submit --priority 0 --priority-until 2026-12-01 -- true": "the priority is 0 until a date and after it",
		"queue set vision --priority-until 2026-12-01":            "it is not said which priority holds until then",
		"queue set vision --priority 5 --priority-until=":         "--priority-until: nothing was given",
	} {
		if got := f.command(strings.Fields(command)...); got.exit.Status != ExitUsage || !strings.Contains(got.err, want) {
			t.Errorf("%s: %v %q, want %s", command, got.exit, got.err, want)
		}
	}
}
