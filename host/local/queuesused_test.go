package local

import (
	"context"
	"testing"
	"time"

	"github.com/aliquot-dev/aliquot/api"
)

// A queue that used devices for hours comes behind one that did not, also after restarts of the server.
func TestQueuesUsedAreKept(t *testing.T) {
	s, ahead := clockedSite(t)
	ctx := context.Background()
	for _, name := range []string{"early", "late"} {
		if _, err := s.SetQueue(ctx, me, api.QueueSpec{Name: name, Quota: api.Unlimited}); err != nil {
			t.Fatal(err)
		}
	}
	stop := func(uid string) {
		t.Helper()
		if _, err := s.Stop(ctx, me, uid, 0); err != nil {
			t.Fatal(err)
		}
		s.ended(uid)
	}
	in := func(queue, name string) string {
		w := spec("1", "sleep 1000")
		w.Name, w.Queue = name, queue
		return s.submit(w).UID
	}
	first := in("early", "first")
	s.running(first)
	ahead.Store(int64(5 * time.Hour))
	stop(first)
	for _, name := range []string{"one", "other"} {
		s.running(in(api.DefaultQueue, name)) // no device is free now
	}
	ahead.Add(int64(2 * time.Minute))
	in("early", "before")
	in("late", "behind")
	if line := s.line(); line != "behind before" {
		t.Errorf("%q wait in this order, want behind before: queue early used a device for five hours", line)
	}
	for range 2 {
		s.restart()
		if line := s.line(); line != "behind before" {
			t.Errorf("after a restart %q wait in this order, want behind before", line)
		}
		ahead.Add(int64(2 * time.Minute))
		stop(in("late", "more"))
	}
}
