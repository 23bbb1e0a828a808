package local

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/engine"
	"github.com/aliquot-dev/aliquot/host/local/internal/until"
	"github.com/aliquot-dev/aliquot/server"
)

const gi = api.Bytes(1) << 30

// withMemory is a workload that sleeps with a share of memory of one of the two devices, which have 140Gi.
func withMemory(name, memory string) api.WorkloadSpec {
	one := spec("0.1", "sleep 1000")
	var err error
	if one.Share.Memory, err = api.ParseMemory(memory); err != nil {
		panic(err)
	}
	one.Name, one.Model = name, "H200"
	return one
}

// oneDevice takes one of the devices as a whole, so that device 1 is the only place to go.
func oneDevice(s *site) {
	s.Helper()
	whole := withMemory("whole", "1Gi")
	whole.Share.Compute = api.Compute{Floor: 1000, Ceiling: 1000}
	s.submit(whole)
	if grants := s.running("whole").Status.Grants; grants[0].DeviceIndex != 0 {
		s.Fatalf("it has %+v", grants)
	}
}

func TestFloorIsNotGrantedOnMemoryThatIsHeld(t *testing.T) {
	s := newSite(t, nil)
	ctx := context.Background()
	oneDevice(s)
	hog := s.submit(withMemory("hog", "1Gi..130Gi"))
	s.running("hog")
	s.agent.hold(hog.UID, 120*gi)
	s.submit(withMemory("late", "30Gi"))
	why, err := s.Why(ctx, "late")
	if err != nil || why.Phase != api.Waiting || why.Code != engine.WhyHeld || !strings.Contains(why.Message, "held above their floors by hog (119Gi)") {
		t.Errorf("why: %+v, %v", why, err)
	}
	if !slices.ContainsFunc(why.Counts, func(c api.WhyCount) bool {
		return c.Code == engine.CountHeld && c.Devices == 1 && strings.Contains(c.Message, "by hog (119Gi)")
	}) {
		t.Errorf("counts: %+v", why.Counts)
	}
	if s.submit(withMemory("small", "20Gi")); s.running("hog").Status.Phase != api.Running {
		t.Error("what fits beside it took its place")
	}
	devices, err := s.Devices(ctx)
	if err != nil || devices[1].MemoryFree != 20*gi {
		t.Errorf("free: %v, %v", devices[1].MemoryFree, err)
	}
	// The next daemon knows it before it places anything.
	s.restart()
	if why, err := s.Why(ctx, "late"); err != nil || why.Phase != api.Waiting {
		t.Errorf("after a restart: %+v, %v", why, err)
	}
	// What comes back is found without anybody's asking.
	s.agent.hold(hog.UID, 2*gi)
	s.running("late")
}

// What could not be made real for want of memory waits with that reason, and is not tried until there is memory.
func TestFloorThatWasRefusedWaitsForTheMemory(t *testing.T) {
	s := newSite(t, nil)
	oneDevice(s)
	hog := s.submit(withMemory("hog", "1Gi..130Gi"))
	s.running("hog")
	// It comes to hold the memory between the decision and the pages.
	s.agent.mu.Lock()
	s.agent.refuse = errors.New("others hold memory above their floors")
	s.agent.refused = func() { s.agent.held = map[string]api.Bytes{hog.UID: 120 * gi} }
	s.agent.mu.Unlock()
	late := s.submit(withMemory("late", "30Gi"))
	s.heard("it waits again", func() bool {
		why, err := s.Why(context.Background(), "late")
		return err == nil && why.Phase == api.Waiting && len(why.History) > 2
	})
	s.agent.mu.Lock()
	s.agent.refuse, s.agent.refused = nil, nil
	s.agent.mu.Unlock()
	if free := s.memoryFree(); free != 20*gi {
		t.Errorf("the books have %s free", free)
	}
	until.Polled(t, "the next try comes and finds no memory", func() bool {
		why, err := s.Why(context.Background(), "late")
		return err == nil && why.Code == engine.WhyHeld
	})
	if work := s.wait(late.UID); work.Status.Phase != api.Waiting {
		t.Errorf("it is %+v", work.Status)
	}
	s.agent.hold(hog.UID, 0)
	s.running("late")
}

func (s *site) memoryFree() (free api.Bytes) {
	s.Helper()
	if err := s.look(context.Background(), func() { free = s.engine.Devices()[1].MemoryFree }); err != nil {
		s.Fatal(err)
	}
	return free
}

func TestResizeAgainstMemoryThatIsHeld(t *testing.T) {
	s := newSite(t, nil)
	ctx := context.Background()
	oneDevice(s)
	hog := s.submit(withMemory("hog", "60Gi..130Gi"))
	s.running("hog")
	s.agent.hold(hog.UID, 100*gi)
	resize := func(memory string) (api.Workload, error) {
		parsed, err := api.ParseMemory(memory)
		if err != nil {
			t.Fatal(err)
		}
		return s.Resize(ctx, me, "hog", server.ShareChange{Memory: &parsed})
	}
	_, err := resize("50Gi")
	refused(t, err, api.CodeConflict, "hog holds 100Gi of the memory of device 1 and cannot have a ceiling of 50Gi: ask for at least 100Gi")
	if work := s.running("hog"); work.Status.Grants[0].MemoryCeiling != 130*gi {
		t.Errorf("after a refused change: %+v", work.Status.Grants)
	}
	// A lower floor is fine, and the rest stays taken.
	if work, err := resize("1Gi..100Gi"); err != nil || work.Status.Grants[0].MemoryFloor != gi {
		t.Errorf("a lower floor: %+v, %v", work.Status.Grants, err)
	}
	if free := s.memoryFree(); free != 40*gi {
		t.Errorf("with 100Gi held, %s are free", free)
	}
	// What was rounded is said as it is, everywhere.
	s.agent.hold(hog.UID, 0)
	if work, err := resize("1Mi"); err != nil || work.Status.Grants[0].MemoryCeiling != api.Granule {
		t.Errorf("a step of memory: %+v, %v", work.Status.Grants, err)
	}
	why, err := s.Why(ctx, "hog")
	if err != nil || why.History[len(why.History)-1].Message != "resized to 0.10 of a device with 2Mi of memory, rounded up from 1Mi" {
		t.Errorf("history: %+v, %v", why.History, err)
	}
}

func TestMoreThanItsQueueMayEverHoldIsRefused(t *testing.T) {
	s := newSite(t, nil)
	ctx := context.Background()
	for _, queue := range []api.QueueSpec{{Name: "org", Quota: 500}, {Name: "team", Parent: "org", Quota: api.Unlimited}} {
		if _, err := s.SetQueue(ctx, me, queue); err != nil {
			t.Fatal(err)
		}
	}
	big := spec("0.6", "true")
	big.Name, big.Queue = "big", "team"
	_, err := s.Submit(ctx, me, big)
	refused(t, err, api.CodeInvalid, "workload big asks for 0.6 devices and queue org may never hold more than 0.5 devices")
	if all, err := s.Workloads(ctx, true); err != nil || len(all) != 0 {
		t.Errorf("something is left of it: %+v, %v", all, err)
	}
	// What a change of the quota made impossible waits, with that reason.
	first := spec("0.5", "sleep 1000")
	first.Name, first.Queue = "first", "team"
	s.submit(first)
	s.running("first")
	second := spec("0.5", "true")
	second.Name, second.Queue = "second", "team"
	s.submit(second)
	compute := api.Compute{Floor: 600, Ceiling: 600}
	_, err = s.Resize(ctx, me, "second", server.ShareChange{Compute: &compute})
	refused(t, err, api.CodeInvalid, "queue org may never hold more than 0.5 devices")
	if _, err := s.SetQueue(ctx, me, api.QueueSpec{Name: "org", Quota: 400}); err != nil {
		t.Fatal(err)
	}
	if why, err := s.Why(ctx, "second"); err != nil || why.Code != engine.WhyOverQuota {
		t.Errorf("why: %+v, %v", why, err)
	}
	// Smaller, if still too large, is always taken.
	compute = api.Compute{Floor: 450, Ceiling: 450}
	for _, name := range []string{"first", "second"} {
		if _, err := s.Resize(ctx, me, name, server.ShareChange{Compute: &compute}); err != nil {
			t.Errorf("%s gets smaller: %v", name, err)
		}
	}
}

func TestActionsAndGrantsAreNeverNamedTwice(t *testing.T) {
	s := newSite(t, nil)
	seen := map[string]bool{}
	last := engine.ActionID(0)
	for round := range 4 {
		var next, reserved engine.ActionID
		name := fmt.Sprintf("w-%d", round)
		one := spec("0.1", "sleep 1000")
		one.Name = name
		s.submit(one)
		for _, grant := range s.running(name).Status.Grants {
			if seen[grant.UID] {
				t.Errorf("grant %s exists twice", grant.UID)
			}
			seen[grant.UID] = true
		}
		if err := s.look(context.Background(), func() { next, reserved = s.engine.NextAction(), s.actions }); err != nil {
			t.Fatal(err)
		}
		if next <= last || next > reserved {
			t.Errorf("round %d: the next action is %d after %d, with IDs to %d set aside", round, next, last, reserved)
		}
		last = next
		s.restart()
	}
	if err := s.look(context.Background(), func() { // as if so many had been used
		s.engine = engine.New(engine.Config{FirstAction: s.actions - 10})
		last = s.actions
		s.journal.dirty = true
	}); err != nil {
		t.Fatal(err)
	}
	until.Polled(t, "more are set aside", func() bool {
		var reserved engine.ActionID
		err := s.look(context.Background(), func() { reserved = s.actions })
		return err == nil && reserved > last
	})
	s.restart()
	if err := s.look(context.Background(), func() {
		if s.engine.NextAction() <= last {
			t.Errorf("actions begin at %d again", s.engine.NextAction())
		}
	}); err != nil {
		t.Fatal(err)
	}
}

// TestCeilingOverAllDevices: a memory ceiling of more than any device has is refused, at submission and for one that runs; all that there is
// can be asked for, and what was there before stays.
func TestCeilingOverAllDevices(t *testing.T) {
	s := newSite(t, nil)
	ctx := context.Background()
	asked := spec("0.1", "exec sleep 1000")
	asked.Name = "one"
	memory := asked.Share.Memory
	over := api.Memory{Floor: memory.Floor, Ceiling: api.Amount{Bytes: 1 << 50}}
	asked.Share.Memory = over
	_, err := s.Submit(ctx, me, asked)
	refused(t, err, api.CodeInvalid, "write 1Gi.. for all that there is")
	asked.Share.Memory.Ceiling = api.Amount{Part: api.WholeDevice}
	s.submit(asked)
	before := s.running("one").Status.Grants
	_, err = s.Resize(ctx, me, "one", server.ShareChange{Memory: &over})
	refused(t, err, api.CodeInvalid, "no device that it may use has more than")
	if after := s.running("one").Status.Grants; !reflect.DeepEqual(after, before) {
		t.Errorf("it had %+v and has %+v", before, after)
	}
}
