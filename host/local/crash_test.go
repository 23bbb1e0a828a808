package local

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/host/local/internal/until"
	"github.com/aliquot-dev/aliquot/node"
	"github.com/aliquot-dev/aliquot/server"
)

// The test of crashes: a daemon in a process of its own lives through a story and is killed at a named point; with it, where the
// point is a supervisor's, its supervisors. The next daemon must find everything as it was promised.

// crashTimes is how many of the times that a point comes by the daemon is killed at, at most.
const crashTimes = 4

// storyLines is how many lines the story's first program prints.
const storyLines = 300

// daemon is the process that is killed. In mode "story" it lives through the story, in mode "gang" through that of a workload with roles, in mode
// "recover" it only takes over.
func daemon(root, mode string) int {
	agent, err := crashAgent(root)
	if err != nil {
		fmt.Println(err)
		return 1
	}
	host, err := Open(context.Background(), crashConfig(root, agent))
	if err != nil {
		fmt.Println(err)
		return 1
	}
	if mode == "story" {
		(&story{host, root}).tell()
	} else if mode == "gang" {
		(&story{host, root}).tellGang()
	} else if err := settle(host); err != nil {
		fmt.Println(err)
		return 1
	}
	if err := host.Close(); err != nil {
		fmt.Println(err)
		return 1
	}
	return 0
}

// simulatedSetting, in the environment, has the story told on simulated devices with an arbiter, instead of on pages that are files.
const simulatedSetting = "ALIQUOT_TEST_SIMULATED"

func crashAgent(root string) (Agent, error) {
	if os.Getenv(simulatedSetting) == "" {
		return newFakeAgent(filepath.Join(root, "pages"), 2)
	}
	agent, err := node.Open(context.Background(), node.Config{Run: filepath.Join(root, "run"), Simulate: "h200x2"})
	return realAgent{agent}, err
}

// realAgent is a node's agent as the host wants it.
type realAgent struct{ *node.Agent }

func (a realAgent) Close() { _ = a.Agent.Close() }

func crashConfig(root string, agent Agent) Config {
	return Config{
		State: filepath.Join(root, "state"), Run: filepath.Join(root, "run"), Version: "test", Agent: agent,
		Supervisor: []string{os.Args[0], "supervise"}, Log: slog.New(slog.DiscardHandler), EventLimit: 8000,
	}
}

// story is what happens until the crash. Nothing in it may be taken for granted: supervisors die too.
type story struct {
	*Host
	root string
}

func (s *story) tell() {
	ctx := context.Background()
	mark := "echo $$ >> " + s.root + "/ran-$ALIQUOT_WORKLOAD; "
	s.submit("exits", "1", mark+fmt.Sprintf("seq %d; : > %s/done-$ALIQUOT_WORKLOAD; exit 3", storyLines, s.root))
	s.await("exits", api.Waiting, api.Starting, api.Running)
	s.submit("long", "0.5", mark+"exec sleep 1000")
	s.runs("long", false)
	s.submit("kept", "0.5", mark+"exec sleep 1000")
	s.runs("kept", true)
	smaller := api.Compute{Floor: 400, Ceiling: 600}
	_, _ = s.Resize(ctx, me, "long", server.ShareChange{Compute: &smaller})
	s.submit("full", "1", mark+"exec sleep 1000")
	s.submit("behind", "1", mark+"exec sleep 1000")
	s.runs("full", false)
	_, _ = s.Stop(ctx, me, "long", 0)
	s.await("long", api.Waiting, api.Starting, api.Running, api.Stopping)
	// A supervisor that is killed: its task runs on, and is stopped without it.
	if work, err := s.Workload(ctx, "full"); err == nil {
		if found, err := s.folder(work.UID).Look(); err == nil {
			_ = found.Supervisor.Send(syscall.SIGKILL)
		}
	}
	_, _ = s.Stop(ctx, me, "full", 0)
	s.await("full", api.Waiting, api.Starting, api.Running, api.Stopping)
	s.runs("behind", true)
}

func (s *story) submit(name, gpu, shell string) {
	asked := spec(gpu, shell)
	asked.Name = name
	if work, err := s.Submit(context.Background(), me, asked); err == nil {
		s.record("accepted", "%s %s", name, work.UID)
	}
}

func (s *story) await(name string, while ...api.Phase) api.Workload {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	work, _ := s.Wait(ctx, name, while...)
	return work
}

// runs waits until a workload runs; promised, it must run until it is stopped.
func (s *story) runs(name string, promised bool) {
	work := s.await(name, api.Waiting, api.Starting)
	if promised && work.Status.Phase == api.Running {
		s.record("promised", "%s %d", work.UID, work.Status.PID)
	}
}

// record writes what a client was told.
func (s *story) record(name, format string, args ...any) {
	file, err := os.OpenFile(filepath.Join(s.root, name), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		panic(err)
	}
	_, _ = fmt.Fprintf(file, format+"\n", args...)
	_ = file.Close()
}

func recorded(root, name string) [][]string {
	data, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		return nil
	}
	var lines [][]string
	for line := range strings.Lines(string(data)) {
		lines = append(lines, strings.Fields(line))
	}
	return lines
}

// settle waits until nothing is on its way: everything waits, runs or has ended.
func settle(host *Host) (err error) {
	settled := until.Within(time.Minute, func() bool {
		moving := false
		err = host.look(context.Background(), func() {
			for _, w := range host.work {
				phase := w.now.Status.Phase
				moving = moving || w.dirty || phase == api.Starting || phase == api.Stopping || w.child == nil && w.running() ||
					w.child != nil && !w.child.Alive()
			}
		})
		return err != nil || !moving
	})
	if !settled {
		return fmt.Errorf("it does not settle within a minute")
	}
	return err
}

func TestKilledAtEachPoint(t *testing.T) { killAtEachPoint(t, pointsInSource(t), crashTimes, crash) }

func TestKilledAtEachPointOnSimulatedDevices(t *testing.T) {
	t.Setenv(simulatedSetting, "yes")
	killAtEachPoint(t, pointsInSource(t), 1, crash)
}

// killAtEachPoint has a daemon killed at each point the first time that it is there, the second, and so on, and checks that each is reached.
func killAtEachPoint(t *testing.T, points []string, most int, crash func(t *testing.T, at string) (reached bool)) {
	for _, point := range points {
		t.Run(point, func(t *testing.T) {
			if most > 1 {
				t.Parallel() // much of a crash is waiting; but a process uses one set of simulated devices at a time
			}
			for times := 1; times <= most; times++ {
				if !crash(t, fmt.Sprintf("%s:%d", point, times)) {
					if times == 1 {
						t.Error("the point is never reached")
					}
					return
				}
			}
		})
	}
}

// crash has a daemon killed at a point and checks what the next one finds. It says whether the point was reached.
func crash(t *testing.T, at string) bool {
	t.Helper()
	root := crashFolder(t)
	reached := func() bool { return len(recorded(root, "killed")) > 0 }
	play(t, root, "story", at, filepath.Join(root, "killed"))
	if !reached() {
		// A point of the recovery: there must be something to recover.
		takeOver(t, root, "without a crash")
		root = crashFolder(t)
		play(t, root, "story", "local.task.prepared:2", "")
		play(t, root, "recover", at, filepath.Join(root, "killed"))
	}
	was := reached()
	takeOver(t, root, at)
	return was
}

// crashFolder is a folder for one crash, short enough for sockets.
func crashFolder(t *testing.T) string {
	t.Helper()
	root, err := os.MkdirTemp("", "alq")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(root) })
	return root
}

// play runs a daemon until it ends or is killed.
func play(t *testing.T, root, mode, at, log string) {
	t.Helper()
	process := exec.Command(os.Args[0], "daemon", root, mode)
	process.Env = append(os.Environ(), "ALIQUOT_KILL_AT="+at, "ALIQUOT_KILL_LOG="+log)
	// A file, not a pipe: what outlives the daemon must not keep this from ending.
	said, err := os.Create(filepath.Join(root, "said-"+mode))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = said.Close() }()
	process.Stdout, process.Stderr = said, said
	err = process.Run()
	if status, ok := process.ProcessState.Sys().(syscall.WaitStatus); ok && (status.Signaled() && status.Signal() == syscall.SIGKILL || err == nil) {
		return
	}
	text, _ := os.ReadFile(said.Name())
	t.Fatalf("the daemon ended with %v: %s", err, text)
}

// takeOver is the daemon after the crash: it checks that nothing is lost, nothing is granted twice and nothing was stopped, then
// stops everything and checks that nothing is left.
func takeOver(t *testing.T, root, at string) {
	t.Helper()
	agent, err := crashAgent(root)
	if err != nil {
		t.Fatal(err)
	}
	host, err := Open(context.Background(), crashConfig(root, agent))
	if err != nil {
		t.Fatalf("%s: the next daemon does not start: %v", at, err)
	}
	defer func() {
		if err := host.Close(); err != nil {
			t.Error(err)
		}
		shutDown(t, root)
	}()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := settle(host); err != nil {
		t.Fatalf("%s: %v", at, err)
	}
	fail := func(format string, args ...any) { t.Helper(); t.Errorf(at+": "+format, args...) }
	for _, promise := range recorded(root, "promised") {
		work, err := host.Workload(ctx, promise[0])
		if err != nil || work.Status.Phase != api.Running || fmt.Sprint(work.Status.PID) != promise[1] {
			fail("what ran was stopped: %v is %+v, %v", promise, work.Status, err)
		}
	}
	checkBooks(host, agent, fail)
	accepted := recorded(root, "accepted")
	for _, one := range accepted {
		if work, err := host.Workload(ctx, one[1]); err != nil || work.Spec.Name != one[0] {
			fail("%v was accepted and is lost: %v", one, err)
		}
	}
	live, err := host.Workloads(ctx, false)
	if err != nil {
		t.Fatal(err)
	}
	for _, work := range slices.Backward(live) { // from the end of the line, so that none is started by another's end
		if _, err := host.Stop(ctx, me, work.UID, 0); err != nil && !strings.Contains(err.Error(), "has ended") {
			fail("stop %s: %v", work.Spec.Name, err)
		}
	}
	for _, work := range live {
		if _, err := host.Wait(ctx, work.UID, api.Waiting, api.Starting, api.Running, api.Stopping); err != nil {
			fail("%s does not end: %v", work.Spec.Name, err)
		}
	}
	if all, err := host.Workloads(ctx, true); err != nil || len(all) < len(accepted) {
		fail("%d workloads of %d accepted are known, %v", len(all), len(accepted), err)
	} else {
		for _, work := range all {
			checkEnd(host, root, work, fail)
		}
	}
	if left := agent.Prepared(); len(left) != 0 {
		fail("pages left: %+v", left)
	}
	if entries, _ := os.ReadDir(filepath.Join(root, "state", "tasks")); len(entries) != 0 {
		fail("folders left: %v", entries)
	}
	if data, err := os.ReadFile(filepath.Join(root, "pages", "VIOLATION")); err == nil {
		fail("%s", data)
	}
}

// shutDown ends what outlives daemons: arbiter and simulated devices.
func shutDown(t *testing.T, root string) {
	t.Helper()
	if agent, err := crashAgent(root); err != nil {
		t.Error(err)
	} else if simulated, ok := agent.(realAgent); ok {
		if err := simulated.Shutdown(context.Background(), true); err != nil {
			t.Error(err)
		}
	}
}

// pointsInSource lists the points named in the source of this package and of the supervisor.
func pointsInSource(t *testing.T) []string {
	t.Helper()
	return pointsIn(t, `point\.Here\("([^"]+)"\)`, "*.go", "supervise/*.go")
}

// pointsIn lists the points that are named, in calls of a form, in the sources that patterns match, tests left out.
func pointsIn(t *testing.T, call string, patterns ...string) []string {
	t.Helper()
	named := regexp.MustCompile(call)
	var points []string
	for _, pattern := range patterns {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range files {
			if strings.HasSuffix(path, "_test.go") {
				continue
			}
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			for _, found := range named.FindAllSubmatch(text, -1) {
				points = append(points, string(found[1]))
			}
		}
	}
	slices.Sort(points)
	points = slices.Compact(points)
	if len(points) < 15 {
		t.Fatalf("%d points were found in the source: %v", len(points), points)
	}
	return points
}
