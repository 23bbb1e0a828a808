package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/aliquot-dev/aliquot/node/page"
)

// The story that an agent is killed in, at every named point: a task that stays, changed, and one that goes.
var (
	stays   = aTask("stays.0", 250, 800, "GPU-a", "GPU-b")
	changed = aTask("stays.0", 300, 700, "GPU-a", "GPU-b")
	goes    = aTask("goes.0", 100, 100, "GPU-b")
)

// tellStory is the process that is killed.
func tellStory(folder string) {
	if err := story(context.Background(), folder); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

// story can be told again from the beginning whatever of it has happened already, as a host does that was killed itself.
func story(ctx context.Context, folder string) (err error) {
	a, err := tryFake(ctx, folder, newFakeDevices("GPU-a", "GPU-b"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, a.Close()) }()
	if !slices.ContainsFunc(a.Prepared(), func(t Task) bool { return t.UID == stays.UID }) {
		if _, err := a.Prepare(ctx, stays); err != nil {
			return err
		}
	}
	if _, err := a.Prepare(ctx, goes); err != nil {
		return err
	}
	if err := a.Update(ctx, stays.UID, changed.Grants, Flags{}); err != nil {
		return err
	}
	return a.Unprepare(ctx, goes.UID)
}

// notInStory are points that this story with fake devices cannot reach; TestSimulatorKilledAtStart reaches them.
var notInStory = []string{"node.simulator.started"}

// TestKilledAtEveryPoint kills the agent at each point named in the source, each time it comes by, and has the next one take over:
// nothing is half made, pages and records agree, the arbiter knows exactly what is prepared, and the story can be finished.
func TestKilledAtEveryPoint(t *testing.T) {
	for _, name := range points(t) {
		if slices.Contains(notInStory, name) {
			continue
		}
		t.Run(name, func(t *testing.T) {
			hit := false
			const most = 20 // no point comes by more often
			for time := 1; time <= most; time++ {
				folder := fakeRun(t)
				killed := killedAt(t, folder, fmt.Sprintf("%s:%d", name, time), name)
				hit = hit || killed
				checkTakenOver(t, folder)
				if !killed {
					break
				}
			}
			if !hit {
				t.Error("the point is never reached")
			}
		})
	}
}

// killedAt tells the story in a process that dies at a point, and says whether it did.
func killedAt(t *testing.T, folder, at, name string) bool {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	log := filepath.Join(folder, "killed")
	command := exec.CommandContext(testContext(t), self)
	command.Env = append(os.Environ(), "ALIQUOT_TEST_STORY="+folder, "ALIQUOT_KILL_AT="+at, "ALIQUOT_KILL_LOG="+log)
	out, err := command.CombinedOutput()
	if err == nil {
		return false
	}
	status, ok := command.ProcessState.Sys().(syscall.WaitStatus)
	content, _ := os.ReadFile(log)
	if !ok || !status.Signaled() || status.Signal() != syscall.SIGKILL || strings.TrimSpace(string(content)) != name {
		t.Fatalf("the story ended by itself: %v\n%s", err, out)
	}
	return true
}

func checkTakenOver(t *testing.T, folder string) {
	t.Helper()
	ctx := testContext(t)
	a, err := tryFake(ctx, folder, newFakeDevices("GPU-a", "GPU-b"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { closeAgent(t, a) }()
	checkAgreement(t, a)
	closeAgent(t, a)
	if err := story(ctx, folder); err != nil {
		t.Fatalf("finish the story: %v", err)
	}
	if a, err = tryFake(ctx, folder, newFakeDevices("GPU-a", "GPU-b")); err != nil {
		t.Fatal(err)
	}
	checkAgreement(t, a)
	if got := a.Prepared(); len(got) != 1 || !reflect.DeepEqual(got[0], changed) {
		t.Errorf("at the end prepared: %+v", got)
	}
}

// checkAgreement: the folders, the records, the pages and the arbiter say the same.
func checkAgreement(t *testing.T, a *Agent) {
	t.Helper()
	var uids []string
	for _, task := range a.Prepared() {
		uids = append(uids, task.UID)
		_ = a.find(task.UID).ctl.View(func(c *page.Ctl) error {
			for i, g := range task.Grants {
				if p, ok := c.Grant[i].Policy(); !ok || p != policyOf(g, task.Flags, a.capacity(g.Device)) {
					t.Errorf("task %s: the page orders %+v (%v), the record says %+v", task.UID, p, ok, g)
				}
			}
			return nil
		})
	}
	var folders []string
	entries, err := os.ReadDir(a.run.tasks())
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		folders = append(folders, entry.Name())
	}
	if !slices.Equal(uids, folders) || strings.Join(uids, " ") != known(t, a) {
		t.Errorf("prepared %v, folders %v, the arbiter knows %q", uids, folders, known(t, a))
	}
}

// points lists the points named in this package's and the pages' source.
func points(t *testing.T) []string {
	t.Helper()
	var names []string
	call := regexp.MustCompile(`point\.Here\("([^"]+)"\)`)
	for _, pattern := range []string{"*.go", "page/*.go", "device/*.go"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			content, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for _, match := range call.FindAllSubmatch(content, -1) {
				names = append(names, string(match[1]))
			}
		}
	}
	if len(names) < 10 {
		t.Fatalf("found only the points %v", names)
	}
	return names
}
