package cover

import (
	"bytes"
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

	"golang.org/x/sys/unix"
)

// insideVariable makes this test binary the process that has mounts of its own.
const insideVariable = "ALIQUOT_TEST_INSIDE"

// inside says whether this process has mounts of its own; where it has not, the test is run in one that has, as a user namespace's root with the word `user`.
func inside(t *testing.T, as string) bool {
	t.Helper()
	if os.Getenv(insideVariable) != "" {
		return true
	}
	child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+strings.ReplaceAll(t.Name(), "/", "$/^")+"$", "-test.v")
	child.Env = append(os.Environ(), insideVariable+"=yes")
	child.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	if as == "user" || os.Geteuid() != 0 {
		child.SysProcAttr = &syscall.SysProcAttr{
			Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
			UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}},
			GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}},
		}
	}
	said, err := child.CombinedOutput()
	if errors.Is(err, unix.EPERM) && os.Geteuid() != 0 {
		t.Skip("needs root, or user namespaces for everybody")
	}
	if err != nil || !bytes.Contains(said, []byte("--- PASS: "+t.Name()+" ")) {
		t.Errorf("inside: %v\n%s", err, said)
	}
	return false
}

// image is the file system of a container that is made and not begun, with the agent's mounts in it.
type image struct {
	*testing.T
	bundle, top string
	order       Order
	user        map[string]any // whom it runs as; nil: it is not said
	mapped      []any          // users of its own
}

// What the agent mounts, and what stands in the files of these tests.
const (
	usualFolder = "/usr/lib/x86_64-linux-gnu"
	shim        = "the shim"
	compiler    = "the node's compiler"
	behind      = "the node's driver"
	brought     = "the image's driver"
)

func newImage(t *testing.T) *image {
	t.Helper()
	bundle := t.TempDir()
	i := &image{T: t, bundle: bundle, top: filepath.Join(bundle, "rootfs")}
	i.order = Order{
		Libraries: []Library{{"libcuda.so", usualFolder + "/libcuda.so.1"}, {"libnvidia-ml.so", usualFolder + "/libcuda.so.1"}, {"libnvidia-nvvm.so", usualFolder + "/libnvidia-nvvm.so.4"}},
		Behind:    []string{"/run/aliquot/driver/libcuda-real.so.1"},
	}
	t.Cleanup(func() {
		mounts := i.mounts()
		for _, mount := range slices.Backward(mounts) {
			if err := unix.Unmount(mount[4], unix.MNT_DETACH); err != nil {
				t.Error(err)
			}
		}
	})
	i.mount(shim, usualFolder+"/libcuda.so.1")
	i.mount(compiler, usualFolder+"/libnvidia-nvvm.so.4")
	i.mount(behind, "/run/aliquot/driver/libcuda-real.so.1")
	return i
}

func (i *image) no(err error) {
	i.Helper()
	if err != nil {
		i.Fatal(err)
	}
}

// mount mounts a file of the node's, as the container runtime does what the agent says.
func (i *image) mount(content, at string) {
	i.Helper()
	file := filepath.Join(i.TempDir(), "file")
	i.no(os.WriteFile(file, []byte(content), 0o644))
	i.write(at, "")
	at = filepath.Join(i.top, at)
	i.no(unix.Mount(file, at, "", unix.MS_BIND, ""))
	i.no(unix.Mount("", at, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV, ""))
}

// mounts are those in the image, as the kernel has them.
func (i *image) mounts() (found [][]string) {
	i.Helper()
	all, err := os.ReadFile("/proc/self/mountinfo")
	i.no(err)
	for line := range strings.Lines(string(all)) {
		if words := strings.Fields(line); strings.HasPrefix(words[4], i.top) {
			found = append(found, words)
		}
	}
	return found
}

// write makes a file of the image.
func (i *image) write(at, content string) {
	i.Helper()
	at = filepath.Join(i.top, at)
	i.no(os.MkdirAll(filepath.Dir(at), 0o755))
	i.no(os.WriteFile(at, []byte(content), 0o644))
}

func (i *image) link(at, to string) {
	i.Helper()
	at = filepath.Join(i.top, at)
	i.no(os.MkdirAll(filepath.Dir(at), 0o755))
	i.no(os.Symlink(to, at))
}

// run covers in the image, with this library path in the environment.
func (i *image) run(libraries string) error {
	i.Helper()
	config, err := json.Marshal(map[string]any{
		"root": map[string]any{"path": "rootfs"}, "linux": map[string]any{"uidMappings": i.mapped},
		"process": map[string]any{"cwd": "/work", "env": []string{"PATH=/bin", "LD_LIBRARY_PATH=" + libraries}, "user": i.user},
	})
	i.no(err)
	i.no(os.WriteFile(filepath.Join(i.bundle, "config.json"), config, 0o600))
	return Run(strings.NewReader(fmt.Sprintf(`{"ociVersion":"1.2.0","id":"x","status":"creating","bundle":%q}`, i.bundle)), i.order)
}

// has checks what stands in files of the container, by what is in them.
func (i *image) has(want string, files ...string) {
	i.Helper()
	r, err := openRoot(i.top)
	i.no(err)
	defer r.close()
	for _, file := range files {
		got, _, err := r.read(file)
		if err != nil || string(got) != want {
			i.Errorf("%s is %q (%v), want %q", file, got, err, want)
		}
	}
}

// TestCover: the shim lies over every file of the driver's that the linker finds first or images are known to have, by its environment, its configuration and its
// cache, under every name and behind links; the node's compiler over the image's; over nothing else, and it cannot be written to. So it is in a user namespace.
func TestCover(t *testing.T) {
	for _, as := range []string{"root", "user"} {
		t.Run(as, func(t *testing.T) {
			if inside(t, as) {
				testCover(newImage(t))
			}
		})
	}
}

func testCover(i *image) {
	i.write("/etc/ld.so.conf", "include /etc/ld.so.conf.d/*.conf\n")
	i.write("/etc/ld.so.conf.d/cuda.conf", "# a driver\n/opt/configured\n")
	i.write("/etc/ld.so.cache", "glibc-ld.so.cache1.1\x00\x01\x00libcuda.so.1\x00/opt/cached/libcuda.so.1\x00")
	covered := []string{
		"/usr/local/cuda/compat/libcuda.so.575.1", "/usr/local/cuda-12.9/compat/lib.real/libcuda.so.1", "/opt/configured/libcuda.so", "/opt/cached/libcuda.so.1",
		"/opt/path/libcuda.so.1", "/opt/path/libnvidia-ml.so.1", "/opt/path/glibc-hwcaps/x86-64-v3/libcuda.so.1", "/opt/lib64/libcuda.so.1", "/work/here/libcuda.so.1",
		"/hidden/driver", usualFolder + "/libcuda.so.575.1",
	}
	for _, file := range covered {
		i.write(file, brought)
	}
	i.link("/usr/local/cuda/compat/libcuda.so.1", "libcuda.so.575.1")
	i.link("/opt/linked/libcuda.so.1", "/hidden/driver")
	i.write("/opt/path/libnvidia-nvvm.so.4", brought)
	left := []string{"/opt/path/libcudart.so.12", "/opt/path/libcuda.sox", "/opt/elsewhere/libcuda.so.1"}
	for _, file := range left {
		i.write(file, brought)
	}
	i.link("/opt/path/libcuda.so.2", "/run/aliquot/driver/libcuda-real.so.1")
	for range 2 { // as when a hook is called again
		i.no(i.run("/opt/path:/opt/linked:/opt/$LIB:here:/not/there"))
	}
	i.has(shim, append(covered, "/usr/local/cuda/compat/libcuda.so.1", "/opt/linked/libcuda.so.1")...)
	i.has(compiler, "/opt/path/libnvidia-nvvm.so.4")
	i.has(brought, left...)
	i.has(behind, "/opt/path/libcuda.so.2")
	if err := os.WriteFile(filepath.Join(i.top, covered[0]), nil, 0o644); !errors.Is(err, unix.EROFS) {
		i.Errorf("written to, it says %v", err)
	}
	all := i.mounts()
	for _, mount := range all {
		if !strings.HasPrefix(mount[5], "ro,nosuid,nodev") || mount[6] != "-" {
			i.Errorf("a mount that is not read-only and private: %q", mount)
		}
	}
	if want := 3 + len(covered) + 1; len(all) != want { // the agent's, these, and over the compiler
		i.Errorf("there are %d mounts, want %d: %q", len(all), want, all)
	}
}

// TestOddImages: an image with nothing in it, or without the linker's configuration, or which cannot be written to, is as it was.
func TestOddImages(t *testing.T) {
	if !inside(t, "root") {
		return
	}
	i := newImage(t)
	i.no(i.run(""))
	i.write("/etc/ld-musl-x86_64.path", "/usr/lib")
	i.write("/usr/local/cuda/compat/libcuda.so.1", brought)
	i.no(unix.Mount(i.top, i.top, "", unix.MS_BIND|unix.MS_REC, ""))
	i.no(unix.Mount("", i.top, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, ""))
	i.no(i.run("/usr/local/cuda/compat"))
	i.has(shim, "/usr/local/cuda/compat/libcuda.so.1")
}

// TestHostileImages: nothing outside of the root is read or mounted over, whatever leads there; nothing is opened but files; what loops ends.
func TestHostileImages(t *testing.T) {
	if !inside(t, "root") {
		return
	}
	outside := t.TempDir()
	target := filepath.Join(outside, "libcuda.so.1")
	up := strings.Repeat("../", 40)
	for name, make := range map[string]func(*image){
		"link out":       func(i *image) { i.link("/opt/a/libcuda.so.1", target) },
		"dots out":       func(i *image) { i.link("/opt/a/libcuda.so.1", up+target) },
		"folder out":     func(i *image) { i.link("/opt/a", up+outside) },
		"magic link":     func(i *image) { i.link("/opt/a", "/proc/self/cwd") },
		"configured out": func(i *image) { i.write("/etc/ld.so.conf", up+outside+"\n"+outside+"\ninclude "+up+outside+"/*\n") },
		"configuration a link out": func(i *image) {
			i.link("/etc/ld.so.conf", filepath.Join(outside, "conf"))
		},
		"loop of links":    func(i *image) { i.link("/opt/a", "b"); i.link("/opt/b", "a") },
		"library a loop":   func(i *image) { i.link("/opt/a/libcuda.so.1", "libcuda.so.1") },
		"library a folder": func(i *image) { i.write("/opt/a/libcuda.so.1/x", "") },
		"includes itself": func(i *image) {
			i.write("/etc/ld.so.conf", "include ld.so.conf\ninclude ./../etc/ld.so.c*\ninclude ld.so.conf/../ld.so.conf\n")
		},
		"configuration a folder": func(i *image) { i.write("/etc/ld.so.conf/x", "") },
		"configuration a fifo": func(i *image) {
			i.no(os.MkdirAll(filepath.Join(i.top, "etc"), 0o755))
			i.no(unix.Mkfifo(filepath.Join(i.top, "etc/ld.so.conf"), 0o644))
		},
		"library a fifo": func(i *image) {
			i.no(os.MkdirAll(filepath.Join(i.top, "opt/a"), 0o755))
			i.no(unix.Mkfifo(filepath.Join(i.top, "opt/a/libcuda.so.1"), 0o644))
		},
		"long names": func(i *image) {
			i.write("/etc/ld.so.conf", "/"+strings.Repeat("x", 5000)+"\ninclude "+strings.Repeat("*/", 3000)+"\n\x00/a\x00b\n")
		},
	} {
		t.Run(name, func(t *testing.T) {
			i := newImage(t)
			i.no(os.WriteFile(target, []byte("the node's"), 0o644))
			i.no(os.WriteFile(filepath.Join(outside, "conf"), []byte("/opt/said/outside\n"), 0o644))
			i.write("/opt/said/outside/libcuda.so.1", brought)
			make(i)
			i.no(i.run("/opt/a:/opt/b:../../../.." + outside + ":" + up))
			if got, err := os.ReadFile(target); err != nil || string(got) != "the node's" {
				t.Errorf("the node's file is %q (%v)", got, err)
			}
			i.has(brought, "/opt/said/outside/libcuda.so.1")
		})
	}
}

// TestTooMuch: an image with more than is read of one does not start, and says why.
func TestTooMuch(t *testing.T) {
	if !inside(t, "root") {
		return
	}
	for says, make := range map[string]func(*image){
		"bytes of configuration for the dynamic linker": func(i *image) { i.write("/etc/ld.so.conf", strings.Repeat("#", bytesMax+1)) },
		"more than 2000 files": func(i *image) {
			i.write("/etc/ld.so.conf", "include ld.so.conf.d/*\n")
			for n := range filesMax + 1 {
				i.write(fmt.Sprintf("/etc/ld.so.conf.d/%d", n), "")
			}
		},
		"more than 2000 files of configuration": func(i *image) { // each by the one before
			for n := range filesMax + 1 {
				i.write(fmt.Sprintf("/etc/more/%d", n), fmt.Sprintf("include %d\n", n+1))
			}
			i.write("/etc/ld.so.conf", "include more/0\n")
		},
		"includes more than": func(i *image) { i.write("/etc/ld.so.conf", strings.Repeat("include x\n", filesMax+1)) },
		"libraries in more than 2000 folders": func(i *image) {
			var all strings.Builder
			for n := range foldersMax + 1 {
				fmt.Fprintf(&all, "/opt/%d\n", n)
			}
			i.write("/etc/ld.so.conf", all.String())
		},
		"something else is mounted there": func(i *image) {
			i.write("/opt/a/libcuda.so.1", brought)
			i.order.Libraries[0].By = "/opt/mine"
			i.write("/opt/mine", brought)
		},
		"something else is mounted": func(i *image) { // which can be written to
			i.write("/opt/a/libcuda.so.1", brought)
			at := filepath.Join(i.top, usualFolder, "libcuda.so.1")
			i.no(unix.Mount(filepath.Join(i.top, "/opt/a/libcuda.so.1"), at, "", unix.MS_BIND, ""))
		},
		"look for the driver behind the shim": func(i *image) { i.order.Behind = []string{"/not/there"} },
	} {
		t.Run(says, func(t *testing.T) {
			i := newImage(t)
			make(i)
			if err := i.run("/opt/a"); err == nil || !strings.Contains(err.Error(), says) {
				t.Errorf("got %v, want that it says %q", err, says)
			}
		})
	}
}

// TestTooManyNames: so it is with files in the folders of an image.
func TestTooManyNames(t *testing.T) {
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "libcuda.so.1"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	r, err := openRoot(folder)
	if err != nil {
		t.Fatal(err)
	}
	defer r.close()
	for r.names = namesMax - 1; r.names < namesMax; {
		if err := r.list("/", func(string) error { return nil }); err != nil {
			t.Fatalf("within the bound: %v", err)
		}
	}
	if err := r.list("/", func(string) error { return nil }); err == nil || !strings.Contains(err.Error(), "more than 1000000 files") {
		t.Errorf("got %v", err)
	}
}

// TestSharedIsLeft: over what is mounted in the node, too, nothing is laid, since it would lie there as well.
func TestSharedIsLeft(t *testing.T) {
	if !inside(t, "root") {
		return
	}
	i := newImage(t)
	i.write("/volume/libcuda.so.1", brought)
	volume := filepath.Join(i.top, "volume")
	i.no(unix.Mount(volume, volume, "", unix.MS_BIND, ""))
	i.no(unix.Mount("", volume, "", unix.MS_SHARED, ""))
	i.no(i.run("/volume"))
	i.has(brought, "/volume/libcuda.so.1")
	i.no(unix.Mount("", volume, "", unix.MS_SLAVE, ""))
	i.no(unix.Mount("", volume, "", unix.MS_PRIVATE, ""))
	i.no(i.run("/volume"))
	i.has(shim, "/volume/libcuda.so.1")
}

// TestNotInTheNode: with the node's mounts it does nothing, and with others it does.
func TestNotInTheNode(t *testing.T) {
	node := fmt.Sprintf("/proc/%d/ns/mnt", os.Getpid())
	if os.Getenv(insideVariable) != "" {
		node = fmt.Sprintf("/proc/%d/ns/mnt", os.Getppid())
		if err := apart(node); err != nil {
			t.Error(err)
		}
		return
	}
	if err := apart(node); err == nil || !strings.Contains(err.Error(), "has the node's mounts") {
		t.Errorf("got %v", err)
	}
	inside(t, "root")
}

// TestOrder: what the agent writes the program understands, and nothing else.
func TestOrder(t *testing.T) {
	order := Order{Pages: "/run/aliquot/tasks/a=b", Libraries: []Library{{"libcuda.so", "/usr/lib/libcuda.so.1"}, {"libx.so", "/a=b"}}, Behind: []string{"/run/real"}}
	got, err := ParseOrder(order.Arguments())
	if err != nil || got.Pages != order.Pages || !slices.Equal(got.Libraries, order.Libraries) || !slices.Equal(got.Behind, order.Behind) {
		t.Errorf("got %+v, %v", got, err)
	}
	for _, wrong := range []string{"", "x", "--library=", "--library=libcuda.so", "--library==/x", "--library=libcuda.so=x", "--pages=", "--pages=tasks/a"} {
		if got, err := ParseOrder([]string{wrong}); err == nil {
			t.Errorf("%q is understood as %+v", wrong, got)
		}
	}
}
