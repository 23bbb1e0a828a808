package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/aliquot-dev/aliquot/api"
)

// Simulated devices that are linked in pairs, one half at each memory node, are shown so, and under a policy that weighs links a workload on two devices
// goes where two are linked, also where two others would do.
func TestLinkedDevices(t *testing.T) {
	s := up(t, "a10x6,linked=2,numa=3")
	devices := read[[]api.Device](s, "devices")
	for i, d := range devices {
		if d.Link != devices[i/2*2].UUID || d.NUMA != fmt.Sprint(i/3) {
			t.Errorf("device %d is linked by %q, at memory node %q", i, d.Link, d.NUMA)
		}
	}
	file := filepath.Join(t.TempDir(), "linked.policy")
	if err := os.WriteFile(file, []byte("aliquot policy 1\nplacement remainder=1 linked=1000 same_numa=100\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s.must("policy", "set", file)
	for _, c := range []struct {
		name, devices string
		on            []int
	}{
		{"one", "1", []int{0}},    // its neighbour 1 is left alone
		{"two", "2", []int{4, 5}}, // of the pairs that are left the one at one memory node
		{"next", "2", []int{2, 3}},
	} {
		s.must("submit", "--name", c.name, "--gpu", "0.6", "--devices", c.devices, "--", trainer, "--seconds", "600")
		var on []int
		for _, g := range s.after(c.name, unstarted...).Status.Grants {
			on = append(on, slices.IndexFunc(devices, func(d api.Device) bool { return d.UUID == g.Device }))
		}
		if slices.Sort(on); !slices.Equal(on, c.on) {
			t.Errorf("%s is on the devices %v, want %v", c.name, on, c.on)
		}
	}
}
