package local

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/host/local/internal/until"
)

// borrowed is a site whose two devices are held by preemptible work over its queue's quota, which is put back into the line when evicted;
// what the program does when it is asked to end is given.
func borrowed(t *testing.T, onTerm string) *site {
	t.Helper()
	s := newSite(t, nil)
	if _, err := s.SetQueue(context.Background(), me, api.QueueSpec{Name: "owner", Quota: 2000}); err != nil {
		t.Fatal(err)
	}
	runs := filepath.Join(s.root, "runs")
	asked := spec("1", "trap '"+onTerm+`' TERM; echo "as $MARK" >> `+runs+"; sleep 1000 & wait; wait")
	asked.Name, asked.Devices, asked.Preemptible, asked.Requeue = "guest", 2, true, true
	asked.Env["MARK"] = "marked"
	s.submit(asked)
	s.running("guest")
	until.File(t, runs, "it does that by now", func() bool {
		text, err := os.ReadFile(runs)
		return err == nil && string(text) == "as marked\n"
	})
	return s
}

// claim has the owner of the quota want one device of the two.
func (s *site) claim() {
	s.Helper()
	asked := spec("1", "exec sleep 1000")
	asked.Name, asked.Queue = "owner", "owner"
	s.submit(asked)
}

// called are the UIDs of all workloads of a name, ended or not, in the order in which they came.
func (s *site) called(name string) (list []api.Workload) {
	s.Helper()
	all, err := s.Workloads(context.Background(), true)
	if err != nil {
		s.Fatal(err)
	}
	for _, work := range all {
		if work.Spec.Name == name {
			list = append(list, work)
		}
	}
	return list
}

// TestRequeue: what is evicted and is to go back into the line does so with all that it was submitted with, and runs again when there is
// room; it is another workload, and the one that was evicted stays as it ended.
func TestRequeue(t *testing.T) {
	s := borrowed(t, "exit 0")
	first := s.running("guest")
	s.claim()
	if status := s.ended(first.UID).Status; status.Outcome != api.Evicted {
		t.Fatalf("it ended with %+v", status)
	}
	s.running("owner")
	again := s.called("guest")
	if len(again) != 2 {
		t.Fatalf("there are %d: %+v", len(again), again)
	}
	next, err := s.Workload(context.Background(), "guest")
	if err != nil || next.UID == first.UID || next.Status.Phase != api.Waiting || next.Status.Requeued != 1 || next.Status.Place != 1 {
		t.Fatalf("by its name there is %+v, %v", next, err)
	}
	if history := s.history("guest"); !strings.Contains(history, "back in the line, since it was evicted as "+first.UID) {
		t.Errorf("its history:\n%s", history)
	}
	s.restart()
	if _, err := s.Stop(context.Background(), me, "owner", 0); err != nil {
		t.Fatal(err)
	}
	if s.running("guest").UID != next.UID {
		t.Error("another runs")
	}
	runs := filepath.Join(s.root, "runs")
	until.File(t, runs, "it ran twice with its environment", func() bool {
		text, err := os.ReadFile(runs)
		return err == nil && string(text) == "as marked\nas marked\n"
	})
	if _, err := s.Stop(context.Background(), me, "guest", 0); err != nil {
		t.Fatal(err)
	}
	if status := s.ended(next.UID).Status; status.Outcome != api.Stopped || len(s.called("guest")) != 2 {
		t.Errorf("stopped by a user it ended with %+v, and there are %d", status, len(s.called("guest")))
	}
}

// lingering is a site on which the guest is being evicted and ends once the gate is written to.
func lingering(t *testing.T) (s *site, uid string, open func()) {
	t.Helper()
	gate := filepath.Join(t.TempDir(), "gate")
	if err := syscall.Mkfifo(gate, 0o600); err != nil {
		t.Fatal(err)
	}
	s = borrowed(t, "read x < "+gate+"; exit 0")
	uid = s.running("guest").UID
	s.claim()
	s.wait("guest", api.Running)
	return s, uid, func() {
		t.Helper()
		if err := os.WriteFile(gate, []byte("\n"), 0); err != nil {
			t.Error(err)
		}
	}
}

// TestRequeueAcrossRestart: a daemon that comes while one is being evicted puts it back into the line, once.
func TestRequeueAcrossRestart(t *testing.T) {
	s, first, open := lingering(t)
	s.restart()
	open()
	if status := s.ended(first).Status; status.Outcome != api.Evicted {
		t.Errorf("it ended with %+v", status)
	}
	s.running("owner")
	s.restart()
	if again := s.called("guest"); len(again) != 2 || again[0].Status.Phase == again[1].Status.Phase {
		t.Errorf("there are %+v", again)
	}
}

// TestStoppedWhileEvicted: what a user stops stays stopped, also where it was being evicted already.
func TestStoppedWhileEvicted(t *testing.T) {
	s, first, open := lingering(t)
	if _, err := s.Stop(context.Background(), me, "guest", api.Duration(maxGrace)); err != nil {
		t.Fatal(err)
	}
	open()
	s.ended(first)
	if again := s.called("guest"); len(again) != 1 {
		t.Errorf("there are %+v", again)
	}
	if history := s.history(first); !strings.Contains(history, "it does not go back into the line: stopped by ") {
		t.Errorf("its history:\n%s", history)
	}
}

// TestRequeueOfAttached: a program whose streams are a client's own is not put back, and whoever asks for that is told.
func TestRequeueOfAttached(t *testing.T) {
	s := newSite(t, nil)
	asked := spec("1", "true")
	asked.Requeue, asked.Attach = true, true
	_, err := s.Submit(context.Background(), me, asked)
	refused(t, err, api.CodeInvalid, "cannot be put back into the line")
}
