package e2e

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
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

// killEach is how often each is killed at each point, and killWorlds in how many clusters at a time.
var (
	killEach   = flag.Int("killed.each", 1, "how often each part is killed at each step (TestKilled)")
	killWorlds = flag.Int("killed.worlds", 1, "in how many clusters at a time, of those that -clusters says (TestKilled)")
)

// Agent, scheduler, controller and webhook are killed at each of their named points, and kubelet, containerd and the API server at each step of
// pods' lives, while another pod runs. That one notices nothing; the pods whose lives these are run, and go; nothing is granted twice and nothing is left.
func TestKilled(t *testing.T) {
	r := &rounds{left: *killEach, hits: map[string]int{}}
	r.agents, r.placing, r.evicting = pointsIn(t, "driver", "kube."), pointsIn(t, "scheduler", "kube.schedule."), pointsIn(t, "scheduler", "kube.evict.")
	r.asking = slices.Concat(pointsIn(t, "webhook", "kube."), pointsIn(t, "controller", "kube."))
	slices.SortFunc(r.placing, func(a, b string) int { return strings.Index(schedulerStops, a) - strings.Index(schedulerStops, b) }) // as they are passed
	if *killWorlds == 1 {
		r.in(t)
	} else {
		t.Parallel()
		t.Run("in", func(t *testing.T) {
			for i := range *killWorlds {
				t.Run(fmt.Sprint(i), r.in)
			}
		})
	}
	steps := slices.Concat(r.agents, r.placing, r.evicting, r.asking)
	for _, part := range parts {
		for step := range strings.SplitSeq(agentStops+","+schedulerStops, ",") {
			steps = append(steps, part+" at "+step)
		}
	}
	for _, point := range steps {
		if r.hits[point] < *killEach {
			t.Errorf("the point %s was reached %d times, want %d at least", point, r.hits[point], *killEach)
		}
	}
	t.Logf("killed in %d lives: %v", r.lives, r.hits)
}

// rounds are those of all clusters together: in each everything dies at each of its points once.
type rounds struct {
	agents, placing, evicting, asking []string // points

	mu    sync.Mutex
	left  int
	hits  map[string]int
	lives int
}

// next says whether there is another round, which the caller runs then.
func (r *rounds) next() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.left--
	return r.left >= 0
}

// in runs rounds in a cluster while there are more.
func (r *rounds) in(t *testing.T) {
	w := beginWith(t, "h200x1", map[string]any{
		"scheduler": map[string]any{"enabled": true, "replicas": 0}, "controller": map[string]any{"enabled": true, "replicas": 0},
		"webhook": map[string]any{"enabled": true, "replicas": 0, "scheduler": scheduler.Name},
	})
	k := &killer{world: w, reached: t.TempDir(), scheduler: w.startScheduler(), hits: map[string]int{}}
	defer r.count(k)
	k.webhook, k.asked = w.startWebhookAt("127.0.0.1:0", scheduler.Name)
	k.startController()
	w.lends()
	trainer := []string{"/bin/trainer", "--seconds", "0", "--kernel-us", "5000", "--progress", "0"}
	w.admitted(w.annotated(work{name: "stays", command: trainer}, "gpu", "0.50", "memory", "5Gi", "queue", "owner"))
	w.trains("stays")
	k.stays = w.pids("stays")
	for r.next() {
		for i := range livesOfAgents {
			one := deaths{agent: deal(r.agents, i, livesOfAgents)} // each taking back in another life
			if i == 0 {
				one.scheduler = r.placing
			} else {
				one.asking = deal(r.asking, i-1, livesOfAgents-1)
			}
			k.life(one, trainer)
		}
		k.lifeOfAnother(r.evicting, trainer)
		k.lifeWithout(trainer)
	}
	w.remove("stays")
	k.untilNoTemplate()
	w.empty()
	for _, name := range []string{"agent", "webhook", "controller", "scheduler"} {
		if said := w.Log(name); strings.Contains(said, "panic") {
			t.Errorf("the %s said:\n%s", name, said)
		}
	}
}

// count counts what died in a cluster.
func (r *rounds) count(k *killer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for point, n := range k.hits {
		r.hits[point] += n
	}
	r.lives += k.lives
}

// killer kills parts of a world.
type killer struct {
	*world
	reached    string // the folder in which they write which points they reached: agent, scheduler, webhook, controller
	scheduler  *testcluster.Process
	webhook    *testcluster.Process
	asked      string // where the webhook answers
	controller *testcluster.Process
	stays      map[int]bool // the processes of the pod that runs on
	busy       time.Duration
	hits       map[string]int
	lives      int
	nudged     int
}

// livesOfAgents are over how many lives the agent's points are dealt.
const livesOfAgents = 3

// deal is every so manieth, from one on.
func deal(points []string, from, among int) (dealt []string) {
	for ; from < len(points); from += among {
		dealt = append(dealt, points[from])
	}
	return dealt
}

// deaths are the points at which parts die in one life.
type deaths struct{ agent, scheduler, asking []string }

// of are those of the agent at these stages.
func (d deaths) of(stages ...string) (points []string) {
	for _, point := range d.agent {
		if slices.Contains(stages, strings.Split(point, ".")[1]) {
			points = append(points, point)
		}
	}
	return points
}

// life is a pod's, in which agent, scheduler, webhook and controller are killed at points of theirs. What is asked for is asked for again after each.
func (k *killer) life(dies deaths, command []string) {
	k.Helper()
	preparing, ceiling, unpreparing := dies.of("prepare", "file"), dies.of("ceiling"), dies.of("unprepare")
	k.agentUntil(preparing)
	k.schedulerUntil(dies.scheduler)
	for _, point := range dies.asking {
		k.askingUntil(point)
	}
	name := k.next()
	if slices.Contains(dies.asking, admitPoint) {
		k.eventually("the webhook has died", func() (bool, string) { // it is reached once it has its certificate
			_, err := k.client.CoreV1().Pods("default").Create(k.ctx, k.asks(name, command), metav1.CreateOptions{})
			if err == nil || !strings.Contains(err.Error(), "failed calling webhook") {
				k.Fatalf("the webhook was to die before it answered for %s; got %v", name, err)
			}
			return k.dead(k.webhook), err.Error()
		})
		k.died("webhook", k.webhook, admitPoint)
		k.webhook, _ = k.startWebhookAt(k.asked, scheduler.Name)
	}
	k.admitted(k.asks(name, command))
	k.controllerDies("kube.template.made", dies.asking)
	k.schedulerDies(dies.scheduler)
	k.agentDies(name, preparing)
	k.runs(name)
	k.trains(name)
	k.agentUntil(ceiling) // it is passed for the other pod, too, soon after the agent serves
	k.no(change(k.ctx, k.sharesAs(k.Kubeconfig()), k.claim(name).Name, `{"ceiling":{"compute":"0.90"}}`))
	k.agentDies(name, ceiling)
	k.untilCeiling(string(k.claim(name).UID), 900)
	k.agentUntil(unpreparing)
	k.gone(name, func() { k.agentDies(name, unpreparing) })
	k.controllerDies("kube.template.removed", dies.asking)
}

// runs waits until a pod runs.
func (k *killer) runs(name string) {
	k.Helper()
	k.asksAgain(name, func() bool {
		pod, err := k.client.CoreV1().Pods("default").Get(k.ctx, name, metav1.GetOptions{})
		k.no(err)
		return pod.Status.Phase == corev1.PodRunning
	})
}

// lifeOfAnother is that of a pod for which two of another queue, a gang, are evicted, and the scheduler is killed at points of that.
func (k *killer) lifeOfAnother(points, command []string) {
	k.Helper()
	guests := []string{fmt.Sprint("guest-", k.lives, "-0"), fmt.Sprint("guest-", k.lives, "-1")}
	for _, guest := range guests {
		k.submit(work{name: guest, compute: 250, memory: "1Gi", command: command, scheduler: scheduler.Name, queue: "guest", grace: 1, labels: map[string]string{
			scheduler.GangLabel: fmt.Sprint("guests-", k.lives), scheduler.GangMinLabel: "2",
		}})
	}
	var claims []string
	for _, guest := range guests {
		k.trains(guest)
		claims = append(claims, k.claim(guest).Name)
	}
	k.schedulerUntil(points)
	name := k.next()
	k.admitted(k.asks(name, command))
	k.schedulerDies(points)
	for i, guest := range guests {
		k.no(testcluster.AwaitGone(k.ctx, k.client.CoreV1().Pods("default"), guest))
		k.no(testcluster.AwaitGone(k.ctx, k.client.ResourceV1().ResourceClaims("default"), claims[i]))
	}
	k.trains(name)
	k.oneEach()
	k.gone(name, func() {})
}

// parts are those of Kubernetes that are killed, kubelet last: it does not start where containerd does not answer.
var parts = []string{"containerd", "kube-apiserver", "kubelet"}

// Where agent and scheduler stand still while a part of Kubernetes is killed.
const (
	agentStops     = "kube.prepare.begun,kube.prepare.recorded,kube.unprepare.begun,kube.unprepare.taken"
	schedulerStops = "kube.schedule.finalizer,kube.schedule.allocated,kube.schedule.bound"
)

// lifeWithout is a pod's, at each step of which every part of Kubernetes is killed and started again, one after the other, while the agent or the
// scheduler, whose step it is, stands still. What is asked of the agent may be given up by that, taken back, and asked again.
func (k *killer) lifeWithout(command []string) {
	k.Helper()
	k.agent.Kill()
	k.startAgentWith([]string{"ALIQUOT_STOP_AT=" + agentStops, "ALIQUOT_KILL_LOG=" + k.file("agent")})
	k.scheduler.Kill()
	k.scheduler = k.startSchedulerWith("ALIQUOT_STOP_AT="+schedulerStops, "ALIQUOT_KILL_LOG="+k.file("scheduler"))
	name := k.next()
	k.admitted(k.asks(name, command))
	pods := k.client.CoreV1().Pods("default")
	k.without(name, name+" runs", func() bool {
		pod, err := pods.Get(k.ctx, name, metav1.GetOptions{})
		k.no(err)
		return pod.Status.Phase == corev1.PodRunning
	})
	k.trains(name)
	k.gone(name, func() {
		k.without(name, name+" is gone", func() bool {
			_, err := pods.Get(k.ctx, name, metav1.GetOptions{})
			return apierrors.IsNotFound(err)
		})
		// It waits longer each time that the API server has gone, half a minute in the end, before it looks again what claims are without their pods.
		k.no(k.Restart(k.ctx, "kube-controller-manager"))
	})
}

// without kills each part of Kubernetes each time that agent or scheduler stands still, and has it go on then, until something is so of a pod.
func (k *killer) without(name, what string, is func() bool) {
	k.Helper()
	ctx, cancel := context.WithTimeout(k.ctx, 3*time.Minute)
	defer cancel()
	look := time.NewTicker(50 * time.Millisecond)
	defer look.Stop()
	again := time.NewTicker(time.Second)
	defer again.Stop()
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
			for _, part := range parts {
				k.no(k.Restart(k.ctx, part))
				k.hits[part+" at "+strings.TrimSpace(string(reached))]++
			}
			k.oneEach()
			k.no(syscall.Kill(p.PID(), syscall.SIGCONT))
		}
		select {
		case <-again.C:
			k.nudge(name)
		case <-ctx.Done():
			k.Fatalf("waited three minutes until %s; what was killed so often: %v", what, k.hits)
		case <-look.C:
		}
	}
}

// next is the name of the pod whose life comes next.
func (k *killer) next() string {
	k.lives++
	return fmt.Sprint("life-", k.lives)
}

// asks is such a pod, which asks for all that is free. It is given time to end, so that it is there until kubelet has taken it back.
func (k *killer) asks(name string, command []string) *corev1.Pod {
	k.Helper()
	return k.annotated(work{name: name, command: command, grace: 1}, "gpu", "0.50..1.00", "memory", "4Gi", "queue", "owner")
}

// gone deletes a pod, does something meanwhile, and checks that all of it is gone then, and that the other has run on.
func (k *killer) gone(name string, meanwhile func()) {
	k.Helper()
	claim := k.claim(name).Name
	k.no(k.client.CoreV1().Pods("default").Delete(k.ctx, name, metav1.DeleteOptions{}))
	meanwhile()
	k.asksAgain(name, func() bool {
		_, err := k.client.CoreV1().Pods("default").Get(k.ctx, name, metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
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
