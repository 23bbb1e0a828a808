package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/aliquot-dev/aliquot/host/kube/images"
)

// broughtName is the image of the example programs with drivers of its own.
const broughtName = "aliquot.dev/aliquot-brought:0.1.0"

// loadBrought makes that image: it has one driver where CUDA's forward compatibility lies, of which its linker's cache knows by its configuration, and another in a
// folder that nobody knows of.
func (w *world) loadBrought() {
	w.Helper()
	image, err := images.Examples(filepath.Join(root, "build", "examples"), filepath.Join(root, "native", "dist"))
	w.no(err)
	image.Name, image.Files["/bin/pod"] = broughtName, filepath.Join(cache, "pod")
	of := w.TempDir()
	for name, content := range map[string]string{"/etc/ld.so.conf": "include /etc/ld.so.conf.d/*.conf\n", "/etc/ld.so.conf.d/00-compat.conf": "/usr/local/cuda-12.9/compat\n"} {
		w.no(os.MkdirAll(filepath.Dir(filepath.Join(of, name)), 0o755))
		w.no(os.WriteFile(filepath.Join(of, name), []byte(content), 0o644))
		image.Files[name] = filepath.Join(of, name)
	}
	for _, folder := range []string{"/usr/local/cuda-12.9/compat", "/opt/driver"} {
		w.no(os.MkdirAll(filepath.Join(of, folder), 0o755))
		for _, name := range []string{"libcuda.so.1", "libnvidia-ml.so.1"} {
			content, err := os.ReadFile(filepath.Join(root, "native", "dist", "sim", name))
			w.no(err)
			file := filepath.Join(folder, name)
			w.no(os.WriteFile(filepath.Join(of, file), content, 0o755))
			image.Files[file] = filepath.Join(of, file)
		}
	}
	if said, err := exec.CommandContext(w.ctx, "/sbin/ldconfig", "-X", "-r", of).CombinedOutput(); err != nil {
		w.Fatalf("%v\n%s", err, said)
	}
	image.Files["/etc/ld.so.cache"] = filepath.Join(of, "etc/ld.so.cache")
	w.load(image)
}

// brings has containers run of an image with drivers of its own, by its linker's cache and by a library path, which are held to their shares; and one that says
// more of where it has libraries than is looked at, which does not start and says why.
func (w *world) brings() {
	w.Helper()
	w.loadBrought()
	trainer := []string{"/bin/trainer", "--seconds", "0", "--kernel-us", "5000", "--progress", "0"}
	of := map[string]string{"configured": "", "path": "/opt/driver"}
	for name, libraries := range of {
		w.admitted(w.brought(work{name: name, compute: 200, memory: "2Gi", ceiling: `{"compute":"0.30"}`, libraries: libraries, user: 1000, command: trainer}))
	}
	for name := range of {
		w.trains(name)
		w.throughShim(name)
	}
	w.shares("of images with drivers of their own", map[string]part{"configured": {0, 300}, "path": {0, 300}})
	w.remove("configured", "path")
	var many []string
	for n := range 2001 {
		many = append(many, fmt.Sprintf("/opt/%d", n))
	}
	w.admitted(w.brought(work{name: "many", compute: 200, memory: "2Gi", libraries: strings.Join(many, ":"), command: trainer}))
	w.eventually("events say why the container does not start", func() (bool, string) {
		events, err := w.client.CoreV1().Events("default").List(w.ctx, metav1.ListOptions{FieldSelector: "involvedObject.name=many"})
		w.no(err)
		var all []string
		for i := range events.Items {
			if strings.Contains(events.Items[i].Message, "aliquot: the driver that the image brings could not be replaced by the share's: the image has libraries in more than 2000 folders") {
				return true, ""
			}
			all = append(all, events.Items[i].Message)
		}
		return false, strings.Join(all, "\n")
	})
	w.remove("many")
}

// throughShim checks that of a pod's processes those that use the device have loaded the shim, by whatever name.
func (w *world) throughShim(name string) {
	w.Helper()
	var shim unix.Stat_t
	w.no(unix.Stat(filepath.Join(w.run, "lib", "libcuda.so.1"), &shim))
	loaded := fmt.Sprintf(" %02x:%02x %d ", unix.Major(shim.Dev), unix.Minor(shim.Dev), shim.Ino)
	now, uses := w.read(), 0
	for pid := range w.pids(name) {
		if now.busy[pid] == 0 {
			continue // the sandbox's own
		}
		uses++
		maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
		w.no(err)
		if !strings.Contains(string(maps), loaded) {
			w.Errorf("process %d of %s uses the device without the shim (%s); it has loaded\n%s", pid, name, loaded, maps)
		}
	}
	if uses == 0 {
		w.Errorf("no process of %s uses the device", name)
	}
}

// brought is a pod of that image, which may not write to it; the simulated driver in it would reach the device from where it lies.
func (w *world) brought(one work) *corev1.Pod {
	w.Helper()
	pod := w.onOwnPod(one)
	container, unwritten := &pod.Spec.Containers[0], true
	container.Image, container.SecurityContext.ReadOnlyRootFilesystem = broughtName, &unwritten
	for _, folder := range []string{"/usr/local/cuda-12.9", "/opt"} {
		container.VolumeMounts = append(container.VolumeMounts, corev1.VolumeMount{Name: "device", MountPath: filepath.Join(folder, "simgpu.sock")})
	}
	return pod
}
