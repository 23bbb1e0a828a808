package e2e

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/aliquot-dev/aliquot/api"
)

// Devices have the latency classes that the server was told in the background, and work that asks for one runs there alone. Under a policy that weighs
// latency what asks for none leaves fast devices to it.
func TestLatencyClasses(t *testing.T) {
	folder, err := os.MkdirTemp("", "alq")
	if err != nil {
		t.Fatal(err)
	}
	s := serverIn(t, folder)
	s.must("up", "--detach", "--simulate", "h200x1,a10x2", "--state", s.state, "--http", s.http, "--latency-class", "1@H200,3@a10")
	devices := read[[]api.Device](s, "devices")
	for i, want := range []int32{1, 3, 3} {
		if devices[i].LatencyClass != want {
			t.Errorf("device %d (%s) has class %d, want %d", i, devices[i].Model, devices[i].LatencyClass, want)
		}
	}
	if got := s.command("up", "--detach", "--latency-class", "2"); got.status != 1 || !strings.Contains(got.err, "--latency-class 2 was asked for") || !strings.Contains(got.err, "--latency-class 1@H200,3@a10: ") {
		t.Errorf("up with other classes: %s", got)
	}
	if got := s.command("submit", "--model", "A10", "--max-latency-class", "2", "--", "true"); got.status != 1 || !strings.Contains(got.err, "with latency class 2 or a faster one, and none is known to have it") {
		t.Errorf("a class that no A10 has: %s", got)
	}
	file := filepath.Join(t.TempDir(), "fast.policy")
	if err := os.WriteFile(file, []byte("aliquot policy 1\nplacement latency=1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s.must("policy", "set", file)
	for _, c := range []struct {
		asks string
		on   int
	}{
		{"any --gpu 1 --max-latency-class 9", 1}, // one of the slowest that will do
		{"fast --gpu 0.5 --max-latency-class 2", 0},
		{"next --gpu 1", 2},
		{"last --gpu 0.5", 0}, // nothing slower has room
	} {
		s.must(strings.Fields("submit --mem 1Gi --name " + c.asks + " -- " + trainer + " --seconds 600")...)
		name, _, _ := strings.Cut(c.asks, " ")
		on := s.after(name, unstarted...).Status.Grants[0].Device
		if i := slices.IndexFunc(devices, func(d api.Device) bool { return d.UUID == on }); i != c.on {
			t.Errorf("%s is on device %d, want %d", name, i, c.on)
		}
	}
}
