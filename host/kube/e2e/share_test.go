package e2e

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/aliquot-dev/aliquot/host/kube/driver"
	"github.com/aliquot-dev/aliquot/host/kube/testcluster"
)

// tolerated is by how much a measured share may be off, in thousandths of a device: two processors are busy with a whole cluster
// meanwhile.
const tolerated = 20

// quarterAndHalf is what two pods may use beside each other, with floors of 0.25 and 0.50 and a ceiling of 0.80 of the first. A device that nobody divides
// would give each the half of it, which they may have: what they are to have is judged besides.
var quarterAndHalf = map[string]part{"quarter": {250, 800}, "half": {500, 1000}}

// byFloors checks that both use what they are to have where their shares say no weights.
func (w *world) byFloors(when string) {
	w.Helper()
	w.sharesOver(3*time.Second, when, quarterAndHalf, thirds)
}

// thirds: what of the device is nobody's floor is divided by the floors as weights, so that quarter has a third of all that ran, and half the rest.
func thirds(used map[string]int64) error {
	if all := used["quarter"] + used["half"]; 3*used["quarter"] < all-3*tolerated || 3*used["quarter"] > all+3*tolerated {
		return errors.New("quarter is to use a third of it all")
	}
	return nil
}

// Two pods of different users share one simulated device, placed by the stock scheduler: one gets its floor, though by their weights it would have a tenth, and the other all the rest, the ceiling holds when the neighbour is gone, and another one once its Share says so. The agent is killed meanwhile and nobody
// notices. A memory hog gets what its ceiling says. A device that fails has its pod evicted. What is deleted leaves nothing behind.
func TestShares(t *testing.T) {
	w := begin(t, "h200x1")
	w.offers()
	w.bounded()
	trainer := []string{"/bin/trainer", "--seconds", "0", "--kernel-us", "5000", "--progress", "0"}
	w.submit(work{name: "quarter", compute: 250, memory: "4Gi", ceiling: `{"compute":"0.80","memory":"8Gi"}`, weight: 100, command: trainer})
	// This one throws its environment away, and is held to its share all the same: the shim lies where programs look for the driver,
	// and the task's folder where the shim looks for one.
	w.submit(work{name: "half", compute: 500, memory: "8Gi", ceiling: `{"compute":"1.00"}`, weight: 900, user: 1000, command: append([]string{"/bin/pod", "cleared"}, trainer...)})
	w.trains("quarter")
	w.trains("half")

	w.told("quarter", `"compute":"0.25..0.80","memory":"4Gi..8Gi"`)
	w.told("half", `"compute":"0.50..1.00","memory":"8Gi"`)

	bound := func(used map[string]int64) error {
		if used["quarter"] > 250+tolerated {
			return errors.New("quarter is to use its floor and no more, as all the rest is half's by weight")
		}
		return nil
	}
	w.sharesOver(3*time.Second, "beside each other", quarterAndHalf, bound)
	w.agent.Kill()
	w.startAgent()
	w.sharesOver(3*time.Second, "after the agent was killed", quarterAndHalf, bound)
	w.remove("half")
	w.shares("alone", map[string]part{"quarter": {800, 800}})
	w.resizes()
	w.hog(w.submit)
	w.imageUsers(w.sharing, func() {
		w.agent.Kill()
		w.startAgent()
	})
	w.around()
	w.endless()
	w.fails("quarter")
	w.said(testcluster.NodeName, "DeviceDown")
}

// device is the only one, once the cluster was told of it.
func (w *world) device() (device resourceapi.Device) {
	w.Helper()
	w.eventually("one slice with one device is there", func() (bool, string) { // it is told a moment after the agent serves
		slices, err := w.client.ResourceV1().ResourceSlices().List(w.ctx, metav1.ListOptions{})
		w.no(err)
		if len(slices.Items) != 1 || len(slices.Items[0].Spec.Devices) != 1 {
			return false, fmt.Sprintf("%+v", slices.Items)
		}
		device = slices.Items[0].Spec.Devices[0]
		return true, ""
	})
	return device
}

// offers checks what the cluster was told of the device.
func (w *world) offers() {
	w.Helper()
	device := w.device()
	compute, memory := device.Capacity[driver.Compute], device.Capacity[driver.Memory]
	if device.AllowMultipleAllocations == nil || !*device.AllowMultipleAllocations || compute.Value.Value() != 1000 ||
		compute.RequestPolicy == nil || memory.RequestPolicy == nil || memory.Value.Value() < 100<<30 {
		w.Errorf("the device is offered as %+v", device)
	}
	model, architecture, uuid := device.Attributes["model"].StringValue, device.Attributes["architecture"].StringValue, device.Attributes["uuid"].StringValue
	if model == nil || !strings.Contains(*model, "H200") || architecture == nil || *architecture != "Hopper" || uuid == nil || !strings.HasPrefix(*uuid, "GPU-") ||
		device.Attributes["computeCapability"].VersionValue == nil || device.Attributes["driverVersion"].VersionValue == nil {
		w.Errorf("its attributes are %v", device.Attributes)
	}
}

// told waits until the claim of a pod says in its status of the share that its containers are held to: the agent writes it beside their start.
func (w *world) told(name, want string) {
	w.Helper()
	w.eventually("the claim of "+name+" says "+want, func() (bool, string) {
		devices := w.claim(name).Status.Devices
		is := len(devices) == 1 && devices[0].Data != nil && strings.Contains(string(devices[0].Data.Raw), want) && len(devices[0].Conditions) == 1
		return is, fmt.Sprintf("%+v", devices)
	})
}

var hogged = regexp.MustCompile(`shown (\d+) MiB free of (\d+); got (\d+) MiB in \d+ blocks, then CUDA_ERROR_OUT_OF_MEMORY`)

// hog runs a program that takes memory until it is refused, and checks that it was shown its share and got no more.
func (w *world) hog(submit func(work)) {
	w.Helper()
	submit(work{name: "hog", compute: 100, memory: "2Gi", ceiling: `{"memory":"3Gi"}`, command: []string{"/bin/hog"}})
	_, err := w.AwaitPod(w.ctx, "default", "hog", corev1.PodSucceeded)
	w.no(err)
	said, err := w.PodLog(w.ctx, "default", "hog")
	w.no(err)
	found := hogged.FindStringSubmatch(said)
	if found == nil {
		w.Fatalf("the hog said %q", said)
	}
	free, _ := strconv.Atoi(found[1])
	total, _ := strconv.Atoi(found[2])
	got, _ := strconv.Atoi(found[3])
	const block = 256
	if total != 3<<10 || got <= 2<<10 || got > free || got <= free-block {
		w.Errorf("with 2 to 3 GiB, in blocks of %d MiB, the hog was shown %d MiB of %d and got %d: %s", block, free, total, got, said)
	}
	w.remove("hog")
}

// empty waits until nothing is left of any claim: neither pages nor CDI files nor checkpoints.
func (w *world) empty() {
	w.Helper()
	w.eventually("nothing is left of any claim", func() (bool, string) {
		var left []string
		for _, folder := range []string{filepath.Join(w.run, "tasks"), w.CDI(), filepath.Join(w.state, "claims")} {
			entries, err := os.ReadDir(folder)
			w.no(err)
			for _, entry := range entries {
				left = append(left, filepath.Join(folder, entry.Name()))
			}
		}
		return len(left) == 0, strings.Join(left, "\n")
	})
	w.eventually("the claims are gone with their pods", func() (bool, string) {
		left, err := w.client.ResourceV1().ResourceClaims("default").List(w.ctx, metav1.ListOptions{})
		w.no(err)
		return len(left.Items) == 0, fmt.Sprintf("%+v", left.Items)
	})
	w.eventually("the claims' Shares are gone with them", func() (bool, string) {
		left, err := w.sharesAs(w.Kubeconfig()).List(w.ctx, metav1.ListOptions{})
		w.no(err)
		return len(left.Items) == 0, fmt.Sprint(left.Items)
	})
	if w.agent == nil {
		return
	}
	select {
	case <-w.agent.Ended():
		w.Error("the agent has ended")
	default:
	}
}

// fails has the device fall off the bus and come back. Meanwhile nothing may be placed on it, which the cluster is told by a taint, and by that the pod on it is
// evicted, of which nothing is left.
func (w *world) fails(name string) {
	w.Helper()
	offered, err := w.client.ResourceV1().ResourceSlices().List(w.ctx, metav1.ListOptions{})
	w.no(err)
	told := func(what string, taints int) {
		w.Helper()
		inject := exec.CommandContext(w.ctx, filepath.Join(w.run, "bin", "aliquot-simgpu"), "inject", "--control", filepath.Join(w.run, "simgpu.ctl"), "--device", "0", what)
		if said, err := inject.CombinedOutput(); err != nil {
			w.Fatalf("inject %s: %v\n%s", what, err, said)
		}
		_, err := testcluster.AwaitObject(w.ctx, w.client.ResourceV1().ResourceSlices(), offered.Items[0].Name, "a device that is "+what,
			func(slice *resourceapi.ResourceSlice) (bool, error) {
				has := slice.Spec.Devices[0].Taints
				return len(has) == taints && (taints == 0 || has[0].Effect == resourceapi.DeviceTaintEffectNoExecute), nil
			})
		w.no(err)
	}
	w.evicted(name, func() { told("gone", 1) })
	w.empty()
	told("back", 0)
}

// evicted does something and waits until a pod has been evicted for the taint of its device, and its claim is gone, and its processes have ended.
func (w *world) evicted(name string, by func()) {
	w.Helper()
	pods := w.client.CoreV1().Pods("default")
	pod, err := pods.Get(w.ctx, name, metav1.GetOptions{})
	w.no(err)
	changes, err := pods.Watch(w.ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + name, ResourceVersion: pod.ResourceVersion})
	w.no(err)
	defer changes.Stop()
	by()
	last := pod
	for change := range changes.ResultChan() { // until the test's time is up
		now, is := change.Object.(*corev1.Pod)
		if !is {
			w.Fatalf("%s is not watched any more: %+v", name, change.Object)
		}
		if last = now; change.Type == watch.Deleted {
			break
		}
	}
	if !slices.ContainsFunc(last.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue && c.Reason == "DeletionByDeviceTaintManager"
	}) {
		w.Errorf("%s went with the conditions %+v, want it evicted for its device's taint", name, last.Status.Conditions)
	}
	w.goneWith(*pod)
}
