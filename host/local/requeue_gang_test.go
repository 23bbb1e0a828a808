package local

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/host/local/internal/until"
	"github.com/aliquot-dev/aliquot/node"
)

// gates are files by which the processes of a workload, by their numbers, are let end that were told to.
type gates struct {
	t     *testing.T
	dir   string
	files []*os.File // open, so that whoever opens one waits for nobody
}

func newGates(t *testing.T, processes int) gates {
	t.Helper()
	g := gates{t: t, dir: t.TempDir()}
	for i := range processes {
		if err := syscall.Mkfifo(g.path(i), 0o600); err != nil {
			t.Fatal(err)
		}
		file, err := os.OpenFile(g.path(i), os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		g.files = append(g.files, file)
		t.Cleanup(func() { _ = file.Close() })
	}
	return g
}

func (g gates) path(number int) string { return filepath.Join(g.dir, fmt.Sprint(number)) }

// program ends after it was told to and its gate was opened, with 0. It says that it runs.
func (g gates) program() string {
	return `trap 'read x < ` + g.dir + `/$ALIQUOT_REPLICA; exit 0' TERM; echo as $MARK; sleep 1000 & wait; wait`
}

func (g gates) open(number int) {
	g.t.Helper()
	if _, err := g.files[number].WriteString("\n"); err != nil {
		g.t.Error(err)
	}
}

// guests are replicas, or roles, of half a device each that hold what the queue owner is guaranteed, and go back into the line.
func guests(s *site, asked api.WorkloadSpec) api.Workload {
	s.Helper()
	if _, err := s.SetQueue(context.Background(), me, api.QueueSpec{Name: "owner", Quota: 2000}); err != nil {
		s.Fatal(err)
	}
	asked.Name, asked.Preemptible, asked.Requeue = "guest", true, true
	asked.Env["MARK"] = "marked"
	return s.submit(asked)
}

// claimAll has the owner want so many whole devices.
func (s *site) claimAll(devices int) {
	s.Helper()
	asked := spec("1", "exec sleep 1000")
	asked.Name, asked.Queue, asked.Devices = "owner", "owner", devices
	s.submit(asked)
}

// prints waits until each has printed that it runs as it should.
func (s *site) prints(names ...string) {
	s.Helper()
	for _, name := range names {
		until.Polled(s.T, name+" printed", func() bool { return s.log(name) == "as marked\n" })
	}
}

// TestReplicasRequeued: an elastic workload shrinks without being put back into the line; evicted as a whole it goes back between its bounds once the last
// replica has ended, once, whichever that is and whatever daemon sees it, and runs and grows again with all that it was submitted with.
func TestReplicasRequeued(t *testing.T) {
	s := newSite(t, nil)
	g := newGates(t, 4)
	asked := spec("0.5", g.program())
	asked.Replicas = api.Replicas{Min: 2, Max: 4}
	first := guests(s, asked)
	all := []string{"guest", "guest-1", "guest-2", "guest-3"}
	s.awaitRunning(all...)
	s.prints(all...)
	s.claimAll(1)
	s.wait("guest-3", api.Running)
	g.open(3)
	g.open(2)
	s.awaitRunning("guest", "guest-1", "owner")
	if again := s.called("guest"); len(again) != 1 {
		t.Fatalf("shrunk there are %+v", again)
	}
	if _, err := s.Stop(context.Background(), me, "owner", 0); err != nil {
		t.Fatal(err)
	}
	s.awaitRunning(all...)
	s.prints(all...)
	s.claimAll(2)
	for _, name := range all {
		s.wait(name, api.Running)
	}
	for _, number := range []int{0, 3, 2} {
		g.open(number)
	}
	if status := s.ended(first.UID).Status; status.Outcome != api.Evicted {
		t.Errorf("the first ended with %+v", status)
	}
	s.heard("one is left", func() bool { return slices.Equal(s.live(), []string{"guest-1", "owner"}) })
	s.restart()
	if live := s.live(); !slices.Equal(live, []string{"guest-1", "owner"}) {
		t.Errorf("before the last has ended there are %v", live)
	}
	g.open(1)
	s.running("owner")
	s.restart()
	next := s.called("guest")
	if len(next) != 2 || next[1].Status.Phase != api.Waiting || next[1].Status.Requeued != 1 || next[1].Spec.Replicas != asked.Replicas || next[1].UID == first.UID {
		t.Fatalf("by its name there are %+v", next)
	}
	if history := s.history("guest"); !strings.Contains(history, "back in the line, since it was evicted as "+first.UID) {
		t.Errorf("its history:\n%s", history)
	}
	if _, err := s.Stop(context.Background(), me, "owner", 0); err != nil {
		t.Fatal(err)
	}
	s.awaitRunning(all...)
	s.prints(all...)
	if work := s.running("guest-1"); work.Status.Requeued != 1 {
		t.Errorf("a replica of what was put back is %+v", work.Status)
	}
	if _, err := s.Stop(context.Background(), me, "guest", 1); err != nil {
		t.Fatal(err)
	}
	s.awaitRunning()
	if again := s.called("guest"); len(again) != 2 {
		t.Errorf("stopped by its user there are %+v", again)
	}
}

// TestRolesRequeued: what has roles goes back as a whole, also where a worker ends last: each process with the share and the program of its role.
func TestRolesRequeued(t *testing.T) {
	s := newSite(t, nil)
	g := newGates(t, 3)
	asked := spec("0.25", g.program())
	asked.Roles = []api.Role{{Name: "worker", Replicas: api.Replicas{Min: 2, Max: 2}, Share: spec("1..", "").Share, Command: []string{"sh", "-c", "true; " + g.program()}}}
	asked.Roles[0].Share.Compute.Floor = 500
	first := guests(s, asked)
	all := []string{"guest", "guest-worker-0", "guest-worker-1"}
	s.awaitRunning(all...)
	s.prints(all...)
	s.claimAll(2)
	for _, name := range all {
		s.wait(name, api.Running)
	}
	g.open(0)
	s.ended(first.UID)
	g.open(1)
	g.open(2)
	s.running("owner")
	if _, err := s.Stop(context.Background(), me, "owner", 0); err != nil {
		t.Fatal(err)
	}
	s.awaitRunning(all...)
	work := s.running("guest")
	if whole := work.Whole(); work.UID == first.UID || whole.Share.Compute.Floor != 250 || whole.Roles[0].Share.Compute.Floor != 500 || whole.Roles[0].Replicas.Min != 2 || whole.Command[2] != g.program() {
		t.Errorf("what was put back is %+v", whole)
	}
	if work := s.running("guest-worker-1"); work.Spec.Share.Compute.Floor != 500 || work.Spec.Command[2] != "true; "+g.program() {
		t.Errorf("its worker is %+v", work.Spec)
	}
}

// TestReplicasRequeuedFromLost: of a workload that is to come again all replicas end where one of those that it started with loses its device.
func TestReplicasRequeuedFromLost(t *testing.T) {
	s := newSite(t, nil)
	asked := spec("1", "exec sleep 1000")
	asked.Replicas = api.Replicas{Min: 2, Max: 2}
	first := guests(s, asked)
	s.awaitRunning("guest", "guest-1")
	lost := s.running("guest-1")
	s.agent.notices <- node.Notice{Kind: node.DeviceDown, Device: lost.Status.Grants[0].Device, Reason: "it is gone"}
	if status := s.ended(first.UID).Status; status.Outcome != api.Evicted || !strings.HasPrefix(status.Reason, "its replica guest-1 was evicted: device ") {
		t.Errorf("the first ended with %+v", status)
	}
	s.heard("it waits again", func() bool {
		again := s.called("guest")
		return len(again) == 2 && again[1].Status.Phase == api.Waiting
	})
	s.agent.notices <- node.Notice{Kind: node.DeviceBack, Device: lost.Status.Grants[0].Device}
	s.awaitRunning("guest", "guest-1")
}

// TestReplicasRequeuedForMemory: so it is where one of them is ended for memory that it has borrowed; and that what it was started with ended meanwhile is
// counted in what comes back.
func TestReplicasRequeuedForMemory(t *testing.T) {
	s := newSite(t, nil)
	asked := lent("guest")
	asked.Replicas = api.Replicas{Min: 2, Max: 2}
	first := guests(s, asked)
	bystander := s.submit(lent("other"))
	s.running("other")
	s.awaitRunning("guest", "guest-1", "other")
	s.agent.notices <- node.Notice{Kind: node.MemoryWanted, Reclaim: &node.Reclaim{Owner: bystander.UID, Memory: 30 * gi, Borrowers: []node.Borrower{
		{Task: s.running("guest-1").UID, Held: 20 * gi}, {Task: first.UID, Held: 20 * gi}, {Task: bystander.UID, Held: 20 * gi},
	}}}
	if status := s.ended(first.UID).Status; status.Outcome != api.Evicted || !strings.HasPrefix(status.Reason, "its replica guest-1 was evicted: memory taken back for ") {
		t.Errorf("the first ended with %+v", status)
	}
	s.heard("it comes again", func() bool { return len(s.called("guest")) == 2 })
	s.awaitRunning("guest", "guest-1", "other")
	if s.running("other").UID != bystander.UID {
		t.Error("another was ended, too")
	}
}

// TestReplicasStoppedWhileEvicted: what its user stops while it is being evicted does not come again, whichever replica is the last; one that has ended by
// itself before does not bring it back either.
func TestReplicasStoppedWhileEvicted(t *testing.T) {
	s := newSite(t, nil)
	g := newGates(t, 2)
	asked := spec("1", g.program())
	asked.Replicas = api.Replicas{Min: 2, Max: 2}
	first := guests(s, asked)
	s.awaitRunning("guest", "guest-1")
	s.prints("guest", "guest-1")
	s.claimAll(2)
	s.wait("guest-1", api.Running)
	if _, err := s.Stop(context.Background(), me, "guest", api.Duration(maxGrace)); err != nil {
		t.Fatal(err)
	}
	g.open(0)
	s.ended(first.UID)
	g.open(1)
	s.awaitRunning("owner")
	if again := s.called("guest"); len(again) != 1 {
		t.Errorf("there are %+v", again)
	}
}

// TestReplicasRequeuedAtStart: where the last of an evicted workload never began, the next server finds that out and puts it into the line, behind what waits
// already, when all that runs is in its books.
func TestReplicasRequeuedAtStart(t *testing.T) {
	s := newSite(t, nil)
	g := newGates(t, 2)
	asked := spec("1", g.program())
	asked.Replicas = api.Replicas{Min: 2, Max: 2}
	first := guests(s, asked)
	s.awaitRunning("guest", "guest-1")
	s.prints("guest", "guest-1")
	s.claimAll(2)
	waits := spec("1", "exec sleep 1000")
	waits.Name = "waits"
	s.submit(waits)
	s.wait("guest-1", api.Running)
	g.open(0)
	s.ended(first.UID)
	second := s.wait("guest-1")
	s.reopenWithout(second)
	if status := s.ended(second.UID).Status; status.Outcome != api.Refused {
		t.Errorf("the last ended with %+v", status)
	}
	s.running("owner")
	if again := s.called("guest"); len(again) != 2 || again[1].Status.Phase != api.Waiting || again[1].Status.Place != 2 || again[1].Status.Requeued != 1 {
		t.Errorf("by its name there are %+v", again)
	}
}
