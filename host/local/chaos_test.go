package local

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/aliquot-dev/aliquot/host/local/supervise"
	"github.com/aliquot-dev/aliquot/native"
)

// The test of chaos: users do things at random, on simulated devices with an arbiter and programs under the shim, while daemons,
// supervisors, arbiters and programs are killed: at each named point, and beside that at any moment. After each death of a daemon the
// next one checks that everything is as it was promised. `make chaos` has it go on for hundreds of deaths at each point.

var (
	chaosEach    = flag.Int("chaos.each", 1, "how often the test of chaos kills at each named point")
	chaosSeed    = flag.Uint64("chaos.seed", 1, "seed of the test of chaos")
	chaosFor     = flag.Duration("chaos.for", 0, "how long the test of chaos may go on: then it fails, and says how often each point was reached; 0: a minute, and then it is content")
	chaosPoint   = flag.String("chaos.points", "", "only the points that this regular expression matches are aimed at; all others are met by chance")
	chaosAtATime = flag.Int("chaos.worlds", 1, "how many worlds of the test of chaos there are at a time; go test's -parallel bounds it too")
)

// What a life finds in its environment, beside what it is to die of.
const (
	trainerSetting = "ALIQUOT_TEST_TRAINER"
	tenantSetting  = "ALIQUOT_TEST_TENANT_KILL_AT" // what some of its programs are to die of
	aimSetting     = "ALIQUOT_TEST_AIM"            // the point that it is to be likely to reach
)

// chaos is the test, as one line of worlds goes through it, one world after the other, each of many lives.
type chaos struct {
	*testing.T
	dice    *rand.Rand
	trainer string
	toll    *toll // of all lines of worlds
	root    string
	lives   int      // in this world
	past    []string // what the lives of this world were to die of
}

// toll is how often was killed what: by point, and by what was killed at any moment.
type toll struct {
	mu     sync.Mutex
	deaths map[string]int
}

func (t *toll) add(what string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.deaths[what]++
}

// open are the points at which was not killed often enough.
func (t *toll) open(points []string) []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(points), func(point string) bool { return t.deaths[point] >= *chaosEach })
}

func TestChaos(t *testing.T) {
	trainer, err := filepath.Abs(filepath.Join("..", "..", "build", "examples", "trainer"))
	if _, missing := os.Stat(trainer); err != nil || missing != nil {
		t.Fatal("the example programs are not built: run `make examples` first: ", errors.Join(err, missing))
	}
	all := &toll{deaths: map[string]int{}}
	aimed, err := regexp.Compile(*chaosPoint)
	if err != nil {
		t.Fatal(err)
	}
	points := slices.DeleteFunc(chaosPoints(t), func(point string) bool { return !aimed.MatchString(point) })
	end := time.Now().Add(cmp.Or(*chaosFor, time.Minute))
	t.Run("worlds", func(group *testing.T) {
		for i := range *chaosAtATime {
			group.Run(fmt.Sprint(i), func(one *testing.T) {
				one.Parallel()
				c := &chaos{T: one, dice: rand.New(rand.NewPCG(*chaosSeed, uint64(i))), trainer: trainer, toll: all}
				c.begin()
				defer c.cleanUp()
				c.aim(points, func() bool { return group.Failed() || time.Now().After(end) })
				c.finish()
			})
		}
	})
	say := t.Errorf
	if *chaosFor == 0 { // each point is met in the tests of crashes, and how far this comes is the machine's to say
		say = t.Logf
	}
	for _, point := range all.open(points) {
		say("%s was reached %d times, not %d: give it more time, or ask for less", point, all.deaths[point], *chaosEach)
	}
	for _, what := range slices.Sorted(maps.Keys(all.deaths)) {
		t.Logf("%4d deaths: %s", all.deaths[what], what)
	}
}

// aim has lives end at every point as often as asked for, until it is over.
func (c *chaos) aim(points []string, over func() bool) {
	for tries := 0; tries < 48+12**chaosEach; tries++ {
		open := c.toll.open(points)
		if len(open) == 0 {
			return
		}
		c.Logf("round %d: %d of %d points are open", tries, len(open), len(points))
		c.dice.Shuffle(len(open), func(i, j int) { open[i], open[j] = open[j], open[i] })
		for _, point := range open {
			if over() {
				return
			}
			c.aimAt(point, tries)
		}
	}
}

// chaosPoints are those of this package, the supervisor and the node; and those of arbiter and shim, if the ones in this binary have them.
func chaosPoints(t *testing.T) []string {
	t.Helper()
	points := pointsIn(t, `point\.Here\("([^"]+)"\)`, "*.go", "supervise/*.go", "../../node/*.go", "../../node/page/*.go")
	probe := t.TempDir()
	if err := native.Install(probe); err != nil {
		t.Fatal(err)
	}
	arbiter, err := os.ReadFile(filepath.Join(probe, native.Arbiter))
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(arbiter), "ALIQUOT_KILL_AT") {
		points = append(points, pointsIn(t, `ALQ_POINT\("([^"]+)"\)`, "../../native/arbiter/*.c", "../../native/shim/*.c")...)
	}
	return points
}

// memoryProgram is testdata/memory.c, in a world's folder.
const memoryProgram = "memory"

// begin makes a new world.
func (c *chaos) begin() {
	c.root, c.lives, c.past = crashFolder(c.T), 0, nil
	compile := exec.Command("cc", "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-I../../native", "-o", filepath.Join(c.root, memoryProgram),
		"testdata/memory.c", "../../build/native/sim/libcuda.so.1")
	if out, err := compile.CombinedOutput(); err != nil {
		c.Fatalf("compile testdata/memory.c: %v\n%s", err, out)
	}
}

// finish ends a world: nothing may be left of it.
func (c *chaos) finish() {
	if c.lives > 0 && !c.Failed() {
		c.live(fate{last: true})
	}
}

// worldLives is how many lives a world has before everything is ended and must be gone.
const worldLives = 25

// aimAt has a life end at a point. The more often that failed, the earlier it is to die there.
func (c *chaos) aimAt(point string, tries int) {
	if c.lives >= worldLives || point == "node.simulator.started" || point == "node.device.made" {
		c.finish()
		c.begin()
	}
	at := point
	if tries%2 == 0 {
		at = fmt.Sprintf("%s:%d", point, 1+c.dice.IntN(4))
	}
	switch layer, _, _ := strings.Cut(point, "."); {
	case point == "local.recover.again" || point == "local.orphan.found":
		c.live(fate{at: fmt.Sprintf("local.task.prepared:%d", 1+c.dice.IntN(2))}) // so that there is something to find
		c.live(fate{at: point})
	case point == "arbiter.quit.written":
		c.killArbiter()
		c.live(fate{at: point, last: true})
		c.begin()
	case layer == "arbiter" || point == "node.arbiter.started":
		c.killArbiter() // the next daemon starts the one that is to die
		c.live(fate{at: at})
	case layer == "shim":
		c.live(fate{tenants: at})
	default:
		c.live(fate{at: at})
	}
}

// fate is what a life is to end of, if it comes to that.
type fate struct {
	at      string // point of the daemon, and of what it starts
	tenants string // point of some of its programs
	last    bool   // it ends everything
}

// lifeLasts is how long a life may take, at most, on a busy machine.
const lifeLasts = 3 * time.Minute

// live has a daemon live, kills what else is killed meanwhile, and kills it in the end, unless its fate was faster.
func (c *chaos) live(f fate) {
	c.Helper()
	c.lives++
	seed := c.dice.Uint64()
	c.past = append(c.past, fmt.Sprintf("%+v seed %d", f, seed))
	killed := filepath.Join(c.root, "killed")
	before := len(recorded(c.root, "killed"))
	command := exec.Command(os.Args[0], "live", c.root, fmt.Sprint(seed), fmt.Sprint(f.last))
	command.Env = append(os.Environ(), "ALIQUOT_KILL_AT="+f.at, "ALIQUOT_KILL_LOG="+killed, trainerSetting+"="+c.trainer, tenantSetting+"="+f.tenants, aimSetting+"="+f.at+f.tenants)
	report, writer, err := os.Pipe()
	if err != nil {
		c.Fatal(err)
	}
	defer func() { _ = report.Close() }()
	said, err := os.OpenFile(filepath.Join(c.root, "said"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		c.Fatal(err)
	}
	defer func() { _ = said.Close() }()
	command.Stdout, command.Stderr, command.ExtraFiles = said, said, []*os.File{writer}
	err = command.Start()
	_ = writer.Close()
	if err != nil {
		c.Fatal(err)
	}
	patience := time.AfterFunc(lifeLasts, func() { _ = command.Process.Signal(unix.SIGQUIT) }) // it says where it stands
	defer patience.Stop()
	c.listen(report, command.Process, f)
	err = command.Wait()
	for _, name := range recorded(c.root, "killed")[before:] {
		c.toll.add(name[0])
	}
	status := command.ProcessState.Sys().(syscall.WaitStatus)
	if c.Failed() || err != nil && !(status.Signaled() && status.Signal() == unix.SIGKILL) {
		c.Errorf("it ended with %v; lives: %s", err, strings.Join(c.past, "; "))
	}
}

// listen follows a life's report, kills others once it has checked what it found, and it once it has acted.
func (c *chaos) listen(report *os.File, daemon *os.Process, f fate) {
	var side chan struct{}
	over := make(chan struct{})
	for lines := bufio.NewScanner(report); lines.Scan(); {
		switch line := lines.Text(); {
		case line == saysChecked && !f.last:
			side = make(chan struct{})
			plan := c.plan(f)
			go func() {
				defer close(side)
				c.carryOut(plan, daemon, over)
			}()
		case line == saysActed:
			<-side
			side = nil
			how := unix.SIGKILL
			if c.dice.IntN(4) == 0 {
				how = unix.SIGTERM
			}
			_ = daemon.Signal(how)
		case strings.HasPrefix(line, saysWrong):
			c.Error(line)
		}
	}
	close(over)
	if side != nil {
		<-side
	}
}

// blow kills something after a while.
type blow struct {
	after time.Duration
	what  string
	dice  uint64
}

// What is killed at any moment.
const (
	anArbiter    = "the arbiter at any moment"
	aSupervisor  = "a supervisor at any moment"
	aProgram     = "a process of a program at any moment"
	theDaemon    = "the daemon at any moment"
	longestPause = 150 * time.Millisecond
)

// plan draws what is killed while a life goes on.
func (c *chaos) plan(f fate) []blow {
	var plan []blow
	if strings.HasPrefix(f.at, "local.exit.lost") { // supervisors have to be lost for that, and then their programs
		for i := range 6 {
			plan = append(plan, blow{time.Duration(c.dice.Int64N(int64(longestPause))), []string{aSupervisor, aProgram}[i%2], c.dice.Uint64()})
		}
	}
	for range c.dice.IntN(4) {
		what := []string{anArbiter, aSupervisor, aProgram, aProgram, theDaemon}[c.dice.IntN(5)]
		plan = append(plan, blow{time.Duration(c.dice.Int64N(int64(longestPause))), what, c.dice.Uint64()})
	}
	slices.SortFunc(plan, func(a, b blow) int { return cmp.Compare(a.after, b.after) })
	return plan
}

// carryOut kills as planned, until the life is over.
func (c *chaos) carryOut(plan []blow, daemon *os.Process, over <-chan struct{}) {
	began := time.Now()
	for _, one := range plan {
		select {
		case <-time.After(one.after - time.Since(began)): // what it hits is left to chance
		case <-over:
			return
		}
		hit := false
		switch one.what {
		case theDaemon:
			process, err := supervise.Find(daemon.Pid)
			hit = err == nil && process.Alive() && daemon.Signal(unix.SIGKILL) == nil
		case anArbiter:
			hit = c.killArbiter()
		default:
			hit = c.killOfTask(one)
		}
		if hit {
			c.toll.add(one.what)
		}
	}
}

// killArbiter kills the world's arbiter, if one runs.
func (c *chaos) killArbiter() bool { return killRunning(filepath.Join(c.root, "run", native.Arbiter)) }

// killRunning kills every process that runs a file.
func killRunning(path string) (hit bool) {
	links, _ := filepath.Glob("/proc/[0-9]*/exe")
	for _, link := range links {
		if at, err := os.Readlink(link); err != nil || at != path {
			continue
		}
		var pid int
		if _, err := fmt.Sscanf(link, "/proc/%d/exe", &pid); err == nil {
			hit = unix.Kill(pid, unix.SIGKILL) == nil || hit
		}
	}
	return hit
}

// killOfTask kills the supervisor or any process of one task.
func (c *chaos) killOfTask(one blow) bool {
	folders, _ := filepath.Glob(filepath.Join(c.root, "state", "tasks", "*"))
	if len(folders) == 0 {
		return false
	}
	folder := folders[one.dice%uint64(len(folders))]
	uid := filepath.Base(folder)
	if one.what == aSupervisor {
		found, err := supervise.Folder(folder).Look()
		return err == nil && found.Supervisor.Alive() && found.Supervisor.Send(unix.SIGKILL) == nil
	}
	list, err := supervise.Leftover(supervise.Task{UID: uid, User: me.UID})
	if err != nil || len(list) == 0 {
		return false
	}
	(&story{nil, c.root}).record("victims", "%s", uid) // before it is: a daemon may see its end at once
	return list[one.dice/7%uint64(len(list))].Send(unix.SIGKILL) == nil
}

// cleanUp leaves no process behind, also where the test has failed.
func (c *chaos) cleanUp() {
	if !c.Failed() {
		return
	}
	if _, err := EndTasks(context.Background(), filepath.Join(c.root, "state"), 0); err != nil {
		c.Log(err)
	}
	killRunning(filepath.Join(c.root, "run", native.Arbiter))
	killRunning(filepath.Join(c.root, "run", native.SimGPU))
	said, _ := os.ReadFile(filepath.Join(c.root, "said"))
	c.Logf("the daemons said:\n%s", said[max(0, len(said)-20_000):])
}
