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

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/aliquot-dev/aliquot/host/kube/scheduler"
	"github.com/aliquot-dev/aliquot/host/kube/testcluster"
)

// schedulerUntil starts the scheduler anew so that it dies at the first of these points, if there is one.
func (k *killer) schedulerUntil(points []string) {
	k.Helper()
	if len(points) == 0 {
		return
	}
	k.scheduler.Kill()
	k.scheduler = k.startSchedulerWith("ALIQUOT_KILL_AT="+points[0], "ALIQUOT_KILL_LOG="+k.file("scheduler"))
}

// schedulerDies waits until the scheduler has died at each of these points, one after the other, and starts it again.
func (k *killer) schedulerDies(points []string) {
	k.Helper()
	for i, point := range points {
		k.died("scheduler", k.scheduler, point)
		k.oneEach()
		k.schedulerUntil(points[i+1:])
	}
	if len(points) > 0 {
		k.scheduler = k.startScheduler()
	}
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
	k.controllerDies(certificatePoint, []string{point})
}

// certificatePoint is passed while the controller starts.
const certificatePoint = "kube.certificate.kept"

// controllerDies waits until the controller has died here, if that is one of these points, and starts it again.
func (k *killer) controllerDies(here string, points []string) {
	k.Helper()
	if slices.Contains(points, here) {
		k.died("controller", k.controller, here)
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

// agentUntil starts the agent anew so that it dies at the first of these points, if there is one, after it serves: what it passes there while it starts, for
// the pod that runs on, it is let pass.
func (k *killer) agentUntil(points []string) {
	k.Helper()
	if len(points) == 0 {
		return
	}
	k.agent.Kill()
	for passed := 1; passed < 5; passed++ {
		served := strings.Count(k.Log("agent"), "msg=serving")
		k.startAgentWith([]string{fmt.Sprintf("ALIQUOT_KILL_AT=%s:%d", points[0], passed), "ALIQUOT_KILL_LOG=" + k.file("agent")})
		if !k.dead(k.agent) || strings.Count(k.agent.Log(), "msg=serving") > served {
			return
		}
		k.endedAt("agent", k.agent, points[0])
	}
	k.Fatalf("the agent does not serve: it passes %s again and again", points[0])
}

// agentDies waits until the agent has died at each of these points, one after the other, in what is asked of it for a pod, and starts it again.
func (k *killer) agentDies(pod string, points []string) {
	k.Helper()
	for i, point := range points {
		k.asksAgain(pod, func() bool { return k.dead(k.agent) })
		k.died("agent", k.agent, point)
		if i+1 < len(points) {
			k.agentUntil(points[i+1:])
		} else {
			k.startAgent()
		}
		k.oneEach()
	}
}

// asksAgain has kubelet look at a pod every half second until something is so, for a minute: what was not answered it would ask again ten seconds later,
// and the same if nothing serves yet.
func (k *killer) asksAgain(pod string, is func() bool) {
	k.Helper()
	look, again := time.NewTicker(50*time.Millisecond), time.NewTicker(500*time.Millisecond)
	defer look.Stop()
	defer again.Stop()
	within := time.After(time.Minute)
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

func (k *killer) dead(p *testcluster.Process) bool {
	select {
	case <-p.Ended():
		return true
	default:
		return false
	}
}

func (k *killer) file(who string) string { return filepath.Join(k.reached, who) }

// died waits until a part's process has ended, checks that it did so at the point, and counts that.
func (k *killer) died(who string, p *testcluster.Process, point string) {
	k.Helper()
	k.endedAt(who, p, point)
	k.hits[point]++
}

// endedAt is died without counting it.
func (k *killer) endedAt(who string, p *testcluster.Process, point string) {
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
