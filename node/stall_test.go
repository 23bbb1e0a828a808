package node

import (
	"encoding/binary"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/node/device"
	"github.com/aliquot-dev/aliquot/node/page"
)

// writeStall writes what an arbiter says of work that does not end; since 0: there is none.
func writeStall(t *testing.T, folder, uuid string, since uint64, uid string, pid int) {
	t.Helper()
	m, err := page.Open[page.Device](filepath.Join(folder, "devices", uuid), true)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	var text [page.UIDLen]byte
	copy(text[:], uid)
	err = m.View(func(d *page.Device) error {
		d.Seq.Add(1)
		d.StallSinceNS.Store(since)
		for i := range d.StallUID {
			d.StallUID[i].Store(binary.LittleEndian.Uint64(text[8*i:]))
		}
		d.StallPID.Store(int32(pid))
		d.Seq.Add(1)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestStall: a device on which work that does not end takes others' floors takes no new task, with whose work it is, until that is over.
func TestStall(t *testing.T) {
	folder := fakeRun(t)
	a := openFake(t, folder, newFakeDevices("GPU-a", "GPU-b"))
	ctx := testContext(t)
	writeStall(t, folder, "GPU-b", monotonic(), "hog.0", 77)
	n := nextNotice(t, a, DeviceSick)
	if n.Device != "GPU-b" || n.Task != "hog.0" || !strings.HasPrefix(n.Reason, "it is sick: work of task hog.0 (process 77) has not ended since ") {
		t.Errorf("notice %+v", n)
	}
	if d := a.Devices(); d[0].Health != api.Healthy || d[1].Health != api.Draining || d[1].Reason != n.Reason {
		t.Errorf("devices %+v", d)
	}
	if _, err := a.Prepare(ctx, aTask("w.0", 250, 800, "GPU-b")); err == nil {
		t.Error("a task was prepared on a device that is sick")
	}
	if _, err := a.Prepare(ctx, aTask("w.1", 250, 800, "GPU-a")); err != nil {
		t.Errorf("beside it: %v", err)
	}
	writeStall(t, folder, "GPU-b", 0, "", 0)
	if n := nextNotice(t, a, DeviceBack); n.Device != "GPU-b" {
		t.Errorf("notice %+v", n)
	}
	if _, err := a.Prepare(ctx, aTask("w.0", 250, 800, "GPU-b")); err != nil {
		t.Errorf("after it: %v", err)
	}
}

// TestStallAndFault: what the driver reports goes before it, also where that comes second, and stays when the work has ended.
func TestStallAndFault(t *testing.T) {
	folder := fakeRun(t)
	devices := newFakeDevices("GPU-a")
	a := openFake(t, folder, devices)
	writeStall(t, folder, "GPU-a", monotonic(), "hog.0", 77)
	nextNotice(t, a, DeviceSick)
	devices.events <- device.Event{UUID: "GPU-a", Condition: device.Sick, Reason: "XID 48"}
	if n := nextNotice(t, a, DeviceSick); n.Reason != "XID 48" || n.Task != "" {
		t.Errorf("notice %+v", n)
	}
	writeStall(t, folder, "GPU-a", 0, "", 0)
	a.lookForStall("GPU-a", monotonic())
	if d := a.Devices()[0]; d.Health != api.Draining || d.Reason != "XID 48" {
		t.Errorf("device %+v", d)
	}
}

// TestStallIsStopped: only where the rule says so, once, and not before it has lasted.
func TestStallIsStopped(t *testing.T) {
	const began = uint64(time.Hour)
	after := func(length time.Duration) uint64 { return began + uint64(length) }
	stall := page.Stall{Since: began, Task: "hog.0", PID: 77}
	kinds := func(notices []Notice) string {
		var list []string
		for _, n := range notices {
			list = append(list, string(n.Kind))
		}
		return strings.Join(list, ", ")
	}
	for _, rule := range []api.UnenforcedRule{api.ShowUnenforced, api.StopUnenforced} {
		a, d := &Agent{rule: rule}, &deviceState{Device: Device{UUID: "GPU-a", Health: api.Healthy}}
		stopped := ""
		if rule == api.StopUnenforced {
			stopped = string(Stalled)
		}
		steps := []struct {
			stall page.Stall
			now   uint64
			want  string
		}{
			{page.Stall{}, began, ""},
			{stall, after(time.Second), string(DeviceSick)},
			{stall, after(stallPatience - 1), ""},
			{stall, after(stallPatience), stopped},
			{stall, after(2 * stallPatience), ""},
			{page.Stall{}, after(3 * stallPatience), string(DeviceBack)},
			{page.Stall{}, after(4 * stallPatience), ""},
		}
		for i, step := range steps {
			if got := kinds(a.takeStall(d, step.stall, step.now)); got != step.want {
				t.Errorf("%s, step %d: told %q, want %q", rule, i, got, step.want)
			}
		}
	}
}
