package device

import (
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/aliquot-dev/aliquot/native"
)

// simulated serves simulated devices in a run folder of its own, as the agent does, with the parts that `make native` built.
func simulated(t *testing.T, devices string) (options Options, inject func(words ...string)) {
	t.Helper()
	run, err := os.MkdirTemp("/tmp", "alq")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(run) })
	if err := native.Install(run); err != nil {
		t.Fatal(err)
	}
	server, socket, control := filepath.Join(run, native.SimGPU), filepath.Join(run, "sim/simgpu.sock"), filepath.Join(run, "simgpu.ctl")
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	command := exec.CommandContext(ctx, server, "serve", "--devices", devices, "--socket", socket, "--control", control, "--record", filepath.Join(run, "sim/record"))
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cancel(); _ = command.Wait() })
	for {
		conn, err := net.Dial("unixpacket", socket)
		if err == nil {
			_ = conn.Close()
			break
		}
		if ctx.Err() != nil {
			t.Fatalf("the simulated devices do not answer: %v", err)
		}
		time.Sleep(time.Millisecond) // its socket appears without a sign that could be waited for
	}
	inject = func(words ...string) {
		t.Helper()
		if out, err := exec.Command(server, append([]string{"inject", "--control", control}, words...)...).CombinedOutput(); err != nil {
			t.Fatalf("inject %v: %v\n%s", words, err, out)
		}
	}
	return Options{Run: run, Simulated: true, Socket: socket}, inject
}

func openSimulated(t *testing.T, options Options) Backend {
	t.Helper()
	b, err := Open(options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

func TestDiscover(t *testing.T) {
	options, _ := simulated(t, "h200x2,a10x1")
	b := openSimulated(t, options)
	devices := b.Devices()
	if len(devices) != 3 {
		t.Fatalf("devices %+v, want 3", devices)
	}
	seen := map[string]bool{}
	for i, d := range devices {
		if d.Index != i || d.UUID == "" || seen[d.UUID] || d.Memory <= 0 || d.Memory%granularity != 0 || d.Parent != "" {
			t.Errorf("device %d: %+v", i, d)
		}
		seen[d.UUID] = true
	}
	if !strings.Contains(devices[0].Model, "H200") || !strings.Contains(devices[2].Model, "A10") {
		t.Errorf("models %q, %q", devices[0].Model, devices[2].Model)
	}
	if c := b.Capabilities(); !c.Discover || !c.LimitCompute || !c.LimitMemory || !c.Meter || c.Partition {
		t.Errorf("capabilities %+v", c)
	}
	reading, err := b.Read(devices[1].UUID)
	if err != nil || reading.MemoryUsed == nil || *reading.MemoryUsed != 0 || reading.Busy == nil || *reading.Busy != 0 || len(reading.Processes) != 0 {
		t.Errorf("an idle device: %+v, %v", reading, err)
	}
	if _, err := b.Read("GPU-none"); err == nil {
		t.Error("read a device that is not there")
	}
}

// TestEvents: faults that the driver reports, and a device that stops answering and comes back, become events of that device.
func TestEvents(t *testing.T) {
	options, inject := simulated(t, "h200x2")
	b := openSimulated(t, options)
	first, second := b.Devices()[0].UUID, b.Devices()[1].UUID
	expect := func(uuid string, condition Condition, reason string) {
		t.Helper()
		select {
		case e := <-b.Events():
			if e.UUID != uuid || e.Condition != condition || !strings.Contains(e.Reason, reason) {
				t.Errorf("event %+v, want %s to be %v for %q", e, uuid, condition, reason)
			}
		case <-time.After(time.Minute): // never reached when it works; not a measure of speed
			t.Fatalf("no event of %s", uuid)
		}
	}
	inject("--device", "1", "xid", "31") // the application's
	expect(second, Same, "XID 31")
	inject("--device", "1", "xid", "92") // told, although nothing is known of it
	expect(second, Same, "XID 92: not one that Aliquot knows")
	inject("--device", "1", "xid", "48")
	expect(second, Sick, "XID 48")
	inject("--device", "0", "gone")
	expect(first, Gone, "")
	inject("--device", "0", "back")
	expect(first, Well, "answers again")
	if _, err := b.Read(first); err != nil {
		t.Error(err)
	}
}

// TestOneLibrary: a process can use one simulated driver after another, but not two at once, and never another library.
func TestOneLibrary(t *testing.T) {
	first, _ := simulated(t, "h200x1")
	second, _ := simulated(t, "a10x4")
	b := openSimulated(t, first)
	if _, err := Open(second); err == nil || !strings.Contains(err.Error(), "close that first") {
		t.Errorf("two at once: %v", err)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if devices := openSimulated(t, second).Devices(); len(devices) != 4 {
		t.Errorf("after the other: %+v, want the second's 4 devices", devices)
	}
	folder := t.TempDir()
	library(t, filepath.Join(folder, "libcuda.so.1"), "driver")
	library(t, filepath.Join(folder, "libnvidia-ml.so.1"), "management")
	if _, err := Open(Options{Run: t.TempDir(), Folders: []string{folder}}); err == nil || !strings.Contains(err.Error(), "only one") {
		t.Errorf("another library: %v", err)
	}
}

// TestServerGone: nobody serves the simulated devices.
func TestServerGone(t *testing.T) {
	options, _ := simulated(t, "h200x1")
	options.Socket = filepath.Join(options.Run, "nobody.sock")
	if _, err := Open(options); !errors.Is(err, ErrNoDriver) {
		t.Errorf("opened: %v", err)
	}
}
