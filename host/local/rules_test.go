package local

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/host/local/cgroup"
)

const officeHours = `aliquot policy 1
zone Europe/Berlin
queue product limit=1
window night from=20:00 to=06:00
queue product limit=2
placement default
`

// A policy file holds on a server: its windows begin and end by the clock, queues are set beside it, and it is there after a restart.
func TestPolicyHolds(t *testing.T) {
	ctx := context.Background()
	var ahead atomic.Int64
	start := time.Now()
	noon := time.Date(2026, 11, 23, 11, 0, 0, 0, time.UTC) // 12:00 in Berlin
	clock := func() time.Time { return noon.Add(time.Since(start) + time.Duration(ahead.Load())) }
	s := newSite(t, func(config *Config) { config.Now = clock })
	limit := func() string {
		t.Helper()
		queues, err := s.Queues(ctx)
		if err != nil {
			t.Fatal(err)
		}
		for _, q := range queues {
			if q.Name == "product" {
				if q.Limit.Compute == nil {
					return "not set"
				}
				return q.Limit.Compute.String()
			}
		}
		return "no queue"
	}
	set, err := s.SetPolicy(ctx, me, api.Policy{Name: "office", Text: officeHours})
	if err != nil || set.Window != "" || set.Until == nil || !set.Until.Equal(time.Date(2026, 11, 23, 19, 0, 0, 0, time.UTC)) {
		t.Fatalf("%+v %v", set, err)
	}
	one := func(name string) api.WorkloadSpec {
		w := spec("1", "sleep 1000")
		w.Name, w.Queue, w.Preemptible = name, "product", true
		return w
	}
	s.running(s.submit(one("first")).UID)
	second := s.submit(one("second"))
	if why, err := s.Why(ctx, second.UID); err != nil || why.Code != "quota" {
		t.Errorf("it waits for %+v (%v)", why, err)
	}
	ahead.Store(int64(8 * time.Hour))
	if got := limit(); got != "2" { // any request finds the night begun
		t.Errorf("at night the limit is %s", got)
	}
	s.running(second.UID)
	s.restart()
	if got := limit(); got != "2" {
		t.Errorf("after a restart the limit is %s", got)
	}
	_, err = s.SetQueue(ctx, me, api.QueueSpec{Name: "product", Quota: api.Unlimited, Limit: api.QueueAmounts{Compute: new(api.Quota(3000))}})
	refused(t, err, api.CodeConflict, "limit of queue product is what the policy says, 2")
	if _, err := s.SetQueue(ctx, me, api.QueueSpec{Name: "product", Quota: 500, Limit: api.QueueAmounts{Compute: new(api.Quota(2000))}}); err != nil {
		t.Error(err)
	}
	_, err = s.SetQueue(ctx, me, api.QueueSpec{Name: "product", Quota: 1500, Limit: api.QueueAmounts{Compute: new(api.Quota(2000))}})
	refused(t, err, api.CodeConflict, "office:3: queue product: its quota of 1.5 devices is over its limit of 1 device")
	refused(t, s.RemoveQueue(ctx, me, "product"), api.CodeConflict, "named in the policy office")
	_, err = s.SetPolicy(ctx, me, api.Policy{Name: "wrong", Text: strings.Replace(officeHours, "limit=2", "limit=0.25", 1)})
	refused(t, err, api.CodeInvalid, "wrong:5: in window night queue product: its quota of 0.5 devices is over its limit")
	ahead.Store(int64(19 * time.Hour))
	if got := limit(); got != "1" {
		t.Errorf("by day the limit is %s", got)
	}
	if err := s.RemovePolicy(ctx, me); err != nil {
		t.Fatal(err)
	}
	if got := limit(); got != "not set" {
		t.Errorf("without the policy the limit is %s", got)
	}
	refused(t, s.RemovePolicy(ctx, me), api.CodeNotFound, "no policy is set")
	s.restart()
	if now, err := s.Policy(ctx); err != nil || now.Name != "" || limit() != "not set" {
		t.Errorf("after a restart the policy is %+v, the limit %s (%v)", now, limit(), err)
	}
}

// Work that fits in another window is told which it waits for and from when, also by a plan, and by what queues are by then.
func TestWhyNamesTheWindow(t *testing.T) {
	ctx := context.Background()
	start := time.Now()
	noon := time.Date(2026, 11, 23, 11, 0, 0, 0, time.UTC) // Monday, 12:00 in Berlin
	s := newSite(t, func(config *Config) { config.Now = func() time.Time { return noon.Add(time.Since(start)) } })
	const text = "aliquot policy 1\nzone Europe/Berlin\nqueue product limit=0.5\nwindow eve days=mon-thu from=18:00 to=20:00\nqueue product limit=0.75\n" +
		"window night days=tue-thu from=20:00 to=06:00\nqueue product limit=2\n"
	if _, err := s.SetPolicy(ctx, me, api.Policy{Name: "office", Text: text}); err != nil {
		t.Fatal(err)
	}
	one := spec("1", "sleep 1000")
	one.Queue, one.Preemptible = "product", true
	taken := s.submit(one)
	plan, err := s.Plan(ctx, me, one)
	if err != nil {
		t.Fatal(err)
	}
	why, err := s.Why(ctx, taken.UID)
	message := "it asks for 1 device and queue product may hold no more than 0.5 now; it fits in window night of the policy, next from Tue 24 Nov 2026 20:00 CET"
	unblock := "window night of the policy, from Tue 24 Nov 2026 20:00 CET; until then a larger limit for queue product"
	for said, of := range map[string]string{why.Message: why.Unblock, plan.Message: plan.Unblock} {
		if err != nil || said != message || !strings.HasPrefix(of, unblock) {
			t.Errorf("told %q, %q (%v)", said, of, err)
		}
	}
	// Under one that never holds more, no window is of use any more.
	if _, err := s.SetQueue(ctx, me, api.QueueSpec{Name: "org", Quota: api.Unlimited, Limit: api.QueueAmounts{Compute: new(api.Quota(600))}}); err != nil {
		t.Fatal(err)
	}
	product := api.QueueSpec{Name: "product", Parent: "org", Quota: api.Unlimited, Limit: api.QueueAmounts{Compute: new(api.Quota(500))}}
	if _, err := s.SetQueue(ctx, me, product); err != nil {
		t.Fatal(err)
	}
	if why, err := s.Why(ctx, taken.UID); err != nil || strings.Contains(why.Message, "window") {
		t.Errorf("told %+v (%v)", why, err)
	}
	_, err = s.Submit(ctx, me, one)
	refused(t, err, api.CodeInvalid, "may never hold more than 0.")
}

// A policy names a model by a part of its name, and one that no device has is refused; one that is gone after a restart is a warning, and the
// rest holds.
func TestPolicyNamesModels(t *testing.T) {
	ctx := context.Background()
	s := newSite(t, func(config *Config) {
		for i := range config.Agent.(*fakeAgent).devices {
			config.Agent.(*fakeAgent).devices[i].Model = "NVIDIA B300"
		}
	})
	_, err := s.SetPolicy(ctx, me, api.Policy{Name: "office", Text: "aliquot policy 1\nqueue team limit@A10=1\n"})
	refused(t, err, api.CodeInvalid, "office:2: no device is of model A10: name one of those there are (NVIDIA B300), or leave the word out")
	if _, err := s.SetPolicy(ctx, me, api.Policy{Name: "office", Text: "aliquot policy 1\nqueue team limit=2 limit@b300=1\n"}); err != nil {
		t.Fatal(err)
	}
	one := spec("1", "sleep 1000")
	one.Queue, one.Preemptible = "team", true
	s.running(s.submit(one).UID)
	second := s.submit(one)
	if why, err := s.Why(ctx, second.UID); err != nil || why.Code != "quota" || !strings.Contains(why.Message, "NVIDIA B300") {
		t.Errorf("it waits for %+v (%v)", why, err)
	}
	s.edit = nil
	s.restart()
	now, err := s.Policy(ctx)
	if err != nil || now.Name != "office" || !strings.Contains(now.Warning, "office:2: no device is of model b300") {
		t.Errorf("after its model went the policy is %+v (%v)", now, err)
	}
	if queues, err := s.Queues(ctx); err != nil || queues[len(queues)-1].Limit.Compute.String() != "2" {
		t.Errorf("and the queues are %+v (%v)", queues, err)
	}
}

// A pool that no device is in is a warning, told when the policy is set and for as long as it holds.
func TestPoolsWithoutDevices(t *testing.T) {
	ctx := context.Background()
	s := newSite(t, nil)
	for text, want := range map[string]string{
		"pool a devices=0 classes=training": "",
		"pool a nodes=gpu9 classes=batch":   "the policy holds, but something in it is wrong: office:2: pool a has no device: no device is on node gpu9 (there are " + s.name + "); it has none until one comes",
	} {
		set, err := s.SetPolicy(ctx, me, api.Policy{Name: "office", Text: "aliquot policy 1\n" + text + "\n"})
		if err != nil || set.Warning != want {
			t.Errorf("%s is told %q (%v), want %q", text, set.Warning, err, want)
		}
		s.restart()
		if now, err := s.Policy(ctx); err != nil || now.Warning != want {
			t.Errorf("%s, after a restart, is told %q (%v), want %q", text, now.Warning, err, want)
		}
	}
}

// What holds is held to no new rule when a server starts again: windows that overlap by then are a warning, and the first of them holds. A policy
// that cannot be read stops no server.
func TestPolicyHoldsAgain(t *testing.T) {
	ctx := context.Background()
	s := newSite(t, nil)
	restartWith := func(kept string) api.Policy {
		t.Helper()
		if err := s.request(ctx, func() error { s.set(map[string]string{policySetting: kept}); return nil }); err != nil {
			t.Fatal(err)
		}
		s.restart()
		now, err := s.Policy(ctx)
		if err != nil {
			t.Fatal(err)
		}
		return now
	}
	now := restartWith(`{"name":"office","text":"aliquot policy 1\nqueue team limit=1\nwindow all days=mon-sun\nqueue team limit=2\nwindow sat days=sat\nqueue team limit=3\n"}`)
	if now.Window != "all" || !strings.Contains(now.Warning, "office:5: window sat overlaps window all of line 3") {
		t.Errorf("after a restart the policy is %+v", now)
	}
	if queues, err := s.Queues(ctx); err != nil || queues[len(queues)-1].Limit.Compute.String() != "2" {
		t.Errorf("and the queues are %+v (%v)", queues, err)
	}
	if now = restartWith(`{"name":"office","text":"aliquot policy 1\nqueue team limit=1\nplacement whole=0\n"}`); now.Name != "office" || !strings.Contains(now.Warning, "office:3: no feature of the placement counts") {
		t.Errorf("with a placement in which nothing counts it is %+v", now)
	}
	if now = restartWith("{"); now.Name != "" || !strings.HasPrefix(now.Warning, "the policy that was set cannot be read: ") {
		t.Errorf("without one that can be read it is %+v", now)
	}
}

// A queue that another is under when no policy holds is not removed, even while the policy has that one elsewhere.
func TestPolicyKeepsParents(t *testing.T) {
	ctx := context.Background()
	s := newSite(t, nil)
	for _, q := range []api.QueueSpec{{Name: "org", Quota: api.Unlimited}, {Name: "team", Parent: "org", Quota: api.Unlimited}} {
		if _, err := s.SetQueue(ctx, me, q); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.SetPolicy(ctx, me, api.Policy{Name: "apart", Text: "aliquot policy 1\nqueue team parent=none\n"}); err != nil {
		t.Fatal(err)
	}
	refused(t, s.RemoveQueue(ctx, me, "org"), api.CodeConflict, "cannot be removed while team is under it, be it only when no policy holds")
}

// Work gets the time limit of its queue or of one above, is told so, and ends by it; it cannot ask for more.
func TestLongestRun(t *testing.T) {
	ctx := context.Background()
	s := newSite(t, nil)
	for _, q := range []api.QueueSpec{
		{Name: "org", Quota: api.Unlimited, LongestRun: api.Duration(200 * time.Millisecond)},
		{Name: "team", Parent: "org", Quota: api.Unlimited, LongestRun: api.Duration(time.Hour)},
	} {
		if _, err := s.SetQueue(ctx, me, q); err != nil {
			t.Fatal(err)
		}
	}
	w := spec("1", "sleep 1000")
	w.Queue = "team"
	status := s.ended(s.submit(w).UID).Status
	if status.Outcome != api.TimedOut || len(status.Notes) == 0 || !strings.Contains(status.Notes[0], "queue org lets work run for 200ms at most") {
		t.Errorf("ended with %+v", status)
	}
	// By the shortest of both it ends, and that alone is said, beside what else there is to say; a plan says the same.
	w.Queue, w.CPU, s.groups = "short", 500, new(cgroup.Tree)
	if _, err := s.SetQueue(ctx, me, api.QueueSpec{Name: "short", Parent: "team", Quota: api.Unlimited, LongestRun: api.Duration(2 * time.Hour)}); err != nil {
		t.Fatal(err)
	}
	plan, err := s.Plan(ctx, me, w)
	for _, notes := range [][]string{s.submit(w).Status.Notes, plan.Notes} {
		if len(notes) != 2 || !strings.HasPrefix(notes[0], "--cpu 0.50 is not held") || !strings.HasPrefix(notes[1], "queue org lets work run for 200ms") {
			t.Errorf("told %q (%v)", notes, err)
		}
	}
	w.Queue, w.TimeLimit = "team", api.Duration(30*time.Minute)
	_, err = s.Submit(ctx, me, w)
	refused(t, err, api.CodeInvalid, "a time limit of 30m was asked for, and work in queue org may run for 200ms at most")
	_, err = s.SetQueue(ctx, me, api.QueueSpec{Name: "org", Quota: api.Unlimited, LongestRun: 1})
	refused(t, err, api.CodeInvalid, "no time to run")
}

// Work runs for the min-run of its queue before it is evicted for others, who are told until when; when that is over, here by a change of the queue, it goes.
func TestMinRun(t *testing.T) {
	ctx := context.Background()
	s := newSite(t, nil)
	oneDevice(s)
	for _, q := range []api.QueueSpec{{Name: "owner", Quota: 1000}, {Name: "guest", Quota: api.Unlimited, MinRun: api.Duration(time.Hour)}} {
		if _, err := s.SetQueue(ctx, me, q); err != nil {
			t.Fatal(err)
		}
	}
	guest, owner := spec("1", "sleep 1000"), spec("1", "sleep 1000")
	guest.Name, guest.Queue, guest.Preemptible = "guest", "guest", true
	owner.Name, owner.Queue = "owner", "owner"
	s.submit(guest)
	first := s.running("guest").Status.Started
	s.submit(owner)
	why, err := s.Why(ctx, "owner")
	if err != nil || why.Start == nil || why.Start.Latest == nil || why.Start.Latest.Before(first.Add(time.Hour-time.Second)) {
		t.Fatalf("the other started at %v, and of this one is said %+v, %v", first, why, err)
	}
	if want := "evicted for it is not yet, by the min-run or disruptions of its queue, the first of it until " + moment(*why.Start.Latest); !strings.HasSuffix(why.Unblock, want) {
		t.Errorf("%q does not end with %q", why.Unblock, want)
	}
	if _, err := s.SetQueue(ctx, me, api.QueueSpec{Name: "guest", Quota: api.Unlimited}); err != nil {
		t.Fatal(err)
	}
	s.running("owner")
	if status := s.ended(guest.Name).Status; status.Outcome != api.Evicted {
		t.Errorf("the guest ended as %+v", status)
	}
	_, err = s.SetQueue(ctx, me, api.QueueSpec{Name: "guest", Quota: api.Unlimited, MinRun: -1})
	refused(t, err, api.CodeInvalid, "less than nothing")
}

// TestDisruptions: what was evicted for others as often as its queue says, and came again, is not evicted until that was so long ago, also by another server.
func TestDisruptions(t *testing.T) {
	ctx := context.Background()
	ahead := new(atomic.Int64)
	s := newSite(t, func(config *Config) { // supervisors tell the time of starts by the true clock
		config.Now = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
	})
	oneDevice(s)
	for _, q := range []api.QueueSpec{
		{Name: "owner", Quota: 1000}, {Name: "guest", Quota: api.Unlimited, Disruptions: api.DisruptionBudget{Most: 1, Per: api.Duration(24 * time.Hour)}},
	} {
		if _, err := s.SetQueue(ctx, me, q); err != nil {
			t.Fatal(err)
		}
	}
	guest, owner := spec("1", "sleep 1000"), spec("1", "sleep 1000")
	guest.Name, guest.Queue, guest.Preemptible, guest.Requeue = "guest", "guest", true, true
	owner.Name, owner.Queue = "owner", "owner"
	s.submit(guest)
	s.running("guest")
	s.submit(owner)
	s.running("owner")
	ahead.Add(int64(time.Hour))
	if _, err := s.Stop(ctx, me, "owner", 0); err != nil {
		t.Fatal(err)
	}
	s.ended("owner")
	s.running("guest")
	s.restart()
	owner.Name = "again"
	s.submit(owner)
	why, err := s.Why(ctx, "again")
	if want := "by the min-run or disruptions of its queue, the first of it until "; err != nil || why.Phase != api.Waiting || !strings.Contains(why.Unblock, want) {
		t.Fatalf("it is %+v, %v", why, err)
	}
	ahead.Add(int64(23 * time.Hour))
	s.line()
	s.running("again")
	if again, err := s.Workload(ctx, "guest"); err != nil || again.Status.Phase != api.Waiting || again.Status.Requeued != 2 {
		t.Errorf("the guest is %+v, %v", again.Status, err)
	}
}

// That a window could not begin is told as long as it lasts, and no longer.
func TestWindowThatCannotBegin(t *testing.T) {
	ctx := context.Background()
	var ahead atomic.Int64
	start := time.Now()
	noon := time.Date(2026, 11, 23, 11, 0, 0, 0, time.UTC)
	s := newSite(t, func(config *Config) {
		config.Now = func() time.Time { return noon.Add(time.Since(start) + time.Duration(ahead.Load())) }
	})
	const text = "aliquot policy 1\nqueue product quota=2\nwindow night from=20:00 to=06:00\nqueue product quota=1\n"
	if _, err := s.SetPolicy(ctx, me, api.Policy{Name: "office", Text: text}); err != nil {
		t.Fatal(err)
	}
	if err := s.request(ctx, func() error { // what no check lets in: a queue that has more than the one above it at night
		s.ruling.set(with(s.ruling.own, api.QueueSpec{Name: "child", Parent: "product", Quota: 2000}))
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	for _, at := range []struct {
		hours int
		warns bool
	}{{10, true}, {19, false}, {32, false}, {34, true}} {
		ahead.Store(int64(time.Duration(at.hours) * time.Hour))
		if _, err := s.Submit(ctx, me, spec("0.01", "exit 0")); err != nil {
			t.Error(err)
		}
		if now, err := s.Policy(ctx); err != nil || (now.Warning != "") != at.warns || now.Window != "" {
			t.Errorf("after %d hours: %+v (%v)", at.hours, now, err)
		}
	}
}

// A window that is to begin begins by itself, without anybody asking.
func TestWindowBeginsByItself(t *testing.T) {
	ctx := context.Background()
	start := time.Now()
	before := time.Date(2026, 11, 23, 18, 59, 59, 0, time.UTC) // a second before 20:00 in Berlin
	s := newSite(t, func(config *Config) {
		config.Now = func() time.Time { return before.Add(time.Since(start)) }
	})
	if _, err := s.SetPolicy(ctx, me, api.Policy{Name: "office", Text: officeHours}); err != nil {
		t.Fatal(err)
	}
	w := spec("1", "exit 0")
	w.Queue, w.Devices, w.Preemptible = "product", 2, true
	if status := s.ended(s.submit(w).UID).Status; status.Outcome != api.Succeeded {
		t.Errorf("ended with %+v", status)
	}
}
