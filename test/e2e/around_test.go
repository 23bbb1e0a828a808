package e2e

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/aliquot-dev/aliquot/api"
)

// Where the server is told to stop what goes around its share, a program that does is ended and its workload says why; the one beside it
// runs on. The server says what its rule is, and nothing else is taken for one.
func TestStopUnenforced(t *testing.T) {
	folder, err := os.MkdirTemp("", "alq")
	if err != nil {
		t.Fatal(err)
	}
	s := serverIn(t, folder)
	start := []string{"up", "--detach", "--simulate", "a10x1", "--state", s.state, "--http", s.http, "--unenforced"}
	if got := s.command(append(start, "kill")...); got.status != 2 || !strings.Contains(got.err, "--unenforced kill: write show or stop") {
		t.Errorf("up --unenforced kill: %s", got)
	}
	s.must(append(start, "stop")...)
	if got := s.command("up", "--detach", "--unenforced", "show"); got.status != 1 || !strings.Contains(got.err, "--unenforced show was asked for") || !strings.Contains(got.err, "--unenforced stop: ") {
		t.Errorf("up --unenforced show beside it: %s", got)
	}
	s.must("submit", "--name", "held", "--gpu", "0.25..", "--mem", "2Gi", "--", trainer, "--seconds", "1000")
	s.must("submit", "--name", "around", "--gpu", "0.25..", "--mem", "2Gi", "--", "sh", "-c",
		"env -i LD_LIBRARY_PATH="+filepath.Join(s.run, "sim", "driver")+" "+trainer+" --seconds 1000; exit 7")
	work := s.after("around", live...)
	const why = "is ended, as --unenforced stop says"
	if work.Status.Outcome != api.Failed || work.Status.ExitCode == nil || *work.Status.ExitCode != 7 || !strings.Contains(work.Status.Reason, why) {
		t.Errorf("it ended with %+v", work.Status)
	}
	told := read[api.Why](s, "why", "around")
	if !strings.Contains(told.Message, why) || !slices.ContainsFunc(told.History, func(one api.WhyRecord) bool { return strings.Contains(one.Message, why) }) {
		t.Errorf("why: %+v", told)
	}
	if held := read[api.Workload](s, "show", "held"); held.Status.Phase != api.Running || len(held.Status.Notes) != 0 {
		t.Errorf("beside it: %+v", held.Status)
	}
	devices := read[[]api.Device](s, "devices")
	if len(devices) != 1 || devices[0].Stopped != 1 || len(devices[0].Unenforced) != 0 || devices[0].Unseen != "" {
		t.Errorf("devices: %+v", devices)
	}
}
