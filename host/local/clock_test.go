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
	h := &Host{Config: Config{Now: func() time.Time { return now }}, began: began, passed: func(time.Time) time.Duration { return time.Minute }}
	at := h.time().At
	if want := engine.Time(began.Add(time.Minute).UnixMicro()); at != want {
		t.Errorf("the engine's time is %d, want %d", at, want)
	}
	if in := h.wall(at + engine.Time((30 * time.Second).Microseconds())).Sub(h.Now()); in != 30*time.Second {
		t.Errorf("it comes in %s", in)
	}
}

// What is to come on the full second is shown as that, whatever time passes while it is worked out and between two looks at the clock, and
// however little more than whole microseconds a reading of it is.
func TestTimesAreNotShownEarly(t *testing.T) {
	began := time.Date(2026, 11, 21, 9, 0, 0, 0, time.UTC)
	read := time.Duration(0)
	h := &Host{
		Config: Config{Now: func() time.Time {
			read += 300*time.Microsecond + 700
			return began.Add(read)
		}},
		began: began, passed: func(now time.Time) time.Duration { return now.Sub(began) },
	}
	for range 5000 {
		in := time.Hour - read - 300*time.Microsecond - 700 // so that it is at ten sharp
		at := h.time().At + engine.Time(in.Microseconds())
		if got, want := h.shown(at), began.Add(time.Hour); !got.Equal(want) {
			t.Fatalf("what comes at %s is shown for %s", want, got)
		}
		if got, want := h.wall(at), began.Add(time.Hour); want.Sub(got) > 2*time.Microsecond || got.After(want) {
			t.Fatalf("what comes at %s comes at %s", want, got)
		}
	}
}
