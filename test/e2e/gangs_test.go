package e2e

import (
	encoding "encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/aliquot-dev/aliquot/api"
)

// compile builds a program of testdata against the simulated driver, of which only the names count.
func compile(t *testing.T, name string) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), name)
	out, err := exec.CommandContext(t.Context(), "cc", "-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-pthread", "-I../../native", "-I../../examples",
		"-o", program, "testdata/"+name+".c", "../../build/native/sim/libcuda.so.1", "-lm").CombinedOutput()
	if err != nil {
		t.Fatalf("compile testdata/%s.c: %v\n%s", name, err, out)
	}
	return program
}

// gang is a program of testdata/gang.c: a task, or one on each of several nodes.
type gang struct {
	name, counter string
	devices       uint64 // in all
}

// rounds is how often its kernels have met on all of its devices.
func (g gang) rounds(t *testing.T) uint64 {
	t.Helper()
	bytes, err := os.ReadFile(g.counter)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	if len(bytes) < 8 {
		return 0 // it has not begun
	}
	return encoding.NativeEndian.Uint64(bytes) / g.devices
}

// goOn waits until each of these tasks, all at once, has met so often more.
func goOn(s *server, gangs []gang, rounds uint64) {
	s.t.Helper()
	var until []uint64
	for _, g := range gangs {
		until = append(until, g.rounds(s.t)+rounds)
	}
	for i, g := range gangs {
		eventually(s.t, fmt.Sprintf("end of %d rounds of %s", rounds, g.name), func() bool { return g.rounds(s.t) >= until[i] })
	}
}

// TestGangs: two tasks on the same devices, whose kernels wait on each for those on the others, both go on, also beside a kernel that does
// not end. Over a million launches that is tested under virtual time (native/arbiter/test/gangs.c).
func TestGangs(t *testing.T) {
	program := compile(t, "gang")
	for _, c := range []struct {
		devices uint64
		ranks   string
		rounds  uint64
	}{{2, "threads", 1000}, {2, "processes", 1000}, {8, "threads", 500}, {8, "processes", 500}} {
		t.Run(fmt.Sprintf("%d devices, %s", c.devices, c.ranks), func(t *testing.T) {
			t.Parallel()
			s := up(t, fmt.Sprintf("a10x%d", c.devices))
			var gangs []gang
			for i := range 2 {
				g := gang{fmt.Sprintf("gang-%d", i), filepath.Join(t.TempDir(), "counter"), c.devices}
				s.must("submit", "--name", g.name, "--gpu", "0.30..", "--mem", "4Gi", "--devices", fmt.Sprint(c.devices), "--",
					program, g.counter, fmt.Sprint(c.devices), c.ranks, "50")
				gangs = append(gangs, g)
			}
			goOn(s, gangs, 1) // both have begun
			goOn(s, gangs, c.rounds)
			s.must("submit", "--name", "hog", "--gpu", "0.20..", "--mem", "2Gi", "--", trainer, "--seconds", "1000", "--kernel-us", endless)
			eventually(t, "its kernel on the device", func() bool {
				usage := read[api.Workload](s, "show", "hog").Status.Usage
				return len(usage) == 1 && usage[0].Launches > 0
			})
			goOn(s, gangs, 100)
			for _, g := range gangs {
				if work := read[api.Workload](s, "show", g.name); work.Status.Phase != api.Running {
					t.Errorf("%s: %+v", g.name, work.Status)
				}
			}
		})
	}
}

// TestGangsOverNodes: the same where each of the two programs has tasks on two nodes, with servers, arbiters and devices that know nothing of each
// other, and the two came to them in opposite order: when one node gives its devices to the one and the other node to the other, neither goes on until
// the nodes have them change places.
func TestGangsOverNodes(t *testing.T) {
	program := compile(t, "gang")
	for _, c := range []struct {
		devices uint64 // of each node
		ranks   string
		rounds  uint64
	}{{1, "threads", 500}, {4, "threads", 300}, {4, "processes", 300}} {
		t.Run(fmt.Sprintf("2 nodes of %d devices, %s", c.devices, c.ranks), func(t *testing.T) {
			t.Parallel()
			simulate := fmt.Sprintf("a10x%d", c.devices)
			nodes := []*server{up(t, simulate), up(t, simulate)}
			var gangs []gang
			for i := range 2 {
				g := gang{fmt.Sprintf("gang-%d", i), filepath.Join(t.TempDir(), "counter"), 2 * c.devices}
				for k := range nodes {
					nodes[(i+k)%2].must("submit", "--name", g.name, "--gpu", "0.30..", "--mem", "4Gi", "--devices", fmt.Sprint(c.devices), "--",
						program, g.counter, fmt.Sprint(c.devices), c.ranks, "50", fmt.Sprint(g.devices))
				}
				gangs = append(gangs, g)
			}
			goOn(nodes[0], gangs, 1) // both have begun
			goOn(nodes[0], gangs, c.rounds)
			nodes[0].must("submit", "--name", "hog", "--gpu", "0.20..", "--mem", "2Gi", "--", trainer, "--seconds", "1000", "--kernel-us", endless)
			eventually(t, "its kernel on the device", func() bool {
				usage := read[api.Workload](nodes[0], "show", "hog").Status.Usage
				return len(usage) == 1 && usage[0].Launches > 0
			})
			goOn(nodes[0], gangs, 100)
			for _, s := range nodes {
				for _, g := range gangs {
					if work := read[api.Workload](s, "show", g.name); work.Status.Phase != api.Running {
						t.Errorf("%s: %+v", g.name, work.Status)
					}
				}
			}
		})
	}
}
