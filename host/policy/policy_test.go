package policy

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/engine/place"
)

var monday = time.Date(2026, 1, 5, 0, 0, 0, 0, time.UTC)

const company = FormatLine + `
# What holds always.
zone Europe/Berlin
top fair
placement default
queue org quota=4
queue vision parent=org quota=3 weight=2 order=fair+priority:1h+shortest:2 max-priority=10
queue batch parent=org quota=1 limit=2 quota-mem=80Gi limit-shares=4 limit@H200=1

window night days=mon-thu from=22:00 to=06:00
queue vision quota=1
queue batch quota=3 limit=none quota-mem=none limit@H200=2
placement stranded_device=90 whole=-2

window weekend from=fri@22:00 to=mon@06:00
top one-line
queue batch limit=4
`

func parsed(t *testing.T, text string) *Policy {
	t.Helper()
	p, err := Parse("a.policy", text, monday)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func local(t *testing.T, zone, text string) time.Time {
	t.Helper()
	loc, err := time.LoadLocation(zone)
	if err != nil {
		t.Fatal(err)
	}
	at, err := time.ParseInLocation("2006-01-02 15:04", text, loc)
	if err != nil {
		t.Fatal(err)
	}
	return at
}

func TestDuring(t *testing.T) {
	p := parsed(t, company)
	own := []api.QueueSpec{{Name: "default", Quota: api.Unlimited}, {Name: "vision", Quota: 9000, Limit: api.QueueAmounts{Compute: new(api.Quota(9000))}}}
	before := fmt.Sprintf("%+v", own)
	show := func(w *Window) string {
		var b strings.Builder
		e := p.During(w, own)
		fmt.Fprintf(&b, "%q %v %d:", e.Window, e.OneLine, e.Placement.Weights[place.Whole])
		for _, q := range e.Queues {
			fmt.Fprintf(&b, " %s/%s %s", q.Parent, q.Name, q.Quota)
			if q.Limit.Compute != nil {
				fmt.Fprintf(&b, "..%s", q.Limit.Compute)
			}
			if q.QuotaMemory != nil {
				fmt.Fprintf(&b, " %s", q.QuotaMemory)
			}
			for _, m := range q.Models {
				fmt.Fprintf(&b, " %s..%s", m.Model, m.Limit.Compute)
			}
		}
		return b.String()
	}
	for want, w := range map[string]*Window{
		`"" false 2000: /default none org/vision 3..9 /org 4 org/batch 1..2 80Gi H200..1`:       nil,
		`"night" false -2: /default none org/vision 1..9 /org 4 org/batch 3..none H200..2`:      p.Windows[0],
		`"weekend" true 2000: /default none org/vision 3..9 /org 4 org/batch 1..4 80Gi H200..1`: p.Windows[1],
	} {
		if got := show(w); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
	vision := p.During(nil, own).Queues[1]
	if vision.Order != (api.QueueOrder{PriorityWorth: api.Duration(time.Hour)}) || vision.ShortestFirst != 2000 || vision.Weight.All != 2 || vision.MaxPriority != 10 {
		t.Errorf("%+v", vision)
	}
	if after := fmt.Sprintf("%+v", own); after != before {
		t.Errorf("the server's own queues were changed to %s", after)
	}
}

// TestTurns walks from turn to turn, over both days on which clocks are set.
func TestTurns(t *testing.T) {
	p := parsed(t, FormatLine+`
zone Europe/Berlin
queue a
window night from=22:00 to=02:30
queue a quota=1
window early from=02:30 to=05:00
queue a quota=2
`)
	for _, from := range []string{"2026-03-28 12:00", "2026-10-24 12:00"} {
		at := local(t, "Europe/Berlin", from)
		var got []string
		for range 4 {
			next, ok := p.Next(at)
			if !ok {
				t.Fatal("no turn comes any more")
			}
			if w, before := p.At(next), p.At(next.Add(-1)); w == before {
				t.Errorf("at %s nothing turns", next)
			}
			name := "-"
			if w := p.At(next); w != nil {
				name = w.Name
			}
			got, at = append(got, next.UTC().Format("15:04")+" "+name), next
		}
		want := map[string]string{
			// 02:30 is skipped: the clocks are set at 01:00 UTC from 02:00 to 03:00.
			"2026-03-28 12:00": "[21:00 night 01:00 early 03:00 - 20:00 night]",
			// 02:30 comes twice: at 00:30 and 01:30 UTC.
			"2026-10-24 12:00": "[20:00 night 00:30 early 04:00 - 21:00 night]",
		}[from]
		if fmt.Sprint(got) != want {
			t.Errorf("after %s: %v, want %s", from, got, want)
		}
	}
}

// TestWallAgainstSearch: of all moments at which clocks show a time it is the first, and where there is none, that at which they were set.
func TestWallAgainstSearch(t *testing.T) {
	for _, name := range []string{"Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Pacific/Apia", "Asia/Kolkata", "America/Sao_Paulo", "UTC"} {
		zone, err := time.LoadLocation(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, year := range []int{2011, 2017, 2026} {
			first := map[string]time.Time{}
			begin := time.Date(year, 1, 1, 0, 0, 0, 0, time.UTC)
			end := begin.AddDate(1, 0, 0)
			shows := func(at time.Time) string { return at.In(zone).Format("2006-01-02 15:04") }
			for at := begin; at.Before(end); at = at.Add(15 * time.Minute) {
				if _, ok := first[shows(at)]; !ok {
					first[shows(at)] = at
				}
			}
			for date := begin.AddDate(0, 0, 2); date.Before(end.AddDate(0, 0, -2)); date = date.AddDate(0, 0, 1) {
				for minutes := 0; minutes < minutesADay; minutes += 30 {
					text := date.Add(time.Duration(minutes) * time.Minute).Format("2006-01-02 15:04")
					got := wall(date, minutes, zone)
					if want, ok := first[text]; ok && !got.Equal(want) {
						t.Fatalf("%s in %s is %s, found %s", text, name, got.UTC(), want)
					} else if before := shows(got.Add(-time.Minute)); !ok && !(before < text && text < shows(got)) {
						t.Fatalf("%s in %s, which is skipped, is %s: before it clocks show %s, at it %s", text, name, got.UTC(), before, shows(got))
					}
				}
			}
		}
	}
}

func TestAtIsWhatNextSays(t *testing.T) {
	p := parsed(t, company)
	at := local(t, "Europe/Berlin", "2026-03-23 12:00")
	end := at.AddDate(0, 0, 14)
	next, _ := p.Next(at)
	for now := p.At(at); at.Before(end); at = at.Add(7 * time.Minute) {
		if !at.Before(next) {
			now = p.At(next)
			next, _ = p.Next(next)
		}
		if w := p.At(at); w != now {
			t.Fatalf("at %s %v holds, and by the turns %v", at, w, now)
		}
	}
	if _, ok := parsed(t, FormatLine+"\nqueue a\n").Next(monday); ok {
		t.Error("without windows something turns")
	}
}

// TestSkippedWeek: a window of an hour that falls out where clocks are set forward comes again the week after.
func TestSkippedWeek(t *testing.T) {
	p := parsed(t, FormatLine+"\nzone Europe/Berlin\nqueue a\nwindow early days=sun from=02:00 to=03:00\nqueue a limit=1\n")
	berlin := p.Windows[0].zone
	next, ok := p.Next(time.Date(2026, 3, 22, 3, 0, 0, 0, berlin))
	if want := time.Date(2026, 4, 5, 2, 0, 0, 0, berlin); !ok || !next.Equal(want) {
		t.Errorf("after the window of 22 March the next turn is at %v (%v), want %v", next, ok, want)
	}
}

// TestComing: days that meet are one time, from the first to the last; a window that never ends has no end.
func TestComing(t *testing.T) {
	for _, c := range []struct{ window, at, begin, end string }{
		{"days=sat,sun", "2026-01-08 12:00", "2026-01-10 00:00", "2026-01-12 00:00"},
		{"days=sat,sun", "2026-01-10 12:00", "2026-01-10 00:00", "2026-01-12 00:00"},
		{"days=sat,sun", "2026-01-12 00:00", "2026-01-17 00:00", "2026-01-19 00:00"},
		{"days=mon-fri", "2026-01-09 23:59", "2026-01-05 00:00", "2026-01-10 00:00"},
		{"days=sun,mon from=18:00 to=18:00", "2026-01-12 20:00", "2026-01-11 18:00", "2026-01-13 18:00"},
		{"days=mon-fri from=22:00 to=06:00", "2026-01-05 23:00", "2026-01-05 22:00", "2026-01-06 06:00"},
		{"days=sat,sun", "2026-03-28 12:00", "2026-03-28 00:00", "2026-03-30 00:00"}, // clocks are set forward
		{"days=mon-sun", "2026-01-08 12:00", "", ""},
	} {
		p := parsed(t, FormatLine+"\nzone Europe/Berlin\nqueue a\nwindow w "+c.window+"\nqueue a limit=1\n")
		begin, end := p.Coming(p.Windows[0], local(t, "Europe/Berlin", c.at))
		for _, one := range []struct {
			got  *time.Time
			want string
		}{{begin, c.begin}, {end, c.end}} {
			switch {
			case one.want == "" && one.got == nil:
			case one.want == "" || one.got == nil || !one.got.Equal(local(t, "Europe/Berlin", one.want)):
				t.Errorf("%s at %s: from %v to %v, want from %s to %s", c.window, c.at, begin, end, c.begin, c.end)
			}
		}
	}
}

// TestErrors: each is one sentence with its place.
func TestErrors(t *testing.T) {
	head := FormatLine + "\n"
	for text, want := range map[string]string{
		"":                                                    `a.policy:1: the first line is "": it must be "aliquot policy 1"`,
		"queue a\n":                                           `a.policy:1: the first line is "queue a"`,
		head:                                                  "a.policy:1: the policy names nothing",
		head + "zone Europe/Berlin\n":                         "a.policy:2: the policy names nothing",
		head + "zone Europe/Brelin\nqueue a":                  `a.policy:2: there is no zone "Europe/Brelin"`,
		head + "zone UTC\nzone UTC\n":                         "a.policy:3: the zone is named twice, in line 2 and here",
		head + "\n# c\nqueu a\n":                              `a.policy:4: "queu" is no kind of line`,
		head + "queue A\n":                                    "a.policy:2: the queue name",
		head + "queue\n":                                      "a.policy:2: a queue needs a name",
		head + "queue a quota\n":                              `a.policy:2: "quota" is not key=value`,
		head + "queue a quota=1 quota=2\n":                    `a.policy:2: "quota=2" is not key=value with a key that comes once`,
		head + "queue a quota@\"NVIDIA H200=1\n":              `a.policy:2: a name in quotes does not end`,
		head + "queue a qouta=1\n":                            "a.policy:2: qouta=1: a queue has no such word",
		head + "queue a quota=x\n":                            "a.policy:2: quota=x: ",
		head + "queue a quota-cpu=1\n":                        "a.policy:2: quota-cpu=1: there is no amount of cpu",
		head + "queue a quota@=1\n":                           "a.policy:2: quota@=1: the model is missing",
		head + "queue a order=best\n":                         "a.policy:2: order=best: ",
		head + "queue a min-run=-1s\n":                        "a.policy:2: ",
		head + "queue a disruptions=2\n":                      "a.policy:2: disruptions=2: ",
		head + "queue a weight=0\n":                           "a.policy:2: weight=0: write a whole number from 1",
		head + "queue a\nqueue a\n":                           "a.policy:3: queue a comes twice before the first window, in line 2 and here",
		head + "queue a parent=b\n":                           "a.policy:2: parent=b: no line before this one names queue b",
		head + "queue a parent=a\n":                           "a.policy:2: the queue a cannot be its own parent",
		head + "queue a quota=2 limit=1\n":                    "a.policy:2: queue a: its quota of 2 devices is over its limit of 1 device",
		head + "pool p\n":                                     "a.policy:2: nothing is said of pool p before the first window",
		head + "pool p devices=0-1\n":                         "a.policy:2: pool p is for no class",
		head + "pool p classes=training\n":                    "a.policy:2: pool p names no devices",
		head + "pool p classes=train devices=0\n":             `a.policy:2: classes=train: there is no class "train"`,
		head + "pool p classes=batch devices=3-1\n":           "a.policy:2: devices=3-1: write the index",
		head + "pool p classes=batch devices=0 lends=maybe\n": "a.policy:2: lends=maybe: write yes or no",
		head + "pool p classes=batch color=red\n":             "a.policy:2: color=red: a pool has no such word",
		head + "pool p classes=batch devices=0\npool p classes=batch devices=1\n": "a.policy:3: pool p comes twice before the first window, in line 2",
		head + "window w days=sat\npool p classes=batch devices=0\n":              "a.policy:3: window w names pool p, which no line before",
		head + "top best\n":                                                            `a.policy:2: top "best": write fair`,
		head + "top fair\ntop fair\n":                                                  "a.policy:3: top is said twice before the first window, in line 2",
		head + "placement fast\n":                                                      `a.policy:2: there is no placement "fast"`,
		head + "placement\n":                                                           "a.policy:2: placement needs a name or the weights",
		head + "placement whole=1000001\n":                                             "a.policy:2: whole=1000001: write a whole number from -1000000",
		head + "placement fragmentation=0 whole=0\n":                                   "a.policy:2: no feature of the placement counts, for all its weights are 0",
		head + "queue a\nwindow w days=sat\n# c\nplacement whole=0\n":                  "a.policy:5: no feature of the placement counts, for all its weights are 0",
		head + "placement size=1\n":                                                    `a.policy:2: there is no feature "size"`,
		head + "window w\n":                                                            "a.policy:2: window w does not say when it is",
		head + "window w days=sat\n":                                                   "a.policy:2: window w, in line 2, names nothing that holds in it",
		head + "window w days=sat\nwindow v days=sun\ntop fair\n":                      "a.policy:3: window w, in line 2, names nothing",
		head + "window w days=sat\ntop fair\nwindow w days=sun\n":                      "a.policy:4: window w comes twice, in line 2 and here",
		head + "window w days=sat,sat\n":                                               "a.policy:2: sat comes twice in days=sat,sat",
		head + "window w days=so\n":                                                    `a.policy:2: "so" is no day`,
		head + "window w from=8:00 to=09:00\n":                                         `a.policy:2: "8:00" is no time of day`,
		head + "window w from=08:00\n":                                                 "a.policy:2: window w does not say when",
		head + "window w from=fri@08:00 to=09:00\n":                                    `a.policy:2: "09:00" has no day`,
		head + "window w days=fri from=fri@08:00 to=fri@09:00\n":                       "a.policy:2: the days of window w are said twice",
		head + "window w days=sat zone=Mars\ntop fair\n":                               `a.policy:2: there is no zone "Mars"`,
		head + "window w days=sat\nqueue a quota=1\n":                                  "a.policy:3: window w names queue a, which no line before the first window names",
		head + "queue a\nwindow w days=sat\nqueue a\n":                                 "a.policy:4: nothing is said of queue a in window w",
		head + "queue a\nwindow w days=sat\ntop fair\nzone UTC\n":                      "a.policy:5: the zone of all windows is named before the first",
		head + "queue o quota=2\nqueue a parent=o quota=1\nqueue b parent=o quota=2\n": "a.policy:4: the quotas of the queues under o add up to 3 devices, and its own is 2 devices",
		head + "queue o quota=2\nqueue a parent=o quota=1\nqueue b parent=o\nwindow w days=sat\nqueue b quota=2\n":                                            "a.policy:6: in window w the quotas of the queues under o add up to 3 devices",
		head + "queue a\nqueue b parent=a\nwindow w days=sat\nqueue a parent=b\n":                                                                             "a.policy:5: in window w queue b cannot be under a",
		head + "window a days=fri from=20:00 to=06:00\ntop fair\nwindow b days=sat\ntop fair\n":                                                               "a.policy:4: window b overlaps window a of line 2, first from Sat 10 Jan 2026 00:00 UTC to Sat 10 Jan 2026 06:00 UTC: end one",
		head + "window a days=fri from=22:00 to=23:00\ntop fair\nwindow b days=fri from=16:00 to=18:00 zone=America/New_York\ntop fair\n":                     "a.policy:4: window b overlaps window a of line 2, first from Fri 9 Jan 2026 17:00 EST to Fri 9 Jan 2026 18:00 EST",
		head + "zone Europe/Berlin\nwindow a days=fri from=22:00 to=23:00\ntop fair\nwindow b days=fri from=17:00 to=18:00 zone=America/New_York\ntop fair\n": "a.policy:5: window b overlaps window a of line 3, first from Fri 13 Mar 2026 17:00 EDT",
	} {
		if _, err := Parse("a.policy", text, monday); err == nil || !strings.HasPrefix(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s\nis told  %v\nand not %s", text, err, want)
		}
	}
}

// TestCheckOnAServer: what adds up by itself may not with what a server has.
func TestCheckOnAServer(t *testing.T) {
	p := parsed(t, FormatLine+"\nqueue org\nqueue a parent=org quota=2\nwindow w days=sat\nqueue a quota=4\n")
	own := []api.QueueSpec{{Name: "org", Quota: 4000}, {Name: "b", Parent: "org", Quota: 1000}}
	want := "a.policy:5: in window w the quotas of the queues under org add up to 5 devices, and its own is 4 devices"
	if err := p.Check(own); err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("%v, want %s", err, want)
	}
	own[1].Quota = 0
	if err := p.Check(own); err != nil {
		t.Error(err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add(company)
	f.Add(FormatLine + "\nqueue a limit-mem@x=1Gi parent=none\nwindow w from=sun@24:00 to=mon@00:00 zone=Pacific/Apia\nqueue a quota=0\n")
	f.Add(FormatLine + "\nwindow w days=sat-mon,wed from=00:00 to=24:00\nplacement best_fit\n")
	f.Fuzz(func(t *testing.T, text string) {
		p, err := Parse("f", text, monday)
		if err != nil {
			if strings.Contains(err.Error(), "\n") || !strings.HasPrefix(err.Error(), "f:") {
				t.Fatalf("%q is told %q", text, err)
			}
			return
		}
		at := monday
		for range 4 { // the engine takes whatever holds at any moment
			if err := addsUp(p.During(p.At(at), nil).Queues); err != nil {
				t.Fatalf("%q is taken, and at %s: %v", text, at, err)
			}
			next, ok := p.Next(at)
			if ok && !next.After(at) {
				t.Fatalf("%q turns at %s after %s", text, next, at)
			}
			if at = next; !ok {
				break
			}
		}
	})
}

// TestOwn: what the policy says now cannot be set otherwise, all else can, and what is so by itself stays for when the policy is gone.
func TestOwn(t *testing.T) {
	p := parsed(t, company)
	old := api.QueueSpec{Name: "vision", Quota: 9000, Weight: api.QueueWeight{All: 7}}
	for _, w := range []*Window{nil, p.Windows[0]} {
		asked := p.During(w, []api.QueueSpec{old}).Queues[0]
		asked.Limit.Compute = new(api.Quota(5000))
		own, err := p.Own(w, old, asked, monday)
		if err != nil || own.Quota != 9000 || own.Weight.All != 7 || own.Parent != "" || own.Order != old.Order || *own.Limit.Compute != 5000 {
			t.Errorf("%+v %v", own, err)
		}
		asked.Quota = 2000
		if _, err := p.Own(w, old, asked, monday); err == nil || !strings.Contains(err.Error(), "quota of queue vision is what the policy says") {
			t.Errorf("%v", err)
		}
	}
	// Of several words the first by name is told, with the line that says it: the window's or that before.
	asked := p.During(p.Windows[0], []api.QueueSpec{old}).Queues[0]
	asked.Weight.All, asked.Quota, asked.MaxPriority = 5, 2000, 1
	for _, want := range []string{"max-priority of queue vision is what the policy says, 10 (a.policy:7)", "quota of queue vision is what the policy says, 1 (a.policy:11)", "weight of queue vision is what the policy says, 2 (a.policy:7)"} {
		if _, err := p.Own(p.Windows[0], old, asked, monday); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("told %v, want %s", err, want)
		}
		if asked.MaxPriority != 10 {
			asked.MaxPriority = 10
		} else {
			asked.Quota = 1000
		}
	}
	batch := api.QueueSpec{Name: "batch", Quota: 500, QuotaDevices: new(int64(3)), Models: []api.QueueModel{{Model: "H200", Limit: api.QueueAmounts{Compute: new(api.Quota(250))}}}}
	own, err := p.Own(p.Windows[0], batch, p.During(p.Windows[0], []api.QueueSpec{batch}).Queues[0], monday)
	if err != nil || own.Quota != 500 || *own.QuotaDevices != 3 || own.QuotaMemory != nil || own.Limit.Compute != nil || *own.Models[0].Limit.Compute != 250 {
		t.Errorf("%+v %v", own, err)
	}
	var names []string
	for _, q := range p.New([]api.QueueSpec{batch}) {
		names = append(names, q.Parent+"/"+q.Name+" "+q.Quota.String())
	}
	if fmt.Sprint(names) != "[/org none org/vision none]" {
		t.Errorf("new are %v", names)
	}
}

// TestMinRun: a window changes it, and what the policy says of it a user cannot set otherwise.
func TestMinRun(t *testing.T) {
	p := parsed(t, "aliquot policy 1\nqueue a min-run=10m\nwindow night from=23:00 to=06:00\nqueue a min-run=none\n")
	own := api.QueueSpec{Name: "a", Quota: api.Unlimited, MinRun: api.Duration(time.Hour)}
	always, night := p.During(nil, []api.QueueSpec{own}).Queues[0], p.During(p.Windows[0], []api.QueueSpec{own}).Queues[0]
	if always.MinRun != api.Duration(10*time.Minute) || night.MinRun != 0 {
		t.Errorf("%s always and %s at night", always.MinRun, night.MinRun)
	}
	if kept, err := p.Own(nil, own, always, monday); err != nil || kept.MinRun != own.MinRun {
		t.Errorf("by itself %+v, %v", kept, err)
	}
	if _, err := p.Own(nil, own, own, monday); err == nil || !strings.Contains(err.Error(), "min-run of queue a is what the policy says, 10m") {
		t.Errorf("%v", err)
	}
}

// TestDisruptions: likewise.
func TestDisruptions(t *testing.T) {
	p := parsed(t, "aliquot policy 1\nqueue a disruptions=2/24h\nwindow night from=23:00 to=06:00\nqueue a disruptions=none\n")
	own := api.QueueSpec{Name: "a", Quota: api.Unlimited, Disruptions: api.DisruptionBudget{Most: 1, Per: api.Duration(time.Hour)}}
	always, night := p.During(nil, []api.QueueSpec{own}).Queues[0], p.During(p.Windows[0], []api.QueueSpec{own}).Queues[0]
	if always.Disruptions.String() != "2/24h" || !night.Disruptions.IsZero() {
		t.Errorf("%s always and %s at night", always.Disruptions, night.Disruptions)
	}
	if kept, err := p.Own(nil, own, always, monday); err != nil || kept.Disruptions != own.Disruptions {
		t.Errorf("by itself %+v, %v", kept, err)
	}
	if _, err := p.Own(nil, own, own, monday); err == nil || !strings.Contains(err.Error(), "disruptions of queue a is what the policy says, 2/24h") {
		t.Errorf("%v", err)
	}
}

// TestPools: a window says what of a pool changes; the rest stays.
func TestPools(t *testing.T) {
	p := parsed(t, FormatLine+`
pool serving devices=0-1 classes=inference,interactive lends=yes
pool training models=H200,A10 nodes=n1 classes=training
window night from=22:00 to=06:00
pool serving devices=0 lends=no
`)
	show := func(w *Window) string {
		var b strings.Builder
		for _, pool := range p.During(w, nil).Pools {
			fmt.Fprintf(&b, "%s %v %v %v %v", pool.Name, pool.Nodes, pool.Models, pool.Classes, pool.Lends)
			if pool.First != nil {
				fmt.Fprintf(&b, " %d-%d", *pool.First, *pool.Last)
			}
			b.WriteString("; ")
		}
		return b.String()
	}
	if got := show(nil); got != "serving [] [] [inference interactive] true 0-1; training [n1] [H200 A10] [training] false; " {
		t.Error(got)
	}
	if got := show(p.Windows[0]); got != "serving [] [] [inference interactive] false 0-0; training [n1] [H200 A10] [training] false; " {
		t.Error(got)
	}
}

// TestBlameOfMany: a wrong file of as many queues as there may be is told its line, and before long.
func TestBlameOfMany(t *testing.T) {
	text := FormatLine + "\nqueue org quota=0\n"
	for i := range maxQueues - 1 {
		text += fmt.Sprintf("queue q%d parent=org quota=1\n", i)
	}
	want := "a.policy:3: the quotas of the queues under org add up to 999 devices, and its own is 0 devices"
	parsing := testing.AllocsPerRun(1, func() {
		if _, err := Parse("a.policy", text, monday); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	})
	if most := 2_000_000.0; parsing > most { // a look at each of its beginnings takes far more
		t.Errorf("it takes %.0f allocations, want %.0f at most", parsing, most)
	}
	text = strings.Replace(text, "quota=0", "quota=997", 1)
	if _, err := Parse("a.policy", text, monday); err == nil || !strings.HasPrefix(err.Error(), fmt.Sprintf("a.policy:%d: ", maxQueues)) {
		t.Errorf("%v, want line %d", err, maxQueues)
	}
}
