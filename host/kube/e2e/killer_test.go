package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/aliquot-dev/aliquot/host/kube/scheduler"
	"github.com/aliquot-dev/aliquot/host/kube/testcluster"
)

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
	capacity   int64 // of the device, in bytes of memory
	hits       map[string]int
	left       map[string][]string // at which points agent and scheduler have yet to stand still
	lives      int
	nudged     int
}

// Points that are more than one of a list.
const (
	recovered        = "kube.claims.recovered" // up to here an agent does for itself what it does for kubelet after it
	admitPoint       = "kube.admit.decided"    // the webhook's only one
	certificatePoint = "kube.certificate.kept"
	templateMade     = "kube.template.made"
	templateRemoved  = "kube.template.removed"
)

// until is the environment of a part that is to die at a point.
func (k *killer) until(who, point string) []string {
	return []string{"ALIQUOT_KILL_AT=" + point, "ALIQUOT_KILL_LOG=" + k.file(who)}
}

// file is where a part writes which point it reached.
func (k *killer) file(who string) string { return filepath.Join(k.reached, who) }

// schedulerUntil starts the scheduler anew so that it dies at the first of these points, if there is one.
func (k *killer) schedulerUntil(points []string) {
	k.Helper()
	k.scheduler.Kill()
	var environment []string
	if len(points) > 0 {
		environment = k.until("scheduler", points[0])
	}
	k.scheduler = k.startSchedulerWith(environment...)
}

// controllerUntil starts the controller anew so that it dies at a point.
func (k *killer) controllerUntil(point string) {
	k.Helper()
	k.controller.Kill()
	k.startController(k.until("controller", point)...)
}

// startController starts the controller so that a template goes with the last pod that names it.
func (k *killer) startController(environment ...string) {
	k.Helper()
	k.controller = k.startControllerWith(environment, "--keep-templates", "0s")
}

// webhookDies has the webhook die while it is asked about a pod, and starts it again. It is asked once the API server trusts its certificate.
func (k *killer) webhookDies(name string, command []string) {
	k.Helper()
	k.webhook.Kill()
	k.webhook, _ = k.startWebhookAt(k.asked, scheduler.Name, k.until("webhook", admitPoint)...)
	k.eventually("the webhook has died", func() (bool, string) {
		_, err := k.client.CoreV1().Pods("default").Create(k.ctx, k.asks(name, command), metav1.CreateOptions{})
		if err == nil || !strings.Contains(err.Error(), "failed calling webhook") {
			k.Fatalf("the webhook was to die before it answered for %s; got %v", name, err)
		}
		return k.dead(k.webhook), err.Error()
	})
	k.died("webhook", k.webhook, admitPoint)
	k.webhook, _ = k.startWebhookAt(k.asked, scheduler.Name)
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

// once is the environment of an agent that is to die at a point in what is asked of it; what it passes while it begins counts for nothing.
func (k *killer) once(point string) []string {
	return append(k.until("agent", point), "ALIQUOT_POINTS_AFTER="+recovered)
}

// agentUntil starts the agent anew so that it dies at a point in what is asked of it. It waits until it serves: what kubelet asks before, it asks again later.
func (k *killer) agentUntil(point string) {
	k.Helper()
	k.agent.Kill()
	k.startAgentWith(k.once(point))
}

// agentDies waits until the agent has died at a point in what is asked of it for a pod.
func (k *killer) agentDies(pod, point string) {
	k.Helper()
	k.asksAgain(pod, func() bool { return k.dead(k.agent) })
	k.died("agent", k.agent, point)
	k.oneEach()
}

// agentDiesBeginning starts the agent, which has died, and has it die again at a point that it passes while it begins.
func (k *killer) agentDiesBeginning(point string) {
	k.Helper()
	served := strings.Count(k.Log("agent"), "msg=serving")
	k.launchAgent(k.until("agent", point))
	k.died("agent", k.agent, point)
	if now := strings.Count(k.Log("agent"), "msg=serving"); now > served {
		k.Fatalf("the agent was to die at %s while it began, and served:\n%s", point, k.Log("agent"))
	}
}

// asksAgain has kubelet look at a pod every half second until something is so, for a time: what was not answered it would ask again ten seconds later,
// and the same if nothing serves yet.
func (k *killer) asksAgain(pod string, is func() bool) {
	k.Helper()
	look, again := time.NewTicker(50*time.Millisecond), time.NewTicker(500*time.Millisecond)
	defer look.Stop()
	defer again.Stop()
	within := time.After(patience)
	for !is() {
		select {
		case <-look.C:
		case <-again.C:
			k.nudge(pod)
		case <-within:
			return // what waits for it says so
		}
	}
}

// nudge changes a pod, if it is still there, which kubelet sees at once.
func (k *killer) nudge(pod string) {
	k.Helper()
	k.nudged++
	_, err := k.client.CoreV1().Pods("default").Patch(k.ctx, pod, types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"labels":{"nudged":"%d"}}}`, k.nudged), metav1.PatchOptions{})
	if !apierrors.IsNotFound(err) {
		k.no(err)
	}
}

// changes changes a pod's ceiling of compute. The agent may have yet to make its Share: it does so beside the container's start.
func (k *killer) changes(name, compute string) {
	k.Helper()
	shares, claim := k.sharesAs(k.Kubeconfig()), k.claim(name).Name
	k.eventually("the Share of "+name+" is changed", func() (bool, string) {
		err := change(k.ctx, shares, claim, fmt.Sprintf(`{"ceiling":{"compute":%q}}`, compute))
		if !apierrors.IsNotFound(err) {
			k.no(err)
		}
		return err == nil, fmt.Sprint(err)
	})
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

func (k *killer) dead(p *testcluster.Process) bool {
	select {
	case <-p.Ended():
		return true
	default:
		return false
	}
}

// died waits until a part's process has ended, checks that it did so at the point, and counts that.
func (k *killer) died(who string, p *testcluster.Process, point string) {
	k.Helper()
	ctx, cancel := context.WithTimeout(k.ctx, patience)
	defer cancel()
	select {
	case <-p.Ended():
	case <-ctx.Done():
		k.Fatalf("waited %v, and nothing has died at %s:\n%s", patience, point, p.Log())
	}
	reached, err := os.ReadFile(k.file(who))
	if err != nil || strings.TrimSpace(string(reached)) != point {
		k.Fatalf("it has ended, and not at %s: it reached %q, %v\n%s", point, reached, err, p.Log())
	}
	k.no(os.Remove(k.file(who)))
	k.hits[point]++
}

// pointsIn are the named points in a package's source.
func pointsIn(t *testing.T, folder string) (found []string) {
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
			found = append(found, match[1])
		}
	}
	if len(found) == 0 {
		t.Fatalf("no point is in %v: is the test where the sources are?", files)
	}
	return slices.Compact(found)
}
