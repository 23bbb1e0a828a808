package doctor

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/aliquot-dev/aliquot/api"
)

var update = flag.Bool("update", false, "write the golden files again")

// fine is a machine on which everything works.
func fine() Facts {
	return Facts{
		Version: "1.0", Kernel: "6.1.0-18-amd64", Arch: "amd64", UID: 0, User: "root", Cgroup: 2, Memlock: unlimited, TimerLate: 60_000,
		Folders:     []Folder{{Name: "state", Path: "/var/lib/aliquot", Free: 10 << 30}, {Name: "run", Path: "/run/aliquot", Free: 2 << 30}},
		NVMLDevices: 8, Info: api.Info{Version: "1.0", User: "root", ShimMode: "mounts"},
		Devices: []api.Device{{UUID: "GPU-0", Health: api.Healthy}}, ArbiterSays: "version 1",
		Probed: true, ProbeSays: "1 device with 1 GiB", ProbeName: "aliquot-probe-1a2b",
	}
}

// poor is a machine on which little does.
func poor() Facts {
	return Facts{
		Version: "1.1", Kernel: "4.19.0", Arch: "amd64", UID: 1000, User: "ann", MountNamespace: unix.EPERM,
		Realtime: unix.EPERM, Memlock: 1 << 10, TimerLate: 3_000_000,
		Folders: []Folder{
			{Name: "state", Path: "/home/ann/.local/state/aliquot", Free: 1 << 20},
			{Name: "run", Path: "/tmp/aliquot-1000", Free: 1 << 29},
			{Name: "other", Path: "/x", Err: errors.New("cannot be written (permission denied)")},
			{Name: "shared", Path: "/y", Open: true, Free: 1 << 40},
		},
		StaleSockets: []string{"/tmp/aliquot-1000/aliquot.sock"},
		Info:         api.Info{Version: "1.0", User: "ann", ShimMode: "library path", Warnings: []string{"the log is large"}},
		Devices: []api.Device{
			{Index: 1, Health: api.Healthy, Unseen: api.UnseenMemory},
			{Index: 2, Health: api.Healthy, Unseen: api.UnseenProcesses},
			{
				UUID: "GPU-0", Index: 0, Model: "A10", Health: api.Down, HealthReason: "XID 79", Unenforced: []api.Process{{PID: 7, Name: "python", User: "eve"}},
				Grants: []api.Usage{{Workload: "pair", UnknownCalls: 3, Enforced: true}, {Workload: "other", Enforced: true}, {Workload: "pair", UnknownCalls: 3, Enforced: true}},
			},
		},
		Socket: "/tmp/aliquot-1000/aliquot.sock", OtherRun: "/run/aliquot",
		Arbiter: errors.New("connection refused"), Driver: errors.New("no libcuda.so.1 was found"),
		Probed: true, Probe: errors.New("the probe saw 8 devices with 140 GiB of memory, and its share is 1 with 1 GiB: it does not find the shim"),
	}
}

func render(findings []Finding) string {
	var out strings.Builder
	for _, one := range findings {
		fmt.Fprintf(&out, "%-4s %-16s %s: %s\n", one.Severity, one.Code, one.Title, one.Detail)
		if one.Do != "" {
			fmt.Fprintf(&out, "     -> %s\n", one.Do)
		}
	}
	return out.String()
}

func TestJudge(t *testing.T) {
	gone := fine()
	gone.Server = errors.New("no server answers at /run/aliquot/aliquot.sock: start one with `aliquot up`")
	broken := fine()
	broken.NVML, broken.CgroupWrite, broken.ArbiterHidden, broken.Probed, broken.ProbeSkipped = errors.New("driver not loaded"), unix.EACCES, true, false, "no room"
	simulated := fine()
	simulated.Info.Simulated, simulated.Info.ShimMode, simulated.Driver = true, "library path", errors.New("no libcuda.so.1 was found")
	none := fine()
	none.NVMLDevices, none.Devices, none.Cgroup = 0, []api.Device{}, 1
	another := poor() // what this user may not do is no fault of root's server
	another.Version, another.Arbiter, another.ArbiterHidden, another.Probe, another.ProbeSays = "1.0", nil, true, nil, "1 device with 1 GiB"
	another.Info, another.Devices, another.Kernel, another.TimerLate = fine().Info, fine().Devices, "6.1.0", 0
	another.Info.AllUsers, another.Info.User, another.Driver, another.NVMLDevices, another.OtherRun = true, "ann", nil, 8, ""
	down := simulated
	down.Probed, down.ProbeSkipped = false, "no device has room for it"
	down.Devices = []api.Device{
		{UUID: "GPU-0", Model: "H200", Simulated: true, Health: api.Down, HealthReason: "its process has ended"},
		{UUID: "GPU-1", Index: 1, Model: "H200", Simulated: true, Health: api.Down, HealthReason: "its process has ended"},
	}
	contained, budget1, budget2 := fine(), fine(), fine() // root who may not run before others, and why
	contained.Realtime, budget1.Realtime, budget2.Realtime = unix.EPERM, unix.EPERM, unix.EPERM
	budget1.MayNice, budget1.Cgroup, budget2.MayNice = true, 1, true
	for name, test := range map[string]struct {
		facts Facts
		worst Severity
	}{
		"fine": {fine(), OK}, "poor": {poor(), Fail}, "no-server": {gone, Fail}, "broken-driver": {broken, Fail}, "simulated": {simulated, Warn}, "no-devices": {none, Fail},
		"server-of-root": {another, OK}, "all-down": {down, Fail},
		"root-in-a-container": {contained, Warn}, "no-realtime-budget": {budget1, Warn}, "realtime-in-root-group": {budget2, Warn},
	} {
		t.Run(name, func(t *testing.T) {
			findings := Judge(test.facts)
			if worst := Worst(findings); worst != test.worst {
				t.Errorf("the worst is %s, want %s", worst, test.worst)
			}
			codes := map[string]bool{}
			for _, one := range findings {
				if codes[one.Code] {
					t.Errorf("the code %s is not its own", one.Code)
				}
				codes[one.Code] = true
				if one.Severity == OK && one.Do != "" {
					t.Errorf("%s is fine, and there is something to do: %s", one.Code, one.Do)
				}
			}
			golden(t, name, render(findings))
		})
	}
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name+".txt")
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s is now:\n%s\nand was:\n%s", path, got, want)
	}
}

// On any machine the facts are gathered, whatever they are, and judged.
func TestMachine(t *testing.T) {
	run := t.TempDir()
	facts := Machine(t.Context(), run, filepath.Join(run, "not", "made", "yet"))
	if facts.Kernel == "" || facts.User == "" || facts.UID != os.Geteuid() {
		t.Errorf("%+v", facts)
	}
	for _, folder := range facts.Folders {
		if folder.Err != nil || folder.Free == 0 {
			t.Errorf("%+v", folder)
		}
	}
	facts.Server = errors.New("none")
	if findings := Judge(facts); len(findings) < 8 {
		t.Errorf("only %d findings", len(findings))
	}
}

func TestKernelAtLeast(t *testing.T) {
	for release, want := range map[string]bool{
		"5.4": true, "5.4.0-150-generic": true, "5.3.18": false, "6.1.0": true, "4.19.0": false, "5": false, "10.0-rc1": true, "": false, "weird": false,
	} {
		if got := kernelAtLeast(release, oldestKernel); got != want {
			t.Errorf("%q at least %s: %v", release, oldestKernel, got)
		}
	}
}

func TestLook(t *testing.T) {
	folder := t.TempDir()
	file := filepath.Join(folder, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if got := look("state", file); got.Err == nil {
		t.Error("a file passes for a folder")
	}
	if err := os.Chmod(folder, 0o777); err != nil { //nolint:gosec // the test is about such a folder
		t.Fatal(err)
	}
	if got := look("state", folder); !got.Open {
		t.Error("a folder that others can write to passes")
	}
	if got := look("state", filepath.Join(folder, "below")); got.Open || got.Err != nil {
		t.Errorf("a folder that is not there yet: %+v", got)
	}
}

func TestCgroups(t *testing.T) {
	root := t.TempDir()
	write := func(path, text string) {
		full := filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(full), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(full, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("none/keep", "")
	write("v1/cpu/group/keep", "")
	write("v1/memory/group/keep", "")
	write("v2/cgroup.controllers", "cpu memory")
	write("v2/group/keep", "")
	write("self1", "4:memory:/group\n3:cpu:/group\n")
	write("self2", "0::/group\n")
	for _, test := range []struct {
		root, self string
		version    int
		good       bool
	}{
		{"none", "self1", 0, true},
		{"v1", "self1", 1, true},
		{"v2", "self2", 2, true},
		{"v2", "gone", 0, false},
	} {
		version, err := cgroups(filepath.Join(root, test.root), filepath.Join(root, test.self))
		if version != test.version || (err == nil) != test.good {
			t.Errorf("%s: version %d, %v", test.root, version, err)
		}
	}
}

// Root in a user namespace has every capability there, and on the machine none.
func TestMayNice(t *testing.T) {
	folder := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(folder, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	all := write("all", "Name:\tx\nCapInh:\t0000000000000000\nCapPrm:\t0000000000000000\nCapEff:\t000001ffffffffff\n")
	lacks := write("lacks", "CapPrm:\t000001ffffffffff\nCapEff:\t00000000a80425fb\n") // of a container
	cut := write("cut", "Name:\tx\n")
	whole, part := write("whole", "         0          0 4294967295\n"), write("part", "         0       1000          1\n")
	none := filepath.Join(folder, "none")
	for _, test := range []struct {
		status, users string
		want          bool
	}{
		{all, whole, true},
		{all, none, true},
		{all, part, false},
		{lacks, whole, false},
		{cut, whole, false},
		{none, whole, false},
	} {
		if got := mayNice(test.status, test.users); got != test.want {
			t.Errorf("%s, %s: %v", filepath.Base(test.status), filepath.Base(test.users), got)
		}
	}
}

func TestStaleSockets(t *testing.T) {
	run, err := os.MkdirTemp("", "alq")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(run) })
	stale, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(run, "old.sock"), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	stale.SetUnlinkOnClose(false)
	_ = stale.Close()
	served, err := net.Listen("unix", filepath.Join(run, "new.sock"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = served.Close() })
	if got := staleSockets(run); !slices.Equal(got, []string{filepath.Join(run, "old.sock")}) {
		t.Errorf("%q", got)
	}
}

// An arbiter is one that answers ping with ok.
func TestPingArbiter(t *testing.T) {
	for answer, want := range map[string]string{"ok 1 42": "version 1", "ok": "ok", "error: no": ""} {
		run, err := os.MkdirTemp("", "alq")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.RemoveAll(run) })
		listener, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: filepath.Join(run, "arbiter.ctl"), Net: "unixpacket"})
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			buffer := make([]byte, 64)
			if n, _ := conn.Read(buffer); string(buffer[:n]) == "ping" {
				_, _ = conn.Write([]byte(answer))
			}
			_ = conn.Close()
		}()
		says, hidden, err := PingArbiter(run)
		if says != want || hidden || (err == nil) != (want != "") {
			t.Errorf("%q: %q, hidden %v, %v", answer, says, hidden, err)
		}
		<-done
		_ = listener.Close()
	}
	if _, _, err := PingArbiter(t.TempDir()); err == nil {
		t.Error("an arbiter answers where there is none")
	}
}

func TestCompare(t *testing.T) {
	work := api.Workload{Status: api.WorkloadStatus{Grants: []api.Grant{{MemoryCeiling: 1 << 30}}}}
	for text, good := range map[string]bool{
		`{"devices": 1, "total": 1073741824, "free": 1}`:   true,
		`{"devices": 8, "total": 1073741824, "free": 1}`:   false,
		`{"devices": 1, "total": 150323855360, "free": 1}`: false,
		`no json`: false,
		``:        false,
	} {
		if _, err := compare(text, work); (err == nil) != good {
			t.Errorf("%q: %v", text, err)
		}
	}
	if _, err := compare(`{"devices": 1}`, api.Workload{}); err == nil {
		t.Error("a probe without a grant passes")
	}
}

func TestTimerEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if late := timerLateness(ctx); late != 0 {
		t.Errorf("a timer was waited for, which was %s late", late)
	}
}

// TestAroundShare: who goes around its share was started with one already, and is told what helps.
func TestAroundShare(t *testing.T) {
	device := api.Device{Grants: []api.Usage{{Workload: "esc"}, {Workload: "held", Enforced: true}, {Workload: "esc"}}}
	if got := aroundShare(device); !strings.Contains(got, "there: esc. ") || strings.Contains(got, "held") {
		t.Error(got)
	}
}
