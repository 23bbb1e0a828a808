package policy

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/aliquot-dev/aliquot/api"
)

const deadline = FormatLine + `
zone Europe/Berlin
queue org
queue vision parent=org priority=50 priority-until=2026-12-01T18:00 priority-after=5
queue speech priority=-2
window night from=22:00 to=06:00
queue speech priority=10 priority-until=2026-11-25
`

// A queue's priority holds until a date of the policy's zone, a day's being its beginning, and the engine is told no date.
func TestPriorityHoldsUntilItsDate(t *testing.T) {
	p := parsed(t, deadline)
	for _, at := range []struct {
		moment string
		night  bool
		want   string
	}{
		{"2026-11-24 23:59", false, "org 0 vision 50 speech -2 next 2026-12-01 18:00"},
		{"2026-11-24 23:59", true, "org 0 vision 50 speech 10 next 2026-11-25 00:00"},
		{"2026-11-25 00:00", true, "org 0 vision 50 speech 0 next 2026-12-01 18:00"},
		{"2026-12-01 17:59", false, "org 0 vision 50 speech -2 next 2026-12-01 18:00"},
		{"2026-12-01 18:00", false, "org 0 vision 5 speech -2 next never"},
	} {
		now := local(t, "Europe/Berlin", at.moment)
		var w *Window
		if at.night {
			w = p.Windows[0]
		}
		queues := p.During(w, nil).Queues
		told, next := Holding(queues, now)
		var got []string
		for i, q := range told {
			if q.PriorityUntil != nil || q.PriorityAfter != 0 {
				t.Errorf("at %s the engine is told of a date: %+v", at.moment, q)
			}
			if i < 3 {
				got = append(got, q.Name, fmt.Sprint(q.Priority))
			}
		}
		end := "never"
		if !next.IsZero() {
			end = next.In(now.Location()).Format("2006-01-02 15:04")
		}
		if text := strings.Join(got, " ") + " next " + end; text != at.want {
			t.Errorf("at %s: %s, want %s", at.moment, text, at.want)
		}
		if queues[1].PriorityUntil == nil {
			t.Error("the queues that were given are changed")
		}
	}
	if text := Dated(p.During(nil, nil).Queues[1], p.Windows[0].zone); text != "50 until Tue 1 Dec 2026 18:00 CET, then 5" {
		t.Errorf("it is shown as %q", text)
	}
}

// What the policy says of a priority cannot be set otherwise, neither while it holds nor when it is over; what it is by itself stays.
func TestOwnPriority(t *testing.T) {
	p := parsed(t, deadline)
	old := api.QueueSpec{Name: "vision", Quota: api.Unlimited, Priority: 7}
	for _, moment := range []string{"2026-11-24 12:00", "2026-12-24 12:00"} {
		now := local(t, "Europe/Berlin", moment)
		asked := p.During(nil, []api.QueueSpec{old}).Queues[0].At(now)
		asked.MaxPriority = 3
		own, err := p.Own(nil, old, asked, now)
		if err != nil || own.Priority != 7 || own.PriorityUntil != nil || own.MaxPriority != 3 {
			t.Errorf("%s: %+v %v", moment, own, err)
		}
		asked.Priority++
		if _, err := p.Own(nil, old, asked, now); err == nil || !strings.HasPrefix(err.Error(), "priority of queue vision is what the policy says, 50 (a.policy:4)") {
			t.Errorf("%s: told %v", moment, err)
		}
	}
}

// Where clocks are set a date is a moment as that of a window is.
func TestDateWhereClocksAreSet(t *testing.T) {
	for text, want := range map[string]string{
		"2026-03-29T02:30": "2026-03-29T01:00:00Z", // skipped: they are set then
		"2026-10-25T02:30": "2026-10-25T00:30:00Z", // twice: the first
	} {
		p := parsed(t, FormatLine+"\nzone Europe/Berlin\nqueue a priority=1 priority-until="+text+"\n")
		if got := p.During(nil, nil).Queues[0].PriorityUntil.Format(time.RFC3339); got != want {
			t.Errorf("%s is %s, want %s", text, got, want)
		}
	}
}

func TestDatedErrors(t *testing.T) {
	head := FormatLine + "\n"
	for text, want := range map[string]string{
		head + "queue a priority=1001\n":                                            "a.policy:2: priority=1001: write a whole number from -1000 to 1000",
		head + "queue a priority-until=2026-12-01\n":                                "a.policy:2: it is not said which priority holds until a date: write priority=50 beside it",
		head + "queue a priority=1 priority-after=2\n":                              "a.policy:2: priority-after=2: it is not said after what",
		head + "queue a priority=1 priority-until=2026-12-01 priority-after=x\n":    "a.policy:2: priority-after=x: write a whole number",
		head + "queue a priority=1 priority-until=1.12.2026\n":                      `a.policy:2: priority-until=1.12.2026: "1.12.2026" is no date: write 2026-12-01T18:00`,
		head + "queue a priority=1 priority-until=2026-02-30\n":                     `a.policy:2: priority-until=2026-02-30: "2026-02-30" is no date`,
		head + "queue a priority=0 priority-until=2026-12-01\n":                     "a.policy:2: priority=0 until a date and after it",
		head + "queue a priority=1 priority-until=2026-12-01\nzone Europe/Berlin\n": "a.policy:3: the zone is named after line 2, whose date is in it: move this line up",
	} {
		if _, err := Parse("a.policy", text, monday); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s\nis told  %v\nand not %s", text, err, want)
		}
	}
}
