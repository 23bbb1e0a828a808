package cli

import (
	"io"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/aliquot-dev/aliquot/api"
)

// running is a `run` that goes on beside the test.
type running struct {
	t       *testing.T
	signals chan<- os.Signal
	done    chan result
}

// start begins a `run`; ended by wait. Its signals are the test's to give.
func (f *fakeServer) start(suspend func(), line ...string) *running {
	f.t.Helper()
	var taken sync.WaitGroup
	taken.Add(1)
	r := &running{t: f.t, done: make(chan result, 1)}
	program := Program{Version: "1.0", Suspend: suspend, Notify: func(to chan<- os.Signal, _ ...os.Signal) {
		r.signals = to
		taken.Done()
	}}
	go func() { r.done <- invoke(f.t, program, append([]string{"--run", f.run, "run"}, line...)...) }()
	taken.Wait()
	return r
}

func (r *running) wait() result { return <-r.done }

func (f *fakeServer) status(how func(*api.WorkloadStatus)) {
	f.change(func() { how(&f.works[len(f.works)-1].Status) })
}

func (f *fakeServer) finish(status api.WorkloadStatus) {
	status.Phase = api.Ended
	f.status(func(s *api.WorkloadStatus) { *s = status })
}

// The program has the command's own streams, and the command ends as the program ended.
func TestRunEndsAsTheProgram(t *testing.T) {
	code := func(n int) *int { return &n }
	for _, test := range []struct {
		name   string
		status api.WorkloadStatus
		exit   Exit
		says   string
	}{
		{"killed", api.WorkloadStatus{Outcome: api.Failed, Signal: "SIGKILL", Reason: "it passed its limit of host memory and was killed by the kernel"}, Exit{Status: 137, Signal: syscall.SIGKILL}, "aliquot: job-1 failed: it passed its limit of host memory and was killed by the kernel\n"},
		{"done", api.WorkloadStatus{Outcome: api.Succeeded, ExitCode: code(0)}, Exit{}, ""},
		{"status", api.WorkloadStatus{Outcome: api.Failed, ExitCode: code(7)}, Exit{Status: 7}, ""},
		{"signal", api.WorkloadStatus{Outcome: api.Failed, Signal: "SIGSEGV"}, Exit{Status: 139, Signal: syscall.SIGSEGV}, ""},
		{"stopped", api.WorkloadStatus{Outcome: api.Stopped, Signal: "SIGTERM"}, Exit{Status: 143, Signal: syscall.SIGTERM}, "aliquot: job-1 was stopped\n"},
		{"stopped by", api.WorkloadStatus{Outcome: api.Stopped, Reason: "stopped by root"}, Exit{Status: ExitFailed}, "aliquot: job-1 was stopped by root\n"},
		{"no program", api.WorkloadStatus{Outcome: api.Refused, ExitCode: code(127), Reason: "the program ./x cannot be run: no such file"}, Exit{Status: 127}, "aliquot: the program ./x cannot be run: no such file\n"},
		{"late", api.WorkloadStatus{Outcome: api.TimedOut, Signal: "SIGKILL", Reason: "its 2h are over"}, Exit{Status: 137, Signal: syscall.SIGKILL}, "aliquot: job-1: timed out: its 2h are over\n"},
		{"evicted", api.WorkloadStatus{Outcome: api.Evicted, Reason: "device 0 is down"}, Exit{Status: ExitFailed}, "aliquot: job-1: evicted: device 0 is down\n"},
		{"unknown", api.WorkloadStatus{Outcome: api.Unknown, Reason: "its supervisor was killed"}, Exit{Status: ExitFailed}, "aliquot: job-1 ended: its exit status is unknown: its supervisor was killed\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := newFakeServer(t)
			r := f.start(nil, "--gpu", "0.25..0.80", "--", "./job", "-x")
			if uid := <-f.attached; uid != "u1" {
				t.Errorf("the streams came for %q", uid)
			}
			if _, err := io.WriteString(f.streams[1], "out\n"); err != nil {
				t.Error(err)
			}
			f.finish(test.status)
			got := r.wait()
			if got.exit != test.exit || got.out != "out\n" || got.err != test.says {
				t.Errorf("%v, out %q, error %q", got.exit, got.out, got.err)
			}
			if spec := f.works[0].Spec; !spec.Attach || strings.Join(spec.Command, " ") != "./job -x" {
				t.Errorf("submitted %+v", spec)
			}
			<-f.closed
		})
	}
}

// What does not hold of what was asked for is said before the program has the terminal.
func TestRunTellsNotes(t *testing.T) {
	f := newFakeServer(t)
	f.notes = []string{"--cpu 0.50 is not held by this server"}
	r := f.start(nil, "--cpu", "0.5", "--", "./job")
	<-f.attached
	f.finish(api.WorkloadStatus{Outcome: api.Succeeded, ExitCode: new(int)})
	if got := r.wait(); got.err != "aliquot: job-1: --cpu 0.50 is not held by this server\n" || got.exit != (Exit{}) {
		t.Errorf("%v, error %q", got.exit, got.err)
	}
}

// A program that the server refuses to run ends the command as a shell would, in the server's one sentence; other refusals do not.
func TestRunOfWhatIsNoProgram(t *testing.T) {
	for exit, want := range map[int]int{126: 126, 127: 127, 0: ExitFailed} {
		f := newFakeServer(t)
		f.refuse = &api.Error{Code: api.CodeInvalid, Message: "the program ./job cannot be run: so it is", ExitCode: exit}
		got := f.command("run", "--", "./job")
		if got.exit != (Exit{Status: want}) || got.err != "aliquot: the program ./job cannot be run: so it is\n" {
			t.Errorf("%d: %v %q", exit, got.exit, got.err)
		}
	}
}

// Signals go to the program while it runs, and the one that would not stop it as the one that does; the command itself goes on.
func TestRunPassesSignalsOn(t *testing.T) {
	f := newFakeServer(t)
	stops := 0
	r := f.start(func() { stops++ }, "--", "./job")
	<-f.attached
	f.status(func(s *api.WorkloadStatus) { s.Phase = api.Running })
	// The program may run before the command has heard of it: no signal is lost then, and none takes the program out of the line.
	for _, sig := range []syscall.Signal{syscall.SIGUSR1, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR2, syscall.SIGWINCH, syscall.SIGTSTP, syscall.SIGCONT} {
		r.signals <- sig
	}
	f.eventually("SIGCONT", func() bool { return f.called(`POST /v1/workloads/u1/signal {"signal":"SIGCONT"}`) })
	for _, name := range []string{"SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGWINCH", "SIGSTOP"} {
		if !f.called(`POST /v1/workloads/u1/signal {"signal":"` + name + `"}`) {
			t.Errorf("%s was not passed on: %q", name, f.calls)
		}
	}
	f.finish(api.WorkloadStatus{Outcome: api.Failed, Signal: "SIGINT"})
	if got := r.wait(); got.exit != (Exit{Status: 130, Signal: syscall.SIGINT}) || stops != 1 {
		t.Errorf("%v, suspended %d times, %q", got.exit, stops, got.err)
	}
	if f.called("POST /v1/workloads/u1/stop") {
		t.Error("it was stopped besides")
	}
}

// While it waits, the place in line and the reason are said on standard error, again when they change, and Ctrl-C leaves the line.
func TestRunWaits(t *testing.T) {
	f := newFakeServer(t)
	f.why = api.Why{Phase: api.Waiting, Place: 2, Message: "no device has 0.50 of its compute free"}
	r := f.start(nil, "--name", "night", "--", "./job")
	<-f.attached
	f.eventually("question why", func() bool { return f.called("GET /v1/workloads/u1/why") && f.called("GET /v1/events") })
	asked := func() int {
		n := 0
		for _, call := range f.calls {
			if strings.HasPrefix(call, "GET /v1/workloads/u1/why") {
				n++
			}
		}
		return n
	}
	var before int
	f.change(func() { before = asked(); f.why.Place = 1 })
	f.eventually("second question", func() bool { return asked() > before })
	r.signals <- syscall.SIGINT
	got := r.wait()
	if got.exit != (Exit{Status: 130, Signal: syscall.SIGINT}) {
		t.Errorf("exit %v", got.exit)
	}
	// Which answers were shown before the signal is a matter of time; that what was shown is in order and whole is not.
	waits, left := strings.CutSuffix(got.err, "aliquot: night left the line\n")
	if !left {
		t.Errorf("what became of it is not said: %q", got.err)
	}
	lines := strings.Split(strings.TrimSpace(waits), "\n")
	for i, line := range lines {
		want := []string{
			"aliquot: night waits, 2nd in line: no device has 0.50 of its compute free",
			"aliquot: night waits, 1st in line: no device has 0.50 of its compute free",
		}
		if len(lines) > 2 || line != want[i] && line != want[1] {
			t.Errorf("standard error: %q", got.err)
		}
	}
	if got.out != "" || !f.called("POST /v1/workloads/u1/stop") {
		t.Errorf("out %q, calls %q", got.out, f.calls)
	}
}

// What would end a program ends the command while it waits in line; what may mean something to the program alone does not.
func TestRunInLineEndsBySignals(t *testing.T) {
	for _, sig := range ending {
		f := newFakeServer(t)
		r := f.start(nil, "--", "./job")
		<-f.attached
		r.signals <- syscall.SIGUSR1
		r.signals <- syscall.Signal(lastRealTime)
		r.signals <- sig
		if got := r.wait(); got.exit != (Exit{Status: 128 + int(sig), Signal: sig}) {
			t.Errorf("%v: %v %q", sig, got.exit, got.err)
		}
		f.eventually("stop, and real-time signal before", func() bool {
			return f.called("POST /v1/workloads/u1/stop") && f.called(`POST /v1/workloads/u1/signal {"signal":"64"}`)
		})
	}
}

// On a terminal the wait takes one line, in place, and leaves nothing behind.
func TestWaitingLine(t *testing.T) {
	from, to, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	line := &waitingLine{out: to, terminal: true}
	line.show("aliquot: a waits")
	line.show("aliquot: a waits") // no change, nothing new
	line.show("aliquot: a waits, " + strings.Repeat("long ", 40))
	line.say("stays")
	line.clear()
	_ = to.Close()
	text, err := io.ReadAll(from)
	if err != nil {
		t.Fatal(err)
	}
	// Nothing of a reason is lost for want of width, and all its rows are taken back.
	want := "\r\x1b[Kaliquot: a waits\r\x1b[Kaliquot: a waits, " + strings.TrimSpace(strings.Repeat("long ", 12)) + "\r\n" +
		strings.TrimSpace(strings.Repeat("long ", 16)) + "\r\n" + strings.TrimSpace(strings.Repeat("long ", 12)) +
		"\r\x1b[K\x1b[A\x1b[K\x1b[A\x1b[Kstays\n"
	if string(text) != want {
		t.Errorf("got  %q\nwant %q", text, want)
	}
}

// A server that goes away while the program runs is waited for, and the streams are handed over again.
func TestRunOutlivesTheServer(t *testing.T) {
	f := newFakeServer(t)
	r := f.start(nil, "--", "./job")
	<-f.attached
	f.status(func(s *api.WorkloadStatus) { s.Phase = api.Running })
	f.eventually("two waits", func() bool {
		return f.called("GET /v1/workloads/u1?while=waiting%2Cstarting ") || f.called("GET /v1/workloads/u1?while=waiting%2Cstarting%2Crunning%2Cstopping")
	})
	f.hangUp()
	if uid := <-f.attached; uid != "u1" {
		t.Errorf("the streams came again for %q", uid)
	}
	f.finish(api.WorkloadStatus{Outcome: api.Succeeded, ExitCode: new(int)})
	if got := r.wait(); got.exit != (Exit{}) {
		t.Errorf("%v %q", got.exit, got.err)
	}
}

// A program that ended while there was no server: the next one is asked, and the command ends as the program did.
func TestRunLearnsAnEndThatItMissed(t *testing.T) {
	f := newFakeServer(t)
	r := f.start(nil, "--", "./job")
	<-f.attached
	f.status(func(s *api.WorkloadStatus) { s.Phase = api.Running })
	f.eventually("wait for the end", func() bool {
		return f.called("GET /v1/workloads/u1?while=waiting%2Cstarting%2Crunning%2Cstopping")
	})
	code := 3
	f.change(func() { // as one: no answer of this server's tells of the end
		f.works[0].Status = api.WorkloadStatus{Phase: api.Ended, Outcome: api.Failed, ExitCode: &code}
		f.http.CloseClientConnections()
		f.dropLines()
	})
	select {
	case got := <-r.done:
		if got.exit != (Exit{Status: 3}) {
			t.Errorf("%v %q", got.exit, got.err)
		}
	case <-time.After(time.Minute):
		t.Fatal("it did not end within a minute")
	}
}

func TestExitOfSignal(t *testing.T) {
	call := &invocation{Program: &Program{}}
	if got := call.report(endBy(syscall.SIGTERM)); got != (Exit{Status: 143, Signal: syscall.SIGTERM}) {
		t.Errorf("%v", got)
	}
}
