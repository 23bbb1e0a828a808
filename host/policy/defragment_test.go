package policy

import (
	"strings"
	"testing"
	"time"

	"github.com/aliquot-dev/aliquot/engine"
)

// Moving work is said for always or for a window, and means what it says.
func TestDefragment(t *testing.T) {
	now := time.Date(2026, 1, 5, 12, 0, 0, 0, time.UTC)
	p, err := Parse("moves", FormatLine+"\ndefragment moves-per-hour=10 min-run=10m max-loss=none free=2\nwindow night from=22:00 to=06:00\ndefragment moves-per-hour=100\nwindow noon from=11:00 to=13:00\ndefragment off\n", now)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		at    int // hour
		want  *engine.Defragment
		means string
	}{
		{9, &engine.Defragment{MovesPerHour: 10, MinRun: 600_000_000, Free: 2}, "at most 10 moves in any hour, of work that may be preempted and comes again and has run for 10m, for the first in line or so that a device is free as a whole while fewer than 2 are"},
		{23, &engine.Defragment{MovesPerHour: 100, MaxLoss: 3_600_000_000}, "at most 100 moves in any hour, of work that may be preempted and comes again, for the first in line or so that a device is free as a whole; a plan loses 1h of a device at the most"},
		{12, nil, "nothing is moved"},
	} {
		w := p.At(time.Date(2026, 1, 5, c.at, 0, 0, 0, time.UTC))
		told := p.During(w, nil)
		said := p.Defragment
		if w != nil {
			said = w.Defragment
		}
		if (told.Defragment == nil) != (c.want == nil) || c.want != nil && *told.Defragment != *c.want || said.Means() != c.means {
			t.Errorf("at %d: %+v, %q", c.at, told.Defragment, said.Means())
		}
		if err := engine.New(engine.Config{}).CheckPolicy(told); err != nil {
			t.Errorf("at %d the engine says %v", c.at, err)
		}
	}
	if says := strings.Join(p.Defragment.Says(), " "); says != "moves-per-hour=10 min-run=10m max-loss=none free=2" {
		t.Errorf("it says %q", says)
	}
}

func TestDefragmentRefused(t *testing.T) {
	for line, says := range map[string]string{
		"defragment":                                                     "rules:2: defragment does not say how much may be moved: write moves-per-hour= and how many, or defragment off",
		"defragment on":                                                  `rules:2: defragment "on": write moves-per-hour= and how many, or off`,
		"defragment off free=1":                                          "rules:2: defragment off moves nothing: leave its other words out",
		"defragment moves-per-hour=0":                                    "rules:2: moves-per-hour=0: write a whole number from 1 to 1000000",
		"defragment moves-per-hour=1000001":                              "rules:2: moves-per-hour=1000001: write a whole number from 1 to 1000000",
		"defragment moves-per-hour=1.5":                                  "rules:2: moves-per-hour=1.5: write a whole number from 1 to 1000000",
		"defragment moves-per-hour=1 min-run=soon":                       "rules:2: min-run=soon: write a time of a second or more, for example 10m or 2h",
		"defragment moves-per-hour=1 max-loss=0s":                        "rules:2: max-loss=0s: write a time of a second or more, for example 10m or 2h",
		"defragment moves-per-hour=1 free=-1":                            "rules:2: free=-1: write a whole number from 1 to 1000000",
		"defragment moves-per-hour=1 at=night":                           `rules:2: defragment has no word "at": see the list of its words in docs/policy.md`,
		"defragment moves-per-hour=1\ndefragment off":                    "rules:3: defragment is said twice before the first window, in line 2 and here: say it once",
		"queue a\nwindow w days=sat\ndefragment moves-per-hour=x free=1": "rules:4: moves-per-hour=x: write a whole number from 1 to 1000000",
	} {
		if _, err := Parse("rules", FormatLine+"\n"+line, time.Time{}); err == nil || err.Error() != says {
			t.Errorf("%s:\n%v\nwant\n%s", line, err, says)
		}
	}
}
