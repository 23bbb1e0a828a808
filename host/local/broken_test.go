package local

import (
	"os"
	"strings"
	"testing"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/node"
)

// TestBrokenTasksAreEnded: a workload whose pages are spoiled or lost, under a server or while none ran, is ended and says why; what has
// its pages runs on.
func TestBrokenTasksAreEnded(t *testing.T) {
	s := newSite(t, nil)
	for _, name := range []string{"spoiled", "lost", "whole"} {
		asked := spec("0.1", "sleep 1000")
		asked.Name = name
		s.submit(asked)
		s.running(name)
	}
	uid := func(name string) string { return s.running(name).UID }
	ended := func(name, why string) {
		t.Helper()
		if status := s.ended(name).Status; status.Outcome != api.Evicted || !strings.Contains(status.Reason, why) {
			t.Errorf("%s: %+v", name, status)
		}
	}
	s.agent.notices <- node.Notice{Kind: node.Broken, Task: uid("spoiled"), Reason: "its book is no page"}
	ended("spoiled", "its book is no page")

	before, lost := s.running("whole"), s.agent.page(uid("lost"))
	if err := s.Host.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(lost); err != nil {
		t.Fatal(err)
	}
	s.open()
	ended("lost", errPagesLost.Error())
	if now := s.running("whole"); now.Status.PID != before.Status.PID {
		t.Errorf("it ran as %d and runs as %d", before.Status.PID, now.Status.PID)
	}
}
