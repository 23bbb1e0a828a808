package policy

import (
	"testing"
	"time"

	"github.com/aliquot-dev/aliquot/engine"
)

// After how long use counts half is said for always or for a window.
func TestHalfLife(t *testing.T) {
	now := time.Date(2026, 1, 5, 12, 0, 0, 0, time.UTC)
	p, err := Parse("fair", FormatLine+"\nhalf-life 3d\nwindow night from=22:00 to=06:00\nhalf-life 365d\nwindow noon from=11:00 to=13:00\ntop fair\n", now)
	if err != nil {
		t.Fatal(err)
	}
	const hour = engine.Time(3600_000_000)
	for at, want := range map[int]engine.Time{9: 72 * hour, 12: 72 * hour, 23: 8760 * hour} {
		told := p.During(p.At(time.Date(2026, 1, 5, at, 0, 0, 0, time.UTC)), nil)
		if err := engine.New(engine.Config{}).CheckPolicy(told); told.HalfLife != want || err != nil {
			t.Errorf("at %d use counts half after %d µs, want %d; the engine says %v", at, told.HalfLife, want, err)
		}
	}
	if p, err := Parse("other", FormatLine+"\ntop fair\n", now); err != nil || p.During(nil, nil).HalfLife != 0 {
		t.Errorf("it is said where nothing is said of it (%v)", err)
	}
}

func TestHalfLifeRefused(t *testing.T) {
	wrong := func(text string) string {
		return `rules:2: half-life "` + text + `": write a time from 1m to 365d after which what queues used counts half, for example 12h or 3d`
	}
	for line, says := range map[string]string{
		"half-life":                     wrong(""),
		"half-life none":                wrong("none"),
		"half-life 0":                   wrong("0"),
		"half-life 59s":                 wrong("59s"),
		"half-life 365d1s":              wrong("365d1s"),
		"half-life 1d for=a":            `rules:2: half-life has no word "for": see the list of its words in docs/policy.md`,
		"half-life 1d\nhalf-life 2d":    "rules:3: half-life is said twice before the first window, in line 2 and here: say it once",
		"half-life 1m\nwindow w from=x": "rules:3: window w does not say when it is: write days=sat,sun, or days=mon-fri from=22:00 to=06:00, or from=fri@18:00 to=mon@06:00",
	} {
		if _, err := Parse("rules", FormatLine+"\n"+line, time.Time{}); err == nil || err.Error() != says {
			t.Errorf("%s:\n%v\nwant\n%s", line, err, says)
		}
	}
	if _, err := Parse("rules", FormatLine+"\nhalf-life 1m", time.Time{}); err != nil {
		t.Errorf("a minute is refused: %v", err)
	}
}
