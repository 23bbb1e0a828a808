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

// Preemptible work that is like what was over soon starts before the first in line where a policy says so, says until when, and is evicted for that if it
// is not over by then, also over a restart of the server; it is not let in so again.
func TestLetInByPredictions(t *testing.T) {
	ctx := context.Background()
	ahead := new(atomic.Int64)
	s := newSite(t, func(config *Config) { // supervisors tell the time of starts by the true clock
		config.Now = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
	})
	oneDevice(s)
	for range 4 {
		quick := spec("0.5", "exit 0")
		quick.Preemptible = true
		s.ended(s.submit(quick).UID)
	}
	long, first, short := spec("0.5", "sleep 1000"), spec("1", "sleep 1000"), spec("0.5", "sleep 1000")
	long.Name, long.TimeLimit, first.Name = "long", api.Duration(time.Hour), "first"
	short.Name, short.Preemptible, short.Requeue = "short", true, true
	s.submit(long)
	s.running("long")
	s.submit(first)
	if plan, err := s.Plan(ctx, me, short); err != nil || plan.Phase != api.Waiting {
		t.Fatalf("by limits it would be %+v, %v", plan, err)
	}
	if _, err := s.SetPolicy(ctx, me, api.Policy{Name: "early", Text: "aliquot policy 1\nbackfill predicted\n"}); err != nil {
		t.Fatal(err)
	}
	if plan, err := s.Plan(ctx, me, short); err != nil || plan.Phase != api.Starting ||
		!strings.HasPrefix(plan.Promise, "it is predicted to be over before first, the first in line, starts at the latest (") {
		t.Fatalf("by predictions it would be %+v, %v", plan, err)
	}
	s.submit(short)
	s.running("short")
	s.remembers("short", "let in before the first in line, as work like it was over by ")
	s.restart()
	s.running("short")
	ahead.Store(int64(time.Hour + time.Minute))
	if _, err := s.Stop(ctx, me, "long", 0); err != nil {
		t.Fatal(err)
	}
	s.running("first")
	again, err := s.Workload(ctx, "short")
	if err != nil || again.Status.Phase != api.Waiting || again.Status.Requeued != 1 {
		t.Errorf("it is %+v, %v", again.Status, err)
	}
	s.remembers("short", "it was started before the first in line as it was predicted to be over by now, and first wants its devices")
	if _, err := s.Stop(ctx, me, "first", 0); err != nil {
		t.Fatal(err)
	}
	s.running("short")
}

// remembers says that the history of a workload has a sentence in it.
func (s *site) remembers(name, sentence string) {
	s.Helper()
	history := s.told(name).History
	if !slices.ContainsFunc(history, func(r api.WhyRecord) bool { return strings.Contains(r.Message, sentence) }) {
		s.Errorf("%s does not remember %q: %+v", name, sentence, history)
	}
}
