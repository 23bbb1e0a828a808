package node

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/aliquot-dev/aliquot/node/page"
)

// TestDamagedTask: an agent does not guess what a damaged folder held. It says which task is broken and why, can take it back, and
// serves the others.
func TestDamagedTask(t *testing.T) {
	for _, name := range []string{"ctl", "book", "task.json"} {
		t.Run(name, func(t *testing.T) {
			folder := fakeRun(t)
			a := openFake(t, folder, newFakeDevices("GPU-a"))
			if _, err := a.Prepare(testContext(t), aTask("w.0", 250, 800, "GPU-a")); err != nil {
				t.Fatal(err)
			}
			closeAgent(t, a)
			file := filepath.Join(folder, "tasks/w.0", name)
			content, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			content[3] ^= 0x55
			if err := os.WriteFile(file, content, 0o600); err != nil {
				t.Fatal(err)
			}
			b := openFake(t, folder, newFakeDevices("GPU-a"))
			task := aTask("w.0", 250, 800, "GPU-a")
			_, prepared := b.Prepare(testContext(t), task)
			for asked, err := range map[string]error{"prepare": prepared, "update": b.Update(testContext(t), "w.0", task.Grants, Flags{})} {
				if !errors.Is(err, ErrBroken) || !(errors.Is(err, page.ErrDamaged) || errors.Is(err, errDamagedRecord)) || !strings.Contains(err.Error(), file) {
					t.Errorf("%s on a damaged %s: %v", asked, name, err)
				}
			}
			if got := sample(t, b); len(got.Devices) != 1 {
				t.Errorf("meters beside a broken task: %+v", got)
			}
			if left := b.Prepared(); len(left) != 1 || left[0].UID != "w.0" || left[0].UserID != uint32(os.Geteuid()) {
				t.Errorf("prepared: %+v", left)
			}
			if err := b.Unprepare(testContext(t), "w.0"); err != nil || len(b.Prepared()) != 0 {
				t.Errorf("taken back: %v; left %v", err, b.Prepared())
			}
			if _, err := b.Prepare(testContext(t), aTask("w.1", 750, 800, "GPU-a")); err != nil {
				t.Errorf("another task: %v", err)
			}
		})
	}
}

// TestBrokenTask: a task whose pages are spoiled or lost under a living agent is told of, at the next look or when an arbiter comes
// that does not take it over, and can be taken back; others are as they were.
func TestBrokenTask(t *testing.T) {
	for name, harm := range map[string]func(*testing.T, string){
		"book":    func(t *testing.T, folder string) { spoil(t, filepath.Join(folder, "tasks/w.0/book")) },
		"ctl":     func(t *testing.T, folder string) { spoil(t, filepath.Join(folder, "tasks/w.0/ctl")) },
		"folder":  func(t *testing.T, folder string) { remove(t, filepath.Join(folder, "tasks/w.0")) },
		"arbiter": func(t *testing.T, folder string) { setMode(t, folder, "refuse add w.0") },
	} {
		t.Run(name, func(t *testing.T) {
			folder := fakeRun(t)
			a := openFake(t, folder, newFakeDevices("GPU-a"))
			for _, uid := range []string{"w.0", "w.1"} {
				if _, err := a.Prepare(testContext(t), aTask(uid, 250, 800, "GPU-a")); err != nil {
					t.Fatal(err)
				}
			}
			before := a.Used(testContext(t), "w.0")
			harm(t, folder)
			if name != "arbiter" {
				a.checkPages()
			} else if err := a.arbiter.current().signal(unix.SIGKILL); err != nil {
				t.Fatal(err)
			}
			if n := nextNotice(t, a, Broken); n.Task != "w.0" || !strings.Contains(n.Reason, "cannot be held to its share") {
				t.Errorf("notice %+v", n)
			}
			if now := a.Used(testContext(t), "w.0"); !reflect.DeepEqual(now, before) {
				t.Errorf("used %+v, and before it was broken %+v", now, before)
			}
			if err := a.Unprepare(testContext(t), "w.0"); err != nil {
				t.Fatal(err)
			}
			a.checkPages()
			if got := a.wholeTasks(); len(got) != 1 || got[0].Task.UID != "w.1" {
				t.Errorf("whole: %v", got)
			}
		})
	}
}

// spoil writes over all of a file.
func spoil(t *testing.T, path string) {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for i := range content {
		content[i] ^= 0x55
	}
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
}

func remove(t *testing.T, path string) {
	t.Helper()
	if err := os.RemoveAll(path); err != nil {
		t.Fatal(err)
	}
}

// TestDamagedDevicePage: it is made anew with the arbiter that had it in use, whoever runs runs on, and the rows of its books add up.
func TestDamagedDevicePage(t *testing.T) {
	folder := shortFolder(t)
	a := openWhole(t, folder, "a10x1")
	device := a.Devices()[0].UUID
	launched, err := a.Prepare(testContext(t), aTask("w.0", 250, 800, device))
	if err != nil {
		t.Fatal(err)
	}
	program := start(t, launched.Env)
	program.tell("launch 20")
	used := a.Used(testContext(t), "w.0")[0]
	closeAgent(t, a)
	spoil(t, filepath.Join(folder, "devices", device))

	b := openWhole(t, folder, "a10x1")
	if n := nextNotice(t, b, DeviceFault); n.Device != device || !strings.Contains(n.Message, "damaged") {
		t.Errorf("notice %+v", n)
	}
	program.tell("launch 20")
	now := sample(t, b)
	if u := now.Tasks[0]; u.Held < used.Held || u.Launches < used.Launches || len(u.Processes) != 1 {
		t.Errorf("used %+v, and before %+v", u, used)
	}
	d := now.Devices[0]
	if rows := d.Own + d.Burst + d.Lent + d.Reserved + d.Idle + d.Down; rows != d.Since {
		t.Errorf("the rows of %+v are %v, the books are of %v", d, rows, d.Since)
	}
}
