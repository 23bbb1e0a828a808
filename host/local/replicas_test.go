package local

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/host/local/internal/until"
)

// train is a workload of replicas of half a device each, on the site's two devices, that say who they are.
func train(s *site, least, most int) api.Workload {
	s.Helper()
	asked := spec("0.5", "echo $ALIQUOT_REPLICA in $ALIQUOT_REPLICAS_MIN..$ALIQUOT_REPLICAS_MAX; exec sleep 1000")
	asked.Name, asked.Replicas = "train", api.Replicas{Min: least, Max: most}
	return s.submit(asked)
}

// live are the names of what is live, in order.
func (s *site) live(phases ...api.Phase) (names []string) {
	s.Helper()
	all, err := s.Workloads(context.Background(), false)
	if err != nil {
		s.Fatal(err)
	}
	for _, work := range all {
		if len(phases) == 0 || slices.Contains(phases, work.Status.Phase) {
			names = append(names, work.Spec.Name)
		}
	}
	slices.Sort(names)
	return names
}

// awaitRunning waits until exactly these run and nothing is under way.
func (s *site) awaitRunning(names ...string) {
	s.Helper()
	s.heard(strings.Join(names, " and ")+" run", func() bool {
		return slices.Equal(s.live(api.Running), names) && len(s.live(api.Starting, api.Stopping)) == 0
	})
}

// TestReplicasGrowAndShrink: a workload of 2..4 replicas starts with two, grows into what is idle, gives that back to who waits, is found again by the
// next server, grows again, and ends as one.
func TestReplicasGrowAndShrink(t *testing.T) {
	s := newSite(t, nil)
	first := train(s, 2, 4)
	s.awaitRunning("train", "train-1", "train-2", "train-3")
	work := s.running("train-2")
	if one := work.Status.Replica; one == nil || one.Of != first.UID || one.Number != 2 || work.Status.Replicas != 4 {
		t.Errorf("it is %+v of %d", one, work.Status.Replicas)
	}
	until.Polled(t, "it printed", func() bool { return s.log("train-2") == "2 in 2..4\n" }) // of which nobody tells
	why, err := s.Why(context.Background(), "train")
	if err != nil || !strings.Contains(why.Message, "; 4 of 2..4 replicas") {
		t.Errorf("why: %+v, %v", why, err)
	}
	other := spec("1", "exec sleep 1000")
	other.Name = "other"
	plan, err := s.Plan(context.Background(), me, other)
	if err != nil || len(plan.Evict) != 2 || plan.Message != "replicas above those that their workloads are sure of would be ended for it" {
		t.Errorf("planned: %+v, %v", plan, err)
	}
	s.submit(other)
	s.awaitRunning("other", "train", "train-1")
	if status := s.ended(work.UID).Status; status.Outcome != api.Evicted || !strings.Contains(status.Reason, "workload other in queue default waits") && !strings.Contains(status.Reason, "other in queue default waits and wants what this replica holds") {
		t.Errorf("it ended with %+v", status)
	}
	s.restart()
	s.awaitRunning("other", "train", "train-1")
	if now := s.running("train").Status.Replicas; now != 2 {
		t.Errorf("after a restart it has %d replicas", now)
	}
	if _, err := s.Stop(context.Background(), me, "other", 0); err != nil {
		t.Fatal(err)
	}
	s.awaitRunning("train", "train-1", "train-2", "train-3")
	if _, err := s.Stop(context.Background(), me, "train", 0); err != nil {
		t.Fatal(err)
	}
	if status := s.ended(first.UID).Status; status.Outcome != api.Stopped {
		t.Errorf("the first ended with %+v", status)
	}
	s.awaitRunning()
	for _, name := range []string{"train-1", "train-2", "train-3"} {
		if status := s.ended(name).Status; status.Outcome != api.Stopped {
			t.Errorf("%s ended with %+v", name, status)
		}
	}
	if left := s.agent.Prepared(); len(left) != 0 {
		t.Errorf("still granted: %+v", left)
	}
}

// TestReplicasStartAllOrNone: where one of those that start together cannot be prepared, none starts, and all do later.
func TestReplicasStartAllOrNone(t *testing.T) {
	s := newSite(t, nil)
	s.agent.mu.Lock()
	s.agent.refuse, s.agent.passes = errors.New("the arbiter is away"), 2
	s.agent.mu.Unlock()
	work := train(s, 3, 3)
	s.heard("the refusal is shown", func() bool {
		why, err := s.Why(context.Background(), work.UID)
		return err == nil && strings.Contains(why.Message, "the arbiter is away")
	})
	if left, live := s.agent.Prepared(), s.live(); len(left) != 0 || !slices.Equal(live, []string{"train"}) {
		t.Errorf("of a start that failed are left %+v and %v", left, live)
	}
	s.agent.mu.Lock()
	s.agent.refuse = nil
	s.agent.mu.Unlock()
	s.awaitRunning("train", "train-1", "train-2")
}

// TestReplicaEndsAlone: one that ends by itself is over alone, no other takes its place, and the rest goes on, also under the next server.
func TestReplicaEndsAlone(t *testing.T) {
	s := newSite(t, nil)
	train(s, 1, 3)
	s.awaitRunning("train", "train-1", "train-2")
	if _, err := s.Stop(context.Background(), me, "train-1", 0); err != nil {
		t.Fatal(err)
	}
	s.ended("train-1")
	s.awaitRunning("train", "train-2")
	why, err := s.Why(context.Background(), "train")
	if err != nil || !strings.Contains(why.Message, "2 of 1..3 replicas, and gets no more since a task of it is over") {
		t.Errorf("why: %+v, %v", why, err)
	}
	if _, err := s.Stop(context.Background(), me, "train", 0); err != nil {
		t.Fatal(err)
	}
	s.awaitRunning()
}

// TestReplicasHalfStarted: where the server died while replicas that start together were being started, and one of them never began, the next server
// ends the others and says why.
func TestReplicasHalfStarted(t *testing.T) {
	s := newSite(t, nil)
	first := train(s, 2, 2)
	s.awaitRunning("train", "train-1")
	second := s.running("train-1")
	s.reopenWithout(second)
	if status := s.ended(second.UID).Status; status.Outcome != api.Refused || status.Reason != "the server restarted before it was started" {
		t.Errorf("the one that never began ended with %+v", status)
	}
	if status := s.ended(first.UID).Status; status.Outcome != api.Evicted || !strings.Contains(status.Reason, "not all of them were") {
		t.Errorf("the other ended with %+v", status)
	}
	if left := s.agent.Prepared(); len(left) != 0 {
		t.Errorf("still granted: %+v", left)
	}
}
