package local

import (
	"context"
	"encoding/json"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/engine"
	"github.com/aliquot-dev/aliquot/host/local/supervise"
	"github.com/aliquot-dev/aliquot/store"
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

// What ended while no server ran counts until it ended, and not until the next one began.
func TestQueuesUsedByWhatEndedMeanwhile(t *testing.T) {
	ctx := context.Background()
	s := newSite(t, nil)
	for _, q := range []api.QueueSpec{{Name: "org", Quota: api.Unlimited}, {Name: "team", Parent: "org", Quota: api.Unlimited}} {
		if _, err := s.SetQueue(ctx, me, q); err != nil {
			t.Fatal(err)
		}
	}
	asked := spec("0.5", "sleep 1000")
	asked.Queue = "team"
	ended := s.running(s.submit(asked).UID)
	s.running(s.submit(asked).UID)
	const hour = 3_600_000_000 // thousandths of a device for so many ms
	var failed error
	used := map[string]engine.QueueUsed{}
	err := s.look(ctx, func() {
		now := s.Now()
		kept, err := json.Marshal(keptQueuesUsed{now.Add(-84 * time.Hour), []engine.QueueUsed{{Queue: "org", All: 3 * hour, Own: hour}, {Queue: "team", All: 2 * hour, Own: 2 * hour}}})
		if failed = err; failed == nil {
			failed = s.store.Write(ctx, &store.Batch{Settings: map[string]string{queuesUsedSetting: string(kept)}})
		}
		if failed == nil {
			failed = s.recallQueuesUsed(ctx, map[*work]supervise.Exit{s.work[ended.UID]: {At: now.Add(-42 * time.Hour)}})
		}
		for _, u := range s.engine.QueuesUsed(s.time().At) {
			used[u.Queue] = u
		}
	})
	if err != nil || failed != nil {
		t.Fatal(err, failed)
	}
	// By a half-life of a week: what is held from a to b hours ago.
	held := func(a, b float64) float64 { return 168 / math.Ln2 * (math.Exp2(-b/168) - math.Exp2(-a/168)) }
	team := 0.5*held(84, 0) + 0.5*held(84, 42) + 2*math.Sqrt(0.5)
	for queue, want := range map[string][2]float64{"team": {team, team}, "org": {team + math.Sqrt(0.5), math.Sqrt(0.5)}} {
		got := [2]float64{float64(used[queue].All) / hour, float64(used[queue].Own) / hour}
		if math.Abs(got[0]-want[0]) > 0.01 || math.Abs(got[1]-want[1]) > 0.01 {
			t.Errorf("queue %s used %v device-hours, and by its own work so many, want %v", queue, got, want)
		}
	}
}

// What waits again since it never began has its device back before elastic work grows onto it.
func TestQueuesUsedGrowNothing(t *testing.T) {
	s, ahead := clockedSite(t)
	elastic, one := spec("1", "exec sleep 1000"), spec("1", "exec sleep 1000")
	elastic.Name, elastic.Replicas, one.Name = "elastic", api.Replicas{Min: 1, Max: 2}, "one"
	s.submit(one)
	w := s.running("one")
	s.submit(elastic)
	s.running("elastic")
	ahead.Store(int64(2 * time.Minute))
	if _, err := s.SetQueue(t.Context(), me, api.QueueSpec{Name: "other", Quota: api.Unlimited}); err != nil { // what was used is kept with it
		t.Fatal(err)
	}
	s.reopenWithout(w)
	s.running("one")
	all, err := s.Workloads(t.Context(), true)
	if err != nil {
		t.Fatal(err)
	}
	if slices.ContainsFunc(all, func(o api.Workload) bool { return o.Spec.Name == "elastic-1" }) {
		t.Error("elastic work grew onto the device of what waited again")
	}
}
