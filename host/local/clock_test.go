package local

import (
	"testing"
	"time"

	"github.com/aliquot-dev/aliquot/engine"
)

// A clock that is set back an hour puts off nothing: what was to come in half a minute comes in half a minute.
func TestClockThatIsSetBackPutsNothingOff(t *testing.T) {
	began := time.Date(2026, 11, 21, 9, 0, 0, 0, time.UTC)
	now := began.Add(-time.Hour)
	h := &Host{Config: Config{Now: func() time.Time { return now }}, began: began, passed: func() time.Duration { return time.Minute }}
	at := h.time().At
	if want := engine.Time(began.Add(time.Minute).UnixMicro()); at != want {
		t.Errorf("the engine's time is %d, want %d", at, want)
	}
	if in := h.wall(at + engine.Time((30 * time.Second).Microseconds())).Sub(h.Now()); in != 30*time.Second {
		t.Errorf("it comes in %s", in)
	}
}
