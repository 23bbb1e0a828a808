package e2e

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/aliquot-dev/aliquot/host/kube/driver"
	"github.com/aliquot-dev/aliquot/host/kube/scheduler"
	"github.com/aliquot-dev/aliquot/host/kube/testcluster"
)

// killEach is how often each is killed at each point.
var killEach = flag.Int("killed.each", 1, "how often each part is killed at each step (TestKilled)")

// Agent and scheduler are killed at each of their named points, and kubelet, containerd and the API server at each step of a pod's life, while another
// pod runs. That one notices nothing; the pod whose life it is runs, and goes; nothing is granted twice and nothing is left.
func TestKilled(t *testing.T) {
	w := beginWith(t, "h200x1", map[string]any{"scheduler": map[string]any{"enabled": true, "replicas": 0}})
	k := &killer{world: w, reached: t.TempDir(), scheduler: w.startScheduler(), hits: map[string]int{}}
	trainer := []string{"/bin/trainer", "--seconds", "0", "--kernel-us", "5000", "--progress", "0"}
	w.submit(work{name: "stays", compute: 500, memory: "4Gi", command: trainer, scheduler: scheduler.Name})
	w.trains("stays")
	k.stays = w.pids("stays")
	ours, placing := pointsIn(t, "driver", "kube."), pointsIn(t, "scheduler", "kube.schedule.")
	for range *killEach {
		for i := range max(len(ours), len(placing)) { // an agent's and a scheduler's in one life
			k.life(ours[i%len(ours)], placing[i%len(placing)], trainer)
		}
		for _, part := range parts {
			k.lifeWithout(part, trainer)
		}
	}
	steps := slices.Concat(ours, placing)
	for _, part := range parts {
		for step := range strings.SplitSeq(agentStops+","+schedulerStops, ",") {
			steps = append(steps, part+" at "+step)
		}
	}
	for _, point := range steps {
		if k.hits[point] < *killEach {
			t.Errorf("the point %s was reached %d times, want %d at least", point, k.hits[point], *killEach)
		}
	}
	t.Logf("killed: %v", k.hits)
	w.remove("stays")
	w.empty()
}

// pointsIn are the named points in a package's source whose names begin so.
func pointsIn(t *testing.T, folder, prefix string) (found []string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("..", folder, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	call := regexp.MustCompile(`point\.Here\("([^"]+)"\)`)
	for _, file := range files {
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, match := range call.FindAllStringSubmatch(string(source), -1) {
			if strings.HasPrefix(match[1], prefix) {
				found = append(found, match[1])
			}
		}
	}
	if len(found) == 0 {
		t.Fatalf("no point is in %v: is the test where the sources are?", files)
	}
	return found
}

// killer kills parts of a world.
type killer struct {
	*world
	reached   string // the folder in which they write which points they reached: agent, scheduler
	scheduler *testcluster.Process
	stays     map[int]bool // the processes of the pod that runs on
	busy      time.Duration
	hits      map[string]int
	lives     int
}

// life is a pod's, in which the agent is killed at one of its points and the scheduler at one of its own.
func (k *killer) life(ours, placing string, command []string) {
	k.Helper()
	late := strings.HasPrefix(ours, "kube.ceiling.") // it is passed for the other pod, too, soon after the agent serves
	if !late {
		k.agentUntil(ours)
	}
	k.scheduler.Kill()
	k.scheduler = k.startSchedulerWith("ALIQUOT_KILL_AT="+placing, "ALIQUOT_KILL_LOG="+k.file("scheduler"))
	name := k.submitNext(command)
	k.died("scheduler", k.scheduler, placing)
	k.scheduler = k.startSchedulerWith()
	k.oneEach()
	k.diesWhile("prepare", ours)
	k.diesWhile("file", ours)
	k.trains(name)
	if late {
		k.agentUntil(ours)
	}
	k.no(change(k.ctx, k.sharesAs(k.Kubeconfig()), k.claim(name).Name, `{"ceiling":{"compute":"0.90"}}`))
	k.diesWhile("ceiling", ours)
	k.untilCeiling(string(k.claim(name).UID), 900)
	k.gone(name, func() { k.diesWhile("unprepare", ours) })
}

// diesWhile waits until the agent has died, if its point is of this stage, and starts it again.
func (k *killer) diesWhile(stage, point string) {
	k.Helper()
	if strings.HasPrefix(point, "kube."+stage+".") {
		k.died("agent", k.agent, point)
		k.startAgent()
		k.oneEach()
	}
}

// agentUntil starts the agent anew so that it dies at a point after it serves: what it passes there while it starts, it is let pass.
func (k *killer) agentUntil(point string) {
	k.Helper()
	k.agent.Kill()
	for passed := 1; passed < 5; passed++ {
		k.startAgentWith([]string{fmt.Sprintf("ALIQUOT_KILL_AT=%s:%d", point, passed), "ALIQUOT_KILL_LOG=" + k.file("agent")})
		if !k.dead(k.agent) {
			return
		}
		k.died("agent", k.agent, point)
	}
	k.Fatalf("the agent does not serve: it passes %s again and again", point)
}

func (k *killer) dead(p *testcluster.Process) bool {
	select {
	case <-p.Ended():
		return true
	default:
		return false
	}
}

func (k *killer) file(who string) string { return filepath.Join(k.reached, who) }

// died waits until the process of agent or scheduler has ended, and checks that it did so at the point.
func (k *killer) died(who string, p *testcluster.Process, point string) {
	k.Helper()
	ctx, cancel := context.WithTimeout(k.ctx, time.Minute)
	defer cancel()
	select {
	case <-p.Ended():
	case <-ctx.Done():
		k.Fatalf("waited a minute, and nothing has died at %s:\n%s", point, p.Log())
	}
	reached, err := os.ReadFile(k.file(who))
	if err != nil || strings.TrimSpace(string(reached)) != point {
		k.Fatalf("it has ended, and not at %s: it reached %q, %v\n%s", point, reached, err, p.Log())
	}
	k.no(os.Remove(k.file(who)))
	k.hits[point]++
}

// parts are those of Kubernetes that are killed.
var parts = []string{"kubelet", "containerd", "kube-apiserver"}

// Where agent and scheduler stand still while a part of Kubernetes is killed.
const (
	agentStops     = "kube.prepare.begun,kube.prepare.recorded,kube.unprepare.begun,kube.unprepare.taken"
	schedulerStops = "kube.schedule.finalizer,kube.schedule.allocated,kube.schedule.bound"
)

// lifeWithout is a pod's, at each step of which a part of Kubernetes is killed while the agent or the scheduler, whose step it is, stands still.
// What is asked of the agent may be given up by that, taken back, and asked again.
func (k *killer) lifeWithout(part string, command []string) {
	k.Helper()
	k.agent.Kill()
	k.startAgentWith([]string{"ALIQUOT_STOP_AT=" + agentStops, "ALIQUOT_KILL_LOG=" + k.file("agent")})
	k.scheduler.Kill()
	k.scheduler = k.startSchedulerWith("ALIQUOT_STOP_AT="+schedulerStops, "ALIQUOT_KILL_LOG="+k.file("scheduler"))
	name := k.submitNext(command)
	pods := k.client.CoreV1().Pods("default")
	k.without(part, name+" runs", func() bool {
		pod, err := pods.Get(k.ctx, name, metav1.GetOptions{})
		k.no(err)
		return pod.Status.Phase == corev1.PodRunning
	})
	k.trains(name)
	k.no(k.Restart(k.ctx, part))
	k.gone(name, func() {
		k.without(part, name+" is gone", func() bool {
			_, err := pods.Get(k.ctx, name, metav1.GetOptions{})
			return apierrors.IsNotFound(err)
		})
	})
}

// without kills a part each time that agent or scheduler stands still, and has it go on then, until something is so.
func (k *killer) without(part, what string, is func() bool) {
	k.Helper()
	ctx, cancel := context.WithTimeout(k.ctx, 3*time.Minute)
	defer cancel()
	look := time.NewTicker(50 * time.Millisecond)
	defer look.Stop()
	for !is() {
		for who, p := range map[string]*testcluster.Process{"agent": k.agent, "scheduler": k.scheduler} {
			reached, err := os.ReadFile(k.file(who))
			if err != nil || len(reached) == 0 {
				continue // it goes on
			}
			k.eventually("the "+who+" stands still", func() (bool, string) {
				state, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.PID()))
				k.no(err)
				_, rest, _ := strings.Cut(string(state), ") ")
				return strings.HasPrefix(rest, "T"), rest
			})
			k.no(os.Remove(k.file(who)))
			k.no(k.Restart(k.ctx, part))
			k.oneEach()
			k.hits[part+" at "+strings.TrimSpace(string(reached))]++
			k.no(syscall.Kill(p.PID(), syscall.SIGCONT))
		}
		select {
		case <-ctx.Done():
			k.Fatalf("waited three minutes until %s; %s was killed so often: %v", what, part, k.hits)
		case <-look.C:
		}
	}
}

// submitNext makes the pod whose life it is, with all that is free. It is given time to end, so that it is there until kubelet has taken it back.
func (k *killer) submitNext(command []string) string {
	k.Helper()
	k.lives++
	name := fmt.Sprint("life-", k.lives)
	k.submit(work{name: name, compute: 500, memory: "4Gi", ceiling: `{"compute":"1.00"}`, command: command, scheduler: scheduler.Name, grace: 1})
	return name
}

// gone deletes a pod, does something meanwhile, and checks that all of it is gone then, and that the other has run on.
func (k *killer) gone(name string, meanwhile func()) {
	k.Helper()
	claim := k.claim(name).Name
	k.no(k.client.CoreV1().Pods("default").Delete(k.ctx, name, metav1.DeleteOptions{}))
	meanwhile()
	k.no(testcluster.AwaitGone(k.ctx, k.client.CoreV1().Pods("default"), name))
	k.no(testcluster.AwaitGone(k.ctx, k.client.ResourceV1().ResourceClaims("default"), claim))
	k.eventually("there is one claim on the node", func() (bool, string) {
		var left []string
		for _, folder := range []string{filepath.Join(k.run, "tasks"), k.CDI(), filepath.Join(k.state, "claims")} {
			entries, err := os.ReadDir(folder)
			k.no(err)
			for _, entry := range entries {
				left = append(left, filepath.Join(folder, entry.Name()))
			}
		}
		return len(left) == 3, strings.Join(left, "\n")
	})
	if now := k.pids("stays"); !maps.Equal(now, k.stays) {
		k.Fatalf("the pod that runs on had the processes %v and has %v", k.stays, now)
	}
	k.eventually("the pod that runs on uses the device", func() (bool, string) {
		before := k.busy
		k.busy = k.world.busy("stays", k.read())
		return k.busy > before, fmt.Sprint(k.busy)
	})
}

// oneEach checks that no part of a device is granted twice.
func (k *killer) oneEach() {
	k.Helper()
	claims, err := k.client.ResourceV1().ResourceClaims("default").List(k.ctx, metav1.ListOptions{})
	k.no(err)
	granted := map[string]int64{}
	for _, claim := range claims.Items {
		if claim.Status.Allocation == nil {
			continue
		}
		for _, result := range claim.Status.Allocation.Devices.Results {
			compute := result.ConsumedCapacity[resourceapi.QualifiedName(driver.Compute)]
			granted[result.Device] += compute.Value()
		}
	}
	for device, all := range granted {
		if all > 1000 {
			k.Fatalf("of the device %s %d thousandths are granted: %+v", device, all, claims.Items)
		}
	}
}
