package policy

import (
	"testing"
	"time"
)

// What may start before the first in line is said for always or for a window.
func TestBackfill(t *testing.T) {
	now := time.Date(2026, 1, 5, 12, 0, 0, 0, time.UTC)
	p, err := Parse("early", FormatLine+"\nbackfill predicted\nwindow night from=22:00 to=06:00\nbackfill limits\n", now)
	if err != nil {
		t.Fatal(err)
	}
	for hour, want := range map[int]bool{9: true, 23: false} {
		if got := p.During(p.At(time.Date(2026, 1, 5, hour, 0, 0, 0, time.UTC)), nil).Predicted; got != want {
			t.Errorf("at %d work is let in by predictions: %v", hour, got)
		}
	}
	if p, err := Parse("other", FormatLine+"\ntop fair\n", now); err != nil || p.During(nil, nil).Predicted {
		t.Errorf("it is where nothing is said of it (%v)", err)
	}
	for text, want := range map[string]string{
		"backfill maybe":                      `wrong:2: backfill "maybe": write limits, for work whose time limit is over before the first in line starts, or predicted, for preemptible work that is predicted to be over by then, too`,
		"backfill":                            `wrong:2: backfill "": write limits, for work whose time limit is over before the first in line starts, or predicted, for preemptible work that is predicted to be over by then, too`,
		"backfill limits\nbackfill predicted": "wrong:3: backfill is said twice before the first window, in line 2 and here: say it once",
		"backfill predicted for=some":         `wrong:2: backfill has no word "for": see the list of its words in docs/policy.md`,
	} {
		if _, err := Parse("wrong", FormatLine+"\n"+text+"\n", now); err == nil || err.Error() != want {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}
