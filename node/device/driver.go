package device

import (
	"bufio"
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"

	"github.com/aliquot-dev/aliquot/native"
)

// Services are programs of the driver that use devices for others, and may run as the user whom they serve.
var Services = []string{"nvidia-cuda-mps-server", "nvidia-cuda-mps-control", "nvidia-persistenced"}

// The names by which programs ask for the driver. The first of each is its SONAME.
var (
	computeNames    = []string{"libcuda.so.1", "libcuda.so"}
	managementNames = []string{"libnvidia-ml.so.1", "libnvidia-ml.so"}
)

// LibraryNames are the SONAMEs of the driver's libraries, by which programs ask for it: over each of these the shim is laid.
func LibraryNames() []string { return []string{computeNames[0], managementNames[0]} }

// The names under which the shim, and nobody else, asks for the driver.
const (
	realCompute    = "libcuda-real.so.1"
	realManagement = "libnvidia-ml-real.so.1"
)

// usualFolders is where drivers put their libraries on the systems we know, besides what the linker's cache says.
var usualFolders = []string{
	"/usr/lib/" + multiarch(), "/lib/" + multiarch(), "/usr/lib64", "/lib64", "/usr/lib", "/lib",
	"/usr/lib/" + multiarch() + "/nvidia/current", "/usr/lib64/nvidia", "/usr/lib/nvidia",
	"/usr/local/nvidia/lib64", "/usr/local/nvidia/lib", "/usr/lib/wsl/lib", "/run/opengl-driver/lib", "/opt/nvidia/lib64",
	"/usr/lib/nvidia/tesla", "/usr/local/glibc/usr/lib", // Bottlerocket, Talos
}

func multiarch() string {
	if runtime.GOARCH == "arm64" {
		return "aarch64-linux-gnu"
	}
	return "x86_64-linux-gnu"
}

// driver is the driver's libraries and where they are made reachable for the shim. Their paths are those in its root.
type driver struct {
	run        string
	root       Root
	simulated  bool
	compute    string   // real path of the library that programs get today
	management string   // the same
	computes   []string // every distinct file that a program may find under computeNames
	managers   []string // the same for managementNames
	companions []companion
	unseen     error // why a folder could not be looked into, where that was not for its not being there
	notes      []string
}

// findDriver looks for the driver's two libraries.
func findDriver(options Options) (*driver, error) {
	if options.Simulated {
		folder := filepath.Join(options.Run, native.Sim)
		d := &driver{run: options.Run, simulated: true}
		d.compute, d.management = filepath.Join(folder, computeNames[0]), filepath.Join(folder, managementNames[0])
		if Present(nil) == nil {
			d.notes = []string{"This machine also has a real driver: a program that drops LD_LIBRARY_PATH from its environment finds the real devices, past its share. Run without --simulate to share those."}
		}
		return d, nil
	}
	folders := options.Folders
	var cache map[string][]string
	if len(folders) == 0 {
		folders = usualFolders
		if options.Root.own() {
			cache = linkerCache()
		}
	}
	d := &driver{run: options.Run, root: options.Root}
	d.computes = d.search(computeNames, cache, folders)
	d.managers = d.search(managementNames, cache, folders)
	if len(d.computes) == 0 || len(d.managers) == 0 {
		missing := computeNames[0]
		if len(d.computes) > 0 {
			missing = managementNames[0]
		}
		where := folders[0]
		if others := len(folders) - 1; others > 0 {
			where += fmt.Sprintf(" or %d other usual folders", others)
		}
		if d.unseen != nil {
			return nil, fmt.Errorf("%w: no %s in %s, of which not all could be looked at: %w", ErrNoDriver, missing, where, d.unseen)
		}
		if !d.root.own() {
			return nil, fmt.Errorf("%w: no %s in %s of the driver's root %s; install the NVIDIA driver, or say where its root is", ErrNoDriver, missing, where, d.root.Machine)
		}
		return nil, fmt.Errorf("%w: no %s in the linker's cache or in %s; install the NVIDIA driver, or start with simulated GPUs (--simulate h200x2)",
			ErrNoDriver, missing, where)
	}
	d.compute, d.management = d.computes[0], d.managers[0]
	needed, err := neededBy(d.root.here(d.compute))
	if err == nil && slices.Contains(needed, realCompute) {
		return nil, fmt.Errorf("%s is Aliquot's own shim: this daemon runs inside a task; start it outside", d.compute)
	}
	d.companions = d.findCompanions(folders)
	return d, nil
}

// search lists the distinct files, by real path, that a program of this machine's kind finds under any of the names; first what
// it finds first.
func (d *driver) search(names []string, cache map[string][]string, folders []string) []string {
	var found []string
	own := ""
	if d.run != "" {
		own = d.run + string(filepath.Separator)
	}
	for _, name := range names {
		paths := slices.Clone(cache[name])
		for _, folder := range folders {
			paths = append(paths, filepath.Join(folder, name))
		}
		for _, path := range paths {
			file, err := d.root.resolve(path)
			if err != nil && d.unseen == nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR) {
				d.unseen = err
			}
			if err != nil || slices.Contains(found, file) || own != "" && strings.HasPrefix(file, own) {
				continue
			}
			switch fits, err := fitsMachine(d.root.here(file)); {
			case err != nil:
				d.notes = append(d.notes, fmt.Sprintf("%s cannot be read as a library (%v) and is left alone.", file, err))
			case !fits:
				d.notes = append(d.notes, fmt.Sprintf("Programs of another architecture that load %s are not held to a share.", file))
			default:
				found = append(found, file)
			}
		}
	}
	return found
}

// linkerCache reads what the dynamic linker would find by name, in its order. Without a cache it is empty.
func linkerCache() map[string][]string {
	cache := map[string][]string{}
	for _, ldconfig := range []string{"/sbin/ldconfig", "/usr/sbin/ldconfig"} {
		out, err := exec.Command(ldconfig, "-p").Output()
		if err != nil {
			continue
		}
		return parseCache(out)
	}
	return cache
}

// parseCache reads lines like `	libcuda.so.1 (libc6,x86-64) => /usr/lib/x86_64-linux-gnu/libcuda.so.1`.
func parseCache(out []byte) map[string][]string {
	cache := map[string][]string{}
	lines := bufio.NewScanner(bytes.NewReader(out))
	for lines.Scan() {
		left, path, ok := strings.Cut(lines.Text(), " => ")
		name, _, hasKind := strings.Cut(strings.TrimSpace(left), " ")
		if ok && hasKind {
			cache[name] = append(cache[name], strings.TrimSpace(path))
		}
	}
	return cache
}

func fitsMachine(file string) (bool, error) {
	f, err := elf.Open(file)
	if err != nil {
		return false, err
	}
	defer f.Close()
	machine := elf.EM_X86_64
	if runtime.GOARCH == "arm64" {
		machine = elf.EM_AARCH64
	}
	return f.Class == elf.ELFCLASS64 && f.Machine == machine, nil
}

func neededBy(file string) ([]string, error) {
	f, err := elf.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return f.ImportedLibraries()
}

// arrange makes the driver reachable for the shim, in two ways at once, so that a task may be started in either: RUN/driver holds
// links to the driver's files, for tasks that find the shim by library path; RUN/driver.mounted holds empty files of the
// same names, which a task's mount namespace lays over RUN/driver and binds the driver's files onto. Links would not do
// there, because the files that they point to are the ones that the shim covers. Beside those lies an empty folder, onto which the
// namespace of a task binds the task's own: so the shim finds one at native.Task there, and outside nothing.
func (d *driver) arrange() error {
	links, empty := filepath.Join(d.run, native.Driver), d.mounted()
	for _, folder := range []string{links, empty, filepath.Join(empty, filepath.Base(native.Task))} {
		if err := errors.Join(os.MkdirAll(folder, 0o755), os.Chmod(folder, 0o755)); err != nil {
			return fmt.Errorf("make the driver reachable: %w", err)
		}
	}
	for name, file := range map[string]string{realCompute: d.root.here(d.compute), realManagement: d.root.here(d.management)} {
		if err := replaceLink(file, filepath.Join(links, name)); err != nil {
			return fmt.Errorf("make the driver reachable: %w", err)
		}
		placeholder, err := os.OpenFile(filepath.Join(empty, name), os.O_CREATE|os.O_RDONLY, 0o644)
		if err != nil {
			return fmt.Errorf("make the driver reachable: %w", err)
		}
		_ = placeholder.Close()
	}
	return nil
}

func (d *driver) mounted() string { return filepath.Join(d.run, native.Driver+".mounted") }

// launch says how to start a program so that it finds the shim. The library path is always set: it is all there is on simulated
// devices, and what remains where a machine does not allow the mounts.
func (d *driver) launch(devices []string) Launch {
	shim := filepath.Join(d.run, native.Shim)
	launch := Launch{
		Env:   []string{"LD_LIBRARY_PATH=" + shim, "CUDA_VISIBLE_DEVICES=" + strings.Join(devices, ",")},
		Notes: slices.Clone(d.notes),
	}
	if d.simulated || !d.root.own() { // processes of this machine do not find that driver
		return launch
	}
	links := filepath.Join(d.run, native.Driver)
	launch.Mounts = []Mount{
		{d.mounted(), links},
		{d.compute, filepath.Join(links, realCompute)},
		{d.management, filepath.Join(links, realManagement)},
	}
	for _, file := range d.computes {
		launch.Mounts = append(launch.Mounts, Mount{filepath.Join(shim, computeNames[0]), file})
	}
	for _, file := range d.managers {
		launch.Mounts = append(launch.Mounts, Mount{filepath.Join(shim, managementNames[0]), file})
	}
	return launch
}
