package device

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/aliquot-dev/aliquot/native"
)

// elsewhere makes the file system of a container that a driver is installed in, with links as Debian's packages make them, which lead astray outside of it.
func elsewhere(t *testing.T) (here string) {
	t.Helper()
	here = t.TempDir()
	folder := "usr/lib/" + multiarch()
	current := folder + "/nvidia/current"
	library(t, filepath.Join(here, current, "libcuda.so.550.1"), "driver")
	library(t, filepath.Join(here, current, "libnvidia-ml.so.550.1"), "management")
	library(t, filepath.Join(here, current, "libnvidia-nvvm.so.550.1"), "compiler", "-Wl,-soname,libnvidia-nvvm.so.4")
	library(t, filepath.Join(here, current, "libnvidia-nvvm.so.535.9"), "an earlier compiler", "-Wl,-soname,libnvidia-nvvm.so.4")
	library(t, filepath.Join(here, current, "libnvidia-gpucomp.so.550.1"), "another compiler", "-Wl,-soname,libnvidia-gpucomp.so.550.1")
	library(t, filepath.Join(here, current, "libnvidia-opencl.so.550.1"), "another way to the device", "-Wl,-soname,libnvidia-opencl.so.1")
	library(t, filepath.Join(here, "usr/bin/nvidia-smi"), "smi")
	for link, target := range map[string]string{
		folder + "/libcuda.so.1":          "/etc/alternatives/cuda",
		"etc/alternatives/cuda":           "/" + current + "/libcuda.so.1",
		current + "/libcuda.so.1":         "libcuda.so.550.1",
		folder + "/libnvidia-ml.so.1":     "/" + current + "/libnvidia-ml.so.550.1",
		current + "/libnvidia-nvvm.so.4":  "libnvidia-nvvm.so.550.1",
		folder + "/libnvidia-nvvm.so.4":   "/" + current + "/libnvidia-nvvm.so.4",
		folder + "/libnvidia-opencl.so.1": "/" + current + "/libnvidia-opencl.so.550.1",
	} {
		path := filepath.Join(here, link)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(target, path); err != nil {
			t.Fatal(err)
		}
	}
	return here
}

// TestContainer: of a driver that is in a container of its own, or seen from one, a container gets the shim under the names by which programs ask for a driver, what
// that is for behind it, and what it loads, found as inside and named as the machine does; nothing that leads past the shim. An administrator's gets the driver
// itself under these names, and nothing of ours.
func TestContainer(t *testing.T) {
	d, err := findDriver(Options{Run: "/run/aliquot", Root: Root{Here: elsewhere(t), Machine: "/run/driver"}})
	if err != nil {
		t.Fatal(err)
	}
	current, usual := "/run/driver/usr/lib/"+multiarch()+"/nvidia/current/", "/usr/lib/"+multiarch()
	want := []string{
		"/run/aliquot/lib /run/aliquot/lib",
		"/run/aliquot/driver.mounted /run/aliquot/driver",
		current + "libcuda.so.550.1 /run/aliquot/driver/libcuda-real.so.1",
		current + "libnvidia-ml.so.550.1 /run/aliquot/driver/libnvidia-ml-real.so.1",
		"/run/driver/usr/bin/nvidia-smi /usr/bin/nvidia-smi",
	}
	for _, folder := range []string{usual, "/usr/lib64"} {
		want = append(want,
			"/run/aliquot/lib/libcuda.so.1 "+folder+"/libcuda.so.1",
			"/run/aliquot/lib/libcuda.so.1 "+folder+"/libcuda.so",
			"/run/aliquot/lib/libnvidia-ml.so.1 "+folder+"/libnvidia-ml.so.1",
			"/run/aliquot/lib/libnvidia-ml.so.1 "+folder+"/libnvidia-ml.so",
			current+"libnvidia-nvvm.so.550.1 "+folder+"/libnvidia-nvvm.so.4",
			current+"libnvidia-gpucomp.so.550.1 "+folder+"/libnvidia-gpucomp.so.550.1")
	}
	made := d.container([]string{"GPU-b", "GPU-a"})
	var got []string
	for _, m := range made.Mounts {
		got = append(got, m.Source+" "+m.Target)
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("mounts\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	for _, variable := range []string{"CUDA_VISIBLE_DEVICES=GPU-b,GPU-a", "NVIDIA_VISIBLE_DEVICES=void", "TRITON_LIBCUDA_PATH=/run/aliquot/lib"} {
		if !slices.Contains(made.Env, variable) {
			t.Errorf("the environment %q has no %s", made.Env, variable)
		}
	}
	var whole []string
	for _, m := range d.administrator([]string{"GPU-b", "GPU-a"}).Mounts {
		whole = append(whole, m.Source+" "+m.Target)
	}
	want = []string{"/run/driver/usr/bin/nvidia-smi /usr/bin/nvidia-smi"}
	for _, folder := range []string{usual, "/usr/lib64"} {
		want = append(want,
			current+"libcuda.so.550.1 "+folder+"/libcuda.so.1", current+"libcuda.so.550.1 "+folder+"/libcuda.so",
			current+"libnvidia-ml.so.550.1 "+folder+"/libnvidia-ml.so.1", current+"libnvidia-ml.so.550.1 "+folder+"/libnvidia-ml.so",
			current+"libnvidia-nvvm.so.550.1 "+folder+"/libnvidia-nvvm.so.4",
			current+"libnvidia-gpucomp.so.550.1 "+folder+"/libnvidia-gpucomp.so.550.1")
	}
	slices.Sort(whole)
	slices.Sort(want)
	if !slices.Equal(whole, want) {
		t.Errorf("an administrator's mounts\n%s\nwant\n%s", strings.Join(whole, "\n"), strings.Join(want, "\n"))
	}
	libraries := []Library{
		{"libcuda.so", usual + "/libcuda.so.1"}, {"libnvidia-ml.so", usual + "/libnvidia-ml.so.1"}, {"libnvidia-nvvm.so", usual + "/libnvidia-nvvm.so.4"}, {"libnvidia-gpucomp.so", usual + "/libnvidia-gpucomp.so.550.1"},
	}
	if !slices.Equal(made.Libraries, libraries) { // each of which is a mount above
		t.Errorf("an image's own are covered so: %v, want %v", made.Libraries, libraries)
	}
	if behind := []string{"/run/aliquot/driver/libcuda-real.so.1", "/run/aliquot/driver/libnvidia-ml-real.so.1"}; !slices.Equal(made.Behind, behind) {
		t.Errorf("left alone are %v, want %v", made.Behind, behind)
	}
	if made.Task != "/run/aliquot/driver/task" { // which is in what lies over the driver's folder, and looked at before any other
		t.Errorf("the task's folder is to be at %s", made.Task)
	}
	if err := d.replaced(); err != nil {
		t.Error(err)
	}
	if err := os.Rename(d.root.here(d.compute), d.root.here(d.compute)+".old"); err != nil {
		t.Fatal(err)
	}
	if err := d.replaced(); err == nil || !strings.Contains(err.Error(), current+"libcuda.so.550.1, which was found, is not there any more") {
		t.Errorf("of a driver that was replaced: %v", err)
	}
	if launch := d.launch(nil); len(launch.Mounts) > 0 {
		t.Errorf("a process of the machine is to have the mounts %v", launch.Mounts)
	}
}

// A container with simulated devices gets these alone, and no device file.
func TestContainerSimulated(t *testing.T) {
	options, _ := simulated(t, "h200x1")
	b := openSimulated(t, options)
	made, err := b.Container([]string{b.Devices()[0].UUID})
	if err != nil || len(made.Devices) > 0 {
		t.Fatalf("got %+v, %v", made, err)
	}
	over := Mount{filepath.Join(options.Run, "lib/libcuda.so.1"), "/usr/lib64/libcuda.so.1"}
	if !slices.Contains(made.Mounts, over) || made.Task != native.LastTask {
		t.Errorf("got %+v, want %v among them, and the task's folder at %s", made, over, native.LastTask)
	}
	for _, m := range made.Mounts {
		inside, err := filepath.Rel(options.Run, m.Source)
		first, _, _ := strings.Cut(inside, "/")
		if err != nil || !slices.Contains([]string{native.Shim, native.Driver, "sim"}, first) {
			t.Errorf("a container gets %s", m.Source)
		}
	}
	if slices.ContainsFunc(made.Env, func(variable string) bool { return strings.HasPrefix(variable, "LD_LIBRARY_PATH=") }) {
		t.Errorf("the image's own LD_LIBRARY_PATH is taken away: %q", made.Env)
	}
}

// TestNotInRoot: a root without a driver says where it was looked for, as the machine names it.
func TestNotInRoot(t *testing.T) {
	_, err := findDriver(Options{Root: Root{Here: t.TempDir(), Machine: "/run/nvidia/driver"}})
	if err == nil || !strings.Contains(err.Error(), "root /run/nvidia/driver") {
		t.Errorf("got %v", err)
	}
	_, err = findDriver(Options{Root: Root{Here: "/proc/self/mem", Machine: "/"}, Folders: []string{"/lib"}})
	if !errors.Is(err, ErrNoDriver) {
		t.Errorf("a root that is no folder: %v", err)
	}
	loop := t.TempDir()
	if err := os.Symlink("lib", filepath.Join(loop, "lib")); err != nil {
		t.Fatal(err)
	}
	_, err = findDriver(Options{Root: Root{Here: loop, Machine: "/"}, Folders: []string{"/lib"}})
	if !errors.Is(err, ErrNoDriver) || !errors.Is(err, syscall.ELOOP) {
		t.Errorf("a root in which one cannot look: %v", err)
	}
}
