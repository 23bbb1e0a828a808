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

// A node with a driver of its own, which a container brings some time after the agent: the driver is the simulated one, installed in a folder of the node as
// packages install a real one, and nothing tells the agent that it is. Until it is there the node offers nothing and the agent is ready; then it does. Pods have their
// device files and no others, are held to their shares with the driver behind the shim, with nothing in the environment, too, and see these alone.
func TestOwnDriver(t *testing.T) {
	w := beginCluster(t, "")
	installed := filepath.Join(w.Folder(), "driver")
	w.sims = filepath.Join(installed, "usr", "lib")
	w.propagates(installed)
	w.withoutDeviceFiles()
	w.withoutPrograms()
	w.loadKube(w.chart().Image(), w.program, filepath.Join(root, "native", "dist"))
	values, metrics, _ := w.everything()
	for _, other := range []string{"scheduler", "controller", "webhook"} {
		values[other] = map[string]any{"enabled": false}
	}
	agent := values["agent"].(map[string]any)
	delete(agent, "simulate")
	agent["driverRoot"] = installed
	w.install(values)
	ready := w.agentReady("")
	w.eventually("the agent says that there is no driver", func() (bool, string) {
		said, err := w.PodLog(w.ctx, ours, ready.Name)
		w.no(err)
		return strings.Contains(said, "no libcuda.so.1 in") && strings.Contains(said, "the driver's root "+installed), said
	})
	offered, err := w.client.ResourceV1().ResourceSlices().List(w.ctx, metav1.ListOptions{})
	w.no(err)
	if len(offered.Items) > 0 {
		t.Errorf("without a driver the node offers %+v", offered.Items)
	}

	w.installDriver(installed)
	w.offers()
	if again := w.agentReady(""); again.UID != ready.UID || again.Status.ContainerStatuses[0].RestartCount > 0 {
		t.Errorf("the agent that found a driver is another than the one that waited: %+v", again)
	}
	w.serves(metrics, "aliquot_agent_up 1\n")

	trainer := []string{"/bin/trainer", "--seconds", "0", "--kernel-us", "5000", "--progress", "0"}
	w.onOwn(work{name: "quarter", compute: 250, memory: "4Gi", ceiling: `{"compute":"0.80","memory":"8Gi"}`, command: trainer})
	w.kept("quarter", "/dev/nvidia-uvm is not there and cannot be made: the kernel has no nvidia-uvm")
	for _, name := range []string{"nvidia-uvm", "nvidia-uvm-tools"} { // the kernel's null device stands for them
		w.no(unix.Mknod(filepath.Join("/dev", name), unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3))))
		w.no(os.Chmod(filepath.Join("/dev", name), 0o666))
	}
	w.trains("quarter")
	w.onOwn(work{name: "half", compute: 500, memory: "8Gi", ceiling: `{"compute":"1.00"}`, user: 1000, command: append([]string{"/bin/pod", "cleared"}, trainer...)})
	w.trains("half")
	both := w.used("quarter", "half")
	t.Logf("beside each other, thousandths of the device: %v", both)
	if both["quarter"] < 250-tolerated || both["half"] < 500-tolerated || both["quarter"] > 800+tolerated {
		t.Errorf("with floors of 250 and 500 and a ceiling of 800, they used %v", both)
	}
	w.remove("half")
	if alone := w.used("quarter")["quarter"]; alone > 800+tolerated || alone < 800-2*tolerated {
		t.Errorf("alone it used %d thousandths of the device, its ceiling is 800", alone)
	}
	w.filesOfOwn()
	w.hog(w.onOwn)
	w.killed(w.agentReady(""))
	w.trains("quarter")
	w.remove("quarter")
	w.empty()
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

// kept waits until an event says why a pod's containers are kept from starting.
func (w *world) kept(pod, why string) {
	w.Helper()
	w.eventually("an event says of "+pod+": "+why, func() (bool, string) {
		events, err := w.client.CoreV1().Events("default").List(w.ctx, metav1.ListOptions{FieldSelector: "involvedObject.name=" + pod})
		w.no(err)
		return slices.ContainsFunc(events.Items, func(e corev1.Event) bool { return strings.Contains(e.Message, why) }), fmt.Sprintf("%+v", events.Items)
	})
}

// propagates makes a folder until the end of the test, in which later mounts show in containers that have it, as all of a node's do where systemd runs it.
func (w *world) propagates(folder string) {
	w.Helper()
	w.no(os.MkdirAll(folder, 0o755))
	w.no(unix.Mount(folder, folder, "", unix.MS_BIND, ""))
	w.no(unix.Mount("", folder, "", unix.MS_SHARED, ""))
	w.Cleanup(func() {
		for unix.Unmount(filepath.Join(folder, "usr"), unix.MNT_DETACH) == nil { // what was mounted in it meanwhile
		}
		if err := errors.Join(unix.Unmount(folder, unix.MNT_DETACH), os.RemoveAll(folder)); err != nil {
			w.Error(err)
		}
	})
}

// installDriver serves a simulated device and mounts a file system with the driver's libraries, as packages install a driver's.
func (w *world) installDriver(at string) {
	w.Helper()
	usr := w.TempDir()
	w.no(os.Mkdir(filepath.Join(at, "usr"), 0o755))
	folder := filepath.Join(usr, "lib", "x86_64-linux-gnu")
	w.no(os.MkdirAll(folder, 0o755))
	for _, name := range []string{"libcuda.so", "libnvidia-ml.so"} {
		content, err := os.ReadFile(filepath.Join(root, "native", "dist", "sim", name+".1"))
		w.no(err)
		w.no(os.WriteFile(filepath.Join(folder, name+".575.1"), content, 0o755))
		w.no(os.Symlink(name+".575.1", filepath.Join(folder, name+".1")))
	}
	program, err := filepath.Abs(filepath.Join(root, "native", "dist", "bin", "aliquot-simgpu"))
	w.no(err)
	_, err = w.Start("simgpu", nil, program,
		"serve", "--devices", "h200x1", "--socket", filepath.Join(usr, "lib", "simgpu.sock"), "--record", filepath.Join(usr, "lib", "record"), "--control", filepath.Join(usr, "simgpu.ctl"))
	w.no(err)
	w.eventually("the simulated device is there", func() (bool, string) {
		_, err := os.Stat(filepath.Join(usr, "lib", "simgpu.sock"))
		return err == nil, w.Log("simgpu")
	})
	w.no(unix.Mount(usr, filepath.Join(at, "usr"), "", unix.MS_BIND, ""))
}

// onOwn is submit for a node with a driver of its own: the container is given, besides, the socket by which the simulated driver reaches its device, where the
// driver looks for it, as a real one would reach its device by files.
func (w *world) onOwn(one work) {
	w.Helper()
	pod := w.sharing(one)
	pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: "device", VolumeSource: corev1.VolumeSource{
		HostPath: &corev1.HostPathVolumeSource{Path: filepath.Join(w.sims, "simgpu.sock")},
	}})
	pod.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "device", MountPath: filepath.Join(w.run, "simgpu.sock")}}
	w.create(pod)
}

// filesOfOwn has a pod with a share open the device files, which the container runtime lets it, as far as these stand for anything, and one without find none.
func (w *world) filesOfOwn() {
	w.Helper()
	names := []string{"/dev/nvidiactl", "/dev/nvidia0", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools"}
	command := append([]string{"/bin/pod", "opens"}, names...)
	w.onOwn(work{name: "with", compute: 100, memory: "1Gi", user: 1000, command: command})
	w.create(w.pod(work{name: "without", user: 1000, command: command}))
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
	w.remove("with", "without")
}
