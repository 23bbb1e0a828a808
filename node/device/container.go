package device

import (
	"debug/elf"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/aliquot-dev/aliquot/native"
)

// containerFolders are those in which the dynamic linker looks by default, on Debian's kin and on Red Hat's, after an image's own path of libraries and its cache.
var containerFolders = []string{"/usr/lib/" + multiarch(), "/usr/lib64"}

// companionNames begin the names of the libraries that the driver's own load when they need them: compilers, what its encryption is done with, and
// its side of the debugger. All others of a driver (OpenCL, graphics, video) are other ways to the devices, which no shim watches.
var companionNames = []string{
	"libnvidia-ptxjitcompiler", "libnvidia-nvvm", "libnvidia-nvvm70", "libnvidia-gpucomp", "libnvidia-tileiras", "libnvidia-fatbinaryloader",
	"libnvidia-pkcs11", "libnvidia-pkcs11-openssl3", "libcudadebugger",
}

// programPaths is where drivers put the program that containers are given beside the libraries; the first is where they get it.
var programPaths = []string{
	"/usr/bin/nvidia-smi", "/bin/nvidia-smi", "/usr/lib/nvidia/current/nvidia-smi", "/usr/local/nvidia/bin/nvidia-smi", "/usr/local/bin/nvidia-smi", "/opt/bin/nvidia-smi",
}

// companion is such a library by the name under which it is asked for.
type companion struct{ name, file string }

// findCompanions looks for the libraries that the driver's two load, first where these are.
func (d *driver) findCompanions(folders []string) (found []companion) {
	for _, name := range companionNames {
		for _, folder := range slices.Concat([]string{filepath.Dir(d.compute)}, folders) {
			files, err := filepath.Glob(d.root.here(filepath.Join(folder, name+".so.*")))
			if err != nil {
				continue // a folder's name with a bracket
			}
			for _, file := range files {
				one, ok := d.companionOf(folder, filepath.Base(file))
				if ok && !slices.ContainsFunc(found, func(c companion) bool { return c.name == one.name }) {
					found = append(found, one)
				}
			}
		}
	}
	return found
}

// companionOf is what a library of this machine's kind is asked for by, and the file that is found so: the driver of an earlier version may have left others.
func (d *driver) companionOf(folder, name string) (companion, bool) {
	file, err := d.root.resolve(filepath.Join(folder, name))
	if err != nil {
		return companion{}, false
	}
	if fits, err := fitsMachine(d.root.here(file)); err != nil || !fits {
		return companion{}, false
	}
	if asked := soname(d.root.here(file)); asked != "" && asked != name {
		if linked, err := d.root.resolve(filepath.Join(folder, asked)); err == nil {
			file = linked
		}
		name = asked
	}
	return companion{name, file}, true
}

func soname(file string) string {
	f, err := elf.Open(file)
	if err != nil {
		return ""
	}
	defer f.Close()
	names, err := f.DynString(elf.DT_SONAME)
	if err != nil || len(names) != 1 {
		return ""
	}
	return names[0]
}

// replaced says that the driver that was found is not there any more, as after another version was installed in its place.
func (d *driver) replaced() error {
	for _, file := range []string{d.compute, d.management} {
		if _, err := os.Stat(d.root.here(file)); err != nil {
			return fmt.Errorf("the driver was replaced: %s, which was found, is not there any more (%w)", d.root.machine(file), err)
		}
	}
	return nil
}

// container says how to make a container that was granted these devices, but for their files. Files lie over those of the image's own, in folders in which
// the dynamic linker looks without being told to: so a program that throws its environment away finds them, too, and an image keeps its library path.
func (d *driver) container(devices []string) Container {
	shim, links := filepath.Join(d.run, native.Shim), filepath.Join(d.run, native.Driver)
	c := Container{Env: shown(devices), Mounts: []Mount{{shim, shim}}}
	c.Mounts = append(c.Mounts, d.libraries(filepath.Join(shim, computeNames[0]), filepath.Join(shim, managementNames[0]))...)
	for _, names := range [][]string{computeNames, managementNames} {
		c.Libraries = append(c.Libraries, Library{names[1], filepath.Join(containerFolders[0], names[0])})
	}
	for _, one := range d.companions {
		name, _, _ := strings.Cut(one.name, ".so")
		c.Libraries = append(c.Libraries, Library{name + ".so", filepath.Join(containerFolders[0], one.name)})
	}
	c.Behind = []string{filepath.Join(links, realCompute), filepath.Join(links, realManagement)}
	if d.simulated {
		c.Mounts = append(c.Mounts, Mount{links, links}, d.simulator())
		c.Task = native.LastTask
		return c
	}
	c.Env = append(c.Env, "TRITON_LIBCUDA_PATH="+shim) // it asks the linker's cache, in which nothing of this is
	c.Task = filepath.Join(d.run, native.Task)
	c.Mounts = append(c.Mounts,
		Mount{d.mounted(), links},
		Mount{d.root.machine(d.compute), filepath.Join(links, realCompute)},
		Mount{d.root.machine(d.management), filepath.Join(links, realManagement)})
	c.Mounts = append(c.Mounts, d.programs()...)
	return c
}

// administrator is container without the shim: the driver itself is where others find that.
func (d *driver) administrator(devices []string) Container {
	c := Container{Env: shown(devices), Mounts: d.libraries(d.root.machine(d.compute), d.root.machine(d.management))}
	if d.simulated { // which looks for the device where its file lies, and that is not where the image has it
		simulator := d.simulator()
		c.Env = append(c.Env, socketVariable+"="+filepath.Join(simulator.Source, "simgpu.sock"))
		c.Mounts = append(c.Mounts, simulator)
		return c
	}
	c.Mounts = append(c.Mounts, d.programs()...)
	return c
}

// shown is the environment by which programs are shown these devices. The second variable keeps a container runtime of the vendor's from adding all devices,
// which images for GPUs ask it for.
func shown(devices []string) []string {
	return []string{"CUDA_VISIBLE_DEVICES=" + strings.Join(devices, ","), "NVIDIA_VISIBLE_DEVICES=void"}
}

// libraries are the files given, in the places where programs look for the driver's two, and beside them what the driver loads.
func (d *driver) libraries(compute, management string) (all []Mount) {
	for _, folder := range containerFolders {
		for _, name := range computeNames {
			all = append(all, Mount{compute, filepath.Join(folder, name)})
		}
		for _, name := range managementNames {
			all = append(all, Mount{management, filepath.Join(folder, name)})
		}
		for _, one := range d.companions {
			all = append(all, Mount{d.root.machine(one.file), filepath.Join(folder, one.name)})
		}
	}
	return all
}

// simulator is the folder of the simulated devices.
func (d *driver) simulator() Mount {
	folder := filepath.Join(d.run, filepath.Dir(native.Sim))
	return Mount{folder, folder}
}

// programs are those of the driver that containers get.
func (d *driver) programs() []Mount {
	for _, path := range programPaths {
		if file, err := d.root.resolve(path); err == nil {
			return []Mount{{d.root.machine(file), programPaths[0]}}
		}
	}
	return nil
}
