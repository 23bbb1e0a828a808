package local

import (
	"context"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aliquot-dev/aliquot/api"
)

// gangPoints are where a daemon does something for one replica that concerns the others.
var gangPoints = []string{
	"local.submit.stored", "local.place.stored", "local.task.prepared", "local.supervisor.started", "local.started.stored", "local.stop.stored",
	"local.stop.sent", "local.exit.seen", "local.task.unprepared", "local.ended.stored", "local.journal.synced",
}

// gangTimes is at how many of the times that a point comes by the daemon is killed at most: it has three processes, which run twice.
const gangTimes = 6

// tellGang has a workload with roles run, be evicted for another and put back into the line, and run again.
func (s *story) tellGang() {
	ctx := context.Background()
	if _, err := s.SetQueue(ctx, me, api.QueueSpec{Name: "owner", Quota: 2000}); err != nil {
		return
	}
	mark := "echo $$ >> " + s.root + "/ran-$ALIQUOT_WORKLOAD; exec sleep 1000"
	asked := spec("0.25", mark)
	asked.Name, asked.Preemptible, asked.Requeue = "gang", true, true
	asked.Roles = []api.Role{{Name: "worker", Replicas: api.Replicas{Min: 2, Max: 2}, Share: spec("0.75", "").Share}}
	work, err := s.Submit(ctx, me, asked)
	if err != nil {
		return
	}
	s.record("accepted", "gang %s", work.UID)
	s.runs("gang", false)
	owner := spec("1", "exec sleep 1000")
	owner.Name, owner.Queue, owner.Devices = "owner", "owner", 2
	if _, err := s.Submit(ctx, me, owner); err != nil {
		return
	}
	s.runs("owner", false)
	if _, err := s.Stop(ctx, me, "owner", 0); err != nil {
		return
	}
	s.await("owner", api.Waiting, api.Starting, api.Running, api.Stopping)
	s.runs("gang", false)
}

// TestGangKilledAtEachPoint: wherever the daemon is killed, the next one has the workload once, with all of its processes or none of them, and none twice.
func TestGangKilledAtEachPoint(t *testing.T) { killAtEachPoint(t, gangPoints, gangTimes, crashGang) }

// crashGang has a daemon killed at a point and checks what the next one finds. It says whether the point was reached.
func crashGang(t *testing.T, at string) bool {
	t.Helper()
	root := crashFolder(t)
	play(t, root, "gang", at, filepath.Join(root, "killed"))
	agent, err := crashAgent(root)
	if err != nil {
		t.Fatal(err)
	}
	host, err := Open(context.Background(), crashConfig(root, agent))
	if err != nil {
		t.Fatalf("%s: the next daemon does not start: %v", at, err)
	}
	defer func() {
		if err := host.Close(); err != nil {
			t.Error(err)
		}
	}()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := settle(host); err != nil {
		t.Fatalf("%s: %v", at, err)
	}
	fail := func(format string, args ...any) { t.Helper(); t.Errorf(at+": "+format, args...) }
	checkBooks(host, agent, fail)
	live, err := host.Workloads(ctx, false)
	if err != nil {
		t.Fatal(err)
	}
	var there []string
	for _, work := range live {
		there = append(there, work.Spec.Name+" "+string(work.Status.Phase))
		if whole := work.Whole(); work.Spec.Name != "owner" && (whole.Share.Compute.Floor != 250 || len(whole.Roles) != 1 || whole.Roles[0].Share.Compute.Floor != 750 || !whole.Requeue) {
			fail("of %s the whole is %+v", work.Spec.Name, whole)
		}
	}
	slices.Sort(there)
	if said := strings.Join(there, ", "); len(recorded(root, "accepted")) > 0 && !slices.Contains([]string{
		"gang running, gang-worker-0 running, gang-worker-1 running", "gang waiting, owner running",
	}, said) {
		fail("there are %s", said)
	}
	for _, work := range slices.Backward(live) {
		if _, err := host.Stop(ctx, me, work.UID, 0); err != nil && !strings.Contains(err.Error(), "has ended") {
			fail("stop %s: %v", work.Spec.Name, err)
		}
	}
	for _, work := range live {
		if _, err := host.Wait(ctx, work.UID, api.Waiting, api.Starting, api.Running, api.Stopping); err != nil {
			fail("%s does not end: %v", work.Spec.Name, err)
		}
	}
	all, err := host.Workloads(ctx, true)
	if err != nil {
		t.Fatal(err)
	}
	for _, work := range all {
		if work.Status.Phase != api.Ended {
			fail("at the end %s is %s", work.Spec.Name, work.Status.Phase)
		}
		if runs := recorded(root, "ran-"+work.UID); len(runs) > 1 {
			fail("%s was started %d times", work.Spec.Name, len(runs))
		}
	}
	if left := agent.Prepared(); len(left) != 0 {
		fail("pages left: %+v", left)
	}
	return len(recorded(root, "killed")) > 0
}
