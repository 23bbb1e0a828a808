package node

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/aliquot-dev/aliquot/native"
	"github.com/aliquot-dev/aliquot/node/device"
)

// realDriver is what the process that opens an agent on "the machine's driver" is told. It is a process of its own because a process
// can use only one driver, and this one uses the simulated one by its usual path.
type realDriver struct {
	Run     string
	Folders []string
	Task    Task
}

// openReal prepares a task on the first device of the driver that it finds, and prints how to start its program.
func openReal(told string) error {
	var r realDriver
	if err := json.Unmarshal([]byte(told), &r); err != nil {
		return err
	}
	devices, err := device.Count(r.Folders)
	if err != nil {
		return err
	}
	a, err := Open(context.Background(), Config{Run: r.Run, DriverFolders: r.Folders})
	if err != nil {
		return err
	}
	if a.Simulated() || !a.Mounts() {
		return fmt.Errorf("simulated %v, mounts %v", a.Simulated(), a.Mounts())
	}
	if devices != len(a.Devices()) {
		return fmt.Errorf("the driver knows %d devices, and the agent has %d", devices, len(a.Devices()))
	}
	r.Task.Grants[0].Device = a.Devices()[0].UUID
	launch, err := a.Prepare(context.Background(), r.Task)
	if err != nil {
		return err
	}
	if err := a.Close(); err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(launch)
}

// becomeMounted makes the mounts, in the namespace that this process was started in, and becomes the program.
func becomeMounted(mounts string) error {
	var list []Mount
	if err := json.Unmarshal([]byte(mounts), &list); err != nil {
		return err
	}
	if err := unix.Mount("", "/", "", unix.MS_PRIVATE|unix.MS_REC, ""); err != nil {
		return err
	}
	for _, m := range list {
		if err := unix.Mount(m.Source, m.Target, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("bind %s over %s: %w", m.Source, m.Target, err)
		}
	}
	return unix.Exec(os.Args[1], os.Args[1:], os.Environ())
}

// TestMountMode: where the machine has a driver, a program that finds it by its usual path, and whose environment says nothing of
// Aliquot's libraries, finds the shim there and the driver behind it. The driver is the simulated one, installed as packages
// install a real one.
func TestMountMode(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, for a mount namespace")
	}
	served, folder := shortFolder(t), shortFolder(t)
	openWhole(t, served, "h200x1") // serves the devices
	driver := filepath.Join(folder, "usr/lib")
	install(t, filepath.Join(served, native.Sim), driver)
	runFolder := filepath.Join(folder, "run")
	t.Cleanup(func() { endServer(t, run(runFolder).control()) })

	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	told, err := json.Marshal(realDriver{Run: runFolder, Folders: []string{driver}, Task: aTask("w.0", 250, 800, "to be found")})
	if err != nil {
		t.Fatal(err)
	}
	socket := "ALIQUOT_SIMGPU=" + simSocket(run(served))
	agent := exec.CommandContext(testContext(t), self)
	agent.Env = append(os.Environ(), "ALIQUOT_TEST_REAL="+string(told), socket)
	agent.Stderr = os.Stderr
	out, err := agent.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var launch Launch
	if err := json.Unmarshal(out, &launch); err != nil {
		t.Fatal(err)
	}
	mounts, err := json.Marshal(launch.Mounts)
	if err != nil {
		t.Fatal(err)
	}
	program, err := tenantProgram()
	if err != nil {
		t.Fatal(err)
	}
	environment := []string{"ALIQUOT_TEST_MOUNTED=" + string(mounts), "LD_LIBRARY_PATH=" + driver, socket}
	for _, variable := range launch.Env {
		if !strings.HasPrefix(variable, "LD_LIBRARY_PATH=") {
			environment = append(environment, variable)
		}
	}
	command := exec.CommandContext(testContext(t), self, program)
	command.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNS}
	p := startCommand(t, command, environment)
	if got := p.tell("see"); !strings.HasSuffix(got, fmt.Sprintf(" %d 1", int64(2<<30)>>20)) {
		t.Errorf("the program sees %q, want its share of 2048 MiB and one device", got)
	}
	if got := p.tell("launch 5"); got != "launched" {
		t.Error(got)
	}
	// The same program outside the namespace finds the driver as it is.
	outside := start(t, []string{"LD_LIBRARY_PATH=" + driver, socket})
	if got := outside.tell("see"); strings.HasSuffix(got, fmt.Sprintf(" %d 1", int64(2<<30)>>20)) {
		t.Errorf("outside a program sees %q, which is the share", got)
	}
}

// install puts the simulated driver's libraries where packages put a driver's: a file with a version, links under the usual names.
func install(t *testing.T, from, to string) {
	t.Helper()
	if err := os.MkdirAll(to, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"libcuda.so", "libnvidia-ml.so"} {
		content, err := os.ReadFile(filepath.Join(from, name+".1"))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(to, name+".550.1"), content, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(name+".550.1", filepath.Join(to, name+".1")); err != nil {
			t.Fatal(err)
		}
	}
}
