package e2e

import (
	"bufio"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/aliquot-dev/aliquot/api"
)

// Server and arbiter are killed and replaced by another version, again and again, under programs that use all they can get. What each had
// is read from the simulated device's own record.

var (
	replaceRounds = flag.Int("replace.rounds", 4, "how often the test of replacement replaces server, arbiter or both")
	replaceSeed   = flag.Uint64("replace.seed", 1, "seed of the test of replacement")
)

// nextVersion is what the other build calls itself.
const nextVersion = "next"

// buildNext builds aliquot once more: another version, with an arbiter that is another program and says so.
func buildNext(t *testing.T) string {
	t.Helper()
	folder := t.TempDir()
	native, err := filepath.Abs(filepath.Join("..", "..", "native"))
	if err != nil {
		t.Fatal(err)
	}
	arbiter := filepath.Join(folder, "bin", "aliquot-arbiter")
	run := func(name string, arguments ...string) {
		t.Helper()
		if out, err := exec.CommandContext(t.Context(), name, arguments...).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", name, err, out)
		}
	}
	run("make", "-C", native, "OUT="+folder, "OPT=-O1", `CFLAGS=-DARBITER_VERSION=\"`+nextVersion+`\"`, arbiter)
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": {filepath.Join(native, "dist", "bin", "aliquot-arbiter"): arbiter}})
	if err == nil {
		err = os.WriteFile(filepath.Join(folder, "overlay.json"), overlay, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	next := filepath.Join(folder, "aliquot")
	run("go", "build", "-overlay", filepath.Join(folder, "overlay.json"), "-ldflags", "-X main.version="+nextVersion, "-o", next, "../../cmd/aliquot")
	return next
}

// reading is the record of the first device at a time: what it ran for each process.
type reading struct {
	at   time.Duration
	busy map[int]time.Duration
}

// recorder reads the record of a server's simulated devices.
type recorder struct {
	t       *testing.T
	program string
	run     string
}

func newRecorder(t *testing.T, run string) recorder {
	t.Helper()
	program := filepath.Join(t.TempDir(), "record")
	out, err := exec.CommandContext(t.Context(), "cc", "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-I../../native", "-o", program, "testdata/record.c").CombinedOutput()
	if err != nil {
		t.Fatalf("compile testdata/record.c: %v\n%s", err, out)
	}
	return recorder{t, program, run}
}

func (r recorder) read() reading {
	r.t.Helper()
	sync := exec.CommandContext(r.t.Context(), filepath.Join(r.run, "bin", "aliquot-simgpu"), "sync", "--socket", filepath.Join(r.run, "sim", "simgpu.sock"))
	if out, err := sync.CombinedOutput(); err != nil {
		r.t.Fatalf("bring the record up to now: %v\n%s", err, out)
	}
	out, err := exec.CommandContext(r.t.Context(), r.program, filepath.Join(r.run, "sim", "record")).Output()
	if err != nil {
		r.t.Fatal(err)
	}
	got := reading{busy: map[int]time.Duration{}}
	lines := bufio.NewScanner(strings.NewReader(string(out)))
	if lines.Scan() {
		_, err = fmt.Sscan(lines.Text(), &got.at)
	}
	for err == nil && lines.Scan() {
		var device, pid int
		var busy time.Duration
		if _, err = fmt.Sscan(lines.Text(), &device, &pid, &busy); device == 0 {
			got.busy[pid] = busy
		}
	}
	if err != nil {
		r.t.Fatalf("the record reads %q: %v", out, err)
	}
	return got
}

// stretch adds up what the device ran over several stretches of time.
type stretch struct {
	long  time.Duration
	total time.Duration // of all processes
	busy  map[int]time.Duration
}

func (s *stretch) add(from, to reading) {
	if s.busy == nil {
		s.busy = map[int]time.Duration{}
	}
	s.long += to.at - from.at
	for pid, busy := range to.busy {
		s.busy[pid] += busy - from.busy[pid]
		s.total += busy - from.busy[pid]
	}
}

// part is what of the time that the device ran it ran for a process. What it idled, because this machine is busy with other things, is
// nobody's doing.
func (s *stretch) part(pid int) float64 { return float64(s.busy[pid]) / float64(max(s.total, 1)) }

// saturating are programs that always want more: floor, and what they are called with.
var saturating = []struct {
	floor float64
	line  []string
	pid   int
}{
	{0.4, []string{"--kernel-us", "500"}, 0},
	{0.3, []string{"--kernel-us", "2000"}, 0},
	{0.15, []string{"--kernel-us", "200", "--graph"}, 0},
	{0.05, []string{"--kernel-us", "5000"}, 0},
}

// promised is the sum of their floors.
const promised = 0.9

// replaced is a server that is replaced.
type replaced struct {
	*server
	builds [2]string // the first is of this version
	build  int       // that runs
}

// follow starts a server of the other build, or of the same.
func (r *replaced) follow(other bool) {
	r.t.Helper()
	if other {
		r.build = 1 - r.build
	}
	r.binary = r.builds[r.build]
	if got := r.command("up", "--detach", "--state", r.state, "--http", r.http); got.status != 0 {
		r.t.Fatalf("up: %s", got)
	}
}

// arbiterSays is the arbiter's answer to ping, and its process.
func (r *replaced) arbiterSays() (version string, pid int, err error) {
	conn, err := net.Dial("unixpacket", filepath.Join(r.run, "arbiter.ctl"))
	if err != nil {
		return "", 0, err
	}
	defer func() { _ = conn.Close() }()
	raw, err := conn.(*net.UnixConn).SyscallConn()
	if err != nil {
		return "", 0, err
	}
	var peer *syscall.Ucred
	var asked error
	if err := raw.Control(func(fd uintptr) {
		peer, asked = syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED)
	}); err != nil || asked != nil {
		return "", 0, errors.Join(err, asked)
	}
	answer := make([]byte, 4096)
	if _, err := conn.Write([]byte("ping\n")); err != nil {
		return "", 0, err
	}
	n, err := conn.Read(answer)
	if err != nil {
		return "", 0, err
	}
	_, err = fmt.Sscanf(string(answer[:n]), "ok %s", &version)
	return version, int(peer.Pid), err
}

// killArbiter kills the arbiter that serves now and waits until it is gone.
func (r *replaced) killArbiter() {
	r.t.Helper()
	_, pid, err := r.arbiterSays()
	if err == nil {
		err = syscall.Kill(pid, syscall.SIGKILL)
	}
	if err != nil {
		r.t.Fatalf("kill the arbiter: %v", err)
	}
	eventually(r.t, "end of the arbiter", func() bool { _, now, err := r.arbiterSays(); return err != nil || now != pid })
}

// round replaces something. Where nobody is there for a while, what the device ran meanwhile is added to away.
func (r *replaced) round(kind int, pause time.Duration, records recorder, away *stretch) {
	r.t.Helper()
	switch kind {
	case 0: // both die, and nobody follows for a while
		r.kill()
		r.killArbiter()
		from := records.read()
		<-time.After(pause) // the time that is looked at
		away.add(from, records.read())
		r.follow(true)
	case 1: // the server dies; the next one replaces an arbiter of another build in order
		r.kill()
		r.follow(true)
	case 2: // the arbiter dies, and its server starts the next
		r.killArbiter()
		eventually(r.t, "new arbiter", func() bool { _, _, err := r.arbiterSays(); return err == nil })
	}
	version, _, err := r.arbiterSays()
	if want := []string{"1", nextVersion}[r.build]; err != nil || version != want {
		r.t.Fatalf("the arbiter is of version %q, %v, want %q", version, err, want)
	}
}

// TestReplacedUnderLoad: no program fails, each goes on after every replacement, and with -judge each keeps its floor of what the device runs,
// while nobody is there and in all. To the point, where no machine's noise can hide anything, shares over hundreds of arbiters are judged under
// virtual time (native/arbiter/test/luck.c).
func TestReplacedUnderLoad(t *testing.T) {
	const apart = 0.03 // of what the device ran
	builds := [2]string{binary, buildNext(t)}
	r := &replaced{server: up(t, "h200x1"), builds: builds}
	dice := rand.New(rand.NewPCG(*replaceSeed, 1))
	programs := saturating
	for i := range programs {
		one := &programs[i]
		name := fmt.Sprintf("tenant-%d", i)
		r.must(append([]string{"submit", "--name", name, "--gpu", fmt.Sprint(one.floor, ".."), "--mem", "1Gi", "--", trainer, "--seconds", "100000", "--progress", "0"}, one.line...)...)
		work := r.after(name, unstarted...)
		one.pid = work.Status.PID
	}
	records := newRecorder(t, r.run)
	goOn := func() {
		t.Helper()
		from := records.read()
		eventually(t, "work of every program", func() bool {
			now := records.read()
			for _, one := range programs {
				if now.busy[one.pid]-from.busy[one.pid] < 50*time.Millisecond {
					return false
				}
			}
			return true
		})
	}
	goOn()
	var away, all stretch
	began := records.read()
	for i := range *replaceRounds {
		r.round(i%3, time.Duration(200+dice.IntN(400))*time.Millisecond, records, &away)
		goOn()
	}
	all.add(began, records.read())
	for i, one := range programs {
		work := r.after(fmt.Sprintf("tenant-%d", i), api.Waiting)
		if work.Status.Phase != api.Running || work.Status.PID != one.pid {
			t.Errorf("program %d ran as %d and is %+v", i, one.pid, work.Status)
		}
		t.Logf("floor %.2f: %.3f of what the device ran in %v while nobody was there, %.3f of all in %v; on a machine with nothing else to do %.3f", one.floor,
			away.part(one.pid), away.long, all.part(one.pid), all.long, one.floor/promised)
		if got := away.part(one.pid); *judge && got < one.floor-apart {
			t.Errorf("program %d had %.3f of what the device ran while nobody was there, its floor is %.2f", i, got, one.floor)
		}
		if got := all.part(one.pid); *judge && got < one.floor-apart {
			t.Errorf("program %d had %.3f of what the device ran, its floor is %.2f", i, got, one.floor)
		}
	}
	if *judge && away.total < away.long/2 {
		t.Errorf("while nobody was there the device ran for %v of %v, and %.0f %% of it is promised", away.total, away.long, 100*promised)
	}
	t.Logf("the device was busy for %v of %v while nobody was there, %v of %v in all", away.total, away.long, all.total, all.long)
}
