package node

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/aliquot-dev/aliquot/api"
)

// TestMemoryByDriver: a share is doubted at the second look in a row at which the driver says that it holds more than it may, with what a
// driver takes itself; where the driver does not say, nothing is known, and nobody is doubted.
func TestMemoryByDriver(t *testing.T) {
	const most = 1 << 30 // the floor of aTask: the fake arbiter grants nothing more
	folder := fakeRun(t)
	devices := newFakeDevices("GPU-a")
	a := openStopping(t, folder, devices, api.ShowUnenforced)
	for _, uid := range []string{"w.0", "w.1"} {
		if _, err := a.Prepare(testContext(t), aTask(uid, 250, 800, "GPU-a")); err != nil {
			t.Fatal(err)
		}
	}
	tel, _ := pages(t, folder, "w.0")
	register(tel, 0, os.Getpid())
	register(tel, 1, os.Getpid()) // the same process twice holds its memory once
	l := newLooking(nil)
	look := func(held ...api.Bytes) (doubts uint64, byDriver *api.Bytes) {
		t.Helper()
		devices.compute("GPU-a")
		for _, memory := range held {
			devices.hold("GPU-a", os.Getpid(), memory)
		}
		a.look(testContext(t), l)
		s := sample(t, a)
		return s.Devices[0].MemoryDoubts, s.Tasks[0].MemoryByDriver
	}
	for i, c := range []struct {
		held []api.Bytes
		want uint64
	}{
		{[]api.Bytes{most + driverTakes}, 0},
		{[]api.Bytes{most + driverTakes}, 0},
		{[]api.Bytes{most + driverTakes + 1}, 0},
		{[]api.Bytes{most}, 0},
		{[]api.Bytes{most + driverTakes + 1}, 0}, // not in a row
		{[]api.Bytes{most + driverTakes + 1}, 1},
		{[]api.Bytes{8 << 30}, 1}, // told once
		{nil, 1},
		{[]api.Bytes{8 << 30}, 1},
		{[]api.Bytes{8 << 30}, 2},
	} {
		doubts, byDriver := look(c.held...)
		if doubts != c.want || byDriver == nil || len(c.held) > 0 && *byDriver != c.held[0] || len(c.held) == 0 && *byDriver != 0 {
			t.Errorf("look %d of %v: %d doubts, want %d; the driver says %v", i, c.held, doubts, c.want, byDriver)
		}
	}
	if n := nextNotice(t, a, Unenforced); n.Task != "w.0" || n.Device != "GPU-a" || !strings.Contains(n.Message, "may hold 1Gi") {
		t.Errorf("notice %+v", n)
	}
	if n := nextNotice(t, a, Enforced); n.Task != "w.0" {
		t.Errorf("notice %+v", n)
	}
	devices.compute("GPU-a", os.Getpid()) // of whose memory the driver does not tell
	for range 3 {
		a.look(testContext(t), l)
	}
	if s := sample(t, a); s.Devices[0].MemoryDoubts != 2 || s.Tasks[0].MemoryByDriver != nil {
		t.Errorf("unseen: %+v", s)
	}
	if err := a.Unprepare(testContext(t), "w.0"); err != nil {
		t.Fatal(err)
	}
	a.look(testContext(t), l)
	if len(a.heavy) != 0 || len(l.heavy) != 0 {
		t.Error("a share that is no more is remembered")
	}
}

// TestMemoryLies: a program that writes into its page that it holds nothing gets more than its ceiling from the shim, which sums what the
// page says. The driver's figures give it away: it is told of, its honest neighbour is not, and under the rule it is ended.
func TestMemoryLies(t *testing.T) {
	for _, rule := range []api.UnenforcedRule{api.ShowUnenforced, api.StopUnenforced} {
		t.Run(string(rule), func(t *testing.T) {
			a := openWatchful(t, shortFolder(t), "h200x1", rule)
			device := a.Devices()[0].UUID
			task := func(uid string) Task {
				one := aTask(uid, 250, 1000, device)
				one.Grants[0].MemFloor = one.Grants[0].MemCeiling
				return one
			}
			honest, liar := prepareAndStart(t, a, task("honest")), prepareAndStart(t, a, task("liar"))
			if got := honest.tell("hold 1700"); got != "held" { // with its context all of its ceiling of 2 GiB but some
				t.Fatal(got)
			}
			for _, line := range []string{"hold 1500", "lie", "hold 1500", "lie"} {
				if got := liar.tell(line); got != "held" && got != "lied" {
					t.Fatalf("%s: %s", line, got)
				}
			}
			if n := nextNotice(t, a, Unenforced); n.Task != "liar" || n.Device != device {
				t.Errorf("notice %+v", n)
			}
			if rule == api.ShowUnenforced {
				s := until(t, a, "the driver's word", func(s Sample) bool { return s.Tasks[1].MemoryByDriver != nil })
				if *s.Tasks[1].MemoryByDriver < 3000<<20 || s.Devices[0].MemoryDoubts != 1 || s.Devices[0].Stopped != 0 {
					t.Errorf("%+v", s)
				}
				if got := liar.tell("launch 1"); got != "launched" {
					t.Error(got)
				}
				liar.end()
				nextNotice(t, a, Enforced)
			} else {
				if n := nextNotice(t, a, Stopped); n.Task != "liar" || !strings.Contains(n.Message, fmt.Sprintf("Process %d (tenant)", liar.pid)) {
					t.Errorf("notice %+v", n)
				}
				if liar.lines.Scan() {
					t.Errorf("it was not ended, and said %q", liar.lines.Text())
				}
			}
			if got := honest.tell("launch 5"); got != "launched" {
				t.Error(got)
			}
			if by := sample(t, a).Tasks[0].MemoryByDriver; by == nil || *by < 1700<<20 || *by > 2<<30 {
				t.Errorf("the honest one holds %v by the driver's word", by)
			}
		})
	}
}
