package e2e

import (
	"strings"
	"testing"
	"time"

	"github.com/aliquot-dev/aliquot/api"
)

// What a program used is shown while it runs and after it ended, also by the next server; its environment is in no list.
func TestUsageIsKept(t *testing.T) {
	s := up(t, "a10x1")
	s.must("submit", "--name", "train", "--gpu", "0.5", "--mem", "1Gi", "--", trainer, "--seconds", "1")
	s.after("train", live...)
	used := func() api.Usage {
		t.Helper()
		work := read[api.Workload](s, "show", "train")
		if work.Status.Outcome != api.Succeeded || len(work.Status.Usage) != 1 || len(work.Spec.Env) != 0 {
			t.Fatalf("show: %+v", work)
		}
		return work.Status.Usage[0]
	}
	before := used()
	if before.DeviceTime < 100*time.Millisecond || before.Own+before.Burst == 0 || before.Launches < 10 || before.MemoryPeak == 0 || before.Compute != nil {
		t.Errorf("it used %+v", before)
	}
	s.must("down")
	s.start("a10x1")
	if after := used(); after != before {
		t.Errorf("the next server says %+v, the one before %+v", after, before)
	}
	s.must("submit", "--name", "now", "--gpu", "0.5", "--mem", "1Gi", "--", trainer, "--seconds", "1000")
	s.after("now", unstarted...)
	eventually(t, "use of the device in the list", func() bool {
		for _, work := range read[[]api.Workload](s, "ps") {
			if usage := work.Status.Usage; work.Spec.Name == "now" && len(usage) == 1 && usage[0].Compute != nil && *usage[0].Compute > 100 && usage[0].Launches > 0 {
				return true
			}
		}
		return false
	})
	if work := read[api.Workload](s, "show", "now"); work.Spec.Env["GREETING"] == "" {
		t.Errorf("its own user is not shown its environment: %q", work.Spec.Env)
	}
	if list := s.must("ps", "--all", "-o", "json"); strings.Contains(list, "GREETING") {
		t.Errorf("the list shows an environment: %s", list)
	}
}
