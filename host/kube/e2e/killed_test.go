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

// Agent, scheduler, controller and webhook are killed at each of their named points, and kubelet, containerd and the API server at each step of a
// pod's life, while another pod runs. That one notices nothing; the pod whose life it is runs, and goes; nothing is granted twice and nothing is left.
func TestKilled(t *testing.T) {
	w := beginWith(t, "h200x1", map[string]any{
		"scheduler": map[string]any{"enabled": true, "replicas": 0}, "controller": map[string]any{"enabled": true, "replicas": 0},
		"webhook": map[string]any{"enabled": true, "replicas": 0, "scheduler": scheduler.Name},
	})
	k := &killer{world: w, reached: t.TempDir(), scheduler: w.startScheduler(), hits: map[string]int{}}
	k.webhook, k.asked = w.startWebhookAt("127.0.0.1:0", scheduler.Name)
	k.startController()
	w.lends()
	trainer := []string{"/bin/trainer", "--seconds", "0", "--kernel-us", "5000", "--progress", "0"}
	w.admitted(w.annotated(work{name: "stays", command: trainer}, "gpu", "0.50", "memory", "5Gi", "queue", "owner"))
	w.trains("stays")
	k.stays = w.pids("stays")
	ours, placing, evicting := pointsIn(t, "driver", "kube."), pointsIn(t, "scheduler", "kube.schedule."), pointsIn(t, "scheduler", "kube.evict.")
	asking := slices.Concat(pointsIn(t, "webhook", "kube."), pointsIn(t, "controller", "kube."))
	for range *killEach {
		for i := range max(len(ours), len(placing), len(asking)) { // of each part one in a life
			k.life(ours[i%len(ours)], placing[i%len(placing)], asking[i%len(asking)], trainer)
		}
		for _, point := range evicting {
			k.lifeOfAnother(point, trainer)
		}
		for _, part := range parts {
			k.lifeWithout(part, trainer)
		}
	}
	steps := slices.Concat(ours, placing, evicting, asking)
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
	t.Logf("killed in %d lives: %v", k.lives, k.hits)
	w.remove("stays")
	k.untilNoTemplate()
	w.empty()
	for _, name := range []string{"agent", "webhook", "controller", "scheduler"} {
		if said := w.Log(name); strings.Contains(said, "panic") {
			t.Errorf("the %s said:\n%s", name, said)
		}
	}
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
	reached    string // the folder in which they write which points they reached: agent, scheduler, webhook, controller
	scheduler  *testcluster.Process
	webhook    *testcluster.Process
	asked      string // where the webhook answers
	controller *testcluster.Process
	stays      map[int]bool // the processes of the pod that runs on
	busy       time.Duration
	hits       map[string]int
	lives      int
}

// life is a pod's, in which the agent is killed at one of its points, the scheduler at one of its own, and webhook or controller at one of theirs.
func (k *killer) life(ours, placing, asking string, command []string) {
	k.Helper()
	late := strings.HasPrefix(ours, "kube.ceiling.") // it is passed for the other pod, too, soon after the agent serves
	if !late {
		k.agentUntil(ours)
	}
	k.schedulerUntil(placing)
	k.askingUntil(asking)
	name := k.next()
	if asking == admitPoint {
		k.eventually("the webhook has died", func() (bool, string) { // it is reached once it has its certificate
			_, err := k.client.CoreV1().Pods("default").Create(k.ctx, k.asks(name, command), metav1.CreateOptions{})
			if err == nil || !strings.Contains(err.Error(), "failed calling webhook") {
				k.Fatalf("the webhook was to die before it answered for %s; got %v", name, err)
			}
			return k.dead(k.webhook), err.Error()
		})
		k.died("webhook", k.webhook, asking)
		k.webhook, _ = k.startWebhookAt(k.asked, scheduler.Name)
	}
	k.admitted(k.asks(name, command))
	k.controllerDies("kube.template.made", asking)
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
	k.controllerDies("kube.template.removed", asking)
}

// lifeOfAnother is that of a pod for which two of another queue, a gang, are evicted, and the scheduler is killed at a point of that.
func (k *killer) lifeOfAnother(point string, command []string) {
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
	k.schedulerUntil(point)
	name := k.next()
	k.admitted(k.asks(name, command))
	k.died("scheduler", k.scheduler, point)
	k.oneEach()
	k.scheduler = k.startSchedulerWith()
	for i, guest := range guests {
		k.no(testcluster.AwaitGone(k.ctx, k.client.CoreV1().Pods("default"), guest))
		k.no(testcluster.AwaitGone(k.ctx, k.client.ResourceV1().ResourceClaims("default"), claims[i]))
	}
	k.trains(name)
	k.oneEach()
	k.gone(name, func() {})
}

// schedulerUntil starts the scheduler anew so that it dies at a point.
func (k *killer) schedulerUntil(point string) {
	k.Helper()
	k.scheduler.Kill()
	k.scheduler = k.startSchedulerWith("ALIQUOT_KILL_AT="+point, "ALIQUOT_KILL_LOG="+k.file("scheduler"))
}

// admitPoint is the webhook's only one.
const admitPoint = "kube.admit.decided"

// askingUntil starts webhook or controller anew, whose point it is, so that it dies there.
func (k *killer) askingUntil(point string) {
	k.Helper()
	if point == admitPoint {
		k.webhook.Kill()
		k.webhook, _ = k.startWebhookAt(k.asked, scheduler.Name, "ALIQUOT_KILL_AT="+point, "ALIQUOT_KILL_LOG="+k.file("webhook"))
		return
	}
	k.untilNoTemplate() // the last life's, so that this one's is made
	k.controller.Kill()
	if point == certificatePoint {
		k.no(k.client.CoreV1().Secrets("aliquot").Delete(k.ctx, "aliquot-webhook-tls", metav1.DeleteOptions{}))
	}
	k.startController("ALIQUOT_KILL_AT="+point, "ALIQUOT_KILL_LOG="+k.file("controller"))
	k.controllerDies(certificatePoint, point)
}

// certificatePoint is passed while the controller starts.
const certificatePoint = "kube.certificate.kept"

// controllerDies waits until the controller has died, if its point is this one, and starts it again.
func (k *killer) controllerDies(here, point string) {
	k.Helper()
	if here == point {
		k.died("controller", k.controller, point)
		k.startController()
	}
}

// startController starts the controller so that a template goes with the last pod that names it.
func (k *killer) startController(environment ...string) {
	k.Helper()
	k.controller = k.startControllerWith(environment, "--keep-templates", "0s")
}

// untilNoTemplate waits until no template is left but that of the pod that runs on, while it does.
func (k *killer) untilNoTemplate() {
	k.Helper()
	k.eventually("the templates are gone with their pods", func() (bool, string) {
		pods, err := k.client.CoreV1().Pods("default").List(k.ctx, metav1.ListOptions{})
		k.no(err)
		left := k.templates()
		return len(left) <= len(pods.Items), fmt.Sprint(left)
	})
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
	name := k.next()
	k.admitted(k.asks(name, command))
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
