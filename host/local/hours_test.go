package local

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/engine"
	"github.com/aliquot-dev/aliquot/host/local/internal/until"
	"github.com/aliquot-dev/aliquot/host/local/supervise"
	"github.com/aliquot-dev/aliquot/host/policy"
	"github.com/aliquot-dev/aliquot/store"
)

// used is what a queue used of its device-hours, in device-hours.
func (s *site) used(queue string) float64 {
	s.Helper()
	queues, err := s.Queues(context.Background())
	if err != nil {
		s.Fatal(err)
	}
	for _, q := range queues {
		if q.Name == queue && q.HoursUsed != nil {
			return float64(q.HoursUsed.Amount) / 1000
		}
	}
	s.Fatalf("nothing is counted of queue %s: %+v", queue, queues)
	return 0
}

// is holds a figure against what it is to be.
func (s *site) is(what string, got, want float64) {
	s.Helper()
	if got != want {
		s.Errorf("%s: %v device-hours, want %v", what, got, want)
	}
}

// What a queue and those under it hold is counted, through restarts; once it is used up nothing more is started until the next period, and it
// is said how much that is and when.
func TestHoursAreUsedUp(t *testing.T) {
	ctx := context.Background()
	s, ahead := clockedSite(t)
	const text = "aliquot policy 1\nzone Europe/Berlin\nqueue org hours=6/week\nqueue vision parent=org\n"
	if _, err := s.SetPolicy(ctx, me, api.Policy{Name: "office", Text: text}); err != nil {
		t.Fatal(err)
	}
	one := func(name string) api.Workload {
		w := spec("1", "sleep 1000")
		w.Name, w.Queue = name, "vision"
		return s.submit(w)
	}
	s.running(one("first").UID)
	ahead.Store(int64(2 * time.Hour))
	s.is("after 2 hours", s.used("org"), 2)
	s.restart()
	s.is("after a restart", s.used("org"), 2)
	ahead.Store(int64(5 * time.Hour))
	s.restart()
	s.is("after three hours without a server", s.used("org"), 5)
	ahead.Store(int64(6 * time.Hour))
	second := one("second")
	if why := s.told("second"); why.Code != engine.WhyHours ||
		why.Message != "queue org has used 6 of its 6 device-hours of this week: what runs goes on, and nothing with a compute floor is started before Mon 30 Nov 2026 00:00 CET" ||
		!strings.HasPrefix(why.Unblock, "Mon 30 Nov 2026 00:00 CET, more device-hours for queue org") {
		t.Errorf("told %+v", why)
	}
	asked := spec("1", "true")
	asked.Queue = "vision"
	if plan, err := s.Plan(ctx, me, asked); err != nil || plan.Code != engine.WhyHours || !strings.HasPrefix(plan.Message, "queue org has used 6 of its 6 device-hours") {
		t.Errorf("planned %+v (%v)", plan, err)
	}
	if w := s.ended(s.submit(spec("1", "true")).UID); w.Status.Outcome != api.Succeeded {
		t.Errorf("work of another queue ended with %+v", w.Status)
	}
	if first, err := s.Workload(ctx, "first"); err != nil || first.Status.Phase != api.Running {
		t.Errorf("what ran is %+v (%v)", first.Status, err)
	}
	if _, err := s.SetQueue(ctx, me, api.QueueSpec{Name: "vision", Parent: "org", Quota: api.Unlimited, MaxPriority: 1, HoursSpent: true}); err != nil {
		t.Error(err)
	}
	ahead.Store(int64(7 * 24 * time.Hour)) // the next Monday
	s.is("in the next week", s.used("org"), 0)
	s.running(second.UID)
}

// More device-hours, set by hand, let work start at once; fewer stop what comes next. What is used up by itself, with nobody asking, is told.
func TestHoursByHand(t *testing.T) {
	ctx := context.Background()
	s, ahead := clockedSite(t)
	set := func(hours string) {
		t.Helper()
		quota, err := api.ParseHours(hours)
		if err == nil {
			_, err = s.SetQueue(ctx, me, api.QueueSpec{Name: "team", Quota: api.Unlimited, Hours: quota})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	set("0/day")
	w := spec("1", "sleep 1000")
	w.Queue = "team"
	first := s.submit(w)
	if why := s.told(first.UID); why.Code != engine.WhyHours {
		t.Errorf("without device-hours it waits for %+v", why)
	}
	set("0.001/day") // 3.6 s of a device
	s.running(first.UID)
	ahead.Store(int64(4 * time.Second)) // and the server looks in 3.6 s
	next := func() <-chan struct{} { _, more := s.events.since(0); return more }
	until.Told(t, next, "that they are used up is told", func() bool {
		events, _ := s.events.since(0)
		return slices.ContainsFunc(events, func(e api.Event) bool {
			return strings.HasPrefix(e.Message, "queue team has used 0.001 of its 0.001 device-hours of this day")
		})
	})
	second := s.submit(w)
	if why := s.told(second.UID); why.Code != engine.WhyHours {
		t.Errorf("once they are used up it waits for %+v", why)
	}
	set("none")
	s.running(second.UID)
	queues, err := s.Queues(ctx)
	if i := slices.IndexFunc(queues, func(q api.Queue) bool { return q.Name == "team" }); err != nil || queues[i].HoursUsed != nil || queues[i].HoursSpent {
		t.Errorf("without a bound it is shown as %+v (%v)", queues[i], err)
	}
}

// What ended while no server ran counts until it ended, for its queue and for those above; what ran on counts until now.
func TestHoursOfWhatEndedMeanwhile(t *testing.T) {
	ctx := context.Background()
	s, _ := clockedSite(t)
	for _, q := range []api.QueueSpec{
		{Name: "org", Quota: api.Unlimited, Hours: api.HoursQuota{Amount: 100_000, Per: api.Week}},
		{Name: "team", Parent: "org", Quota: api.Unlimited, Hours: api.HoursQuota{Amount: 100_000, Per: api.Month}},
	} {
		if _, err := s.SetQueue(ctx, me, q); err != nil {
			t.Fatal(err)
		}
	}
	asked := spec("0.5", "sleep 1000")
	asked.Queue = "team"
	ended := s.running(s.submit(asked).UID)
	s.running(s.submit(asked).UID)
	var failed error
	err := s.look(ctx, func() {
		now := s.Now()
		kept, err := json.Marshal(s.hours.Keep(now.Add(-4 * time.Hour)))
		if failed = err; failed == nil {
			failed = s.store.Write(ctx, &store.Batch{Settings: map[string]string{hoursSetting: string(kept)}})
		}
		if failed == nil {
			s.hours = policy.Hours{}
			failed = s.resumeHours(ctx, map[*work]supervise.Exit{s.work[ended.UID]: {At: now.Add(-3 * time.Hour)}})
		}
	})
	if err != nil || failed != nil {
		t.Fatal(err, failed)
	}
	for _, q := range []string{"org", "team"} {
		s.is("half a device for 4 hours and one for 1, in queue "+q, s.used(q), 2.5)
	}
}
