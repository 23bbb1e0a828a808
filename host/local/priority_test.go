package local

import (
	"context"
	"testing"

	"github.com/aliquot-dev/aliquot/api"
)

// Nobody but root, and the user that the server runs as, jumps the line: others give the priority that their queue lets them.
func TestPriorityIsAsHighAsTheQueueLets(t *testing.T) {
	s := newSite(t, nil)
	ctx := context.Background()
	if _, err := s.SetQueue(ctx, me, api.QueueSpec{Name: "vision", Quota: api.Unlimited, MaxPriority: 10}); err != nil {
		t.Fatal(err)
	}
	s.restart()
	fits := func(uid uint32, queue string, priority int32) (err error) {
		asked := spec("0.5", "true").Default()
		asked.Name, asked.Queue, asked.Priority = "one", queue, priority
		looked := s.look(ctx, func() { err = s.checkFit(newWork(1, api.Workload{UserID: uid, Spec: asked}, keep{})) })
		if looked != nil {
			t.Fatal(looked)
		}
		return err
	}
	for _, one := range []struct {
		uid      uint32
		queue    string
		priority int32
	}{
		{other.UID, api.DefaultQueue, 0},
		{other.UID, api.DefaultQueue, -5},
		{other.UID, "vision", 10},
		{0, api.DefaultQueue, 1000},
		{me.UID, "vision", 1000},
	} {
		if err := fits(one.uid, one.queue, one.priority); err != nil {
			t.Errorf("user %d with priority %d in %s: %v", one.uid, one.priority, one.queue, err)
		}
	}
	refused(t, fits(other.UID, api.DefaultQueue, 1), api.CodeForbidden, "in queue default users may give at most 0")
	refused(t, fits(other.UID, "vision", 11), api.CodeForbidden, "`aliquot queue set vision --max-priority 11`")
}
