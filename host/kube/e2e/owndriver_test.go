package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A node with a driver of its own, which a container brings some time after the agent: the driver is the simulated one, in a folder of the node as packages install
// a real one, and nothing tells the agent that it is. Until it is there the node offers nothing and the agent is ready; then it does. Pods have their device files
// and no others, are held to their shares with the driver behind the shim, with nothing in the environment, too, and of images with drivers of their own, and see these alone. When another version is in the
// driver's place the agent takes that, and pods run on.
func TestOwnDriver(t *testing.T) {
	w := beginCluster(t, "")
	above, served := filepath.Join(w.Folder(), "drivers"), t.TempDir()
	installed := filepath.Join(above, "root")
	w.sims = served
	w.propagates(above)
	w.withoutDeviceFiles()
	w.withoutPrograms()
	w.loadKube(w.chart().Image(), w.program, filepath.Join(root, "native", "dist"))
	values := w.everything()
	for _, other := range []string{"scheduler", "controller", "webhook"} {
		values[other] = map[string]any{"enabled": false}
	}
	agent := values["agent"].(map[string]any)
	delete(agent, "simulate")
	agent["driverRoot"] = installed
	w.install(values)
	ready := w.agentReady("")
	w.agentSays(ready, "no libcuda.so.1 in", "the driver's root "+installed)
	w.serveDevice()
	w.installDriver(installed, "575.1")
	w.agentSays(ready, "/dev/nvidia-uvm is not there and cannot be made: the kernel has not loaded nvidia-uvm; run chroot "+installed+" nvidia-modprobe")
	offered, err := w.client.ResourceV1().ResourceSlices().List(w.ctx, metav1.ListOptions{})
	w.no(err)
	if len(offered.Items) > 0 {
		t.Errorf("without a driver the node offers %+v", offered.Items)
	}
	for _, name := range []string{"nvidia-uvm", "nvidia-uvm-tools"} { // the kernel's null device stands for them
		w.no(unix.Mknod(filepath.Join("/dev", name), unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3))))
		w.no(os.Chmod(filepath.Join("/dev", name), 0o666))
	}
	w.offers()
	if again := w.agentReady(""); again.UID != ready.UID || again.Status.ContainerStatuses[0].RestartCount > 0 {
		t.Errorf("the agent that found a driver is another than the one that waited: %+v", again)
	}
	w.serves("agent", "aliquot_agent_up 1\n")

	trainer := []string{"/bin/trainer", "--seconds", "0", "--kernel-us", "5000", "--progress", "0"}
	w.onOwn(work{name: "quarter", compute: 250, memory: "4Gi", ceiling: `{"compute":"0.80","memory":"8Gi"}`, command: trainer})
	w.trains("quarter")
	w.onOwn(work{name: "half", compute: 500, memory: "8Gi", ceiling: `{"compute":"1.00"}`, user: 1000, command: append([]string{"/bin/pod", "cleared"}, trainer...)})
	w.trains("half")
	w.byFloors("beside each other")
	w.remove("half")
	w.shares("alone", map[string]part{"quarter": {800, 800}})
	w.filesOfOwn()
	w.brings()
	w.imageUsers(w.onOwnPod, func() {})
	w.no(unix.Unmount(installed, unix.MNT_DETACH))
	w.installDriver(installed, "580.1")
	w.restarted(ready) // it ended as the driver that it had found was not there any more
	quarter := string(w.claim("quarter").UID)
	w.eventually("the CDI file of a claim that was prepared with the driver before has the new one", func() (bool, string) { // where none was there for a moment, that agent looks again 10 s later
		file := string(w.cdiFile(quarter))
		return strings.Contains(file, installed+"/usr/lib/x86_64-linux-gnu/libcuda.so.580.1") && !strings.Contains(file, "575.1"), file
	})
	w.hog(w.onOwn)
	w.trains("quarter")
	w.remove("quarter")
	w.empty()
}

// agentSays waits until an agent's log has these words.
func (w *world) agentSays(pod corev1.Pod, words ...string) {
	w.Helper()
	w.eventually("the agent says "+strings.Join(words, " … "), func() (bool, string) {
		said, err := w.PodLog(w.ctx, ours, pod.Name)
		w.no(err)
		return !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(said, word) }), said
	})
}

// withoutDeviceFiles makes sure that the node has no device files of a driver of NVIDIA's, and has none after the test.
func (w *world) withoutDeviceFiles() {
	w.Helper()
	there := func() []string {
		files, err := filepath.Glob("/dev/nvidia*")
		w.no(err)
		return files
	}
	if files := there(); len(files) > 0 {
		w.Skipf("needs a machine without a driver of NVIDIA's: this has %v", files)
	}
	w.Cleanup(func() {
		for _, file := range there() {
			if err := os.RemoveAll(file); err != nil {
				w.Error(err)
			}
		}
	})
}

// propagates makes a folder until the end of the test, in which later mounts show in containers that have it, as all of a node's do where systemd runs it.
func (w *world) propagates(folder string) {
	w.Helper()
	w.no(os.MkdirAll(folder, 0o755))
	w.no(unix.Mount(folder, folder, "", unix.MS_BIND, ""))
	w.no(unix.Mount("", folder, "", unix.MS_SHARED, ""))
	w.Cleanup(func() {
		for unix.Unmount(filepath.Join(folder, "root"), unix.MNT_DETACH) == nil { // what was mounted in it meanwhile
		}
		if err := errors.Join(unix.Unmount(folder, unix.MNT_DETACH), os.RemoveAll(folder)); err != nil {
			w.Error(err)
		}
	})
}

// serveDevice has a simulated device that no agent knows of.
func (w *world) serveDevice() {
	w.Helper()
	program, err := filepath.Abs(filepath.Join(root, "native", "dist", "bin", "aliquot-simgpu"))
	w.no(err)
	_, err = w.Start("simgpu", nil, program, "serve", "--devices", "h200x1",
		"--socket", filepath.Join(w.sims, "simgpu.sock"), "--record", filepath.Join(w.sims, "record"), "--control", filepath.Join(w.sims, "simgpu.ctl"))
	w.no(err)
	w.eventually("the simulated device is there", func() (bool, string) {
		_, err := os.Stat(filepath.Join(w.sims, "simgpu.sock"))
		return err == nil, w.Log("simgpu")
	})
}

// installDriver mounts a file system with a version of the driver, as a container that brings one does: its libraries as packages install them, and the socket by
// which these reach the device.
func (w *world) installDriver(at, version string) {
	w.Helper()
	files := w.TempDir()
	folder := filepath.Join(files, "usr", "lib", "x86_64-linux-gnu")
	w.no(os.MkdirAll(folder, 0o755))
	w.no(os.Link(filepath.Join(w.sims, "simgpu.sock"), filepath.Join(files, "usr", "lib", "simgpu.sock")))
	for _, name := range []string{"libcuda.so", "libnvidia-ml.so"} {
		content, err := os.ReadFile(filepath.Join(root, "native", "dist", "sim", name+".1"))
		w.no(err)
		w.no(os.WriteFile(filepath.Join(folder, name+"."+version), content, 0o755))
		w.no(os.Symlink(name+"."+version, filepath.Join(folder, name+".1")))
	}
	w.no(os.MkdirAll(at, 0o755))
	w.no(unix.Mount(files, at, "", unix.MS_BIND, ""))
}

// onOwn is submit for a node with a driver of its own: the container is given, besides, the socket by which the simulated driver reaches its device, where the
// driver looks for it, as a real one would reach its device by files.
func (w *world) onOwn(one work) {
	w.Helper()
	w.admitted(w.onOwnPod(one))
}

func (w *world) onOwnPod(one work) *corev1.Pod {
	w.Helper()
	pod := w.sharing(one)
	pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: "device", VolumeSource: corev1.VolumeSource{
		HostPath: &corev1.HostPathVolumeSource{Path: filepath.Join(w.sims, "simgpu.sock")},
	}})
	pod.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "device", MountPath: filepath.Join(w.run, "simgpu.sock")}}
	return pod
}

// filesOfOwn has a pod with a share open the device files, which the container runtime lets it, as far as these stand for anything, and one without find none; and
// root make that of another device, which it may not open.
func (w *world) filesOfOwn() {
	w.Helper()
	names := []string{"/dev/nvidiactl", "/dev/nvidia0", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools"}
	command := append([]string{"/bin/pod", "opens"}, names...)
	w.onOwn(work{name: "with", compute: 100, memory: "1Gi", user: 1000, command: command})
	w.admitted(w.pod(work{name: "without", user: 1000, command: command}))
	for pod, wants := range map[string][]string{
		"with":    {"no such device or address", "no such device or address", "opened", "opened"}, // no kernel module stands behind the first two
		"without": {"no such file or directory", "no such file or directory", "no such file or directory", "no such file or directory"},
	} {
		_, err := w.AwaitPod(w.ctx, "default", pod, corev1.PodSucceeded)
		w.no(err)
		said, err := w.PodLog(w.ctx, "default", pod)
		w.no(err)
		for i, want := range wants {
			if !strings.Contains(said, fmt.Sprintf("%s: %s\n", names[i], want)) {
				w.Errorf("the pod %s a share says\n%swant %s: %s", pod, said, names[i], want)
			}
		}
	}
	w.onOwn(work{name: "makes", compute: 100, memory: "1Gi", command: []string{"/bin/pod", "makes", "195", "1"}})
	_, err := w.AwaitPod(w.ctx, "default", "makes", corev1.PodSucceeded)
	w.no(err)
	if said, err := w.PodLog(w.ctx, "default", "makes"); err != nil || said != "195:1: made, operation not permitted\n" {
		w.Errorf("root of a container that makes another device's file says %q (%v)", said, err)
	}
	w.remove("with", "without", "makes")
}
