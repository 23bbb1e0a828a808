package local

import (
	"slices"
	"strings"
	"testing"

	"github.com/aliquot-dev/aliquot/host/local/cgroup"
)

// Whoever asks for a limit that this machine does not hold is told so in the answer to what they asked, once.
func TestLimitsNotHeldAreSaidAtSubmission(t *testing.T) {
	s := newSite(t, nil)
	s.groups = new(cgroup.Tree) // a machine without control groups
	asked := spec("1", "sleep 1000")
	asked.CPU, asked.Memory = 500, 1<<30
	work := s.submit(asked)
	if notes := work.Status.Notes; len(notes) != 1 || !strings.HasPrefix(notes[0], "--cpu 0.50 with --host-memory 1Gi is not held by this server") {
		t.Errorf("told at submission: %q", notes)
	}
	if later := s.running(work.UID).Status.Notes; !slices.Equal(later, work.Status.Notes) {
		t.Errorf("noted once it runs: %q", later)
	}
	free := s.submit(spec("1", "sleep 1000"))
	if len(free.Status.Notes) > 0 {
		t.Errorf("told of limits that were not asked for: %q", free.Status.Notes)
	}
}
