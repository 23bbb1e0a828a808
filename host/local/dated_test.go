package local

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aliquot-dev/aliquot/api"
)

// datedSite is a site whose clock stands still on Monday, 23 November 2026, at 11:00 UTC and can be set ahead; its devices are taken.
func datedSite(t *testing.T) (*site, *atomic.Int64) {
	t.Helper()
	s, ahead := clockedSite(t)
	for range 2 {
		s.running(s.submit(spec("1", "sleep 1000")).UID)
	}
	return s, ahead
}

// clockedSite is one on which nothing runs.
func clockedSite(t *testing.T) (*site, *atomic.Int64) {
	t.Helper()
	ahead, began := new(atomic.Int64), time.Date(2026, 11, 23, 11, 0, 0, 0, time.UTC)
	s := newSite(t, func(config *Config) {
		config.Now = func() time.Time { return began.Add(time.Duration(ahead.Load())) }
	})
	return s, ahead
}

// line are the names of those that wait, in their order.
func (s *site) line() string {
	s.Helper()
	all, err := s.Workloads(context.Background(), false)
	if err != nil {
		s.Fatal(err)
	}
	all = slices.DeleteFunc(all, func(w api.Workload) bool { return w.Status.Phase != api.Waiting })
	slices.SortFunc(all, func(a, b api.Workload) int { return a.Status.Place - b.Status.Place })
	var names []string
	for _, w := range all {
		names = append(names, w.Spec.Name)
	}
	return strings.Join(names, " ")
}

func (s *site) told(name string) api.Why {
	s.Helper()
	why, err := s.Why(context.Background(), name)
	if err != nil {
		s.Fatal(err)
	}
	return why
}

// waits submits what waits in a queue.
func (s *site) waits(name, queue string, priority int32, until *time.Time, after int32) api.Workload {
	s.Helper()
	w := spec("1", "sleep 1000")
	w.Name, w.Queue, w.Priority, w.PriorityUntil, w.PriorityAfter = name, queue, priority, until, after
	return s.submit(w)
}

// A priority holds until its date, is then what was asked for after it, at that moment and for good, and both is said.
func TestPriorityIsOver(t *testing.T) {
	ctx := context.Background()
	s, ahead := datedSite(t)
	until := time.Date(2026, 11, 23, 13, 0, 0, 0, time.UTC)
	s.waits("plain", "", 2, nil, 0)
	s.waits("paper", "", 50, &until, 1)
	s.waits("talk", "", 40, &until, 3)
	if got := s.line(); got != "paper talk plain" {
		t.Errorf("before the date the line is %s", got)
	}
	when := until.Local().Format("Mon 2 Jan 2006 15:04 MST")
	if why := s.told("paper"); !strings.HasSuffix(why.Message, "; its priority of 50 holds until "+when+", then it is 1") {
		t.Errorf("told %q", why.Message)
	}
	s.restart()
	if got := s.line(); got != "paper talk plain" {
		t.Errorf("after a restart before the date the line is %s", got)
	}
	ahead.Store(int64(2 * time.Hour))
	if got := s.line(); got != "talk plain paper" {
		t.Errorf("after the date the line is %s", got)
	}
	for range 2 {
		why := s.told("paper")
		if !strings.HasSuffix(why.Message, "; its priority of 50 held until "+when+" and is 1 now") {
			t.Errorf("told %q", why.Message)
		}
		noted := slices.IndexFunc(why.History, func(r api.WhyRecord) bool {
			return r.Message == "its priority of 50 held until now: from now on it is 1"
		})
		if work, err := s.Workload(ctx, "paper"); err != nil || noted < 0 || !work.Status.PriorityOver || work.Priority() != 1 {
			t.Errorf("it is shown as %+v with %+v (%v)", work.Status, why.History, err)
		}
		s.restart()
		ahead.Store(0) // a clock that is set back brings nothing back
		if got := s.line(); got != "talk plain paper" {
			t.Errorf("after a restart after the date the line is %s", got)
		}
	}
}

// A date that passes while no server runs, and one that nobody asks after, are no exception.
func TestPriorityIsOverByItself(t *testing.T) {
	s, ahead := datedSite(t)
	until := s.Now().Add(time.Hour)
	s.waits("plain", "", 0, nil, 0)
	s.waits("paper", "", 50, &until, -1)
	s.edit = func(edit func(*Config)) func(*Config) {
		return func(config *Config) { ahead.Store(int64(2 * time.Hour)); edit(config) }
	}(s.edit)
	s.restart()
	if got := s.line(); got != "plain paper" {
		t.Errorf("after a restart over the date the line is %s", got)
	}
	soon := s.Now().Add(time.Second)
	w := s.waits("soon", "", 50, &soon, -2)
	ahead.Add(int64(time.Second)) // and the server looks in a second
	events, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for over := false; !over; {
		// The store alone is asked: a question to the loop would have it look at the clock.
		history, err := s.store.History(events, w.UID)
		if err != nil {
			t.Fatal(err)
		}
		over = slices.ContainsFunc(history, func(r api.WhyRecord) bool { return strings.HasPrefix(r.Message, "its priority of 50 held until now") })
	}
	if got := s.line(); got != "plain paper soon" {
		t.Errorf("after the date of the last the line is %s", got)
	}
}

// What a queue adds to the priority of its work is over at its date, as set by hand and by a policy, and survives a restart.
func TestPriorityOfAQueueIsOver(t *testing.T) {
	ctx := context.Background()
	s, ahead := datedSite(t)
	until := time.Date(2026, 11, 23, 13, 0, 0, 0, time.UTC)
	for _, q := range []api.QueueSpec{
		{Name: "org", Quota: api.Unlimited, Priority: 5, PriorityUntil: &until, PriorityAfter: -5},
		{Name: "vision", Parent: "org", Quota: api.Unlimited},
		{Name: "speech", Quota: api.Unlimited},
	} {
		if _, err := s.SetQueue(ctx, me, q); err != nil {
			t.Fatal(err)
		}
	}
	s.waits("s", "speech", 3, nil, 0)
	s.waits("v", "vision", 0, nil, 0)
	org := func() (found api.QueueSpec) {
		t.Helper()
		queues, err := s.Queues(ctx)
		if err != nil {
			t.Fatal(err)
		}
		for _, q := range queues {
			if q.Name == "org" {
				found = q.QueueSpec
			}
		}
		return found
	}
	check := func(line string, priority int32, dated bool) {
		t.Helper()
		if got, q := s.line(), org(); got != line || q.Priority != priority || (q.PriorityUntil != nil) != dated {
			t.Errorf("the line is %s and the queue %+v, want %s, %d, dated: %v", got, q, line, priority, dated)
		}
	}
	check("v s", 5, true)
	if why := s.told("v"); !strings.HasSuffix(why.Message, "; queue org adds to its priority 5 until "+until.Local().Format("Mon 2 Jan 2006 15:04 MST")+", then -5") {
		t.Errorf("told %q", why.Message)
	}
	if again, err := s.SetQueue(ctx, me, org()); err != nil || again.PriorityUntil == nil { // as `queue set` does for another word
		t.Errorf("set as it is: %+v (%v)", again, err)
	}
	s.restart()
	check("v s", 5, true)
	ahead.Store(int64(2 * time.Hour))
	check("s v", -5, false)
	s.restart()
	check("s v", -5, false)
	if _, err := s.SetPolicy(ctx, me, api.Policy{Name: "office", Text: "aliquot policy 1\nqueue org priority=9 priority-until=2026-11-23T15:00\n"}); err != nil {
		t.Fatal(err)
	}
	check("v s", 9, true)
	s.restart()
	check("v s", 9, true)
	ahead.Store(int64(4 * time.Hour))
	check("s v", 0, false)
	if _, err := s.SetQueue(ctx, me, api.QueueSpec{Name: "speech", Quota: api.Unlimited, MaxPriority: 4}); err != nil {
		t.Error(err)
	}
	check("s v", 0, false)
	if err := s.RemovePolicy(ctx, me); err != nil {
		t.Fatal(err)
	}
	check("s v", -5, false)
}

// A date that is over and priorities that a user may not give are refused, the one after the date too.
func TestPriorityUntilIsChecked(t *testing.T) {
	ctx := context.Background()
	s, _ := datedSite(t)
	over, later := s.Now().Add(-time.Minute), s.Now().Add(time.Hour)
	ask := func(until *time.Time, after int32) error {
		w := spec("1", "true")
		w.Priority, w.PriorityUntil, w.PriorityAfter = -1, until, after
		_, err := s.Submit(ctx, me, w)
		return err
	}
	refused(t, ask(&over, 0), api.CodeInvalid, "and that is over: give a later date")
	refused(t, ask(&later, 1001), api.CodeInvalid, "the priority 1001 after the date is out of range")
	refused(t, ask(&later, -1), api.CodeInvalid, "is -1 until a date and after it")
	refused(t, ask(nil, 1), api.CodeInvalid, "no date until which another holds")
	_, err := s.SetQueue(ctx, me, api.QueueSpec{Name: "q", Quota: api.Unlimited, Priority: 1, PriorityUntil: &over})
	refused(t, err, api.CodeInvalid, "and that is over")
	var failed error
	asked := spec("0.5", "true").Default()
	asked.Name, asked.PriorityUntil, asked.PriorityAfter = "one", &later, 1
	if err := s.look(ctx, func() { failed = s.checkFit(newWork(1, api.Workload{UserID: other.UID, Spec: asked}, keep{})) }); err != nil {
		t.Fatal(err)
	}
	refused(t, failed, api.CodeForbidden, "priority 1 was asked for, and in queue default users may give at most 0")
}
