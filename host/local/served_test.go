package local

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aliquot-dev/aliquot/api"
)

// TestServedTakeTurns: in a queue that counts service two take turns, each twice as long as the time before, and what they had outlives evictions and servers.
func TestServedTakeTurns(t *testing.T) {
	ahead := new(atomic.Int64)
	s := newSite(t, func(config *Config) { // supervisors tell the time of starts by the true clock
		config.Now = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
	})
	if _, err := s.SetQueue(context.Background(), me, api.QueueSpec{Name: "lab", Quota: api.Unlimited, Order: api.QueueOrder{Served: api.Duration(time.Hour)}}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a", "b"} {
		asked := spec("1", "exec sleep 1000")
		asked.Name, asked.Queue, asked.Devices, asked.Preemptible, asked.Requeue = name, "lab", 2, true, true
		s.submit(asked)
	}
	s.running("a")
	ahead.Add(int64(90 * time.Minute))
	if line := s.line(); line != "b" && line != "" { // asked, the server looks at the clock
		t.Fatalf("the line is %q", line)
	}
	s.running("b")
	ahead.Add(int64(89 * time.Minute))
	s.restart()
	if line := s.line(); line != "a" {
		t.Errorf("while both had up to four hours of a device the line is %q", line)
	}
	ahead.Add(int64(32 * time.Minute))
	s.line()
	s.running("a")
	if again, err := s.Workload(context.Background(), "b"); err != nil || again.Status.Phase != api.Waiting || again.Status.Requeued != 1 {
		t.Errorf("b, which had more than four, is %+v, %v", again.Status, err)
	}
}
