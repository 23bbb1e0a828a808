package local

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/host/local/internal/until"
	"github.com/aliquot-dev/aliquot/host/local/supervise"
	"github.com/aliquot-dev/aliquot/node"
)

// lent is a workload that may be stopped for what it borrows.
func lent(name string) api.WorkloadSpec {
	one := withMemory(name, "1Gi..130Gi")
	one.OnReclaim = api.ReclaimStop
	return one
}

// TestReclaim: of those that have borrowed as many end as what is wanted takes, in the order given, with whose floor it was for; those that
// end already come first. What is to go back into the line does.
func TestReclaim(t *testing.T) {
	s := newSite(t, nil)
	oneDevice(s)
	owner := s.submit(withMemory("owner", "60Gi"))
	s.running("owner") // so that its history does not end with its own start
	again := lent("first")
	again.Requeue = true
	uids := map[string]string{}
	for _, one := range []api.WorkloadSpec{again, lent("second"), lent("third")} {
		uids[one.Name] = s.submit(one).UID
		s.running(one.Name)
	}
	for _, task := range s.agent.Prepared() {
		if task.Flags.Revocable != (task.UID == uids["first"] || task.UID == uids["second"] || task.UID == uids["third"]) {
			t.Errorf("prepared as %+v", task)
		}
	}
	wanted := func(memory api.Bytes, names ...string) node.Notice {
		reclaim := &node.Reclaim{Owner: owner.UID, Memory: memory}
		for _, name := range names {
			reclaim.Borrowers = append(reclaim.Borrowers, node.Borrower{Task: uids[name], Held: 20 * gi})
		}
		return node.Notice{Kind: node.MemoryWanted, Task: owner.UID, Reclaim: reclaim}
	}
	s.agent.notices <- wanted(15*gi, "first", "second", "third")
	if status := s.ended(uids["first"]).Status; status.Outcome != api.Evicted || status.Reason != "memory taken back for owner's floor" {
		t.Errorf("it ended as %+v", status)
	}
	until.Polled(t, "it waits or runs again", func() bool {
		list := s.called("first")
		return len(list) == 2 && list[1].Status.Phase != api.Ended && list[1].Status.Requeued == 1
	})
	if why, err := s.Why(t.Context(), "owner"); err != nil || !strings.Contains(why.History[len(why.History)-1].Message, "waits for memory of its floor that first has borrowed") {
		t.Errorf("of the owner is said %+v, %v", why.History, err)
	}
	// One that has ended covers what it held, so that of 30Gi one other is to end.
	s.agent.notices <- wanted(30*gi, "first", "second", "third")
	s.ended(uids["second"])
	s.agent.notices <- wanted(35*gi, "third", "second", "first") // which are over
	if now := s.running("third"); now.Status.Phase != api.Running {
		t.Errorf("the third is %+v", now.Status)
	}
}

// TestBackOff: what is evicted for borrowed memory time after time is not started at once from the second time on, but after longer and longer, also
// by the next server; it is told so, keeps nobody waiting meanwhile, and once it has run for an hour that begins anew.
func TestBackOff(t *testing.T) {
	var ahead atomic.Int64 // of the machine's clock as it was, by which supervisors say when a program started
	at := time.Now()
	s := newSite(t, func(config *Config) {
		config.Now = func() time.Time { return at.Add(time.Duration(ahead.Load())) }
	})
	oneDevice(s)
	owner := s.submit(withMemory("owner", "60Gi"))
	guest := lent("guest")
	guest.Requeue = true
	s.submit(guest)
	evict := func() {
		t.Helper()
		uid := s.running("guest").UID
		s.agent.notices <- node.Notice{Kind: node.MemoryWanted, Task: owner.UID, Reclaim: &node.Reclaim{
			Owner: owner.UID, Memory: gi, Borrowers: []node.Borrower{{Task: uid, Held: 20 * gi}},
		}}
		s.ended(uid)
	}
	held := func(times string) {
		t.Helper()
		s.line()
		if why := s.told("guest"); why.Phase != api.Waiting || why.Code != "back_off" || !strings.Contains(why.Message, "was taken back "+times+" times in a row") {
			t.Fatalf("it is told %+v", why)
		} else if start := why.Start; start == nil || start.Latest == nil || !start.Latest.After(s.Now()) || !start.Earliest.Equal(*start.Latest) {
			t.Fatalf("it is to start %+v, and may from a time on that is known", start)
		}
	}
	evict()
	evict() // it was started again at once
	held("2")
	s.submit(withMemory("late", "1Gi"))
	s.running("late") // though it is behind
	s.restart()
	held("2")
	ahead.Add(int64(15 * time.Second))
	evict()
	held("3")
	ahead.Add(int64(15 * time.Second))
	held("3")
	ahead.Add(int64(15 * time.Second))
	s.running("guest")
	ahead.Add(int64(2 * time.Hour))
	evict()
	s.running("guest")
	if got := []time.Duration{backOff(1), backOff(2), backOff(9), backOff(1000)}; !slices.Equal(got, []time.Duration{0, 15 * time.Second, 30 * time.Minute, 30 * time.Minute}) {
		t.Errorf("it is held back for %v", got)
	}
}

// TestReclaimHurries: one that has been told to end with more time than an owner waits has no more than others.
func TestReclaimHurries(t *testing.T) {
	s := newSite(t, nil)
	oneDevice(s)
	slow := lent("slow")
	ready := filepath.Join(t.TempDir(), "ready")
	slow.Command = spec("0.1", "trap '' TERM; echo > "+ready+"; sleep 1000 & wait; wait; wait; sleep 1000").Command
	uid := s.submit(slow).UID
	until.Polled(t, "it hears no SIGTERM", func() bool { _, err := os.Stat(ready); return err == nil })
	if _, err := s.Stop(t.Context(), me, "slow", api.Duration(maxGrace)); err != nil {
		t.Fatal(err)
	}
	s.agent.notices <- node.Notice{Kind: node.MemoryWanted, Reclaim: &node.Reclaim{Owner: "gone", Memory: gi, Borrowers: []node.Borrower{{Task: uid, Held: 2 * gi}}}}
	if status := s.ended(uid).Status; status.Outcome != api.Stopped || !strings.HasPrefix(status.Reason, stoppedBy) || status.Signal != "SIGKILL" {
		t.Errorf("it ended as %+v", status)
	}
}

// TestOvertakenOrder: an order to stop whose telling comes after that of a later one changes nothing any more.
func TestOvertakenOrder(t *testing.T) {
	s := newSite(t, nil)
	oneDevice(s)
	ready := filepath.Join(t.TempDir(), "ready")
	uid := s.submit(spec("0.1", "trap '' TERM; echo > "+ready+"; while :; do sleep 1000 & wait; done")).UID
	until.Polled(t, "it hears no SIGTERM", func() bool { _, err := os.Stat(ready); return err == nil })
	var w *work
	if err := s.look(t.Context(), func() { w = s.work[uid] }); err != nil {
		t.Fatal(err)
	}
	// The second of two orders, and then the first, which gives it more time than this test has.
	if err := errors.Join(s.sendOrder(w, 2, supervise.Order{}), s.sendOrder(w, 1, supervise.Order{Grace: maxGrace})); err != nil {
		t.Fatal(err)
	}
	if status := s.ended(uid).Status; status.Signal != "SIGKILL" {
		t.Errorf("it ended as %+v", status)
	}
}

// TestRevocableMemoryBarsNobody: memory above a floor that can be taken back is free for floors of others.
func TestRevocableMemoryBarsNobody(t *testing.T) {
	s := newSite(t, nil)
	oneDevice(s)
	hog := s.submit(lent("hog"))
	s.running("hog")
	s.agent.hold(hog.UID, 130*gi)
	s.submit(withMemory("late", "100Gi"))
	s.running("late")
	if why, err := s.Why(t.Context(), "hog"); err != nil || !strings.Contains(why.Message, "up to 130Gi of memory while it is free or others leave theirs idle, who have it ended when they want it") {
		t.Errorf("it is said to have %q, %v", why.Message, err)
	}
	s.agent.mu.Lock()
	s.agent.lent = map[string]api.Bytes{s.running("late").UID: 90 * gi}
	s.agent.mu.Unlock()
	if why, err := s.Why(t.Context(), "late"); err != nil || !strings.HasSuffix(why.Message, "; 90Gi of its memory is lent to hog while it does not use it") {
		t.Errorf("the owner is told %q, %v", why.Message, err)
	}
	if free := s.memoryFree(); free != 39*gi {
		t.Errorf("the books have %s free", free)
	}
}
