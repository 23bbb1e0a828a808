package local

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/engine"
	"github.com/aliquot-dev/aliquot/engine/predict"
	"github.com/aliquot-dev/aliquot/node"
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

// What ended while no server ran is learned as long as it ran, not until a server saw it.
func TestEndedMeanwhileIsLearnedAsItRan(t *testing.T) {
	ctx := context.Background()
	var away time.Duration
	s := newSite(t, func(config *Config) { config.Now = func() time.Time { return time.Now().Add(away) } })
	path := filepath.Join(s.root, "gate")
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	gate, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer gate.Close()
	var works []api.Workload
	for range 4 {
		works = append(works, s.submit(spec("0.25", "dd bs=1 count=1 <"+path)))
	}
	for _, work := range works {
		s.running(work.UID)
	}
	if err := s.Host.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := gate.WriteString("goon"); err != nil {
		t.Fatal(err)
	}
	for _, work := range works {
		found, err := s.folder(work.UID).Look()
		if err == nil {
			err = found.Supervisor.Ended(ctx)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	away = time.Hour
	s.open()
	for _, work := range works {
		s.ended(work.UID)
	}
	next := engine.Workload{ID: "next", User: works[0].User, Tasks: 1, Devices: 1}
	var got predict.Quantiles
	var known bool
	if err := s.look(ctx, func() { got, known = s.engine.Predict(&next) }); err != nil {
		t.Fatal(err)
	}
	if got.Samples != len(works) || !known || got.High > (50*time.Minute).Microseconds() {
		t.Errorf("what ran for a moment, an hour before a server came back, is predicted to run for %+v µs (%v)", got, known)
	}
}

// What was metered of work tells what its like use, also to a daemon that begins later, and also where it was stopped.
func TestMetersTellTheFuture(t *testing.T) {
	s := newSite(t, nil)
	ctx := context.Background()
	s.agent.used = func(grant node.Grant) node.Usage {
		return node.Usage{Grant: grant, Held: 1000 * time.Hour, MemPeak: 3 << 30}
	}
	for i := range 4 {
		asked := spec("0.25..1", "sleep 1000")
		asked.Name = fmt.Sprint("serve-", i)
		s.submit(asked)
		s.running(asked.Name)
		if _, err := s.Stop(ctx, me, asked.Name, 0); err != nil {
			t.Fatal(err)
		}
		s.ended(asked.Name)
	}
	like := engine.Workload{User: me.Name, Tasks: 1, Devices: 1}
	says := func() (got predict.Expected, known bool) {
		if err := s.look(ctx, func() { got, known = s.engine.PredictUse(&like) }); err != nil {
			t.Fatal(err)
		}
		return got, known
	}
	plan, err := s.Plan(ctx, me, spec("0.25..1", "sleep 1000"))
	want := api.PlanUse{Like: predict.SameShape.String(), Runs: 4, Compute: api.WholeDevice, ComputeFrom: api.WholeDevice, ComputeTo: api.WholeDevice, Memory: 3 << 30, MemoryFrom: 3 << 30, MemoryTo: 3 << 30}
	if err != nil || plan.Use == nil || *plan.Use != want {
		t.Errorf("its like is planned to use %+v, %v", plan.Use, err)
	}
	before, known := says()
	if !known || before.Compute.Samples != 4 || before.Compute.Median != int64(api.WholeDevice) || before.Memory.Median != 3<<30 {
		t.Errorf("it is predicted to use %+v (%v)", before, known)
	}
	s.restart()
	if after, known := says(); !known || after != before {
		t.Errorf("after a restart %+v (%v), before %+v", after, known, before)
	}
}

func TestWhatIsNotKnownIsNotLearned(t *testing.T) {
	began := time.Now()
	ended := began.Add(10 * time.Second)
	work := func(change func(status *api.WorkloadStatus)) api.Workload {
		w := api.Workload{Status: api.WorkloadStatus{Started: &began, Ended: &ended, Usage: []api.Usage{
			{DeviceTime: time.Second, MemoryPeak: 1 << 60, Enforced: true}, {DeviceTime: 4 * time.Second, MemoryPeak: 5, Enforced: true},
		}}}
		change(&w.Status)
		return w
	}
	if got := usedBy(work(func(*api.WorkloadStatus) {})); got == nil || *got != (engine.Used{Compute: 250, Memory: mostUsed}) {
		t.Errorf("it used %+v", got)
	}
	for what, change := range map[string]func(status *api.WorkloadStatus){
		"it never ran":           func(status *api.WorkloadStatus) { status.Started = nil },
		"it has no meters":       func(status *api.WorkloadStatus) { status.Usage = nil },
		"its share was not held": func(status *api.WorkloadStatus) { status.Usage[1].Enforced = false },
		"the clock was set back": func(status *api.WorkloadStatus) { status.Ended = new(began.Add(-time.Second)) },
		"it ran for no time":     func(status *api.WorkloadStatus) { status.Ended = &began },
	} {
		if got := usedBy(work(change)); got != nil {
			t.Errorf("%s, and it used %+v", what, got)
		}
	}
}
