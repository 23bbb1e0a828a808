package node

import (
	"fmt"
	"os/exec"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestShimOnSimulatedDevices: programs that ask the driver for its functions, as those on the runtime library do, under the real shim
// with the real arbiter. Two processes of a task have one memory ceiling to the MiB, graphs pass the gate and are charged, both
// libraries show the share, and all of it holds through an arbiter that is killed while they work.
func TestShimOnSimulatedDevices(t *testing.T) {
	a := openWhole(t, shortFolder(t), "h200x2")
	device := a.Devices()[1].UUID
	launched, err := a.Prepare(testContext(t), aTask("w.0", 100, 250, device))
	if err != nil {
		t.Fatal(err)
	}
	program, err := tenantProgram()
	if err != nil {
		t.Fatal(err)
	}
	var two [2]*tenant
	for i := range two {
		two[i] = startCommand(t, exec.Command(program, "table"), launched.Env)
	}

	want := fmt.Sprintf("%s %d 1", device, int64(2<<30)>>20)
	for _, view := range []string{"see", "manage"} {
		if got := two[0].tell(view); got != want {
			t.Errorf("%s: %q, want %q", view, got, want)
		}
	}

	overhead := sample(t, a).Tasks[0].Memory >> 20 // of two processes, before they hold anything
	room := int(2<<10 - overhead)
	hold := func(i, size int, want string) {
		t.Helper()
		if got := two[i].tell(fmt.Sprintf("hold %d", size)); got != want {
			t.Errorf("process %d asks for %d MiB of %d: %s, want %s", i, size, room, got, want)
		}
	}
	hold(0, room/2, "held")
	hold(1, room-room/2+1, "refused")
	hold(1, room-room/2, "held")
	hold(0, 1, "refused")
	hold(1, 1, "refused")

	const kernels = 40
	work := func(rounds int) {
		t.Helper()
		for range rounds {
			for _, p := range two {
				if got := p.tell(fmt.Sprintf("graph %d", kernels)); got != "launched" {
					t.Fatal(got)
				}
			}
		}
	}
	// A quarter of the device at most: so much work at once has to wait at the gate.
	const done = 2 * 2 * kernels * time.Millisecond
	before := sample(t, a)
	work(2)
	s := until(t, a, "the graphs being charged", func(s Sample) bool { return s.Tasks[0].Held >= before.Tasks[0].Held+done*9/10 })
	if s.Tasks[0].Waited == 0 || s.Tasks[0].Launches == 0 || len(s.Devices[1].Unenforced) != 0 {
		t.Errorf("graphs passed the gate unseen: %+v, unenforced %v", s.Tasks[0], s.Devices[1].Unenforced)
	}

	if err := a.arbiter.current().signal(unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	work(1)
	nextNotice(t, a, ArbiterBack)
	both := []int{two[0].pid, two[1].pid}
	slices.Sort(both)
	until(t, a, "both registering again", func(s Sample) bool { return slices.Equal(slices.Sorted(slices.Values(s.Tasks[0].Processes)), both) })
	hold(0, 1, "refused")
	hold(1, 1, "refused")
	held := s.Tasks[0].Held
	work(1)
	until(t, a, "the books going on", func(s Sample) bool { return s.Tasks[0].Held >= held+kernels*time.Millisecond })
	checkRows(t, a)
	two[0].end()
	until(t, a, "one being gone", func(s Sample) bool {
		return slices.Equal(s.Tasks[0].Processes, both[:1]) || slices.Equal(s.Tasks[0].Processes, both[1:])
	})
	hold(1, room/2, "held") // what the other held is free again
}
