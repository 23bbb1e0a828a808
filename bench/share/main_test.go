package main

import (
	"regexp"
	"testing"
	"time"
)

func wholeRun() bench {
	return bench{repeats: wholeRepeats, wakes: wholeWakes, burst: wholeBurst, window: wholeWindow, bare: wholeBare, only: regexp.MustCompile("")}
}

// A run that measures less of anything is one of a part, and says by what.
func TestPart(t *testing.T) {
	for want, less := range map[string]func(*bench){
		"":                            func(*bench) {},
		"-only idle":                  func(b *bench) { b.only = regexp.MustCompile("idle") },
		"-repeats 1 of 5":             func(b *bench) { b.repeats = 1 },
		"-wakes 300 of 1000":          func(b *bench) { b.wakes = 300 },
		"-burst 10 of 1000":           func(b *bench) { b.burst = 10 },
		"-bare 0 of 1":                func(b *bench) { b.bare = 0 },
		"-window 1s of 10s":           func(b *bench) { b.window = time.Second },
		"-only run$, -repeats 2 of 5": func(b *bench) { b.only, b.repeats = regexp.MustCompile("run$"), 2 },
	} {
		b := wholeRun()
		less(&b)
		if got := b.part(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	more := wholeRun()
	more.repeats, more.bare = 7, 5
	if got := more.part(); got != "" {
		t.Errorf("more than the whole is %q", got)
	}
}
