package device

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"golang.org/x/sys/unix"
)

// The number of the device files of NVIDIA's GPUs, and that of the one for all of them (the kernel's devices.txt); those of the driver's other parts are in
// /proc/devices.
const (
	gpuPart      = "nvidia"
	majorGPU     = 195
	minorControl = 255
)

// files are the device files of a machine, and where the driver says which there are to be. The driver's own program (nvidia-modprobe) makes them when a process
// first asks for one, which none in a container can; so one that is missing is made here, as that would.
type files struct{ dev, proc string }

var machine = files{dev: "/dev", proc: "/proc"}

// files are those by which processes use devices: the driver's own, those of the GPUs, and for a partition those by which its instances are allowed.
func (b *nvmlBackend) files(devices []string) ([]string, error) {
	b.use.RLock()
	defer b.use.RUnlock()
	if b.ended {
		return nil, errors.New("list device files: the backend is closed")
	}
	paths, err := b.machine.common()
	for _, g := range b.gpus {
		if err == nil && slices.Contains(devices, g.UUID) {
			var more []string
			more, err = b.filesOf(g)
			paths = append(paths, more...)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("device files: %w", err)
	}
	slices.Sort(paths) // instances of one GPU have its file in common
	return slices.Compact(paths), nil
}

// filesOf are those of one device.
func (b *nvmlBackend) filesOf(g gpu) ([]string, error) {
	path, err := b.machine.need(fmt.Sprintf("nvidia%d", g.minor), gpuPart, g.minor)
	if err != nil || g.Parent == "" {
		return []string{path}, err
	}
	of, ret := g.handle.GetGpuInstanceId()
	if ret != nvml.SUCCESS {
		return nil, failed("its GPU instance", ret)
	}
	compute, ret := g.handle.GetComputeInstanceId()
	if ret != nvml.SUCCESS {
		return nil, failed("its compute instance", ret)
	}
	parts, err := b.machine.instance(g.minor, of, compute)
	return append(parts, path), err
}

// common are those that each process needs, whichever GPU it uses.
func (f files) common() (paths []string, err error) {
	for _, one := range []struct {
		name, part string
		minor      int
	}{{"nvidiactl", gpuPart, minorControl}, {"nvidia-uvm", "nvidia-uvm", 0}, {"nvidia-uvm-tools", "nvidia-uvm", 1}} {
		path, err := f.need(one.name, one.part, one.minor)
		if err != nil {
			return nil, err
		}
		paths = append(paths, path)
	}
	return paths, nil
}

// instance are those by which an instance of a partitioned GPU is allowed, and its compute instance.
func (f files) instance(gpu, of, compute int) ([]string, error) {
	folder := filepath.Join(f.proc, fmt.Sprintf("driver/nvidia/capabilities/gpu%d/mig/gi%d", gpu, of))
	var paths []string
	for _, file := range []string{filepath.Join(folder, "access"), filepath.Join(folder, fmt.Sprintf("ci%d", compute), "access")} {
		said, err := readFields(file)
		if err != nil {
			return nil, err
		}
		minor, err := strconv.Atoi(said["DeviceFileMinor"])
		if err != nil {
			return nil, fmt.Errorf("%s says no DeviceFileMinor", file)
		}
		path, err := f.need(fmt.Sprintf("nvidia-caps/nvidia-cap%d", minor), "nvidia-caps", minor)
		if err != nil {
			return nil, err
		}
		paths = append(paths, path)
	}
	return paths, nil
}

// makeGPUs makes the files by which devices are found, where the driver is there and they are not. What lacks after that shows when they are looked for.
func (f files) makeGPUs() {
	gpus, err := filepath.Glob(filepath.Join(f.proc, "driver/nvidia/gpus/*/information"))
	if err != nil || len(gpus) == 0 {
		return
	}
	_, _ = f.need("nvidiactl", gpuPart, minorControl)
	for _, gpu := range gpus {
		said, err := readFields(gpu)
		if err != nil {
			continue
		}
		if minor, err := strconv.Atoi(said["Device Minor"]); err == nil {
			_, _ = f.need(fmt.Sprintf("nvidia%d", minor), gpuPart, minor)
		}
	}
}

// need is the path of a device file of a part of the driver. It is there after this.
func (f files) need(name, part string, minor int) (string, error) {
	path := filepath.Join(f.dev, name)
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	major, err := f.major(part)
	if err != nil {
		return "", fmt.Errorf("%s is not there and cannot be made: %w", path, err)
	}
	if err := f.make(path, major, minor); err != nil {
		return "", fmt.Errorf("%s is not there and cannot be made: %w; run nvidia-modprobe -u -c 0 on this machine", path, err)
	}
	return path, nil
}

// make makes a device file, with the owner and the mode that the driver was told to give its files.
func (f files) make(path string, major, minor int) error {
	mode, owner, group := 0o666, 0, 0
	if said, err := readFields(filepath.Join(f.proc, "driver/nvidia/params")); err == nil {
		for name, value := range map[string]*int{"DeviceFileMode": &mode, "DeviceFileUID": &owner, "DeviceFileGID": &group} {
			if number, err := strconv.Atoi(said[name]); err == nil {
				*value = number
			}
		}
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	half := fmt.Sprintf("%s.%d", path, os.Getpid())
	if err := unix.Mknod(half, unix.S_IFCHR|uint32(mode), int(unix.Mkdev(uint32(major), uint32(minor)))); err != nil {
		return err
	}
	return errors.Join(os.Chmod(half, os.FileMode(mode)), os.Chown(half, owner, group), os.Rename(half, path))
}

// major is the number of the device files of a part of the driver.
func (f files) major(part string) (int, error) {
	if part == gpuPart {
		return majorGPU, nil
	}
	content, err := os.ReadFile(filepath.Join(f.proc, "devices"))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(content)) {
		number, name, _ := strings.Cut(strings.TrimSpace(line), " ")
		if name == part {
			return strconv.Atoi(number)
		}
	}
	return 0, fmt.Errorf("the kernel has no %s; load its module, with nvidia-modprobe -u -c 0 on this machine", part)
}

// readFields reads a file of lines like `Device Minor: 	 0`.
func readFields(file string) (map[string]string, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	fields := map[string]string{}
	for line := range strings.Lines(string(content)) {
		name, value, _ := strings.Cut(line, ":")
		fields[strings.TrimSpace(name)] = strings.TrimSpace(value)
	}
	return fields, nil
}
