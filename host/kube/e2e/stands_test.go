package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/aliquot-dev/aliquot/host/kube/scheduler"
	"github.com/aliquot-dev/aliquot/host/kube/testcluster"
	"github.com/aliquot-dev/aliquot/node/page"
)

// What runs in a pod beside its program: before it, until it is told to end; and next to it, which does not end when it is told to.
var (
	firstCommand = []string{"/bin/pod", "first"}
	toldCommand  = []string{"/bin/pod", "stays"}
)

// begins makes a pod that stands still before its program is started, and before it ends, and returns its UID. What is first in it has the share, too.
func (k *killer) begins(name string, command []string) string {
	k.Helper()
	pod := k.sharing(work{
		name: name, compute: 500, memory: "4Gi", ceiling: `{"compute":"1.00"}`, command: command, scheduler: scheduler.Name, queue: "owner", grace: 3600,
	})
	first, told := *pod.Spec.Containers[0].DeepCopy(), *pod.Spec.Containers[0].DeepCopy()
	first.Name, first.Command = "first", firstCommand
	told.Name, told.Command, told.Resources.Claims = "told", toldCommand, nil
	pod.Spec.InitContainers, pod.Spec.Containers = []corev1.Container{first}, append(pod.Spec.Containers, told)
	return string(k.admitted(pod).UID)
}

// inPod are the processes of a pod that run a command.
func (k *killer) inPod(uid string, command []string) (found []int) {
	k.Helper()
	for pid := range k.processesOf(uid) {
		said, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if err == nil && string(bytes.TrimSuffix(said, []byte{0})) == strings.Join(command, "\x00") {
			found = append(found, pid)
		}
	}
	return found
}

// isTold says whether a process of toldCommand has noted that it was told to end.
func (k *killer) isTold(pid int) bool {
	name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	return err == nil && strings.TrimSpace(string(name)) == "told"
}

// signal sends a signal to processes.
func (k *killer) signal(pids []int, signal syscall.Signal) {
	k.Helper()
	for _, pid := range pids {
		k.no(syscall.Kill(pid, signal))
	}
}

// ceiling is that of the page of a claim, by its UID; 0: there is none, or it is just written.
func (k *killer) ceiling(claim string) (compute uint32) {
	k.Helper()
	ctl, err := page.Open[page.Ctl](filepath.Join(k.run, "tasks", claim, "ctl"), false)
	if err != nil {
		return 0
	}
	defer ctl.Close()
	k.no(ctl.View(func(c *page.Ctl) error {
		if policy, whole := c.Grant[0].Policy(); whole {
			compute = policy.Ceiling
		}
		return nil
	}))
	return compute
}

// stands is the environment of a part that is to stand still at each point where it has yet to.
func (k *killer) stands(who string) []string {
	return []string{"ALIQUOT_STOP_AT=" + strings.Join(k.left[who], ","), "ALIQUOT_KILL_LOG=" + k.file(who)}
}

// standing is the point at which a part stands still; empty: it goes on.
func (k *killer) standing(who string) string {
	k.Helper()
	reached, err := os.ReadFile(k.file(who))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		k.Fatal(err)
	}
	return strings.TrimSpace(string(reached))
}

// forget forgets where a part stands that was killed or goes on.
func (k *killer) forget(who string) {
	k.Helper()
	if err := os.Remove(k.file(who)); !errors.Is(err, fs.ErrNotExist) {
		k.no(err)
	}
}

// agentStands starts the agent anew so that it stands still at the points that are left, in what is asked of it.
func (k *killer) agentStands() {
	k.Helper()
	if k.dead(k.agent) {
		k.Fatalf("the agent has ended:\n%s", k.agent.Log())
	}
	k.agent.Kill()
	k.forget("agent")
	k.launchAgent(append(k.stands("agent"), "ALIQUOT_POINTS_AFTER="+recovered))
}

// schedulerStands is agentStands of the scheduler, which stands nowhere before it schedules.
func (k *killer) schedulerStands() {
	k.Helper()
	k.scheduler.Kill()
	k.forget("scheduler")
	k.scheduler = k.startSchedulerWith(k.stands("scheduler")...)
}

// allDie kills every part and starts it again, one after the other, at a step at which one of them stands still.
func (k *killer) allDie(step, but string) {
	k.Helper()
	for _, part := range parts {
		switch {
		case part == but:
			continue
		case part == "agent":
			k.agentStands()
		case part == "scheduler":
			k.schedulerStands()
		case part == "controller":
			k.controller.Kill()
			k.startController()
		default:
			k.no(k.Restart(k.ctx, part))
		}
		k.hits[part+" at "+step]++
	}
	k.oneEach()
	if slices.Contains(waitedFor, step) {
		k.no(k.Restart(k.ctx, "kube-controller-manager"))
	}
}

// waitedFor are the steps after which a pod waits for kube-controller-manager alone, to take evicted pods out of their claims, and to delete the claims of those
// that are gone. That is none of the parts that this is about, and only its time is saved: each time that the API server has gone it waits longer, half a
// minute in the end, before it looks again. All that waits for it does so, and in a pod's other life it is left alone.
var waitedFor = []string{evicting[len(evicting)-1], unpreparing[len(unpreparing)-1]}

// without kills each part each time that agent or scheduler stands still, and has it go on then, until that is over and something is so of a pod.
func (k *killer) without(name, what string, is func() bool) {
	k.Helper()
	look, again, late := time.NewTicker(50*time.Millisecond), time.NewTicker(time.Second), time.NewTimer(patience)
	defer look.Stop()
	defer again.Stop()
	for len(k.left["agent"]) > 0 || len(k.left["scheduler"]) > 0 || !is() {
		for _, who := range []string{"scheduler", "agent"} {
			if step := k.standing(who); step != "" {
				k.letGo(who, step)
				late.Reset(patience)
			}
		}
		select {
		case <-again.C:
			k.nudge(name)
		case <-late.C:
			pod, err := k.client.CoreV1().Pods("default").Get(k.ctx, name, metav1.GetOptions{})
			k.Fatalf("waited %v until %s; agent and scheduler have yet to stand at %v; it is %+v (%v), and kubelet said\n%s", patience, what, k.left, pod, err, k.Log("kubelet"))
		case <-look.C:
		}
	}
}

// letGo has every other part killed while one stands still, and it go on then.
func (k *killer) letGo(who, step string) {
	k.Helper()
	p := map[string]*testcluster.Process{"agent": k.agent, "scheduler": k.scheduler}[who]
	k.eventually("the "+who+" stands still", func() (bool, string) {
		state, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.PID()))
		k.no(err)
		_, rest, _ := strings.Cut(string(state), ") ")
		return strings.HasPrefix(rest, "T"), rest
	})
	k.left[who] = slices.DeleteFunc(slices.Clone(k.left[who]), func(point string) bool { return point == step })
	if step == allocating[0] {
		k.left["agent"] = ofKube(preparing)
	}
	k.allDie(step, who)
	k.forget(who)
	k.no(syscall.Kill(p.PID(), syscall.SIGCONT))
}
