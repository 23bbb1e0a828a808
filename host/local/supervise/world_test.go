package supervise

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/aliquot-dev/aliquot/host/local/internal/until"
)

// nobody is a user without rights, for what an unprivileged server does.
const nobody = 65534

func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == "supervise" {
		os.Exit(Main(os.Args[2:]))
	}
	if len(os.Args) > 2 && os.Args[1] == "as-nobody" {
		os.Exit(asNobody(Folder(os.Args[2])))
	}
	_ = os.Setenv("GORACE", "atexit_sleep_ms=0") // a supervisor under the race detector would end a second late
	os.Exit(m.Run())
}

// asNobody starts a supervisor without rights and waits for it.
func asNobody(dir Folder) int {
	started, err := dir.Start([]string{os.Args[0], "supervise"}, nil)
	if err != nil {
		fmt.Println(err)
		return 1
	}
	child, exit := started.Report()
	fmt.Println(child, exit, started.Wait())
	return 0
}

// task is one task under test.
type task struct {
	*testing.T
	dir     Folder
	recipe  Recipe
	started *Started
	waited  bool
}

func newTask(t *testing.T, shell string) *task {
	dir := t.TempDir()
	one := &task{T: t, dir: Folder(filepath.Join(dir, "task")), recipe: Recipe{
		UID: "uid-" + strconv.Itoa(os.Getpid()) + "-" + strings.ReplaceAll(t.Name(), "/", "-"), Command: []string{"sh", "-c", shell}, Program: "/bin/sh", Dir: dir,
		Log: filepath.Join(dir, "log"), Grace: DefaultGrace,
	}}
	one.recipe.Env = []string{"PATH=/usr/bin:/bin", Marker + "=" + one.recipe.UID}
	t.Cleanup(func() {
		found, _ := one.dir.Look()
		if one.started != nil && !one.waited {
			_ = found.Supervisor.Send(unix.SIGKILL)
			one.started.Wait()
		}
		if err := EndLeftover(context.Background(), found.Task(one.recipe.UID), 0); err != nil {
			t.Errorf("clean up: %v", err)
		}
	})
	return one
}

func (k *task) start(env ...string) *task {
	k.Helper()
	if err := k.dir.Prepare(k.recipe); err != nil {
		k.Fatal(err)
	}
	for _, one := range env {
		name, value, _ := strings.Cut(one, "=")
		k.Setenv(name, value)
	}
	var err error
	if k.started, err = k.dir.Start([]string{os.Args[0], "supervise"}, nil); err != nil {
		k.Fatal(err)
	}
	return k
}

func (k *task) wait() string {
	k.waited = true
	return k.started.Wait()
}

func (k *task) look() Found {
	k.Helper()
	found, err := k.dir.Look()
	if err != nil {
		k.Fatal(err)
	}
	return found
}

func (k *task) exit() Exit {
	k.Helper()
	found := k.look()
	if found.Exit == nil {
		k.Fatalf("no exit status; the supervisor said: %s", k.dir.Words())
	}
	return *found.Exit
}

func (k *task) log() string {
	k.Helper()
	data, err := os.ReadFile(k.recipe.Log)
	if err != nil {
		k.Fatal(err)
	}
	return string(data)
}

// says waits until the program has printed a text.
func (k *task) says(text string) {
	k.Helper()
	until.File(k, k.recipe.Log, "the program says "+text, func() bool {
		data, _ := os.ReadFile(k.recipe.Log)
		return strings.Contains(string(data), text)
	})
}
