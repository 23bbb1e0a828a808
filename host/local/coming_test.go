package local

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/aliquot-dev/aliquot/api"
)

// startsBy holds to a moment what is said of when work starts at the latest.
func (s *site) startsBy(name string, earliest, latest time.Time) {
	s.Helper()
	start := s.told(name).Start
	if start == nil || start.Latest == nil || !start.Latest.Equal(latest) || !start.Earliest.Equal(earliest) {
		s.Errorf("%s is to start %+v, want from %s to %s", name, start, earliest, latest)
	}
}

// limited runs something with a time limit.
func (s *site) limited(limit time.Duration) {
	s.Helper()
	w := spec("1", "sleep 1000")
	w.TimeLimit = api.Duration(limit)
	s.running(s.submit(w).UID)
}

// When work starts is known although only a window of the policy lets it, also by a plan.
func TestStartInAWindowIsKnown(t *testing.T) {
	ctx := context.Background()
	s, ahead := clockedSite(t)
	const text = "aliquot policy 1\nzone Europe/Berlin\nqueue product limit=0.5\nwindow eve days=mon-thu from=18:00 to=20:00\nqueue product limit=0.75\n" +
		"window night days=tue-thu from=20:00 to=06:00\nqueue product limit=1\n"
	if _, err := s.SetPolicy(ctx, me, api.Policy{Name: "office", Text: text}); err != nil {
		t.Fatal(err)
	}
	eve, night := time.Date(2026, 11, 23, 17, 0, 0, 0, time.UTC), time.Date(2026, 11, 24, 19, 0, 0, 0, time.UTC)
	one := spec("1", "sleep 1000")
	one.Name, one.Queue, one.TimeLimit = "first", "product", api.Duration(2*time.Hour)
	s.submit(one)
	s.startsBy("first", eve, night)
	one.Name = "second"
	if plan, err := s.Plan(ctx, me, one); err != nil || plan.Start == nil || plan.Start.Latest == nil || !plan.Start.Latest.Equal(night.Add(2*time.Hour)) {
		t.Errorf("planned %+v (%v)", plan.Start, err)
	}
	ahead.Store(int64(night.Sub(time.Date(2026, 11, 23, 11, 0, 0, 0, time.UTC))))
	s.running("first")
	if err := s.RemovePolicy(ctx, me); err != nil {
		t.Fatal(err)
	}
}

// So it is where its queue has used its device-hours up, and where a priority is over before what it waits for ends.
func TestStartAfterADateIsKnown(t *testing.T) {
	ctx := context.Background()
	s, ahead := clockedSite(t)
	began := time.Date(2026, 11, 23, 11, 0, 0, 0, time.UTC)
	const text = "aliquot policy 1\nqueue team hours=6/week\nqueue bound hours=0/day\nqueue dated priority=50 priority-until=2026-11-23T20:00\n"
	if _, err := s.SetPolicy(ctx, me, api.Policy{Name: "office", Text: text}); err != nil {
		t.Fatal(err)
	}
	w := spec("1", "sleep 1000")
	w.Queue, w.TimeLimit = "team", api.Duration(12*time.Hour)
	s.running(s.submit(w).UID)
	ahead.Store(int64(6 * time.Hour))
	now, monday := began.Add(6*time.Hour), time.Date(2026, 11, 30, 0, 0, 0, 0, time.UTC)
	s.limited(4 * time.Hour)
	s.waits("more", "team", 0, nil, 0)
	s.waits("never", "bound", 0, nil, 0)
	s.startsBy("more", began.Add(9*time.Hour), monday)
	if start := s.told("never").Start; start == nil || start.Latest != nil || start.Unknown == "" {
		t.Errorf("what never has device-hours is to start %+v", start)
	}
	until := now.Add(2 * time.Hour)
	for _, name := range []string{"paper", "plain", "queued"} {
		w := spec("1", "sleep 1000")
		w.Name, w.TimeLimit = name, api.Duration(time.Hour)
		switch name {
		case "paper":
			w.Priority, w.PriorityUntil = 100, &until
		case "plain":
			w.Priority = 20
		case "queued":
			w.Queue = "dated"
		}
		s.submit(w)
	}
	if got := s.line(); !strings.HasPrefix(got, "paper queued plain ") {
		t.Errorf("the line is %s", got)
	}
	// All wait for 4 hours, when both dates are over: then priorities count, and the queue that holds nothing goes before the one that does.
	s.startsBy("plain", now, now.Add(4*time.Hour))
	s.startsBy("queued", now, now.Add(5*time.Hour))
	s.startsBy("paper", now, now.Add(6*time.Hour))
}
