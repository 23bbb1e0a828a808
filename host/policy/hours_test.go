package policy

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/engine"
)

// Days, weeks and months begin and end by the clocks of their zone, also where these are set.
func TestPeriods(t *testing.T) {
	for _, c := range []struct {
		per         api.Period
		zone, now   string
		begin, end  string
		hoursOfThis int
	}{
		{api.Day, "UTC", "2026-11-21 23:59", "2026-11-21 00:00", "2026-11-22 00:00", 24},
		{api.Day, "Europe/Berlin", "2026-03-29 12:00", "2026-03-29 00:00", "2026-03-30 00:00", 23},
		{api.Week, "Europe/Berlin", "2026-11-22 23:59", "2026-11-16 00:00", "2026-11-23 00:00", 7 * 24},
		{api.Week, "Europe/Berlin", "2026-11-23 00:00", "2026-11-23 00:00", "2026-11-30 00:00", 7 * 24},
		{api.Month, "America/New_York", "2026-12-31 23:59", "2026-12-01 00:00", "2027-01-01 00:00", 31 * 24},
		{api.Month, "America/New_York", "2026-11-01 00:00", "2026-11-01 00:00", "2026-12-01 00:00", 30*24 + 1},
	} {
		now := local(t, c.zone, c.now)
		begin, end := period(c.per, now, now.Location())
		if !begin.Equal(local(t, c.zone, c.begin)) || !end.Equal(local(t, c.zone, c.end)) || int(end.Sub(begin).Hours()) != c.hoursOfThis {
			t.Errorf("the %s of %s in %s is from %s to %s", c.per, c.now, c.zone, begin, end)
		}
	}
}

// counted is an Hours under a clock of its own, with what is held.
type counted struct {
	Hours
	t     *testing.T
	begin time.Time
	now   time.Time
	held  map[string]api.Milli
}

func (c *counted) at() engine.Time { return engine.Time(c.now.Sub(c.begin).Microseconds()) }

func (c *counted) holds(queue string) api.Milli { return c.held[queue] }

func (c *counted) pass(d time.Duration) {
	c.now = c.now.Add(d)
	c.Count(c.at(), c.holds)
	c.Turn(c.now)
}

func (c *counted) used(queue, want string) {
	c.t.Helper()
	if used := c.Used(queue); used == nil || used.Amount.String() != want {
		c.t.Errorf("at %s %s used %+v, want %s", c.now, queue, used, want)
	}
}

// What is held counts for as long as it is held, until the period is over; what is used up is told, and when it will be is known before.
func TestHours(t *testing.T) {
	sunday := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	c := &counted{t: t, begin: sunday, now: sunday, held: map[string]api.Milli{"a": 2000, "b": 500}}
	queues := []api.QueueSpec{{Name: "a", Hours: api.HoursQuota{Amount: 10_000, Per: api.Week}}, {Name: "b", Hours: api.HoursQuota{Amount: 0, Per: api.Day}}, {Name: "c"}}
	c.Set(queues, time.UTC, c.now, c.at())
	c.Mark(queues)
	c.Told(queues)
	if queues[0].HoursSpent || !queues[1].HoursSpent || queues[2].HoursSpent || len(c.Changed()) > 0 {
		t.Errorf("at the begin %+v is told", queues)
	}
	if next := c.Next(c.now, c.holds); next.Before(sunday.Add(5*time.Hour)) || next.After(sunday.Add(5*time.Hour+time.Second)) {
		t.Errorf("2 devices use 10 device-hours up at %s", next)
	}
	c.pass(3 * time.Hour)
	c.used("a", "6")
	c.used("b", "1.5")
	c.held["a"] = 1000
	c.pass(4*time.Hour - time.Second)
	if len(c.Changed()) > 0 {
		t.Errorf("a second before it is used up %q are to be told", c.Changed())
	}
	c.pass(time.Second)
	if got := fmt.Sprint(c.Changed()); got != "[a]" {
		t.Errorf("once it is used up %s are to be told", got)
	}
	text, next := c.Spent("a")
	if text != "queue a has used 10 of its 10 device-hours of this week" || next != "Mon 23 Nov 2026 00:00 UTC" {
		t.Errorf("said %q, %q", text, next)
	}
	c.Mark(queues)
	if got := fmt.Sprint(c.Changed()); got != "[a]" {
		t.Errorf("what was marked and is not told yet: %s", got)
	}
	c.Told(queues)
	if !queues[0].HoursSpent || len(c.Changed()) > 0 {
		t.Errorf("it is told twice: %+v", queues)
	}
	c.pass(time.Hour) // what runs goes on, and counts
	c.used("a", "11")
	if next := c.Next(c.now, c.holds); !next.Equal(time.Date(2026, 11, 23, 0, 0, 0, 0, time.UTC)) {
		t.Errorf("the next period begins at %s", next)
	}
	c.pass(4 * time.Hour)
	c.used("a", "0")
	if got := fmt.Sprint(c.Changed()); got != "[a]" {
		t.Errorf("in the next week %s are to be told", got)
	}
	// More or fewer of the same period leave what was used; of another one it is counted anew.
	c.pass(2 * time.Hour)
	queues[0].Hours.Amount = 1000
	c.Set(queues, time.UTC, c.now, c.at())
	c.used("a", "2")
	queues[0].Hours.Per = api.Day
	c.Set(queues, time.UTC, c.now, c.at())
	c.used("a", "0")
	c.Set(queues[2:], time.UTC, c.now, c.at())
	if !c.None() || c.Used("a") != nil {
		t.Error("it is counted where there is no bound any more")
	}
}

// What was counted before a restart counts on, what was held meanwhile too, but nothing of a period that is over.
func TestHoursResume(t *testing.T) {
	queues := []api.QueueSpec{{Name: "a", Hours: api.HoursQuota{Amount: 100_000, Per: api.Day}}}
	began := time.Date(2026, 11, 22, 10, 0, 0, 0, time.UTC)
	for away, want := range map[time.Duration]string{0: "4", time.Hour: "6", 13 * time.Hour: "2"} { // the last: from midnight to 1:00
		c := &counted{t: t, begin: began, now: began, held: map[string]api.Milli{"a": 2000}}
		c.Set(queues, time.UTC, c.now, c.at())
		c.pass(2 * time.Hour)
		text, err := json.Marshal(c.Keep(c.now))
		if err != nil {
			t.Fatal(err)
		}
		var kept KeptHours
		if err := json.Unmarshal(text, &kept); err != nil {
			t.Fatal(err)
		}
		again := &counted{t: t, begin: c.now.Add(away), now: c.now.Add(away), held: c.held}
		again.Resume(kept)
		again.Set(queues, time.UTC, again.now, again.at())
		again.pass(0)
		again.used("a", want)
		if used := again.Used("a"); away == 0 {
			one := &counted{t: t, begin: again.now, now: again.now.Add(time.Hour), held: c.held}
			one.Resume(KeptHours{At: again.now.Add(-time.Hour), Queues: map[string]KeptCount{"a": Kept(*used, api.Day, again.now)}}) // told of it alone, later than of the others
			one.Set(queues, time.UTC, one.now, one.at())
			one.pass(0)
			one.used("a", "6")
		}
		again.Forgive("a", 1000, 30*time.Minute)
		if used := again.Used("a"); again.counts["a"].used != int64(mustQuota(t, want))*msPerHour-1000*1_800_000 {
			t.Errorf("after half an hour was taken back: %+v", used)
		}
	}
}

func mustQuota(t *testing.T, text string) api.Quota {
	t.Helper()
	q, err := api.ParseQuota(text)
	if err != nil {
		t.Fatal(err)
	}
	return q
}

func TestHoursOfAPolicy(t *testing.T) {
	head := FormatLine + "\n"
	p := parsed(t, head+"zone Europe/Berlin\nqueue a hours=100/week\nqueue b hours=none\n")
	if queues := p.During(nil, nil).Queues; queues[0].Hours != (api.HoursQuota{Amount: 100_000, Per: api.Week}) || !queues[1].Hours.IsZero() || p.Location().String() != "Europe/Berlin" {
		t.Errorf("%+v in %s", queues, p.Location())
	}
	asked := api.QueueSpec{Name: "a", Quota: api.Unlimited, Hours: api.HoursQuota{Amount: 1, Per: api.Week}}
	if _, err := p.Own(nil, asked, asked, monday); err == nil || !strings.HasPrefix(err.Error(), "hours of queue a is what the policy says, 100/week") {
		t.Errorf("told %v", err)
	}
	asked.Hours.Amount = 100_000
	if own, err := p.Own(nil, api.QueueSpec{Name: "a"}, asked, monday); err != nil || !own.Hours.IsZero() {
		t.Errorf("%+v %v", own, err)
	}
	for text, want := range map[string]string{
		head + "queue a hours=100\n":                               "a.policy:2: hours=100: ",
		head + "queue a hours=1/year\n":                            "a.policy:2: hours=1/year: ",
		head + "queue a hours=-1/day\n":                            "a.policy:2: hours=-1/day: ",
		head + "queue a\nwindow w days=sat\nqueue a hours=1/day\n": "a.policy:4: hours=1/day: device-hours are of a day, week or month, whichever window holds",
	} {
		if _, err := Parse("a.policy", text, monday); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s\nis told  %v\nand not %s", text, err, want)
		}
	}
}
