package local

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/node"
)

// evicted is a site of two devices of which one is lost while "first" is being started on it, attached to a client that has not come yet.
// "other" runs on the device that stays, and "second" waits behind first.
func evicted(t *testing.T) *site {
	t.Helper()
	s := newSite(t, nil)
	for _, name := range []string{"other", "first", "second"} {
		asked := spec("1", "exec sleep 1000")
		if name == "first" {
			asked = spec("1", "echo it runs")
			asked.Attach = true
		}
		asked.Name = name
		s.submit(asked)
		if name == "other" {
			s.running(name)
		}
	}
	first := s.wait("first", api.Waiting)
	if first.Status.Phase != api.Starting || first.Status.Grants[0].Device == s.running("other").Status.Grants[0].Device {
		t.Fatalf("first is %+v", first.Status)
	}
	lost := first.Status.Grants[0].Device
	s.agent.notices <- node.Notice{Kind: node.DeviceDown, Device: lost, Message: "Device is down: it is gone.", Reason: "it is gone"}
	s.heard("first waits again", func() bool { return s.wait("first").Status.Phase != api.Starting })
	return s
}

// TestEvictedBeforeItStarted: what has not run when its device is lost goes back to its place in line, and runs when there is room.
func TestEvictedBeforeItStarted(t *testing.T) {
	s := evicted(t)
	first, err := s.Workload(context.Background(), "first")
	second, err2 := s.Workload(context.Background(), "second")
	if err := errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
	if status := first.Status; status.Phase != api.Waiting || status.Place != 1 || len(status.Grants) != 0 || second.Status.Place != 2 {
		t.Fatalf("first is %+v, second %+v", status, second.Status)
	}
	if _, err := s.Stop(context.Background(), me, "other", 0); err != nil {
		t.Fatal(err)
	}
	s.wait("first", api.Waiting)
	_, feed, out := s.attach(first.UID)
	_ = feed.Close()
	if got, err := io.ReadAll(out); err != nil || string(got) != "it runs\n" {
		t.Errorf("it printed %q, %v", got, err)
	}
	if status := s.ended(first.UID).Status; status.Outcome != api.Succeeded {
		t.Errorf("ended with %+v", status)
	}
	history := s.history(first.UID)
	if strings.Count(history, "waits again") != 1 || strings.Count(history, "started as process") != 1 ||
		strings.Index(history, "waits again") > strings.Index(history, "started as process") {
		t.Errorf("history:\n%s", history)
	}
}

// TestStoppedAfterItWasEvicted: what waits again is its user's to stop, and stays stopped.
func TestStoppedAfterItWasEvicted(t *testing.T) {
	s := evicted(t)
	uid := s.wait("first").UID
	s.restart()
	if _, err := s.Stop(context.Background(), me, "first", 0); err != nil {
		t.Fatal(err)
	}
	if status := s.ended(uid).Status; status.Outcome != api.Stopped || status.Started != nil {
		t.Errorf("ended with %+v", status)
	}
}
