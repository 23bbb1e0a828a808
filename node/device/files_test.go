package device

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock"
	"golang.org/x/sys/unix"
)

// machineWith is a machine of which the kernel says this, by the path below /proc.
func machineWith(t *testing.T, said map[string]string) files {
	t.Helper()
	f := files{dev: filepath.Join(t.TempDir(), "dev"), proc: t.TempDir()}
	if err := os.Mkdir(f.dev, 0o755); err != nil {
		t.Fatal(err)
	}
	for path, content := range said {
		path = filepath.Join(f.proc, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return f
}

const kernelDevices = "Character devices:\n  1 mem\n195 nvidia\n195 nvidiactl\n234 nvidia-caps\n508 nvidia-uvm\n\nBlock devices:\n508 blkext\n"

// TestFilesMade: device files that no process has asked for yet are made as the driver's own program would, and those that stand for a number which their module does
// not have any more are made anew; by their number they are found, too.
func TestFilesMade(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to make device files")
	}
	const instance = "driver/nvidia/capabilities/gpu3/mig/gi2"
	f := machineWith(t, map[string]string{
		"devices":                             kernelDevices,
		"driver/nvidia/params":                "ResmanDebugLevel: 4294967295\nDeviceFileUID: 12\nDeviceFileGID: 34\nDeviceFileMode: 432\nModifyDeviceFiles: 1\n",
		"driver/nvidia/gpus/a/information":    "Model: \t\t NVIDIA H200\nDevice Minor: \t 3\n",
		filepath.Join(instance, "access"):     "DeviceFileMinor: 21\nDeviceFileMode: 292\nDeviceFileModify: 1\n",
		filepath.Join(instance, "ci0/access"): "DeviceFileMinor: 22\nDeviceFileMode: 292\nDeviceFileModify: 1\n",
	})
	if err := errors.Join(unix.Mknod(filepath.Join(f.dev, "nvidia-uvm"), unix.S_IFCHR|0o666, int(unix.Mkdev(507, 0))),
		os.WriteFile(filepath.Join(f.dev, "nvidiactl.new"), nil, 0o600)); err != nil { // of one that was killed meanwhile
		t.Fatal(err)
	}
	if err := f.makeGPUs(); err != nil {
		t.Fatal(err)
	}
	common, err := f.common()
	if err != nil {
		t.Fatal(err)
	}
	parts, err := f.instance(3, 2, 0)
	if err != nil {
		t.Fatal(err)
	}
	general, parted := unix.Stat_t{Mode: 0o660, Uid: 12, Gid: 34}, unix.Stat_t{Mode: 0o444}
	for name, want := range map[string]struct {
		major, minor uint32
		as           unix.Stat_t
	}{
		"nvidiactl": {195, 255, general}, "nvidia3": {195, 3, general}, "nvidia-uvm": {508, 0, general}, "nvidia-uvm-tools": {508, 1, general},
		"nvidia-caps/nvidia-cap21": {234, 21, parted}, "nvidia-caps/nvidia-cap22": {234, 22, parted},
	} {
		path := filepath.Join(f.dev, name)
		if name != "nvidia3" && !slices.Contains(slices.Concat(common, parts), path) {
			t.Errorf("%s is not among those that a container is given", name)
		}
		for _, path := range []string{path, filepath.Join(f.dev, "char", fmt.Sprintf("%d:%d", want.major, want.minor))} {
			var is unix.Stat_t
			if err := unix.Stat(path, &is); err != nil {
				t.Fatal(err)
			}
			if is.Rdev != unix.Mkdev(want.major, want.minor) || is.Mode != unix.S_IFCHR|want.as.Mode || is.Uid != want.as.Uid || is.Gid != want.as.Gid {
				t.Errorf("%s is %d:%d with mode %o of %d:%d, want %+v", path, unix.Major(is.Rdev), unix.Minor(is.Rdev), is.Mode, is.Uid, is.Gid, want)
			}
		}
	}
	if left, _ := filepath.Glob(filepath.Join(f.dev, "*.new")); len(left) > 0 {
		t.Errorf("half made files are left: %v", left)
	}
}

// TestFilesNotMade: where the driver was told that others make its files, none is made.
func TestFilesNotMade(t *testing.T) {
	f := machineWith(t, map[string]string{"driver/nvidia/params": "ModifyDeviceFiles: 0\n"})
	if _, err := f.need(controlFile); err == nil || !strings.Contains(err.Error(), "made by others") {
		t.Errorf("got %v", err)
	}
	if left, err := os.ReadDir(f.dev); err != nil || len(left) > 0 {
		t.Errorf("made %v (%v)", left, err)
	}
}

// TestFilesThere: of what the kernel says nothing about, what is there is taken as it is.
func TestFilesThere(t *testing.T) {
	f := machineWith(t, nil)
	for _, one := range memoryFiles {
		if err := os.WriteFile(filepath.Join(f.dev, one.name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := f.need(one); err != nil || got != filepath.Join(f.dev, one.name) {
			t.Errorf("got %v, %v", got, err)
		}
	}
}

// TestModuleLoaded: where the kernel has not loaded what processes use memory by, the driver's own program does, in the driver's root.
func TestModuleLoaded(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to make device files, and to start a program in another root")
	}
	f := machineWith(t, nil)
	f.root = Root{Here: t.TempDir(), Machine: "/run/nvidia/driver"}
	f.proc = filepath.Join(f.root.Here, "proc")
	source, program := filepath.Join(t.TempDir(), "modprobe.c"), filepath.Join(f.root.Here, "usr/bin/nvidia-modprobe")
	if err := errors.Join(os.MkdirAll(filepath.Dir(program), 0o755), os.Mkdir(f.proc, 0o755),
		os.WriteFile(filepath.Join(f.proc, "devices"), nil, 0o600), os.WriteFile(source, []byte(`
		#include <stdio.h>
		#include <string.h>
		int main(int argc, char **argv)
		{
			FILE *said = fopen("/proc/devices", "w");
			return argc != 4 || strcmp(argv[1], "-u") || strcmp(argv[2], "-c") || strcmp(argv[3], "0") || fprintf(said, "508 nvidia-uvm\n") < 0 || fclose(said);
		}`), 0o600)); err != nil {
		t.Fatal(err)
	}
	if _, err := f.common(); err == nil || !strings.Contains(err.Error(), "run chroot /run/nvidia/driver nvidia-modprobe -u -c 0") {
		t.Errorf("without that program: %v", err)
	}
	if out, err := exec.Command("cc", "-static", "-o", program, source).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if got, err := f.common(); err != nil || len(got) != 3 {
		t.Errorf("got %v, %v", got, err)
	}
}

// TestFilesMissing: what cannot be made says which file it is, why, and what to do.
func TestFilesMissing(t *testing.T) {
	f := machineWith(t, map[string]string{"devices": "Character devices:\n195 nvidia\n"})
	_, err := f.need(memoryFiles[0])
	for _, want := range []string{"/dev/nvidia-uvm is not there", "the kernel has not loaded nvidia-uvm", "run nvidia-modprobe -u -c 0 on this machine"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want it to say %q", err, want)
		}
	}
	if _, err := f.instance(0, 1, 0); err == nil || !strings.Contains(err.Error(), "gi1/access") {
		t.Errorf("an instance of which the kernel says nothing: %v", err)
	}
}

// TestFilesOfDevices: a container is given the files of its own devices alone; those of an instance are its GPU's and by what it is allowed.
func TestFilesOfDevices(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to make device files")
	}
	part := func(uuid string, compute int) *mock.Device {
		d := mockDevice(uuid, 10<<20)
		d.GetGpuInstanceIdFunc = func() (int, nvml.Return) { return 2, nvml.SUCCESS }
		d.GetComputeInstanceIdFunc = func() (int, nvml.Return) { return compute, nvml.SUCCESS }
		return d
	}
	parted, whole := mockDevice("GPU-a", 80<<20, part("MIG-a", 0), part("MIG-b", 1)), mockDevice("GPU-b", 80<<20)
	parted.GetMinorNumberFunc = func() (int, nvml.Return) { return 5, nvml.SUCCESS }
	whole.GetMinorNumberFunc = func() (int, nvml.Return) { return 4, nvml.SUCCESS }
	b := mocked(t, "", parted, whole)
	const instance = "driver/nvidia/capabilities/gpu5/mig/gi2"
	b.machine = machineWith(t, map[string]string{
		instance + "/access": "DeviceFileMinor: 21\n", instance + "/ci0/access": "DeviceFileMinor: 22\n", instance + "/ci1/access": "DeviceFileMinor: 23\n",
	})
	common := []string{"nvidia-uvm", "nvidia-uvm-tools", "nvidiactl"}
	caps := func(numbers ...int) (names []string) {
		for _, number := range numbers {
			names = append(names, fmt.Sprintf("nvidia-caps/nvidia-cap%d", number))
		}
		return names
	}
	for _, name := range slices.Concat(common, caps(21, 22, 23)) {
		path := filepath.Join(b.machine.dev, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, nil, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct{ devices, want []string }{
		{[]string{"GPU-b"}, append(slices.Clone(common), "nvidia4")},
		{[]string{"MIG-b"}, slices.Concat(common, caps(21, 23), []string{"nvidia5"})},
		{[]string{"MIG-a", "MIG-b", "GPU-b"}, slices.Concat(common, caps(21, 22, 23), []string{"nvidia4", "nvidia5"})},
	} {
		got, err := b.files(c.devices)
		for i := range got {
			got[i] = strings.TrimPrefix(got[i], b.machine.dev+"/")
		}
		slices.Sort(c.want)
		slices.Sort(got)
		if err != nil || !slices.Equal(got, c.want) {
			t.Errorf("of %v: %v (%v), want %v", c.devices, got, err, c.want)
		}
	}
	if _, err := b.files([]string{"GPU-z"}); err == nil || !strings.Contains(err.Error(), "no such device") {
		t.Errorf("of a device that is not there: %v", err)
	}
}
