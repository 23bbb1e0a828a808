package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/aliquot-dev/aliquot/host/kube/annotation"
	"github.com/aliquot-dev/aliquot/host/kube/scheduler"
	"github.com/aliquot-dev/aliquot/host/kube/testcluster"
)

// Our scheduler, with its own account alone, has two pods share a device; a third waits, and one that starts after the scheduler was killed
// knows what is granted. What goes makes room. A gang waits whole and starts whole. A share and another driver's device are had by one claim. An administrator sees all of it. Of two schedulers one leads, and when that is killed the other goes on.
func TestScheduler(t *testing.T) {
	w := beginWith(t, "h200x1", map[string]any{"scheduler": map[string]any{"enabled": true, "replicas": 0}}) // its account; it runs beside
	scheduling := w.startScheduler()
	trainer := []string{"/bin/trainer", "--seconds", "0", "--kernel-us", "5000", "--progress", "0"}
	for _, one := range []work{
		{name: "quarter", compute: 250, memory: "4Gi", ceiling: `{"compute":"0.80","memory":"8Gi"}`, command: trainer, scheduler: scheduler.Name},
		{name: "half", compute: 500, memory: "8Gi", ceiling: `{"compute":"1.00"}`, command: trainer, scheduler: scheduler.Name},
	} {
		w.submit(one)
		w.trains(one.name)
	}
	w.told("quarter", `"compute":"0.25..0.80","memory":"4Gi..8Gi"`)
	w.administers("quarter", "half")

	scheduling.Kill()
	<-scheduling.Ended()
	w.submit(work{name: "more", compute: 300, memory: "1Gi", command: trainer, scheduler: scheduler.Name})
	scheduling = w.startScheduler()
	w.submit(work{name: "less", compute: 200, memory: "1Gi", command: trainer, scheduler: scheduler.Name})
	w.unplaced("more", "0.30 of a device")
	w.remove("half")
	w.trains("more")
	w.trains("less")
	w.remove("quarter", "more", "less")
	w.gang(trainer)
	w.filtered()
	w.besideCard(trainer)
	scheduling.Kill()
	w.nextLeads(trainer)
	w.empty()
}

// nextLeads has two schedulers, of which one leads, and that one killed when it has written an allocation and not yet bound the pod. The other waits until the
// Lease has run out, and binds the pod to what its claim has.
func (w *world) nextLeads(command []string) {
	w.Helper()
	account, err := w.KubeconfigOf(w.ctx, "aliquot", "aliquot-scheduler")
	w.no(err)
	start := func(identity string, environment ...string) *testcluster.Process {
		process, err := w.Start("scheduler-"+identity, environment, w.program, "scheduler", "--kubeconfig", account, "--identity", identity)
		w.no(err)
		return process
	}
	reached := filepath.Join(w.TempDir(), "reached")
	first := start("first", "ALIQUOT_KILL_AT=kube.schedule.allocated", "ALIQUOT_KILL_LOG="+reached)
	w.eventually("the first schedules", func() (bool, string) { return strings.Contains(first.Log(), "msg=scheduling"), first.Log() })
	second := start("second")
	w.eventually("the second waits for the Lease", func() (bool, string) { return strings.Contains(second.Log(), "leader lease"), second.Log() })
	w.no(syscall.Kill(second.PID(), syscall.SIGSTOP)) // until what the first leaves was looked at
	w.submit(work{name: "between", compute: 500, memory: "1Gi", command: command, scheduler: scheduler.Name})
	w.eventually("the first is killed", func() (bool, string) {
		point, err := os.ReadFile(reached)
		return string(point) == "kube.schedule.allocated\n", fmt.Sprintf("%q, %v\n%s", point, err, first.Log())
	})
	<-first.Ended()
	pod, err := w.client.CoreV1().Pods("default").Get(w.ctx, "between", metav1.GetOptions{})
	w.no(err)
	before := w.claim("between")
	if before.Status.Allocation == nil || pod.Spec.NodeName != "" || strings.Contains(second.Log(), "msg=leading") {
		w.Fatalf("its claim is allocated %+v, it is bound to %q, and the second said\n%s\nwant an allocation alone", before.Status.Allocation, pod.Spec.NodeName, second.Log())
	}
	w.no(syscall.Kill(second.PID(), syscall.SIGCONT))
	w.trains("between")
	if after := w.claim("between"); !reflect.DeepEqual(after.Status.Allocation, before.Status.Allocation) || !strings.Contains(second.Log(), "identity=second") {
		w.Errorf("its claim had %+v and has %+v; the second said\n%s", before.Status.Allocation, after.Status.Allocation, second.Log())
	}
	w.remove("between")
}

// filtered has pods without devices placed, and left waiting, by what upstream's filters say.
func (w *world) filtered() {
	w.Helper()
	plain := w.pod(work{name: "plain", command: []string{"/bin/pod"}, scheduler: scheduler.Name})
	w.admitted(plain)
	_, err := testcluster.AwaitObject(w.ctx, w.client.CoreV1().Pods("default"), "plain", "a pod that has a node", func(pod *corev1.Pod) (bool, error) {
		return pod.Spec.NodeName == testcluster.NodeName, nil
	})
	w.no(err)
	elsewhere := w.pod(work{name: "elsewhere", command: []string{"/bin/pod"}, scheduler: scheduler.Name})
	elsewhere.Spec.NodeSelector = map[string]string{"disk": "fast"}
	w.admitted(elsewhere)
	w.unplaced("elsewhere", "didn't match Pod's node affinity/selector")
	w.remove("plain", "elsewhere")
}

// gang has a gang of four wait while one of them would not fit, and start whole when all do.
func (w *world) gang(command []string) {
	w.Helper()
	names := []string{"four-0", "four-1", "four-2", "four-3"}
	w.submit(work{name: "before", compute: 500, memory: "1Gi", command: command, scheduler: scheduler.Name})
	w.trains("before")
	for _, name := range names {
		w.submit(work{name: name, compute: 200, memory: "1Gi", command: command, scheduler: scheduler.Name, labels: map[string]string{
			annotation.Gang: "four", annotation.GangMin: "4",
		}})
	}
	for _, name := range names {
		w.unplaced(name, "4 tasks at once, each of 0.20 of a device")
	}
	for _, name := range names {
		pod, err := w.client.CoreV1().Pods("default").Get(w.ctx, name, metav1.GetOptions{})
		w.no(err)
		if pod.Spec.NodeName != "" {
			w.Fatalf("%s was placed, and only two of its gang of four fit", name)
		}
	}
	w.remove("before")
	for _, name := range names {
		w.trains(name)
	}
	w.remove(names...)
}

// startScheduler starts our scheduler as its own account and waits until it has seen what there is.
func (w *world) startScheduler() *testcluster.Process {
	w.Helper()
	return w.startSchedulerWith()
}

// startSchedulerWith is startScheduler with more in its environment.
func (w *world) startSchedulerWith(environment ...string) *testcluster.Process {
	w.Helper()
	account, err := w.KubeconfigOf(w.ctx, "aliquot", "aliquot-scheduler")
	w.no(err)
	before := strings.Count(w.Log("scheduler"), "msg=scheduling")
	process, err := w.Start("scheduler", environment, w.program, "scheduler", "--kubeconfig", account, "--leader-elect=false")
	w.no(err)
	w.eventually("the scheduler serves", func() (bool, string) {
		ended := false
		select {
		case <-process.Ended():
			ended = true
		default:
		}
		if strings.Count(process.Log(), "msg=scheduling") > before { // where it is to end then, it may have already
			return true, ""
		}
		if ended {
			w.Fatalf("the scheduler has ended:\n%s", process.Log())
		}
		return false, process.Log()
	})
	return process
}

// unplaced checks that a pod waits, and why by its condition.
func (w *world) unplaced(name, why string) {
	w.Helper()
	_, err := testcluster.AwaitObject(w.ctx, w.client.CoreV1().Pods("default"), name, "a pod that waits: "+why, func(pod *corev1.Pod) (bool, error) {
		for _, c := range pod.Status.Conditions {
			if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
				return strings.Contains(c.Message, why), nil
			}
		}
		return false, nil
	})
	w.no(err)
}
