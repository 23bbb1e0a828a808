package e2e

import (
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/cli/top"
	"github.com/aliquot-dev/aliquot/engine"
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
