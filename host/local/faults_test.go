package local

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/node"
)

// history is what is kept of a workload, in one text.
func (s *site) history(name string) string {
	s.Helper()
	why, err := s.Why(context.Background(), name)
	if err != nil {
		s.Fatal(err)
	}
	var text strings.Builder
	for _, record := range why.History {
		text.WriteString(record.Message + "\n")
	}
	return text.String()
}

// TestEvasionIsOverWhenTheNodeSaysSo: a share is shown as evaded, with a note, for as long as it is.
func TestEvasionIsOverWhenTheNodeSaysSo(t *testing.T) {
	s := newSite(t, nil)
	asked := spec("1", "sleep 1000")
	asked.Name = "one"
	uid := s.submit(asked).UID
	s.running("one")
	enforced := func() bool {
		devices, err := s.Devices(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		return devices[s.wait("one").Status.Grants[0].DeviceIndex].Grants[0].Enforced
	}
	if !enforced() {
		t.Error("evaded from the start")
	}
	const message = "Process 7 computes past the shim."
	s.agent.notices <- node.Notice{Kind: node.Unenforced, Task: uid, Message: message}
	s.heard("it is shown", func() bool { return !enforced() })
	s.restart() // the process may have ended meanwhile: until the node says so, it counts as there
	if enforced() {
		t.Error("the restart forgot it")
	}
	s.agent.notices <- node.Notice{Kind: node.Unenforced, Task: uid, Message: message} // told of again, it is noted once
	if notes := s.wait("one").Status.Notes; len(notes) != 1 || notes[0] != message {
		t.Errorf("notes %q", notes)
	}
	s.agent.notices <- node.Notice{Kind: node.Enforced, Task: uid}
	s.heard("it is over", enforced)
	if notes := s.wait("one").Status.Notes; len(notes) != 0 {
		t.Errorf("notes %q of what is over", notes)
	}
	if history := s.history("one"); !strings.Contains(history, message) || !strings.Contains(history, "held to its share again") {
		t.Errorf("history:\n%s", history)
	}
}

// TestStoppedProcessesAreTold: a workload is told in its notes and its history that processes of it were ended because they went around its
// share, in one note however many, and it fails with that for its reason.
func TestStoppedProcessesAreTold(t *testing.T) {
	s := newSite(t, nil)
	gate := filepath.Join(s.root, "gate")
	if err := syscall.Mkfifo(gate, 0o600); err != nil {
		t.Fatal(err)
	}
	asked := spec("1", "read x < "+gate+"; exit 1")
	asked.Name = "one"
	uid := s.submit(asked).UID
	s.running("one")
	const last = 3 * mostTold
	for i := 1; i <= last; i++ {
		s.agent.notices <- node.Notice{Kind: node.Unenforced, Task: uid, Message: fmt.Sprintf("Process %d computes past the shim.", i)}
		s.agent.notices <- node.Notice{Kind: node.Stopped, Task: uid, Message: fmt.Sprintf("Process %d is ended.", i)}
	}
	want := fmt.Sprintf("%d processes of it were ended because they used devices around its share. The last: Process %d is ended.", last, last)
	s.heard("all are told", func() bool { return slices.Contains(s.wait("one").Status.Notes, want) })
	s.restart()
	if notes := s.wait("one").Status.Notes; len(notes) != mostTold+1 || !slices.Contains(notes, want) || slices.Contains(notes, "Process 1 computes past the shim.") {
		t.Errorf("notes %q", notes)
	}
	s.agent.notices <- node.Notice{Kind: node.Enforced, Task: uid}
	s.heard("what is over is forgotten", func() bool { return len(s.wait("one").Status.Notes) == 1 })
	if history := s.history("one"); !strings.Contains(history, "\nProcess 1 is ended.") || strings.Count(history, "ended because") != mostTold {
		t.Errorf("history:\n%s", history)
	}
	if err := os.WriteFile(gate, []byte("\n"), 0); err != nil {
		t.Fatal(err)
	}
	if status := s.ended("one").Status; status.Outcome != api.Failed || status.Reason != want {
		t.Errorf("ended with %+v", status)
	}
}

// TestDoubtsAreInTheHistory: what a workload is doubted for, and that its programs know more of the driver than the shim, is kept.
func TestDoubtsAreInTheHistory(t *testing.T) {
	s := newSite(t, nil)
	asked := spec("1", "sleep 1000")
	asked.Name = "one"
	uid := s.submit(asked).UID
	s.running("one")
	s.agent.notices <- node.Notice{Kind: node.Doubted, Task: uid, Message: "It was busy for longer."}
	s.agent.notices <- node.Notice{Kind: node.UnknownCalls, Task: uid, Message: "It knows more."}
	s.heard("both are kept", func() bool {
		history := s.history("one")
		return strings.Contains(history, "It was busy for longer.") && strings.Contains(history, "It knows more.")
	})
}

// TestFaultsAreToldToWorkloads: those on the device, and those that have just failed of it, before anybody knew why.
func TestFaultsAreToldToWorkloads(t *testing.T) {
	at := time.Now() // and it stays so: what has failed has just failed
	s := newSite(t, func(config *Config) { config.Now = func() time.Time { return at } })
	gate := filepath.Join(s.root, "gate")
	if err := syscall.Mkfifo(gate, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, shell := range map[string]string{"fails": "read x < " + gate + "; exit 1", "stays": "sleep 1000"} {
		asked := spec("0.5", shell)
		asked.Name = name
		s.submit(asked)
		s.running(name)
	}
	elsewhere := spec("1", "sleep 1000")
	elsewhere.Name = "elsewhere"
	s.submit(elsewhere)
	device := s.running("stays").Status.Grants[0].Device
	if s.running("elsewhere").Status.Grants[0].Device == device || s.running("fails").Status.Grants[0].Device != device {
		t.Fatal("they are not where this test needs them")
	}

	s.agent.notices <- node.Notice{Kind: node.DeviceFault, Device: device, Message: "A program failed.", Reason: "XID 13: a kernel failed"}
	s.heard("the fault is told", func() bool { return strings.Contains(s.history("stays"), "device 0 (H200): XID 13: a kernel failed") })
	if work := s.running("stays"); work.Status.Reason != "" || len(work.Status.Notes) != 0 {
		t.Errorf("another program's fault changes %+v", work.Status)
	}

	if err := os.WriteFile(gate, []byte("\n"), 0); err != nil {
		t.Fatal(err)
	}
	if status := s.ended("fails").Status; status.Outcome != api.Failed || status.Reason != "" {
		t.Errorf("ended with %+v", status)
	}
	s.agent.notices <- node.Notice{Kind: node.DeviceDown, Device: device, Message: "Device GPU-0 is down: it is gone.", Reason: "it is gone"}
	s.heard("it is told why it failed", func() bool { return s.ended("fails").Status.Reason == "device 0 (H200): it is gone" })
	status := s.ended("stays").Status
	if want := "device 0 (H200, GPU-0) is down: it is gone"; status.Outcome != api.Evicted || status.Reason != want {
		t.Errorf("ended with %+v, want %q", status, want)
	}
	if history := s.history("elsewhere"); strings.Contains(history, "device 0") {
		t.Errorf("of another device's fault it is told:\n%s", history)
	}
	s.restart()
	if status := s.ended("fails").Status; status.Reason != "device 0 (H200): it is gone" {
		t.Errorf("after a restart: %+v", status)
	}
}

// TestFatalFaultsAreSaidFirst: what runs on a device that is drained for a fatal fault is told so before anything else, and what fails
// there later has it for its reason; what does not fail has not.
func TestFatalFaultsAreSaidFirst(t *testing.T) {
	s := newSite(t, nil)
	for _, name := range []string{"fails", "succeeds"} {
		asked := spec("0.5", "read x < "+filepath.Join(s.root, name)+"; exit $x")
		asked.Name = name
		if err := syscall.Mkfifo(filepath.Join(s.root, name), 0o600); err != nil {
			t.Fatal(err)
		}
		s.submit(asked)
	}
	device := s.running("fails").Status.Grants[0].Device
	if s.running("succeeds").Status.Grants[0].Device != device {
		t.Fatal("they are not where this test needs them")
	}
	ctx := context.Background()
	why := func(name string) api.Why {
		why, err := s.Why(ctx, name)
		if err != nil {
			t.Fatal(err)
		}
		return why
	}
	if calm := why("fails"); !strings.HasPrefix(calm.Message, "on device 0 (H200), with ") {
		t.Errorf("before the fault: %q", calm.Message)
	}
	s.agent.notices <- node.Notice{Kind: node.DeviceSick, Device: device, Message: "It is sick.", Reason: "XID 48: memory is broken"}
	const reason = "device 0 (H200) is draining: XID 48: memory is broken"
	s.heard("it is told", func() bool { return strings.HasPrefix(why("fails").Message, reason+"; on device 0 (H200), with ") })
	list, err := s.Workloads(ctx, false)
	if err != nil || len(list) != 2 || list[0].Status.Reason != reason || list[1].Status.Reason != reason {
		t.Errorf("listed as %+v, %v", list, err)
	}
	for name, code := range map[string]string{"fails": "1\n", "succeeds": "0\n"} {
		if err := os.WriteFile(filepath.Join(s.root, name), []byte(code), 0); err != nil {
			t.Fatal(err)
		}
	}
	if status := s.ended("fails").Status; status.Outcome != api.Failed || status.Reason != reason {
		t.Errorf("ended with %+v", status)
	}
	if got := why("fails").Message; got != "failed with status 1: "+reason {
		t.Errorf("after its end: %q", got)
	}
	if status := s.ended("succeeds").Status; status.Outcome != api.Succeeded || status.Reason != "" {
		t.Errorf("ended with %+v", status)
	}
}

// TestStalledWorkIsNamed: a device that is sick of a workload's work says so by its name, with what to do; who fails there has failed of
// something else; and where the node says that it is to be ended, it is, for good.
func TestStalledWorkIsNamed(t *testing.T) {
	s := newSite(t, nil)
	gate := filepath.Join(s.root, "gate")
	if err := syscall.Mkfifo(gate, 0o600); err != nil {
		t.Fatal(err)
	}
	early := spec("0.5", "exit 1")
	early.Name = "early"
	s.submit(early)
	s.ended("early")
	hog, beside := spec("0.5", "exec sleep 1000"), spec("0.5", "read x < "+gate+"; exit 1")
	hog.Name, hog.Requeue, beside.Name = "hog", true, "beside"
	s.submit(hog)
	s.submit(beside)
	running := s.running("hog")
	s.running("beside")
	device, uid := running.Status.Grants[0].Device, running.UID
	s.agent.notices <- node.Notice{Kind: node.DeviceSick, Stall: true, Device: device, Task: uid, Reason: "it is sick: work of task " + uid + " (process 77) has not ended"}
	const reason = "it is sick: work of hog (process 77) has not ended; stop it with `aliquot stop hog`"
	s.heard("the device says whose work it is", func() bool {
		devices, err := s.Devices(context.Background())
		return err == nil && devices[0].Health == api.Draining && devices[0].HealthReason == reason
	})
	if err := os.WriteFile(gate, []byte("\n"), 0); err != nil {
		t.Fatal(err)
	}
	s.ended("beside")
	if history := s.history("beside"); !strings.Contains(history, reason) {
		t.Errorf("who runs beside it is not told:\n%s", history)
	}
	const several = "it is sick: work of several tasks has not ended"
	s.agent.notices <- node.Notice{Kind: node.DeviceSick, Stall: true, Device: device, Reason: several}
	s.heard("the device says that it is several's", func() bool {
		devices, err := s.Devices(context.Background())
		return err == nil && devices[0].HealthReason == several
	})
	if status := s.ended("early").Status; status.Outcome != api.Failed || status.Reason != "" {
		t.Errorf("who had failed before ended with %+v", status)
	}
	s.agent.notices <- node.Notice{Kind: node.Stalled, Device: device, Task: uid, Message: "Task " + uid + " is to be ended.", Reason: "it does not end"}
	if status := s.ended("hog").Status; status.Outcome != api.Stopped || status.Reason != "stopped by the server: it does not end" {
		t.Errorf("ended with %+v", status)
	}
	s.agent.notices <- node.Notice{Kind: node.DeviceBack, Device: device}
	s.heard("the device is well", func() bool {
		devices, err := s.Devices(context.Background())
		return err == nil && devices[0].Health == api.Healthy && devices[0].HealthReason == ""
	})
}

// TestNoWorkloadIsMissedInAList: one that ends while everything is listed is listed once, as live or as ended.
func TestNoWorkloadIsMissedInAList(t *testing.T) {
	s := newSite(t, nil)
	ctx := context.Background()
	for range 30 {
		uid := s.submit(spec("1", "true")).UID
		for over := false; !over; {
			list, err := s.Workloads(ctx, true)
			if err != nil {
				t.Fatal(err)
			}
			times := 0
			for _, work := range list {
				if work.UID == uid {
					times++
					over = work.Status.Phase == api.Ended
				}
			}
			if times != 1 {
				t.Fatalf("it is listed %d times of %d", times, len(list))
			}
		}
	}
}

// TestWaitingForADeviceThatIsDown: work that waits because devices are out of service is told so, not to ask for less.
func TestWaitingForADeviceThatIsDown(t *testing.T) {
	s := newSite(t, nil)
	asked := spec("0.5", "true")
	asked.Name, asked.Devices = "two", 2
	why := func(want ...string) {
		t.Helper()
		s.heard(strings.Join(want, ", "), func() bool {
			why, err := s.Why(context.Background(), "two")
			if err != nil {
				t.Fatal(err)
			}
			missing := func(text string) bool { return !strings.Contains(why.Message, text) }
			return !slices.ContainsFunc(want, missing) && why.Unblock == "a device that takes work again: see `aliquot devices`"
		})
	}
	s.agent.notices <- node.Notice{Kind: node.DeviceDown, Device: "GPU-1", Reason: "it is gone"}
	s.heard("device 1 is down", func() bool {
		devices, err := s.Devices(context.Background())
		return err == nil && devices[1].Health == api.Down && devices[1].ComputeFree == 0 && devices[1].MemoryFree == 0 && devices[0].ComputeFree == api.WholeDevice
	})
	s.submit(asked)
	why("device 1 (H200) is down: it is gone; and nothing that may be used now could hold 2 devices")
	s.agent.notices <- node.Notice{Kind: node.DeviceDown, Device: "GPU-0", Reason: "it is gone"}
	why("devices 0 and 1 are down: it is gone")
	s.agent.notices <- node.Notice{Kind: node.DeviceBack, Device: "GPU-0"}
	s.agent.notices <- node.Notice{Kind: node.DeviceBack, Device: "GPU-1"}
	if work := s.ended("two"); work.Status.Outcome != api.Succeeded {
		t.Errorf("ended with %+v", work.Status)
	}
}

// TestFailedBeforeItWasEvicted: one that fails of what it is being evicted for, before the order reaches it, says why.
func TestFailedBeforeItWasEvicted(t *testing.T) {
	s := newSite(t, nil)
	gate := filepath.Join(s.root, "gate")
	if err := syscall.Mkfifo(gate, 0o600); err != nil {
		t.Fatal(err)
	}
	asked := spec("0.5", "read x < "+gate+"; exit 1")
	asked.Name = "fails"
	uid := s.submit(asked).UID
	s.running("fails")
	s.tell(func() { s.work[uid].keep.Stop = &order{Outcome: api.Evicted, Reason: "device 0 is down"} })
	if err := os.WriteFile(gate, []byte("\n"), 0); err != nil {
		t.Fatal(err)
	}
	if status := s.ended("fails").Status; status.Outcome != api.Failed || status.Reason != "device 0 is down" || *status.ExitCode != 1 {
		t.Errorf("ended with %+v", status)
	}
}

func TestSentence(t *testing.T) {
	code := 3
	for want, status := range map[string]api.WorkloadStatus{
		"ended: succeeded":                          {Outcome: api.Succeeded},
		"ended: failed with status 3: it is gone":   {Outcome: api.Failed, ExitCode: &code, Reason: "it is gone"},
		"ended: failed by SIGKILL":                  {Outcome: api.Failed, Signal: "SIGKILL"},
		"ended: its exit status is unknown: a test": {Outcome: api.Unknown, Reason: "its exit status is unknown: a test"},
	} {
		if got := sentence(status); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
