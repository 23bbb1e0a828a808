package local

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/store"
)

// What has ended tells when work without a time limit ends, also to a daemon that begins later; and in a queue that asks for it, who goes
// first.
func TestPastTellsTheFuture(t *testing.T) {
	s := newSite(t, nil)
	ctx := context.Background()
	work := func(name, command string) api.WorkloadSpec {
		asked := spec("1", command)
		asked.Name, asked.Devices = name, 2
		return asked
	}
	for i := range 8 {
		name := fmt.Sprint([]string{"brief-", "long-"}[i%2], i)
		s.submit(work(name, "true"))
		s.ended(name)
	}
	s.tellOtherwise(func(row *store.Workload) {
		long := 10 * time.Minute
		if strings.HasPrefix(row.Spec.Name, "long") {
			long = time.Hour
		}
		started := row.Status.Ended.Add(-long)
		row.Status.Started = &started
	})
	s.submit(work("long-8", "sleep 1000"))
	s.running("long-8")
	s.submit(work("long-9", "true"))
	why, err := s.Why(ctx, "long-9")
	if err != nil || why.Start == nil || why.Start.Expected == nil || why.Start.Latest != nil {
		t.Fatalf("%+v, %v", why, err)
	}
	for what, at := range map[string]*time.Time{"expected": why.Start.Expected, "from": why.Start.From, "to": why.Start.To} {
		if at == nil || time.Until(*at) < 55*time.Minute || time.Until(*at) > time.Hour {
			t.Errorf("what takes an hour as a rule has just begun, and what waits for it is %s at %v", what, at)
		}
	}

	s.submit(work("brief-9", "true"))
	places := func(order string) {
		t.Helper()
		one, errOne := s.Why(ctx, "brief-9")
		two, errTwo := s.Why(ctx, "long-9")
		if got := fmt.Sprint(one.Place, two.Place, errOne, errTwo); got != order {
			t.Errorf("brief-9 and long-9 have the places %s, want %s", got, order)
		}
	}
	places("2 1 <nil> <nil>")
	if _, err := s.SetQueue(ctx, me, api.QueueSpec{Name: api.DefaultQueue, Quota: api.Unlimited, ShortestFirst: 2000}); err != nil {
		t.Fatal(err)
	}
	places("1 2 <nil> <nil>")
	s.restart()
	places("1 2 <nil> <nil>")
}

// tellOtherwise changes what is stored of workloads that ended, between two daemons.
func (s *site) tellOtherwise(change func(*store.Workload)) {
	s.Helper()
	ctx := context.Background()
	if err := s.Host.Close(); err != nil {
		s.Fatal(err)
	}
	db, err := store.Open(ctx, filepath.Join(s.root, "state", "aliquot.db"))
	if err != nil {
		s.Fatal(err)
	}
	rows, err := db.Ended(ctx)
	if err != nil || len(rows) == 0 {
		s.Fatalf("%d workloads have ended, %v", len(rows), err)
	}
	for i := range rows {
		change(&rows[i])
	}
	if err := errors.Join(db.Write(ctx, &store.Batch{Workloads: rows}), db.Close()); err != nil {
		s.Fatal(err)
	}
	s.open()
}

func TestKindName(t *testing.T) {
	for _, c := range []struct {
		name    string
		command []string
		want    string
	}{
		{"night", []string{"./job"}, "night"},
		{"sweep-17", []string{"python", "train.py"}, "sweep"},
		{"sweep17", []string{"python"}, "sweep17"},
		{"python-3f", []string{"/usr/bin/python", "-u", "/home/ann/train.py", "--lr", "0.1"}, "python train.py"},
		{"python-3f", []string{"python", "-c"}, "python"},
		{"python-nightly", []string{"python", "train.py"}, "python-nightly"},
		{"7", []string{"true"}, "7"},
		{"-7", []string{"true"}, "-7"},
	} {
		if got := kindName(&api.WorkloadSpec{Name: c.name, Command: c.command}); got != c.want {
			t.Errorf("%s of %q is of the kind %q, want %q", c.name, c.command, got, c.want)
		}
	}
}
