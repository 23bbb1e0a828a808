package e2e

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/cli/top"
	"github.com/aliquot-dev/aliquot/engine"
	"github.com/aliquot-dev/aliquot/node/page"
)

var hogGot = regexp.MustCompile(`got (\d+) MiB`)

// got is how much memory a hog says it got, once it has taken all it could.
func (s *server) got(name string) api.Bytes {
	s.t.Helper()
	var mib int64
	eventually(s.t, name+" has taken what it could", func() bool {
		found := hogGot.FindStringSubmatch(s.must("logs", name))
		if found == nil {
			return false
		}
		mib, _ = strconv.ParseInt(found[1], 10, 64)
		return true
	})
	return api.Bytes(mib) << 20
}

// A memory floor is delivered: it is not granted on memory that another holds above its own, and whoever waits for it is told who
// holds it.
func TestMemoryHeldAboveAFloor(t *testing.T) {
	s := up(t, "a10x1")
	hog := filepath.Join(filepath.Dir(trainer), "hog")
	const gi = api.Bytes(1) << 30
	held := func(name string) (memory api.Bytes) {
		for _, device := range read[top.Snapshot](s, "top").Devices {
			for _, one := range device.Grants {
				if one.Workload == name && one.Memory != nil {
					memory = *one.Memory
				}
			}
		}
		return memory
	}

	s.must("submit", "--name", "bh", "--gpu", "0.1", "--mem", "1Gi..20Gi", "--", hog, "--seconds", "0")
	s.after("bh", unstarted...)
	if got := s.got("bh"); got < 18*gi || got > 20*gi {
		t.Fatalf("it took %s of 20Gi", got)
	}
	s.must("submit", "--name", "fh", "--gpu", "0.1", "--mem", "15Gi", "--", hog, "--seconds", "0")
	why := read[api.Why](s, "why", "fh")
	if why.Phase != api.Waiting || why.Code != engine.WhyHeld || !strings.Contains(why.Message, "held above their floors by bh (") || why.Unblock == "" {
		t.Errorf("why: %+v", why)
	}

	// What is held is not taken away by a lower ceiling; a lower floor changes nothing of it.
	if got := s.command("resize", "bh", "--mem", "5Gi"); got.status != 1 || !strings.Contains(got.err, "bh holds ") || !strings.Contains(got.err, "ask for at least ") {
		t.Errorf("a ceiling below what it holds: %s", got)
	}
	if out := s.must("resize", "bh", "--mem", "1Mi..20Gi"); out != "bh has 0.10 of compute and 2Mi..20Gi of memory\n" {
		t.Errorf("a floor of one step: %q", out)
	}
	history := read[api.Why](s, "why", "bh").History
	if last := history[len(history)-1].Message; !strings.Contains(last, "2Mi..20Gi of memory, rounded up from 1Mi..20Gi") {
		t.Errorf("its history ends with %q", last)
	}
	if memory := held("bh"); memory < 18*gi || memory > 20*gi {
		t.Errorf("it is said to hold %s", memory)
	}
	if work := read[api.Workload](s, "show", "fh"); work.Status.Phase != api.Waiting {
		t.Errorf("fh is %+v", work.Status)
	}

	s.must("stop", "bh")
	s.after("fh", unstarted...)
	if got := s.got("fh"); got < 14*gi {
		t.Errorf("of its floor of 15Gi it got %s", got)
	}
}

// An idle floor is lent to what may be stopped for it. When its owner allocates, that is ended and the owner's allocation succeeds; so is
// the floor of one that was placed on lent memory had. What was ended goes back into the line if it is to.
func TestLentFloor(t *testing.T) {
	s := up(t, "a10x1")
	hog := filepath.Join(filepath.Dir(trainer), "hog")
	const gi = api.Bytes(1) << 30
	begin := filepath.Join(t.TempDir(), "begin")
	s.must("submit", "--name", "owner", "--gpu", "0.1", "--mem", "12Gi", "--", "sh", "-c", "until [ -e "+begin+" ]; do sleep 0.05; done; exec "+hog+" --seconds 0")
	s.after("owner", unstarted...)
	s.must("submit", "--name", "keeps", "--gpu", "0.1", "--mem", "1Gi..20Gi", "--", hog, "--seconds", "0")
	s.after("keeps", unstarted...)
	if got := s.got("keeps"); got > 10*gi {
		t.Errorf("one that cannot be stopped took %s of what is reserved", got)
	}
	s.must("stop", "keeps")
	guest := []string{"submit", "--name", "guest", "--gpu", "0.1", "--mem", "1Gi..", "--on-reclaim", "stop", "--requeue", "--", hog, "--seconds", "0"}
	s.must(guest...)
	first := s.after("guest", unstarted...)
	if got := s.got("guest"); got < 20*gi {
		t.Errorf("it borrowed %s", got)
	}
	if why := s.must("why", "owner"); !strings.Contains(why, "of its memory is lent to guest while it does not use it") {
		t.Errorf("why says of the owner %q", why)
	}
	if shown := s.must("show", "guest"); !strings.Contains(shown, "stop: it is ended when others want the memory floors that it uses") {
		t.Errorf("show says %q", shown)
	}
	if err := os.WriteFile(begin, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if got := s.got("owner"); got < 11*gi || got > 12*gi {
		t.Errorf("of its floor of 12Gi the owner got %s", got)
	}
	evicted := s.after(first.UID, live...)
	if evicted.Status.Outcome != api.Evicted || evicted.Status.Reason != "memory taken back for owner's floor" {
		t.Errorf("the borrower ended as %+v", evicted.Status)
	}
	if why := s.must("why", first.UID); !strings.Contains(why, "memory taken back for owner's floor") {
		t.Errorf("why says %q", why)
	}
	if again := s.after("guest", unstarted...); again.Status.Requeued < 1 || again.Status.Phase != api.Running {
		t.Errorf("back in the line it is %+v", again.Status)
	}
	if got := s.got("guest"); got > 10*gi {
		t.Errorf("beside the owner it borrowed %s", got)
	}
	eventually(t, "use of both to the byte as the driver says", func() bool { // once it has been metered
		grants := read[top.Snapshot](s, "top").Devices[0].Grants
		return len(grants) == 2 && !slices.ContainsFunc(grants, func(one api.Usage) bool {
			return one.Memory == nil || one.MemoryByDriver == nil || *one.Memory != *one.MemoryByDriver
		})
	})
	s.must("submit", "--name", "late", "--gpu", "0.1", "--mem", "8Gi", "--", hog, "--seconds", "0")
	if work := s.after("late", unstarted...); work.Status.Phase != api.Running {
		t.Errorf("on lent memory it is %+v", work.Status)
	}
	if got := s.got("late"); got < 7*gi {
		t.Errorf("of its floor of 8Gi it got %s", got)
	}
}

// Owners that take and give back memory 100,000 times are refused none of their floors by anybody, the device's driver included, while a
// guest borrows all that they do not use, is ended, and comes back.
func TestLentFloorRace(t *testing.T) {
	s := up(t, "a10x1")
	takes, hog := compile(t, "takes"), filepath.Join(filepath.Dir(trainer), "hog")
	s.must("submit", "--name", "guest", "--gpu", "0.1", "--mem", "1Gi..", "--on-reclaim", "stop", "--requeue", "--", hog, "--seconds", "0")
	s.after("guest", unstarted...)
	s.got("guest") // before its owners want it
	owners := []string{"first", "second"}
	for _, name := range owners {
		s.must("submit", "--name", name, "--gpu", "0.3", "--mem", "6Gi", "--", takes, "50000", "5800")
	}
	for _, name := range owners {
		if work := s.after(name, live...); work.Status.Outcome != api.Succeeded {
			t.Errorf("%s ended as %+v and printed %q", name, work.Status, s.must("logs", name))
		} else {
			t.Logf("%s %s", name, s.must("logs", name))
		}
	}
	guest := read[api.Workload](s, "show", "guest")
	t.Logf("the guest was evicted %d times", guest.Status.Requeued)
	if guest.Status.Requeued == 0 {
		t.Error("the guest was in nobody's way")
	}
}

// Whoever dies between an owner's wish for its floor and the end of the borrower: what comes back completes it, and the owner, which has waited
// through all of it, has its floor.
func TestLentFloorOverDeaths(t *testing.T) {
	for name, dies := range map[string]struct {
		at     string        // the point at which the daemon is to die
		before func(*server) // before the owner wants its floor
		during func(*server) // while it waits
	}{
		"no daemon when it is wanted":    {before: (*server).kill},
		"daemon once the stop is stored": {at: "local.stop.stored"},
		"daemon once the stop is sent":   {at: "local.stop.sent"},
		"arbiter, without a daemon":      {before: (*server).kill, during: (*server).killArbiter},
		"arbiter":                        {during: (*server).killArbiter},
	} {
		t.Run(name, func(t *testing.T) {
			s, begin := lentFloor(t, dies.at)
			daemon, err := s.client.ServerPID(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if dies.before != nil {
				dies.before(s)
			}
			if err := os.WriteFile(begin, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			if dies.during != nil {
				s.wanted() // while a daemon runs that may be over at once
				dies.during(s)
			}
			if dies.at != "" {
				eventually(t, "death of the daemon", func() bool { return syscall.Kill(daemon, 0) == syscall.ESRCH })
			}
			if dies.at != "" || dies.before != nil {
				s.start("a10x1")
			}
			if got := s.got("owner"); got < 11<<30 {
				t.Errorf("of its floor of 12Gi the owner got %s", got)
			}
			if guest := s.after("guest", live...); guest.Status.Outcome != api.Evicted || guest.Status.Reason != "memory taken back for owner's floor" {
				t.Errorf("the borrower ended as %+v", guest.Status)
			}
		})
	}
}

// lentFloor is a server, whose daemon dies at a point, with an owner that takes its floor once a file is there, and a guest that has borrowed it.
func lentFloor(t *testing.T, at string) (s *server, begin string) {
	t.Helper()
	t.Setenv("ALIQUOT_KILL_AT", at)
	s = up(t, "a10x1")
	t.Setenv("ALIQUOT_KILL_AT", "")
	hog := filepath.Join(filepath.Dir(trainer), "hog")
	begin = filepath.Join(t.TempDir(), "begin")
	s.must("submit", "--name", "owner", "--gpu", "0.1", "--mem", "12Gi", "--", "sh", "-c", "until [ -e "+begin+" ]; do sleep 0.05; done; exec "+hog+" --seconds 0")
	s.after("owner", unstarted...)
	s.must("submit", "--name", "guest", "--gpu", "0.1", "--mem", "1Gi..", "--on-reclaim", "stop", "--", hog, "--seconds", "0")
	s.after("guest", unstarted...)
	if got := s.got("guest"); got < 20<<30 {
		t.Fatalf("it borrowed %s", got)
	}
	return s, begin
}

// wanted waits until somebody waits for memory of its floor on the server's device, or has it back already.
func (s *server) wanted() {
	s.t.Helper()
	files, err := filepath.Glob(filepath.Join(s.run, "devices", "GPU-*"))
	if err != nil || len(files) != 1 {
		s.t.Fatalf("device pages: %q, %v", files, err)
	}
	device, err := page.Open[page.Device](files[0], false)
	if err != nil {
		s.t.Fatal(err)
	}
	defer device.Close()
	eventually(s.t, "wish of an owner", func() (wants bool) {
		if err := device.View(func(d *page.Device) error { wants = d.MemWanted.Load() != 0; return nil }); err != nil {
			s.t.Fatal(err)
		}
		return wants || hogGot.MatchString(s.command("logs", "owner").out)
	})
}

// killArbiter ends the server's arbiter as a crash would.
func (s *server) killArbiter() {
	s.t.Helper()
	for process, line := range processesOf(s.t, s.run) {
		if pid, err := strconv.Atoi(filepath.Base(process)); err == nil && strings.Contains(line, "aliquot-arbiter --run") {
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
				s.t.Fatal(err)
			}
			return
		}
	}
	s.t.Fatal("no arbiter runs")
}

// What could never run within its queue is refused at once, with the figures.
func TestMoreThanAQueue(t *testing.T) {
	s := up(t, "a10x1")
	s.must("queue", "set", "small", "--quota", "0.5")
	got := s.command("submit", "--name", "big", "--queue", "small", "--gpu", "0.6", "--", "true")
	if got.status == 0 || !oneSentence(got.err) || !strings.Contains(got.err, "queue small may never hold more than 0.5 devices") {
		t.Errorf("more than its queue may hold: %s", got)
	}
	if works := read[[]api.Workload](s, "ps", "-a"); len(works) != 0 {
		t.Errorf("it was taken all the same: %+v", works)
	}
}
