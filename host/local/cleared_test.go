package local

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/native"
	"github.com/aliquot-dev/aliquot/node"
)

// clearedLaunches are the kernels of 1 ms that the program runs, one after the other.
const clearedLaunches = 400

// serveCleared is a server on the machine's driver: it runs a program with nothing in its environment in a quarter of the first device and 1 GiB
// to 2 GiB of it, and prints what became of that workload. It is a process of its own, because a process can use only one driver.
func serveCleared(root string) (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	config := node.Config{Run: filepath.Join(root, "run"), DriverFolders: []string{filepath.Join(root, "usr/lib")}}
	agent, err := node.Open(ctx, config)
	if err != nil {
		return err
	}
	host, err := Open(ctx, crashConfig(root, realAgent{agent}))
	if err != nil {
		return errors.Join(err, agent.Abandon(ctx))
	}
	defer func() { // the arbiter outlives a host and its agent
		err = errors.Join(err, host.Close())
		last, failed := node.Open(context.Background(), config)
		if failed == nil {
			failed = last.Shutdown(context.Background(), true)
		}
		err = errors.Join(err, failed)
	}()
	said := filepath.Join(root, "said")
	work, err := host.Submit(ctx, me, spec("0.25", fmt.Sprintf("env -i %s/tenant <%s/orders >%s", root, root, said)))
	if err != nil {
		return err
	}
	if work, err = host.Wait(ctx, work.UID, api.Waiting, api.Starting, api.Running, api.Stopping); err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(work)
}

// TestClearedEnvironment: where the machine has a driver, a program with nothing in its environment that finds it by a path of its own is
// held to its task's share and metered, under a server of root's by a mount namespace and under a user's by a user namespace. The
// driver is the simulated one, installed as packages install a real one.
func TestClearedEnvironment(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, for a mount namespace and to become a user without rights")
	}
	served := crashFolder(t)
	devices, err := node.Open(t.Context(), node.Config{Run: served, Simulate: "h200x1"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := devices.Shutdown(context.Background(), true); err != nil {
			t.Error(err)
		}
	})
	if err := os.Chmod(served, 0o755); err != nil { // another user's driver comes to the devices
		t.Fatal(err)
	}
	for name, uid := range map[string]int{"root": 0, "user namespace": 65534} {
		t.Run(name, func(t *testing.T) {
			root := clearedMachine(t, served, uid)
			server := exec.CommandContext(t.Context(), filepath.Join(root, "server"), "cleared", root)
			server.Dir, server.Stderr = "/", os.Stderr
			server.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}}
			out, err := server.Output()
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			var work api.Workload
			if err := json.Unmarshal(out, &work); err != nil {
				t.Fatal(err)
			}
			if uid != 0 && slices.ContainsFunc(work.Status.Notes, func(note string) bool { return strings.Contains(note, "user and mount namespace") }) {
				t.Skipf("this machine allows no user namespaces: %q", work.Status.Notes)
			}
			checkCleared(t, root, work)
		})
	}
}

// checkCleared: the program saw its share and no more, and all that it ran was charged and held to the ceiling.
func checkCleared(t *testing.T, root string, work api.Workload) {
	t.Helper()
	if work.Status.Outcome != api.Succeeded || len(work.Status.Notes) > 0 || len(work.Status.Usage) != 1 {
		t.Fatalf("it is %+v", work.Status)
	}
	data, err := os.ReadFile(filepath.Join(root, "said"))
	if err != nil {
		t.Fatal(err)
	}
	said, uuid := strings.Split(strings.TrimSpace(string(data)), "\n"), work.Status.Grants[0].Device
	if share := uuid + " 2048 1"; !slices.Equal(said, []string{"ready", share, share, "held", "refused", "launched"}) {
		t.Errorf("the program said %q, want its share of 2048 MiB of %s, by both libraries, and no byte above it", said, uuid)
	}
	usage := work.Status.Usage[0]
	if usage.Launches < clearedLaunches || usage.DeviceTime < clearedLaunches*time.Millisecond*9/10 || usage.MemoryPeak < 1<<30 || usage.MemoryPeak > 2<<30 {
		t.Errorf("%d launches of 1 ms and 1 GiB are metered as %+v", clearedLaunches, usage)
	}
	// At 0.25 of the device 400 ms take 1.6 s; what it may save up before, and be ahead by, is far less than a quarter of that.
	if took := work.Status.Ended.Sub(*work.Status.Started); took < 4*clearedLaunches*time.Millisecond*3/4 {
		t.Errorf("%d launches of 1 ms took %v at a ceiling of 0.25", clearedLaunches, took)
	}
}

// clearedMachine is a user's folder with a driver, whose devices are served elsewhere, a program that is linked to find it, and what
// that is told to do.
func clearedMachine(t *testing.T, served string, uid int) string {
	t.Helper()
	root := crashFolder(t)
	driver := filepath.Join(root, "usr/lib")
	compile := exec.Command("cc", "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-I../../native", "-o", filepath.Join(root, "tenant"),
		"../../node/testdata/tenant.c", "-ldl", "-Wl,-rpath,"+driver)
	if out, err := compile.CombinedOutput(); err != nil {
		t.Fatalf("compile tenant.c: %v\n%s", err, out)
	}
	orders := fmt.Sprintf("see\nmanage\nhold 1024\nhold 1025\nlaunch %d\n", clearedLaunches)
	err := errors.Join(os.MkdirAll(driver, 0o755), os.MkdirAll(filepath.Join(root, "run"), 0o755), os.WriteFile(filepath.Join(root, "orders"), []byte(orders), 0o644),
		copyOf(os.Args[0], filepath.Join(root, "server")))
	for _, name := range []string{"libcuda.so.1", "libnvidia-ml.so.1"} {
		err = errors.Join(err, copyOf(filepath.Join(served, native.Sim, name), filepath.Join(driver, name+".550")), os.Symlink(name+".550", filepath.Join(driver, name)))
	}
	// The simulated driver looks for its devices above its own folder, whichever of these that is in a process.
	for _, folder := range []string{"usr", "run"} {
		err = errors.Join(err, os.Symlink(filepath.Join(served, "sim/simgpu.sock"), filepath.Join(root, folder, "simgpu.sock")))
	}
	err = errors.Join(err, filepath.Walk(root, func(path string, _ os.FileInfo, err error) error { return errors.Join(err, os.Lchown(path, uid, uid)) }))
	if err != nil {
		t.Fatal(err)
	}
	return root
}

func copyOf(from, to string) error {
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, data, 0o755)
}
