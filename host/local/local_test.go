package local

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/node"
	"github.com/aliquot-dev/aliquot/server"
)

func TestWorkloadRunsAndItsEndIsKept(t *testing.T) {
	s := newSite(t, nil)
	asked := spec("0.25..0.80", `echo "$ALIQUOT_TASK $LD_LIBRARY_PATH $ALIQUOT_WORKLOAD"; exit 3`)
	asked.Name, asked.Env["LD_LIBRARY_PATH"] = "night", "/own"
	work := s.submit(asked)
	if work.Status.Phase != api.Waiting || work.UID == "" || work.User != "me" {
		t.Errorf("submitted as %+v", work)
	}
	work = s.ended("night")
	status := work.Status
	if status.Outcome != api.Failed || status.ExitCode == nil || *status.ExitCode != 3 || status.Started == nil || status.Ended == nil {
		t.Errorf("ended with %+v", status)
	}
	if len(status.Grants) != 1 || status.Grants[0].ComputeFloor != 250 || status.Grants[0].ComputeLimit != 800 || status.Grants[0].MemoryFloor != 1<<30 {
		t.Errorf("grants %+v", status.Grants)
	}
	if want := s.agent.page(work.UID) + " /shim:/own " + work.UID + "\n"; s.log("night") != want {
		t.Errorf("printed %q, want %q", s.log("night"), want)
	}
	why, err := s.Why(context.Background(), "night")
	if err != nil || why.Code != "failed" || len(why.History) < 4 {
		t.Errorf("why: %+v, %v", why, err)
	}
	if left := s.agent.Prepared(); len(left) != 0 {
		t.Errorf("still prepared: %+v", left)
	}
	if entries, _ := os.ReadDir(filepath.Join(s.State, "tasks")); len(entries) != 0 {
		t.Errorf("folders left: %v", entries)
	}
	s.restart()
	if again := s.ended("night"); again.UID != work.UID || again.Status.Outcome != api.Failed {
		t.Errorf("after a restart: %+v", again)
	}
}

func TestSecondWaitsInLineAndStartsWhenTheFirstEnds(t *testing.T) {
	s := newSite(t, nil)
	first, second := spec("1", "sleep 1000"), spec("1", "true")
	for i := range 2 {
		first.Name = fmt.Sprintf("first-%d", i)
		s.submit(first)
		s.running(first.Name)
	}
	second.Name = "second"
	s.submit(second)
	third := second
	third.Name = "third"
	s.submit(third)
	if work := s.wait("third"); work.Status.Phase != api.Waiting || work.Status.Place != 2 {
		t.Errorf("third: %+v", work.Status)
	}
	why, err := s.Why(context.Background(), "second")
	if err != nil || why.Place != 1 || why.Code != "no_room" || len(why.Counts) == 0 {
		t.Errorf("why: %+v, %v", why, err)
	}
	if why, err = s.Why(context.Background(), "third"); err != nil || len(why.Ahead) != 1 || why.Ahead[0] != "second" {
		t.Errorf("why third: %+v, %v", why, err)
	}
	if _, err := s.Stop(context.Background(), me, "first-0", 0); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"second", "third"} {
		if work := s.ended(name); work.Status.Outcome != api.Succeeded {
			t.Errorf("%s: %+v", name, work.Status)
		}
	}
	if work := s.ended("first-0"); work.Status.Outcome != api.Stopped || work.Status.Reason != "stopped by me" {
		t.Errorf("first: %+v", work.Status)
	}
}

func TestBadInputIsRefusedInOneSentenceAndChangesNothing(t *testing.T) {
	s := newSite(t, nil)
	running := spec("0.5", "sleep 1000")
	running.Name = "there"
	s.submit(running)
	for name, test := range map[string]struct {
		edit  func(*api.WorkloadSpec)
		code  string
		words string
	}{
		"unknown queue": {func(w *api.WorkloadSpec) { w.Queue = "nowhere" }, api.CodeNotFound, "no queue nowhere"},
		"more memory": {func(w *api.WorkloadSpec) {
			w.Share.Memory = api.Memory{Floor: api.Amount{Bytes: 1 << 40}, Ceiling: api.Amount{Bytes: 1 << 40}}
		}, api.CodeInvalid, "140Gi"},
		"more devices":     {func(w *api.WorkloadSpec) { w.Devices = 3 }, api.CodeInvalid, "the workload wants 3 devices"},
		"another model":    {func(w *api.WorkloadSpec) { w.Model = "B200" }, api.CodeInvalid, "B200"},
		"more capability":  {func(w *api.WorkloadSpec) { w.MinCapability = 100 }, api.CodeInvalid, "wants a device with compute capability 10.0, and none is known to have it"},
		"more bandwidth":   {func(w *api.WorkloadSpec) { w.MinBandwidth = 4801 }, api.CodeInvalid, "wants a device with 4801 GB/s of memory bandwidth"},
		"a latency class":  {func(w *api.WorkloadSpec) { w.MaxLatencyClass = 9 }, api.CodeInvalid, "wants a device with latency class 9 or a faster one, and none is known to have it"},
		"missing program":  {func(w *api.WorkloadSpec) { w.Command = []string{"./none"} }, api.CodeInvalid, "the program ./none cannot be run: no such file or directory; check its path, which is looked for from /"},
		"not in the path":  {func(w *api.WorkloadSpec) { w.Command = []string{"none"} }, api.CodeInvalid, "the program none cannot be run: it is in none of the"},
		"not executable":   {func(w *api.WorkloadSpec) { w.Command = []string{"/etc/passwd"} }, api.CodeInvalid, "the program /etc/passwd cannot be run: permission denied; `chmod +x /etc/passwd` lets it be run"},
		"a folder":         {func(w *api.WorkloadSpec) { w.Command = []string{"/etc"} }, api.CodeInvalid, "the program /etc cannot be run: is a directory"},
		"no such folder":   {func(w *api.WorkloadSpec) { w.Dir = "/no/where" }, api.CodeInvalid, "/no/where cannot be entered"},
		"name taken":       {func(w *api.WorkloadSpec) { w.Name = "there" }, api.CodeConflict, "named there"},
		"more cores":       {func(w *api.WorkloadSpec) { w.CPU = 9_999_000 }, api.CodeInvalid, "this machine has "},
		"more host memory": {func(w *api.WorkloadSpec) { w.Memory = 999 << 40 }, api.CodeInvalid, "999Ti of the machine's memory was asked for, and it has "},
		"floor over":       {func(w *api.WorkloadSpec) { w.Share.Compute.Ceiling = 100 }, api.CodeInvalid, "over the ceiling"},
	} {
		t.Run(name, func(t *testing.T) {
			asked := spec("0.5", "true")
			test.edit(&asked)
			_, err := s.Submit(context.Background(), me, asked)
			refused(t, err, test.code, test.words)
		})
	}
	if list, err := s.Workloads(context.Background(), true); err != nil || len(list) != 1 {
		t.Errorf("%d workloads, %v; want the one of before", len(list), err)
	}
}

func TestAnotherUsersWorkloadIsLeftAlone(t *testing.T) {
	s := newSite(t, nil)
	asked := spec("0.5", "sleep 1000")
	asked.Name = "mine"
	s.submit(asked)
	s.running("mine")
	ctx := context.Background()
	_, err := s.Stop(ctx, other, "mine", 0)
	refused(t, err, api.CodeForbidden, "belongs to me")
	_, err = s.Resize(ctx, other, "mine", server.ShareChange{})
	refused(t, err, api.CodeForbidden, "belongs to me")
	refused(t, s.Signal(ctx, other, "mine", syscall.SIGTERM), api.CodeForbidden, "belongs to me")
	refused(t, s.Logs(ctx, other, "mine", server.LogPart{}, io.Discard), api.CodeForbidden, "belongs to me")
	_, err = s.SetQueue(ctx, other, api.QueueSpec{Name: "q", Quota: 1})
	refused(t, err, api.CodeForbidden, "root")
	if s.wait("mine").Status.Phase != api.Running {
		t.Error("it was stopped")
	}
	_, err = s.Stop(ctx, me, "nobody", 0)
	refused(t, err, api.CodeNotFound, "no workload nobody")
}

func TestTimeLimit(t *testing.T) {
	s := newSite(t, nil)
	asked := spec("1", "sleep 1000")
	asked.TimeLimit = api.Duration(time.Millisecond)
	if status := s.ended(s.submit(asked).UID).Status; status.Outcome != api.TimedOut || status.Signal != "SIGTERM" || !strings.Contains(status.Reason, "time limit of 1ms") {
		t.Errorf("ended with %+v", status)
	}
}

func TestStopOfOneThatWaits(t *testing.T) {
	s := newSite(t, nil)
	for range 2 {
		s.submit(spec("1", "sleep 1000"))
	}
	work := s.submit(spec("1", "true"))
	stopped, err := s.Stop(context.Background(), me, work.UID, 0)
	if err != nil || stopped.Status.Phase != api.Ended || stopped.Status.Outcome != api.Stopped || stopped.Status.Started != nil {
		t.Errorf("stopped as %+v, %v", stopped.Status, err)
	}
	_, err = s.Stop(context.Background(), me, work.UID, 0)
	refused(t, err, api.CodeConflict, "has ended (stopped)")
}

func TestResizeInPlaceAndInLine(t *testing.T) {
	s := newSite(t, nil)
	asked := spec("0.5", "sleep 1000")
	asked.Name = "one"
	s.submit(asked)
	pid := s.running("one").Status.PID
	ctx := context.Background()
	compute := api.Compute{Floor: 250, Ceiling: 600}
	work, err := s.Resize(ctx, me, "one", server.ShareChange{Compute: &compute})
	if err != nil || work.Spec.Share.Compute != compute || work.Status.Grants[0].ComputeLimit != 600 || work.Status.PID != pid {
		t.Errorf("resized to %+v, %v", work, err)
	}
	if page := s.agent.Prepared()[0].Grants[0]; page.Floor != 250 || page.Ceiling != 600 {
		t.Errorf("its page says %+v", page)
	}
	huge := api.Memory{Floor: api.Amount{Bytes: 1 << 41}, Ceiling: api.Amount{Bytes: 1 << 41}}
	_, err = s.Resize(ctx, me, "one", server.ShareChange{Memory: &huge})
	refused(t, err, api.CodeInvalid, "140Gi")
	why, err := s.Why(ctx, "one")
	if want := "on device 0 (H200), with 0.25 of compute and 1Gi of memory as its own; up to 0.60 of compute while others leave it idle; up to 2Gi of memory while it is free"; err != nil || why.Message != want {
		t.Errorf("why it runs: %q, %v", why.Message, err)
	}
	for _, name := range []string{"two", "three"} {
		big := spec("1", "sleep 1000")
		big.Name = name
		s.submit(big)
	}
	small := api.Compute{Floor: 100, Ceiling: 100}
	if work, err = s.Resize(ctx, me, "three", server.ShareChange{Compute: &small}); err != nil || work.Spec.Share.Compute != small {
		t.Errorf("resized in line to %+v, %v", work.Spec.Share, err)
	}
	s.running("three") // it fits now
	most := api.Compute{Floor: 950, Ceiling: 950}
	_, err = s.Resize(ctx, me, "one", server.ShareChange{Compute: &most})
	refused(t, err, api.CodeConflict, "device 0 (H200, "+s.agent.Devices()[0].UUID+") has 0.65 free")
	s.restart()
	if work := s.wait("one"); work.Spec.Share.Compute != compute || work.Status.Grants[0].ComputeFloor != 250 {
		t.Errorf("after a restart %+v", work)
	}
}

func TestQueuesHoldAndAreKept(t *testing.T) {
	s := newSite(t, nil)
	ctx := context.Background()
	if _, err := s.SetQueue(ctx, me, api.QueueSpec{Name: "b", Quota: 500}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.SetQueue(ctx, me, api.QueueSpec{Name: "a", Parent: "b", Quota: api.Unlimited}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"one", "two"} {
		asked := spec("0.5", "sleep 1000")
		asked.Name, asked.Queue = name, "a"
		s.submit(asked)
	}
	s.running("one")
	check := func() {
		t.Helper()
		if why, err := s.Why(ctx, "two"); err != nil || why.Code != "quota" {
			t.Errorf("why: %+v, %v", why, err)
		}
		queues, err := s.Queues(ctx)
		if err != nil || len(queues) != 3 || queues[1].Held != 500 || queues[1].Running != 1 || queues[1].Waiting != 1 {
			t.Errorf("queues %+v, %v", queues, err)
		}
	}
	check()
	s.restart()
	check()
	refused(t, s.RemoveQueue(ctx, me, "a"), api.CodeConflict, "a")
	refused(t, s.RemoveQueue(ctx, me, "none"), api.CodeNotFound, "none")
	_, err := s.SetQueue(ctx, me, api.QueueSpec{Name: "b", Parent: "a", Quota: 1})
	refused(t, err, api.CodeInvalid, "b")
}

func TestLostDeviceEvictsAndSaysWhy(t *testing.T) {
	s := newSite(t, nil)
	asked := spec("1", "sleep 1000")
	asked.Name = "one"
	s.submit(asked)
	device := s.running("one").Status.Grants[0].Device
	s.agent.notices <- node.Notice{Kind: node.DeviceDown, Device: device, Message: "XID 79: it has fallen off the bus"}
	status := s.ended("one").Status
	if status.Outcome != api.Evicted || !strings.Contains(status.Reason, "XID 79") {
		t.Errorf("ended with %+v", status)
	}
	devices, err := s.Devices(context.Background())
	if err != nil || devices[status.Grants[0].DeviceIndex].Health != api.Down {
		t.Errorf("devices %+v, %v", devices, err)
	}
	info, err := s.Info(context.Background(), me)
	if err != nil || len(info.Warnings) != 1 || !strings.Contains(info.Warnings[0], "XID 79") {
		t.Errorf("info %+v, %v", info, err)
	}
	s.agent.notices <- node.Notice{Kind: node.DeviceBack, Device: device}
	asked.Devices = 2
	s.submit(asked)
	s.running("one")
}

func TestPrepareThatFailsIsTriedAgain(t *testing.T) {
	s := newSite(t, nil)
	s.agent.mu.Lock()
	s.agent.refuse = errors.New("the arbiter is away")
	s.agent.mu.Unlock()
	work := s.submit(spec("1", "true"))
	s.heard("the refusal is shown", func() bool {
		why, err := s.Why(context.Background(), work.UID)
		return err == nil && strings.Contains(why.Message, "the arbiter is away")
	})
	s.agent.mu.Lock()
	s.agent.refuse = nil
	s.agent.mu.Unlock()
	if status := s.ended(work.UID).Status; status.Outcome != api.Succeeded {
		t.Errorf("ended with %+v", status)
	}
}
