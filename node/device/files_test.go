package device

import (
	"errors"
	"fmt"
	"os"
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

// TestFilesMade: device files that no process has asked for yet are made, as the driver's own program would.
func TestFilesMade(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to make device files")
	}
	f := machineWith(t, map[string]string{
		"devices":                          kernelDevices,
		"driver/nvidia/params":             "ResmanDebugLevel: 4294967295\nDeviceFileUID: 12\nDeviceFileGID: 34\nDeviceFileMode: 432\n",
		"driver/nvidia/gpus/a/information": "Model: \t\t NVIDIA H200\nDevice Minor: \t 3\n",
		"driver/nvidia/capabilities/gpu3/mig/gi2/access":     "DeviceFileMinor: 21\nDeviceFileMode: 292\n",
		"driver/nvidia/capabilities/gpu3/mig/gi2/ci0/access": "DeviceFileMinor: 22\nDeviceFileMode: 292\n",
	})
	f.makeGPUs()
	common, err := f.common()
	if err != nil {
		t.Fatal(err)
	}
	parts, err := f.instance(3, 2, 0)
	if err != nil {
		t.Fatal(err)
	}
	gpu, err := f.need("nvidia3", gpuPart, 3)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string][2]uint32{
		"nvidiactl": {195, 255}, "nvidia3": {195, 3}, "nvidia-uvm": {508, 0}, "nvidia-uvm-tools": {508, 1},
		"nvidia-caps/nvidia-cap21": {234, 21}, "nvidia-caps/nvidia-cap22": {234, 22},
	} {
		path := filepath.Join(f.dev, name)
		if !slices.Contains(slices.Concat(common, parts, []string{gpu}), path) {
			t.Errorf("%s is not among those that a container is given", name)
		}
		var is unix.Stat_t
		if err := unix.Stat(path, &is); err != nil {
			t.Fatal(err)
		}
		if numbers := [2]uint32{unix.Major(is.Rdev), unix.Minor(is.Rdev)}; numbers != want || is.Mode != unix.S_IFCHR|0o660 || is.Uid != 12 || is.Gid != 34 {
			t.Errorf("%s is %v with mode %o of %d:%d, want %v with mode 660 of 12:34", name, numbers, is.Mode, is.Uid, is.Gid, want)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(f.dev, "*.*")); len(left) > 0 {
		t.Errorf("half made files are left: %v", left)
	}
}

// TestFilesThere: files that are there are taken as they are, whatever the kernel says of them.
func TestFilesThere(t *testing.T) {
	f := machineWith(t, nil)
	for _, name := range []string{"nvidiactl", "nvidia-uvm", "nvidia-uvm-tools"} {
		if err := os.WriteFile(filepath.Join(f.dev, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := f.common(); err != nil || len(got) != 3 {
		t.Errorf("got %v, %v", got, err)
	}
}

// TestFilesMissing: what cannot be made says which file it is, why, and what to do.
func TestFilesMissing(t *testing.T) {
	f := machineWith(t, map[string]string{"devices": "Character devices:\n195 nvidia\n"})
	if err := os.WriteFile(filepath.Join(f.dev, "nvidiactl"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := f.common()
	for _, want := range []string{"/dev/nvidia-uvm is not there", "the kernel has no nvidia-uvm", "nvidia-modprobe -u -c 0"} {
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
	for _, name := range slices.Concat(common, caps(21, 22, 23), []string{"nvidia4", "nvidia5"}) {
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
}
