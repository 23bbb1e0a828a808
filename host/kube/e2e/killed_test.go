package e2e

import (
	"flag"
	"fmt"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/aliquot-dev/aliquot/host/kube/annotation"
	"github.com/aliquot-dev/aliquot/host/kube/scheduler"
	"github.com/aliquot-dev/aliquot/host/kube/testcluster"
)

// killEach is how often each is killed at each point, and killWorlds in how many clusters at a time.
var (
	killEach   = flag.Int("killed.each", 1, "how often each part is killed at each step (TestKilled)")
	killWorlds = flag.Int("killed.worlds", 1, "in how many clusters at a time, of those that -clusters says (TestKilled)")
)

// The named points that parts of ours pass, each step's in the order in which they are passed.
var (
	beginning   = []string{"node.simulator.started", "node.device.made", "node.arbiter.started", recovered} // an agent, on a node where nothing of it runs
	asking      = []string{admitPoint, certificatePoint, templateMade, templateRemoved}                     // webhook, then controller
	evicting    = []string{"kube.evict.marked", "kube.evict.begun"}
	allocating  = []string{"kube.schedule.finalizer", "kube.schedule.allocated", "kube.schedule.bound"}
	preparing   = []string{"kube.file.written", "kube.prepare.begun", "node.prepare.filled", "node.prepare.renamed", "node.prepare.added", "kube.prepare.granted", "kube.prepare.real", "kube.prepare.recorded"}
	changing    = []string{"node.update.recorded", "page.policy.half", "node.update.ordered", "kube.ceiling.held"} // a ceiling
	unpreparing = []string{"kube.unprepare.begun", "kube.unprepare.hidden", "node.unprepare.marked", "node.unprepare.deleted", "node.unprepare.renamed", "kube.unprepare.taken"}
)

// passes are the points by who passes them.
var passes = map[string][]string{
	"agent":     slices.Concat(beginning, preparing, changing, unpreparing),
	"scheduler": slices.Concat(evicting, allocating),
	"others":    asking,
}

// stops are the points at which agent and scheduler stand still while every other part is killed.
var stops = map[string][]string{"agent": ofKube(slices.Concat(preparing, changing, unpreparing)), "scheduler": passes["scheduler"]}

// Two steps are no points of ours: between the answer to kubelet that a claim is prepared and the pod's last container, and between a container's being told to
// end and its end.
const (
	starting = "start"
	stopping = "stop"
)

// parts are what is killed at each step, in this order: kubelet does not start where containerd does not answer, and ours, each time that the API server has
// gone, wait longer before they look again, up to a minute; what stands still goes on through that, what is started anew waits for nothing.
var parts = []string{"containerd", "kube-apiserver", "kubelet", "agent", "scheduler", "controller"}

func ofKube(points []string) []string {
	return slices.DeleteFunc(slices.Clone(points), func(point string) bool { return !strings.HasPrefix(point, "kube.") })
}

// Agent, scheduler, controller and webhook are killed at each of their named points, and they, kubelet, containerd and the API server at each step of
// pods' lives, while another pod runs. That one notices nothing; the pods whose lives these are run, and go; nothing is granted twice and nothing is left.
// The pod that runs on has come through what a reboot does to ours, at first.
func TestKilled(t *testing.T) {
	r := &rounds{left: *killEach, hits: map[string]int{}}
	steps := map[string]bool{}
	for _, points := range passes {
		for _, point := range points {
			steps[point] = true
		}
	}
	for _, folder := range []string{"driver", "scheduler", "webhook", "controller", "../../node", "../../node/page"} {
		for _, point := range pointsIn(t, folder) {
			if !steps[point] {
				t.Errorf("nobody is killed at the point %s; say of which step it is", point)
			}
		}
	}
	for _, part := range parts {
		steps[part+" at "+starting], steps[part+" at "+stopping] = true, true
		for who, points := range stops {
			for _, point := range points {
				if part != who {
					steps[part+" at "+point] = true
				}
			}
		}
	}
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
	for step := range steps {
		if r.hits[step] < *killEach {
			t.Errorf("%s was reached %d times, want %d at least", step, r.hits[step], *killEach)
		}
	}
	for _, point := range unpreparing { // one each time that kubelet asks; four of them in turn, and two
		if n := r.hits[whileAsked+point]; n < *killEach/5 {
			t.Errorf("the agent was killed at %s %d times as kubelet asked, want %d at least", point, n, *killEach/5)
		}
	}
	t.Logf("killed in %d lives: %v", r.lives, r.hits)
}

// rounds are those of all clusters together: in each everything dies at each of its points once.
type rounds struct {
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
	k := &killer{world: w, reached: t.TempDir(), scheduler: w.startScheduler(), hits: map[string]int{}, left: map[string][]string{}}
	defer r.count(k)
	port, err := testcluster.FreePorts(1) // which is taken again by the next webhook
	w.no(err)
	k.webhook, k.asked = w.startWebhookAt(fmt.Sprint("127.0.0.1:", port[0]), scheduler.Name)
	k.startController()
	w.lends()
	trainer := []string{"/bin/trainer", "--seconds", "0", "--kernel-us", "5000", "--progress", "0"}
	for r.next() {
		k.staysBegins(trainer)
		k.reboots(trainer)
		k.life(trainer)
		k.lifeWithout(trainer)
		k.staysEnds()
		k.untilNoTemplate()
		w.empty()
	}
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

// life is a pod's, for which two others are evicted, and in which agent, scheduler, webhook and controller are killed at each of their points. What is asked
// of them is asked again after each.
func (k *killer) life(command []string) {
	k.Helper()
	k.untilNoTemplate()                         // the last life's, so that this one's is made
	name, guests := k.next(), k.guests(command) // while the API server trusts the webhook
	k.no(k.client.CoreV1().Secrets("aliquot").Delete(k.ctx, "aliquot-webhook-tls", metav1.DeleteOptions{}))
	k.controllerUntil(certificatePoint)
	k.died("controller", k.controller, certificatePoint)
	k.controllerUntil(templateMade)
	k.schedulerUntil(passes["scheduler"])
	k.webhookDies(name, command)
	k.admitted(k.asks(name, command))
	k.died("controller", k.controller, templateMade)
	k.controllerUntil(templateRemoved)
	for i, point := range passes["scheduler"] {
		k.died("scheduler", k.scheduler, point)
		k.oneEach()
		if point == allocating[0] { // there is room for it by now
			k.goneAll(guests)
			k.agentUntil(preparing[0])
		}
		k.schedulerUntil(passes["scheduler"][i+1:])
	}
	for i, point := range preparing {
		if i > 0 {
			k.agentUntil(point)
		}
		k.agentDies(name, point)
	}
	k.launchAgent(nil)
	k.runs(name)
	k.trains(name)
	for i, point := range changing { // the last of them is passed soon after the agent serves
		k.agent.Kill()
		k.launchAgent(k.once(point))
		k.changes(name, fmt.Sprintf("0.9%d", i))
		k.agentDies(name, point)
		k.launchAgent(nil)
		k.untilCeiling(string(k.claim(name).UID), uint32(900+10*i))
	}
	k.lifeEnds(name)
	k.died("controller", k.controller, templateRemoved)
	k.startController()
}

// whileAsked is before the name of a point of unpreparing at which the agent was killed as kubelet asked it, and not as it began.
const whileAsked = "asked at "

// lifeEnds deletes a pod. The agent is killed while it takes back its claim as kubelet asks, at another point in each round, then while the next ones finish that.
func (k *killer) lifeEnds(name string) {
	k.Helper()
	asked := unpreparing[k.lives/2%lastPassed] // staysEnds has those after it
	rest := slices.Clone(unpreparing)
	if strings.HasPrefix(asked, "node.") { // then node finishes that as soon as the next one begins, before what is kubelet's
		slices.SortStableFunc(rest, func(a, b string) int { return strings.Compare(b[:1], a[:1]) })
	}
	k.agentUntil(asked)
	k.gone(name, func() {
		k.agentDies(name, asked)
		k.hits[whileAsked+asked]++
		for _, point := range rest {
			if point != asked {
				k.agentDiesBeginning(point)
			}
		}
		k.launchAgent(nil)
	})
}

// lastPassed is how many points of unpreparing are passed again by the next agent where one was killed at them, or before; what is renamed passes no other.
var lastPassed = slices.Index(unpreparing, "node.unprepare.renamed")

// staysEnds deletes the pod that ran on. The agent is killed while it takes back its claim as kubelet asks, at the points that lifeEnds cannot begin with, in turn.
func (k *killer) staysEnds() {
	k.Helper()
	point := unpreparing[lastPassed+k.lives/2%(len(unpreparing)-lastPassed)]
	k.agentUntil(point)
	pods := k.client.CoreV1().Pods("default")
	pod, err := pods.Get(k.ctx, "stays", metav1.GetOptions{})
	k.no(err)
	k.no(pods.Delete(k.ctx, "stays", metav1.DeleteOptions{}))
	k.asksAgain("stays", func() bool { return k.dead(k.agent) })
	k.died("agent", k.agent, point)
	k.hits[whileAsked+point]++
	k.launchAgent(nil)
	k.asksAgain("stays", func() bool {
		_, err := pods.Get(k.ctx, "stays", metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
	k.no(testcluster.AwaitGone(k.ctx, pods, "stays"))
	k.goneWith(*pod)
}

// lifeWithout is a pod's, for which two others are evicted, and at each step of which every part is killed and started again, one after the other, while the agent
// or the scheduler, whose step it is, stands still, or the pod does. What is asked of the agent may be given up by that, taken back, and asked again.
func (k *killer) lifeWithout(command []string) {
	k.Helper()
	name, guests := k.next(), k.guests(command)
	k.left["agent"], k.left["scheduler"] = nil, passes["scheduler"] // the agent stands once the others have gone
	k.agentStands()
	k.schedulerStands()
	uid := k.begins(name, command)
	k.without(name, "its first container runs", func() bool { return len(k.inPod(uid, firstCommand)) == 1 })
	k.allDie(starting, "")
	k.signal(k.inPod(uid, firstCommand), syscall.SIGTERM)
	k.runs(name)
	k.trains(name)

	claim := string(k.claim(name).UID)
	k.left["agent"] = []string{"kube.ceiling.held"}
	k.agentStands() // there it looks at every Share as soon as it serves
	k.changes(name, "0.90")
	k.without(name, "it is held to its ceiling", func() bool { return len(k.left["agent"]) == 0 && k.ceiling(claim) == 900 })

	pods := k.client.CoreV1().Pods("default")
	k.gone(name, func() {
		k.eventually(name+" is told to end", func() (bool, string) {
			all := k.inPod(uid, toldCommand)
			return len(all) == 1 && k.isTold(all[0]), fmt.Sprint(all)
		})
		k.left["agent"] = ofKube(unpreparing)
		k.allDie(stopping, "")
		k.signal(slices.Concat(k.inPod(uid, toldCommand), k.inPod(uid, command)), syscall.SIGKILL) // they end, and no time of theirs is up
		k.without(name, name+" is gone", func() bool {
			_, err := pods.Get(k.ctx, name, metav1.GetOptions{})
			return apierrors.IsNotFound(err)
		})
	})
	k.no(k.client.ResourceV1().ResourceClaimTemplates("default").Delete(k.ctx, name, metav1.DeleteOptions{}))
	k.goneAll(guests)
}

// next is the name of the pod whose life comes next.
func (k *killer) next() string {
	k.lives++
	return fmt.Sprint("life-", k.lives)
}

// asks is such a pod, which asks for all that is not the other's. It is given time to end, so that it is there until kubelet has taken it back.
func (k *killer) asks(name string, command []string) *corev1.Pod {
	k.Helper()
	return k.annotated(work{name: name, command: command, grace: 1}, "gpu", "0.50..1.00", "memory", "4Gi", "queue", "owner")
}

// guests are two of another queue, a gang, who train and are evicted for the next pod.
func (k *killer) guests(command []string) (names []string) {
	k.Helper()
	gang := fmt.Sprint("guests-", k.lives)
	for i := range 2 {
		names = append(names, fmt.Sprint(gang, "-", i))
		k.submit(work{name: names[i], compute: 250, memory: "1Gi", command: command, scheduler: scheduler.Name, queue: "guest", grace: 1, labels: map[string]string{
			annotation.Gang: gang, annotation.GangMin: "2",
		}})
	}
	for _, name := range names {
		k.trains(name)
	}
	return names
}

// goneAll waits until pods are gone, and the claims that are called after them.
func (k *killer) goneAll(names []string) {
	k.Helper()
	for _, name := range names {
		k.no(testcluster.AwaitGone(k.ctx, k.client.CoreV1().Pods("default"), name))
		k.no(k.client.ResourceV1().ResourceClaimTemplates("default").Delete(k.ctx, name, metav1.DeleteOptions{}))
	}
	k.eventually("the claims of "+strings.Join(names, " and ")+" are gone", func() (bool, string) {
		claims, err := k.client.ResourceV1().ResourceClaims("default").List(k.ctx, metav1.ListOptions{})
		k.no(err)
		for _, claim := range claims.Items {
			for _, name := range names {
				if strings.HasPrefix(claim.Name, name+"-") {
					return false, fmt.Sprintf("%+v", claim)
				}
			}
		}
		return true, ""
	})
}
