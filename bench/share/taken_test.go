package main

import "testing"

func TestTaken(t *testing.T) {
	before, err := parseCPUTime("cpu  100 0 50 800 10 0 5 35 7 0\ncpu0 1 2 3\n")
	if err != nil {
		t.Fatal(err)
	}
	if want := (cpuTime{all: 1000, taken: 35}); before != want {
		t.Errorf("%+v, want %+v", before, want)
	}
	after, err := parseCPUTime("cpu  100 0 50 1780 10 0 5 55 7 0\n")
	if err != nil {
		t.Fatal(err)
	}
	if got := after.takenSince(before); got != 2 {
		t.Errorf("%g %% were taken, want 2", got)
	}
	if got := before.takenSince(after); got != 0 {
		t.Errorf("a clock that went back took %g %%", got)
	}
	for _, bad := range []string{"", "cpu 1 2 3", "cpu0 1 2 3 4 5 6 7 8 9 10", "cpu  1 0 x 1 1 1 1 1 1"} {
		if _, err := parseCPUTime(bad); err == nil {
			t.Errorf("%q was read", bad)
		}
	}
	if now, err := readCPUTime(); err != nil || now.all == 0 {
		t.Errorf("%+v %v", now, err)
	}
}
