package e2e

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/aliquot-dev/aliquot/host/kube/driver"
	"github.com/aliquot-dev/aliquot/host/kube/testcluster"
	"github.com/aliquot-dev/aliquot/node/page"
)

// gone deletes a pod, does something meanwhile, and checks that all of it is gone then, and that the other has run on.
func (k *killer) gone(name string, meanwhile func()) {
	k.Helper()
	pods, claim := k.client.CoreV1().Pods("default"), k.claim(name)
	pod, err := pods.Get(k.ctx, name, metav1.GetOptions{})
	k.no(err)
	k.no(pods.Delete(k.ctx, name, metav1.DeleteOptions{}))
	meanwhile()
	k.asksAgain(name, func() bool {
		_, err := pods.Get(k.ctx, name, metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
	k.no(testcluster.AwaitGone(k.ctx, pods, name))
	k.no(testcluster.AwaitGone(k.ctx, k.client.ResourceV1().ResourceClaims("default"), claim.Name))
	k.nothingLeft(string(pod.UID), string(claim.UID))
	k.eventually("the pod that runs on has the processes that it had", func() (bool, string) { // a look at all processes may miss one, see pagesInUse
		now := k.pids("stays")
		return maps.Equal(now, k.stays), fmt.Sprintf("it had %v and has %v", k.stays, now)
	})
	k.eventually("the pod that runs on uses the device", func() (bool, string) {
		before := k.busy
		k.busy = k.world.busy("stays", k.read())
		return k.busy > before, fmt.Sprint(k.busy)
	})
}

// nothingLeft waits until nothing is left of a pod and its claim, and of no other but the one that runs on: no process and no control group; no page, checkpoint or
// CDI file; no page that agent or arbiter still have; no Share; and no claim that is held by a finalizer.
func (k *killer) nothingLeft(pod, claim string) {
	k.Helper()
	stays, runs := k.claim("stays"), k.client.CoreV1().Pods("default")
	if one, err := runs.Get(k.ctx, "stays", metav1.GetOptions{}); err != nil || len(k.groupsOf(string(one.UID))) == 0 {
		k.Fatalf("the pod that runs on has no control group: %v", err)
	}
	of := func(path string) bool {
		return strings.Contains(path, claim) || !strings.Contains(path, string(stays.UID))
	}
	k.eventually("nothing is left of the pod", func() (bool, string) {
		var left []string
		for _, folder := range []string{filepath.Join(k.run, "tasks"), k.CDI(), filepath.Join(k.state, "claims")} {
			entries, err := os.ReadDir(folder)
			k.no(err)
			if len(entries) == 0 {
				k.Fatalf("in %s is nothing of the pod that runs on", folder)
			}
			for _, entry := range entries {
				if of(entry.Name()) {
					left = append(left, filepath.Join(folder, entry.Name()))
				}
			}
		}
		left = append(left, k.groupsOf(pod)...)
		for _, page := range k.pagesInUse() {
			if of(page) {
				left = append(left, page)
			}
		}
		return len(left) == 0, strings.Join(left, "\n")
	})
	k.eventually("one Share is left, and one claim with a finalizer", func() (bool, string) {
		shares, err := k.sharesAs(k.Kubeconfig()).List(k.ctx, metav1.ListOptions{})
		k.no(err)
		claims, err := k.client.ResourceV1().ResourceClaims("default").List(k.ctx, metav1.ListOptions{})
		k.no(err)
		held := slices.DeleteFunc(claims.Items, func(one resourceapi.ResourceClaim) bool { return len(one.Finalizers) == 0 })
		return len(shares.Items) == 1 && shares.Items[0].GetName() == stays.Name && len(held) == 1 && held[0].UID == stays.UID, fmt.Sprint(shares.Items, held)
	})
}

// groupsOf are the control groups of a pod, by its UID, in every hierarchy.
func (k *killer) groupsOf(pod string) (found []string) {
	k.Helper()
	all, err := filepath.Glob("/sys/fs/cgroup/*/" + k.Group() + "/kubepods") // of version 1
	k.no(err)
	all = append(all, "/sys/fs/cgroup/"+k.Group()+"/kubepods")
	for _, folder := range all {
		k.no(filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
			if err == nil && entry.IsDir() && strings.Contains(entry.Name(), "pod"+pod) {
				found = append(found, path)
			}
			return nil // it has gone meanwhile, or is of the other version
		}))
	}
	return found
}

// pagesInUse are the pages of tasks that agent and arbiter have mapped, whether or not they have a name any more. The arbiter is the one that answers, and no
// other may be there.
func (k *killer) pagesInUse() (found []string) {
	k.Helper()
	answers := k.arbiter()
	pids, seen := []int{k.agent.PID(), answers}, false
	for pid := range k.processesIn(k.Group()) {
		switch program, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid)); {
		case err != nil || program != filepath.Join(k.run, "bin", "aliquot-arbiter"):
		case pid == answers:
			seen = true
		default:
			k.Fatalf("process %d is another arbiter beside %d, which answers", pid, answers)
		}
	}
	if !seen { // as it happened in two of some ten thousand looks
		of, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", answers))
		k.Logf("a look at all processes did not find the arbiter, %d, which answers; its control groups (%v) are\n%s", answers, err, of)
	}
	for _, pid := range pids {
		maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
		k.no(err)
		for line := range strings.Lines(string(maps)) {
			if at := strings.Index(line, filepath.Join(k.run, "tasks")+"/"); at >= 0 {
				found = append(found, strings.TrimSpace(line[at:]))
			}
		}
	}
	if len(found) == 0 {
		k.Fatalf("agent and arbiter have no page of the pod that runs on")
	}
	return found
}

// arbiter is the process that serves as the arbiter, by the kernel's word.
func (k *killer) arbiter() int {
	k.Helper()
	conn, err := net.Dial("unixpacket", filepath.Join(k.run, "arbiter.ctl"))
	k.no(err)
	defer conn.Close()
	raw, err := conn.(*net.UnixConn).SyscallConn()
	k.no(err)
	var peer *unix.Ucred
	k.no(raw.Control(func(fd uintptr) { peer, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }))
	k.no(err)
	return int(peer.Pid)
}

// oneEach checks that no part of a device is granted twice, neither of its compute nor of its memory: neither by the claims nor by the node's pages.
func (k *killer) oneEach() {
	k.Helper()
	claims, err := k.client.ResourceV1().ResourceClaims("default").List(k.ctx, metav1.ListOptions{})
	k.no(err)
	allocated := map[string]floors{}
	for _, claim := range claims.Items {
		if claim.Status.Allocation == nil {
			continue
		}
		for _, result := range claim.Status.Allocation.Devices.Results {
			compute, memory := result.ConsumedCapacity[resourceapi.QualifiedName(driver.Compute)], result.ConsumedCapacity[resourceapi.QualifiedName(driver.Memory)]
			if compute.Value() <= 0 || memory.Value() <= 0 {
				k.Fatalf("a claim is given nothing: %+v", claim)
			}
			allocated[result.Device] = allocated[result.Device].and(compute.Value(), memory.Value())
		}
	}
	for by, of := range map[string]map[string]floors{"claims": allocated, "pages": k.granted()} {
		if len(of) == 0 {
			k.Fatalf("by the %s nobody has a floor, and one pod runs on", by)
		}
		for device, sum := range of {
			if sum.compute > 1000 || sum.memory > k.capacity {
				k.Fatalf("of the device %s %d thousandths and %d bytes are granted by the %s, of %d: %+v", device, sum.compute, sum.memory, by, k.capacity, claims.Items)
			}
		}
	}
}

// floors are some on one device, together.
type floors struct{ compute, memory int64 }

func (f floors) and(compute, memory int64) floors {
	return floors{f.compute + compute, f.memory + memory}
}

// granted is, by device, the floors in the pages of all tasks that are prepared on the node, which arbiter and shims go by. An agent may work meanwhile, or
// have died in the middle of that: what is half made or half removed is nobody's, and floors stand in a page from its begin to its end.
func (k *killer) granted() map[string]floors {
	k.Helper()
	tasks, err := os.ReadDir(filepath.Join(k.run, "tasks"))
	k.no(err)
	all := map[string]floors{}
	for _, task := range tasks {
		if strings.HasPrefix(task.Name(), ".") {
			continue
		}
		ctl, err := page.Open[page.Ctl](filepath.Join(k.run, "tasks", task.Name(), "ctl"), false)
		if errors.Is(err, fs.ErrNotExist) {
			continue // it was taken back meanwhile
		}
		k.no(err)
		k.no(ctl.View(func(c *page.Ctl) error {
			for i := range c.Header.Grants {
				grant := &c.Grant[i]
				device := page.Text(grant.Device[:])
				all[device] = all[device].and(int64(grant.ComputeFloor.Load()), int64(grant.MemFloor.Load()))
			}
			return nil
		}))
		ctl.Close()
	}
	return all
}

// untilOffered waits until the node's device is offered, and notes how much memory it has.
func (k *killer) untilOffered() {
	k.Helper()
	k.offers()
	memory := k.device().Capacity[driver.Memory].Value
	k.capacity = memory.Value()
}
