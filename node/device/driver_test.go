package device

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/aliquot-dev/aliquot/native"
)

// TestMain lets this binary be the program in a task's mount namespace: it makes the mounts it is told and says what it finds.
func TestMain(m *testing.M) {
	if list := os.Getenv("ALIQUOT_TEST_MOUNTS"); list != "" {
		if err := mountAndLook(strings.Split(list, "\n"), os.Args[1:]); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		return
	}
	if folders := os.Getenv("ALIQUOT_TEST_LATER"); folders != "" {
		findLater(strings.Split(folders, "\n"))
		return
	}
	os.Exit(m.Run())
}

func mountAndLook(mounts, files []string) error {
	if err := unix.Mount("", "/", "", unix.MS_PRIVATE|unix.MS_REC, ""); err != nil {
		return err
	}
	for _, m := range mounts {
		source, target, _ := strings.Cut(m, " ")
		if err := unix.Mount(source, target, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("bind %s over %s: %w", source, target, err)
		}
	}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		fmt.Println(name(content))
	}
	return nil
}

// library makes a shared library for this machine that is known by a name in it.
func library(t *testing.T, path, name string, flags ...string) {
	t.Helper()
	source := filepath.Join(t.TempDir(), "library.c")
	if err := os.WriteFile(source, []byte(fmt.Sprintf("const char name[] = \"<name>%s</name>\";\n", name)), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	command := exec.Command("cc", append([]string{"-shared", "-fPIC", "-o", path, source}, flags...)...)
	if out, err := command.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", command, err, out)
	}
}

func name(content []byte) string {
	_, rest, _ := bytes.Cut(content, []byte("<name>"))
	text, _, _ := bytes.Cut(rest, []byte("</name>"))
	return string(text)
}

// installation makes a driver as packages install it, with a second copy, and a run folder with a shim.
func installation(t *testing.T) (run, folder, second string) {
	t.Helper()
	root := t.TempDir()
	run, folder, second = filepath.Join(root, "run"), filepath.Join(root, "lib"), filepath.Join(root, "compat")
	library(t, filepath.Join(folder, "libcuda.so.550.1"), "driver")
	library(t, filepath.Join(folder, "libnvidia-ml.so.550.1"), "management")
	library(t, filepath.Join(second, "libcuda.so.1"), "compat")
	library(t, filepath.Join(run, "lib/libcuda.so.1"), "shim")
	library(t, filepath.Join(run, "lib/libnvidia-ml.so.1"), "management shim")
	for link, target := range map[string]string{
		"libcuda.so.1": "libcuda.so.550.1", "libcuda.so": "libcuda.so.1", "libnvidia-ml.so.1": "libnvidia-ml.so.550.1",
	} {
		if err := os.Symlink(target, filepath.Join(folder, link)); err != nil {
			t.Fatal(err)
		}
	}
	return run, folder, second
}

func TestFindDriver(t *testing.T) {
	run, folder, second := installation(t)
	d, err := findDriver(Options{Run: run, Folders: []string{folder, second, filepath.Join(run, "lib")}})
	if err != nil {
		t.Fatal(err)
	}
	if want := filepath.Join(folder, "libcuda.so.550.1"); d.compute != want {
		t.Errorf("the driver is %s, want %s", d.compute, want)
	}
	if want := []string{filepath.Join(folder, "libcuda.so.550.1"), filepath.Join(second, "libcuda.so.1")}; !slices.Equal(d.computes, want) {
		t.Errorf("to be covered: %v, want %v (each file once, and never the shim)", d.computes, want)
	}
	if want := []string{filepath.Join(folder, "libnvidia-ml.so.550.1")}; !slices.Equal(d.managers, want) {
		t.Errorf("to be covered: %v, want %v", d.managers, want)
	}
}

func TestFindNoDriver(t *testing.T) {
	_, err := findDriver(Options{Folders: []string{t.TempDir()}})
	if !errors.Is(err, ErrNoDriver) || !strings.Contains(err.Error(), "libcuda.so.1") || !strings.Contains(err.Error(), "--simulate") || len(err.Error()) > 250 {
		t.Errorf("nothing there: %v", err)
	}
	folder := t.TempDir()
	library(t, filepath.Join(folder, "libcuda.so.1"), "driver")
	if _, err = findDriver(Options{Folders: []string{folder}}); !errors.Is(err, ErrNoDriver) || !strings.Contains(err.Error(), "libnvidia-ml.so.1") {
		t.Errorf("half of it there: %v", err)
	}
	if err := os.WriteFile(filepath.Join(folder, "libnvidia-ml.so.1"), []byte("not a library"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err = findDriver(Options{Folders: []string{folder}}); !errors.Is(err, ErrNoDriver) {
		t.Errorf("half of it no library: %v", err)
	}
}

// TestInsideATask: a daemon that was started inside a task would share the share; it says so instead.
func TestInsideATask(t *testing.T) {
	folder := t.TempDir()
	behind := filepath.Join(folder, "real/libcuda-real.so.1")
	library(t, behind, "real", "-Wl,-soname,libcuda-real.so.1")
	library(t, filepath.Join(folder, "libcuda.so.1"), "shim", "-Wl,--no-as-needed", behind)
	library(t, filepath.Join(folder, "libnvidia-ml.so.1"), "management")
	if _, err := findDriver(Options{Folders: []string{folder}}); err == nil || !strings.Contains(err.Error(), "inside a task") {
		t.Errorf("found the shim as the driver: %v", err)
	}
}

// TestMounts makes the mounts in a real mount namespace: under every name of the driver lies the shim, behind the name that only
// the shim asks for lies the driver, and outside nothing has changed.
func TestMounts(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, for a mount namespace")
	}
	run, folder, second := installation(t)
	d, err := findDriver(Options{Run: run, Folders: []string{folder, second}})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // an agent that starts again finds it arranged
		if err := d.arrange(); err != nil {
			t.Fatal(err)
		}
	}
	launch := d.launch([]string{"GPU-b", "GPU-a"})
	if want := []string{"LD_LIBRARY_PATH=" + filepath.Join(run, "lib"), "CUDA_VISIBLE_DEVICES=GPU-b,GPU-a"}; !reflect.DeepEqual(launch.Env, want) {
		t.Errorf("environment %q, want %q", launch.Env, want)
	}
	var mounts []string
	for _, m := range launch.Mounts {
		mounts = append(mounts, m.Source+" "+m.Target)
	}
	files := []string{
		filepath.Join(folder, "libcuda.so.1"), filepath.Join(folder, "libcuda.so"), filepath.Join(folder, "libcuda.so.550.1"),
		filepath.Join(second, "libcuda.so.1"), filepath.Join(folder, "libnvidia-ml.so.1"),
		filepath.Join(run, "driver/libcuda-real.so.1"), filepath.Join(run, "driver/libnvidia-ml-real.so.1"),
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	command := exec.Command(self, files...)
	command.Env = append(os.Environ(), "ALIQUOT_TEST_MOUNTS="+strings.Join(mounts, "\n"))
	command.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNS}
	out, err := command.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	// Outside there is no place for a task's folder, so that nobody there takes an empty one for a task's.
	if _, err := os.Stat(filepath.Join(run, native.Task)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("outside, %s is there (%v)", native.Task, err)
	}
	want := "shim\nshim\nshim\nshim\nmanagement shim\ndriver\nmanagement\n"
	if string(out) != want {
		t.Errorf("inside found\n%swant\n%s", out, want)
	}
	for i, want := range []string{"driver", "driver", "driver", "compat", "management", "driver", "management"} {
		content, err := os.ReadFile(files[i])
		if err != nil || name(content) != want {
			t.Errorf("outside, %s is %q (%v), want %q", files[i], name(content), err, want)
		}
	}
}

// findLater opens the driver of each folder in turn, as an agent does that waits for one, and prints what came of it.
func findLater(folders []string) {
	for _, folder := range folders {
		b, err := Open(Options{Run: os.Getenv("ALIQUOT_TEST_RUN"), Folders: []string{folder}})
		switch {
		case err == nil:
			fmt.Println("found", len(b.Devices()), "devices", b.Close())
		case errors.Is(err, ErrNoDriver):
			fmt.Println("there is none")
		default:
			fmt.Println(err)
		}
	}
}

// TestFindLater: a library that was loaded and found no driver stays the one of this process. It is asked again; one of another version would not be, and is refused.
func TestFindLater(t *testing.T) {
	served, _ := simulated(t, "h200x2")
	run, folder, another := t.TempDir(), t.TempDir(), t.TempDir()
	for _, to := range []string{folder, another} {
		for _, name := range LibraryNames() {
			content, err := os.ReadFile(filepath.Join(served.Run, native.Sim, name))
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(to, name), content, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for socket, want := range map[string]string{
		"/nobody":     "there is none\nthere is none\nthere is none\nload " + another + "/libnvidia-ml.so.1: this process has loaded " + folder + "/libnvidia-ml.so.1, and a process can use only one; start another process\n",
		served.Socket: "there is none\nfound 2 devices <nil>\nfound 2 devices <nil>\nload " + another + "/libnvidia-ml.so.1: this process has loaded " + folder + "/libnvidia-ml.so.1, and a process can use only one; start another process\n",
	} {
		command := exec.Command(self)
		command.Env = append(os.Environ(), "ALIQUOT_TEST_LATER="+strings.Join([]string{t.TempDir(), folder, folder, another}, "\n"), "ALIQUOT_TEST_RUN="+run, socketVariable+"="+socket)
		if out, err := command.CombinedOutput(); err != nil || string(out) != want {
			t.Errorf("served at %s: %v\n%swant\n%s", socket, err, out, want)
		}
	}
}

func TestParseCache(t *testing.T) {
	out := "2 libs found in cache `/etc/ld.so.cache'\n" +
		"\tlibcuda.so.1 (libc6,x86-64) => /usr/lib/x86_64-linux-gnu/libcuda.so.1\n" +
		"\tlibcuda.so.1 (libc6) => /usr/lib/i386-linux-gnu/libcuda.so.1\n" +
		"Cache generated by: ldconfig (Debian GLIBC 2.36-9) stable release version 2.36\n"
	want := map[string][]string{"libcuda.so.1": {"/usr/lib/x86_64-linux-gnu/libcuda.so.1", "/usr/lib/i386-linux-gnu/libcuda.so.1"}}
	if got := parseCache([]byte(out)); !reflect.DeepEqual(got, want) {
		t.Errorf("parsed %v, want %v", got, want)
	}
}
