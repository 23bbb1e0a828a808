package device

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"golang.org/x/sys/unix"
)

// The number of the device files of NVIDIA's GPUs, and that of the one for all of them (the kernel's devices.txt); those of the driver's other parts are in
// /proc/devices, and other ones whenever a module is loaded.
const (
	gpuPart      = "nvidia"
	memoryPart   = "nvidia-uvm"
	instancePart = "nvidia-caps"
	majorGPU     = 195
	minorControl = 255
)

// files are the device files of a machine, and where the driver says which there are to be. The driver's own program (nvidia-modprobe) makes them when a process
// first asks for one, which none in a container can; so one that is missing is made here, as that would.
type files struct {
	dev, proc string
	root      Root // where that program is
}

func machineOf(options Options) files { return files{dev: "/dev", proc: "/proc", root: options.Root} }

// file is one that is to be there.
type file struct {
	name, part string
	minor      int
	rules      string // where below /proc the driver says who may use it
}

const generalRules = "driver/nvidia/params"

func gpuFile(minor int) file {
	return file{fmt.Sprintf("nvidia%d", minor), gpuPart, minor, generalRules}
}

var (
	controlFile = file{"nvidiactl", gpuPart, minorControl, generalRules}
	memoryFiles = []file{{"nvidia-uvm", memoryPart, 0, generalRules}, {"nvidia-uvm-tools", memoryPart, 1, generalRules}}
)

// files are those by which processes use devices: the driver's own, those of the GPUs, and for a partition those by which its instances are allowed.
func (b *nvmlBackend) files(devices []string) ([]string, error) {
	b.use.RLock()
	defer b.use.RUnlock()
	if b.ended {
		return nil, errors.New("list device files: the backend is closed")
	}
	paths, err := b.machine.common()
	for _, uuid := range devices {
		if err != nil {
			break
		}
		var more []string
		more, err = b.filesOf(uuid)
		paths = append(paths, more...)
	}
	if err != nil {
		return nil, fmt.Errorf("device files: %w", err)
	}
	slices.Sort(paths) // instances of one GPU have its file in common
	return slices.Compact(paths), nil
}

// filesOf are those of one device.
func (b *nvmlBackend) filesOf(uuid string) ([]string, error) {
	at := slices.IndexFunc(b.gpus, func(g gpu) bool { return g.UUID == uuid })
	if at < 0 {
		return nil, fmt.Errorf("device %s: no such device", uuid)
	}
	g := b.gpus[at]
	path, err := b.machine.need(gpuFile(g.minor))
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

// common are those that each process needs, whichever GPU it uses. The module that some are of is loaded by the driver's program, where it is not.
func (f files) common() (paths []string, err error) {
	if _, err := f.major(memoryPart); err != nil {
		f.modprobe()
	}
	for _, one := range append([]file{controlFile}, memoryFiles...) {
		path, err := f.need(one)
		if err != nil {
			return nil, err
		}
		paths = append(paths, path)
	}
	return paths, nil
}

// instance are those by which an instance of a partitioned GPU is allowed, and its compute instance.
func (f files) instance(gpu, of, compute int) ([]string, error) {
	folder := fmt.Sprintf("driver/nvidia/capabilities/gpu%d/mig/gi%d", gpu, of)
	var paths []string
	for _, rules := range []string{filepath.Join(folder, "access"), filepath.Join(folder, fmt.Sprintf("ci%d", compute), "access")} {
		minor, err := numberIn(filepath.Join(f.proc, rules), "DeviceFileMinor")
		if err != nil {
			return nil, err
		}
		path, err := f.need(file{fmt.Sprintf("nvidia-caps/nvidia-cap%d", minor), instancePart, minor, rules})
		if err != nil {
			return nil, err
		}
		paths = append(paths, path)
	}
	return paths, nil
}

// makeGPUs makes the files by which devices are found, where the driver is there and they are not.
func (f files) makeGPUs() (failed error) {
	gpus, err := filepath.Glob(filepath.Join(f.proc, "driver/nvidia/gpus/*/information"))
	if err != nil || len(gpus) == 0 {
		return err
	}
	_, failed = f.need(controlFile)
	for _, gpu := range gpus {
		minor, err := numberIn(gpu, "Device Minor")
		if err == nil {
			_, err = f.need(gpuFile(minor))
		}
		failed = errors.Join(failed, err)
	}
	return failed
}

// need is the path of a device file, which is there after it and, as far as the kernel says anything of its part, is what it is called.
func (f files) need(one file) (string, error) {
	path := filepath.Join(f.dev, one.name)
	var is unix.Stat_t
	there := unix.Stat(path, &is) == nil
	major, err := f.major(one.part)
	if err != nil {
		if there {
			return path, nil
		}
		return "", fmt.Errorf("%s is not there and cannot be made: %w", path, err)
	}
	number := unix.Mkdev(uint32(major), uint32(one.minor))
	if !there || is.Mode&unix.S_IFMT != unix.S_IFCHR || is.Rdev != number { // the module may have had another number when it was made
		if err := f.make(path, number, one.rules); err != nil {
			return "", fmt.Errorf("%s is not there, or is another device, and cannot be made: %w", path, err)
		}
	}
	// By this systemd knows it, when it is told to read its units anew: else it takes the file from containers then.
	char := filepath.Join(f.dev, "char", fmt.Sprintf("%d:%d", major, one.minor))
	if err := replaceLink(filepath.Join("..", one.name), char); err != nil {
		return "", fmt.Errorf("%s is there, and cannot be made known by its number: %w", path, err)
	}
	return path, nil
}

// make makes a device file, with the owner and the mode that the driver was told to give it.
func (f files) make(path string, number uint64, rules string) error {
	mode, owner, group := 0o666, 0, 0
	if said, err := readFields(filepath.Join(f.proc, rules)); err == nil {
		if said["ModifyDeviceFiles"] == "0" || said["DeviceFileModify"] == "0" {
			return fmt.Errorf("the driver was told that its files are made by others (%s)", filepath.Join(f.proc, rules))
		}
		for name, value := range map[string]*int{"DeviceFileMode": &mode, "DeviceFileUID": &owner, "DeviceFileGID": &group} {
			if number, err := strconv.Atoi(said[name]); err == nil {
				*value = number
			}
		}
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	half := path + ".new"
	if err := os.Remove(half); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := unix.Mknod(half, unix.S_IFCHR|uint32(mode), int(number)); err != nil {
		return err
	}
	if err := errors.Join(os.Chmod(half, os.FileMode(mode)), os.Chown(half, owner, group)); err != nil {
		return errors.Join(err, os.Remove(half))
	}
	return os.Rename(half, path)
}

// replaceLink makes a link that says where a file is, in place of what is there.
func replaceLink(target, at string) error {
	if have, err := os.Readlink(at); err == nil && have == target {
		return nil
	}
	half := at + ".new"
	if err := os.Remove(half); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return errors.Join(os.MkdirAll(filepath.Dir(at), 0o755), os.Symlink(target, half), os.Rename(half, at))
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
	if part != memoryPart {
		return 0, fmt.Errorf("the kernel's driver has no %s", part)
	}
	command := "nvidia-modprobe -u -c 0"
	if f.root.Machine != "" && f.root.Machine != "/" {
		command = "chroot " + f.root.Machine + " " + command
	}
	return 0, fmt.Errorf("the kernel has not loaded %s; run %s on this machine", part, command)
}

// modprobePaths is where drivers put the program that loads their modules, and modprobeWithin for how long it may.
var modprobePaths = []string{"/usr/bin/nvidia-modprobe", "/usr/sbin/nvidia-modprobe", "/usr/local/bin/nvidia-modprobe", "/opt/bin/nvidia-modprobe"}

const modprobeWithin = 30 * time.Second

// modprobe has the driver's own program load what processes use memory by. What came of it shows when that is needed.
func (f files) modprobe() {
	for _, path := range modprobePaths {
		if _, err := f.root.resolve(path); err != nil {
			continue
		}
		within, cancel := context.WithTimeout(context.Background(), modprobeWithin)
		defer cancel()
		command := exec.CommandContext(within, path, "-u", "-c", "0")
		command.Dir = "/"
		if !f.root.own() {
			command.SysProcAttr = &syscall.SysProcAttr{Chroot: f.root.Here}
		}
		_ = command.Run()
		return
	}
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

// numberIn is what such a file says of a field that is a number.
func numberIn(file, field string) (int, error) {
	said, err := readFields(file)
	if err != nil {
		return 0, err
	}
	number, err := strconv.Atoi(said[field])
	if err != nil {
		return 0, fmt.Errorf("%s says no %s", file, field)
	}
	return number, nil
}
