package local

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/aliquot-dev/aliquot/api"
)

// A plan says what a submission then does, stores nothing and writes nothing to the event log; the estimate that why gives of a start
// is counted when it comes.
func TestPlanSaysWhatSubmitDoes(t *testing.T) {
	s := newSite(t, nil)
	ctx := context.Background()
	plan := func(asked api.WorkloadSpec) api.Plan {
		t.Helper()
		out, err := s.Plan(ctx, me, asked)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	all := spec("1", "sleep 1000")
	all.Devices, all.TimeLimit = 2, api.Duration(time.Hour)
	bare := all
	bare.Command, bare.Dir, bare.Env = nil, "", nil
	planned := plan(bare)
	before := s.journalSize() // now that the loop has written what the start brought
	if again := plan(bare); again.Message != planned.Message || len(again.Grants) != len(planned.Grants) {
		t.Errorf("planned again %+v, before %+v", again, planned)
	}
	if planned.Phase != api.Starting || len(planned.Grants) != 2 || !strings.HasPrefix(planned.Message, "on device 0") {
		t.Errorf("planned %+v", planned)
	}
	if works, err := s.Workloads(ctx, true); err != nil || len(works) != 0 || s.journalSize() != before {
		t.Errorf("a plan left %v in the list (%v), and %d bytes in the event log instead of %d", works, err, s.journalSize(), before)
	}
	first := s.submit(all)
	s.running(first.UID)
	for i, grant := range s.wait(first.UID).Status.Grants {
		if grant.Device != planned.Grants[i].Device || grant.MemoryFloor != planned.Grants[i].MemoryFloor {
			t.Errorf("planned %+v and granted %+v", planned.Grants[i], grant)
		}
	}

	next := spec("1", "true")
	next.Name = "next"
	planned = plan(next)
	if planned.Phase != api.Waiting || planned.Place != 1 || planned.Start == nil || planned.Start.Latest == nil || planned.Message == "" {
		t.Fatalf("planned %+v", planned)
	}
	s.submit(next)
	why, err := s.Why(ctx, "next")
	if err != nil || why.Message != planned.Message || why.Start == nil || why.Start.Latest == nil {
		t.Fatalf("why: %+v, %v; planned %+v", why, err, planned)
	}
	if apart := why.Start.Latest.Sub(*planned.Start.Latest).Abs(); apart > time.Minute {
		t.Errorf("planned to start at %s, and then said to at %s", planned.Start.Latest, why.Start.Latest)
	}
	if _, err := s.Plan(ctx, me, next); err == nil || !strings.Contains(err.Error(), "lives already") {
		t.Errorf("a name that is taken: %v", err)
	}
	if _, err := s.Stop(ctx, me, first.UID, 0); err != nil {
		t.Fatal(err)
	}
	s.ended("next")
	s.restart()
	past, err := s.Starts(ctx)
	if err != nil || past == nil || past.Starts != 1 || past.Late != 0 || time.Duration(past.Median) < 30*time.Minute {
		t.Errorf("the start that came long before the estimate counts as %+v, %v", past, err)
	}
}

// A plan is refused as the submission is.
func TestPlanIsRefusedAsSubmitIs(t *testing.T) {
	s := newSite(t, nil)
	for _, change := range []func(*api.WorkloadSpec){
		func(asked *api.WorkloadSpec) { asked.Queue = "nowhere" },
		func(asked *api.WorkloadSpec) { asked.Devices = 64 },
		func(asked *api.WorkloadSpec) { asked.Command = []string{"./not-there"} },
		func(asked *api.WorkloadSpec) { asked.CPU = 1 << 30 },
	} {
		asked := spec("1", "true")
		change(&asked)
		_, planned := s.Plan(context.Background(), me, asked)
		_, submitted := s.Submit(context.Background(), me, asked)
		if planned == nil || submitted == nil || planned.Error() != submitted.Error() {
			t.Errorf("%+v: the plan says %v, and the submission %v", asked, planned, submitted)
		}
	}
}

// A plan of roles needs no program.
func TestPlanWithoutProgram(t *testing.T) {
	s := newSite(t, nil)
	asked := spec("0.25", "")
	asked.Command, asked.Roles = nil, []api.Role{{Name: "worker", Share: asked.Share}}
	if out, err := s.Plan(context.Background(), me, asked); err != nil || out.Phase != api.Starting || len(out.Grants) != 2 {
		t.Errorf("%+v, %v", out, err)
	}
}

func (s *site) journalSize() (size int64) {
	s.Helper()
	files, err := filepath.Glob(filepath.Join(s.State, "events", "*"))
	if err != nil {
		s.Fatal(err)
	}
	for _, file := range files {
		info, err := os.Stat(file)
		if err != nil {
			s.Fatal(err)
		}
		size += info.Size()
	}
	return size
}

// A plan says why it would end what it would end: for a priority, or for what a queue is guaranteed.
func TestPlanSaysWhyItEvicts(t *testing.T) {
	s := newSite(t, nil)
	ctx := context.Background()
	if _, err := s.SetQueue(ctx, me, api.QueueSpec{Name: "lab", Quota: 2000}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.SetQueue(ctx, me, api.QueueSpec{Name: api.DefaultQueue}); err != nil {
		t.Fatal(err)
	}
	lent := spec("1", "sleep 1000")
	lent.Name, lent.Devices, lent.Preemptible = "lent", 2, true
	s.running(s.submit(lent).UID)
	asked := spec("1", "true")
	asked.Preemptible = true
	for _, c := range []struct {
		queue, message, reason string
		priority               int32
	}{
		{"lab", "what its queue lab is guaranteed would be taken back for it", "queue lab would take back what it is guaranteed, and queue default has borrowed it", 0},
		{"default", "work of a lower priority in its queue default would be ended for it", "what would be submitted, of priority 3 in its queue default, goes before it, of priority 0", 3},
	} {
		asked.Queue, asked.Priority = c.queue, c.priority
		plan, err := s.Plan(ctx, me, asked)
		if err != nil || plan.Message != c.message || len(plan.Evict) != 1 || plan.Evict[0] != (api.PlanEvict{Workload: "lent", Reason: c.reason}) {
			t.Errorf("%+v, %v; want %s: %s", plan, err, c.message, c.reason)
		}
	}
}
