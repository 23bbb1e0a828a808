package e2e

import (
	"os"
	"strings"
	"testing"

	"github.com/aliquot-dev/aliquot/api"
)

// endless is a kernel that nobody waits for the end of, in microseconds.
const endless = "3600000000"

// TestEndlessKernel: where a kernel that does not end leaves others less than their floors, its device says so, with what to do, and takes
// nothing new; it is well by itself once that is done.
func TestEndlessKernel(t *testing.T) {
	s := up(t, "a10x1")
	s.must("submit", "--name", "owner", "--gpu", "0.70", "--mem", "2Gi", "--", trainer, "--seconds", "1000")
	s.after("owner", unstarted...)
	s.must("submit", "--name", "hog", "--gpu", "0.20", "--mem", "2Gi", "--", trainer, "--seconds", "1000", "--kernel-us", endless)
	device := func() api.Device { return read[[]api.Device](s, "devices")[0] }
	eventually(t, "word that the device is sick", func() bool { return device().Health == api.Draining })
	if reason := device().HealthReason; !strings.HasPrefix(reason, "it is sick: work of hog (process ") || !strings.HasSuffix(reason, "; stop it with `aliquot stop hog`") {
		t.Errorf("reason %q", reason)
	}
	s.must("submit", "--name", "next", "--gpu", "0.05", "--mem", "1Gi", "--", "true")
	if next := read[api.Why](s, "why", "next"); !strings.Contains(next.Message, "it is sick: work of hog ") {
		t.Errorf("why the next one waits: %+v", next)
	}
	if owner := read[api.Why](s, "why", "owner"); !strings.Contains(owner.Message, "it is sick: work of hog ") {
		t.Errorf("why the owner has less: %+v", owner)
	}
	s.must("stop", "hog")
	eventually(t, "word that the device is well", func() bool { return device().Health == api.Healthy })
	if next := s.after("next", live...); next.Status.Outcome != api.Succeeded {
		t.Errorf("the next one ended with %+v", next.Status)
	}
	if owner := read[api.Workload](s, "show", "owner"); owner.Status.Phase != api.Running {
		t.Errorf("the owner: %+v", owner.Status)
	}
}

// TestEndlessKernelIsStopped: with --unenforced stop the server ends it itself.
func TestEndlessKernelIsStopped(t *testing.T) {
	folder, err := os.MkdirTemp("", "alq")
	if err != nil {
		t.Fatal(err)
	}
	s := serverIn(t, folder)
	s.must("up", "--detach", "--simulate", "a10x1", "--state", s.state, "--http", s.http, "--unenforced", "stop")
	s.must("submit", "--name", "owner", "--gpu", "0.70", "--mem", "2Gi", "--", trainer, "--seconds", "1000")
	s.after("owner", unstarted...)
	s.must("submit", "--name", "hog", "--gpu", "0.20", "--mem", "2Gi", "--requeue", "--", trainer, "--seconds", "1000", "--kernel-us", endless)
	hog := s.after("hog", live...)
	if hog.Status.Outcome != api.Stopped || !strings.HasPrefix(hog.Status.Reason, "stopped by the server: none of its work has ended and others have not had their floors beside it for 10s") {
		t.Errorf("it ended with %+v", hog.Status)
	}
	eventually(t, "word that the device is well", func() bool { return read[[]api.Device](s, "devices")[0].Health == api.Healthy })
}
