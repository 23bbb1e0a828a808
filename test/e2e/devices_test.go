package e2e

import (
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/aliquot-dev/aliquot/api"
)

// When what simulates the devices dies, all devices and all who were on them are told the same, and so is who waits for one.
func TestDeadSimulator(t *testing.T) {
	s := up(t, "a10x2")
	names := []string{"one", "two"}
	for _, name := range names {
		s.must("submit", "--name", name, "--gpu", "1", "--", trainer, "--seconds", "1000")
		s.after(name, unstarted...)
	}
	killed := false
	for folder, line := range processesOf(t, s.run) {
		if strings.Contains(line, "aliquot-simgpu serve") {
			pid, err := strconv.Atoi(filepath.Base(folder))
			if err != nil {
				t.Fatal(err)
			}
			killed = syscall.Kill(pid, syscall.SIGKILL) == nil
		}
	}
	if !killed {
		t.Fatal("there is no simulator to kill")
	}
	const why = "the process that simulates the devices (pid "
	eventually(t, "word about both devices", func() bool {
		devices := read[[]api.Device](s, "devices")
		return devices[0].Health == api.Down && devices[1].Health == api.Down
	})
	for _, device := range read[[]api.Device](s, "devices") {
		if !strings.HasPrefix(device.HealthReason, why) || device.ComputeFree != 0 || device.MemoryFree != 0 {
			t.Errorf("device %+v", device)
		}
	}
	for _, name := range names {
		s.after(name, live...)
		eventually(t, "reason why "+name+" ended", func() bool {
			return strings.Contains(read[api.Workload](s, "show", name).Status.Reason, why)
		})
	}
	s.must("submit", "--name", "next", "--gpu", "0.1", "--mem", "1Gi", "--", "true")
	next := read[api.Why](s, "why", "next")
	if !strings.HasPrefix(next.Message, "devices 0 and 1 are down: "+why) || strings.Contains(next.Unblock, "smaller") {
		t.Errorf("why the next one waits: %+v", next)
	}
}
