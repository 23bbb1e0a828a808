package local

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/server"
)

// TestCheckpoint: of two that give way the one goes that has saved what it did, also where the server began anew since; who may not say so, and when, is told.
func TestCheckpoint(t *testing.T) {
	ctx := context.Background()
	var ahead atomic.Int64
	at := time.Now()
	s := newSite(t, func(config *Config) {
		config.Now = func() time.Time { return at.Add(time.Duration(ahead.Load())) }
	})
	if _, err := s.SetQueue(ctx, me, api.QueueSpec{Name: "owner", Quota: 1000}); err != nil {
		t.Fatal(err)
	}
	names := []string{"one", "two"}
	for _, name := range names {
		guest := spec("1", "sleep 1000")
		guest.Name, guest.Preemptible = name, true
		s.submit(guest)
		s.running(name)
	}
	waits := spec("1", "sleep 1000")
	waits.Name = "waits"
	s.submit(waits)
	_, err := s.Checkpoint(ctx, me, "waits")
	refused(t, err, api.CodeConflict, "waits does not run (waiting): say so when it has saved something while it runs")
	_, err = s.Checkpoint(ctx, server.Caller{UID: me.UID + 1}, "one")
	refused(t, err, api.CodeForbidden, "only that user or root may save it")
	ahead.Store(int64(time.Hour))
	work, err := s.Checkpoint(ctx, me, "one")
	if err != nil || work.Status.Checkpoint == nil || !work.Status.Checkpoint.Equal(at.Add(time.Hour)) {
		t.Fatalf("%+v, %v", work.Status, err)
	}
	s.restart()
	ahead.Store(int64(2 * time.Hour))
	owner := spec("1", "sleep 1000")
	owner.Name, owner.Queue = "owner", "owner"
	s.submit(owner)
	s.running("owner")
	if status := s.ended("one").Status; status.Outcome != api.Evicted {
		t.Errorf("it ended as %+v", status)
	}
	s.running("two")
	_, err = s.Checkpoint(ctx, me, "one")
	refused(t, err, api.CodeConflict, "one has ended (evicted): there is nothing left to save")
}
