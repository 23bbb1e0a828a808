package e2e

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/aliquot-dev/aliquot/host/kube/images"
	"github.com/aliquot-dev/aliquot/host/kube/testcluster"
)

// The chart as users install it, all of it, with the image as it is shipped: agent, scheduler, webhook and controller are pods under their own accounts, and the run
// folder is on a file system as Debian's.
// Three pods share a device, one of them by annotations; while the agent's pod is replaced, and when its process is killed, they run on within
// their shares, by the same arbiter, and the next one takes them back.
func TestChart(t *testing.T) {
	w := beginCluster(t, "h200x1")
	w.withoutPrograms()
	w.installAll()
	w.agentReady("")
	w.offers()
	trainer := []string{"/bin/trainer", "--seconds", "0", "--kernel-us", "5000", "--progress", "0"}
	if tenth := w.admitted(w.annotated(work{name: "tenth", command: trainer}, "gpu", "0.10", "memory", "1Gi")); tenth.Spec.SchedulerName != "aliquot-scheduler" {
		t.Errorf("it goes to the scheduler %s", tenth.Spec.SchedulerName)
	}
	w.trains("tenth")
	w.submit(work{name: "quarter", compute: 250, memory: "4Gi", ceiling: `{"compute":"0.80","memory":"8Gi"}`, command: trainer})
	w.submit(work{name: "half", compute: 500, memory: "8Gi", ceiling: `{"compute":"1.00"}`, user: 1000, command: trainer})
	w.trains("quarter")
	w.trains("half")
	w.serves("scheduler", "aliquot_scheduler_bound_total 3\n")
	w.told("quarter", `"compute":"0.25..0.80","memory":"4Gi..8Gi"`)
	w.told("half", `"compute":"0.50..1.00","memory":"8Gi"`)
	w.told("tenth", `"compute":"0.10","memory":"1Gi"`)
	w.byFloors("beside each other")
	w.serves("agent", fmt.Sprintf(`aliquot_share_compute_ceiling_ratio{claim=%q,`, w.claim("quarter").Name), "} 0.8\n", "aliquot_agent_up 1\n")

	w.leaderEnds()
	w.admitted(w.annotated(work{name: "large", command: trainer}, "gpu", "0.30", "memory", "1Gi"))
	w.eventually("large is told why it waits", func() (bool, string) {
		large, err := w.client.CoreV1().Pods("default").Get(w.ctx, "large", metav1.GetOptions{})
		w.no(err)
		return slices.ContainsFunc(large.Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && c.Message != ""
		}), fmt.Sprintf("%+v", large.Status)
	})
	w.asksPlugin()
	w.remove("large")
	var stay []int
	w.eventually("the arbiter and the simulated devices are alone in their control group", func() (bool, string) {
		stay = w.outliving()
		return len(stay) == 2, fmt.Sprint(stay)
	})
	stayed := func(when string) {
		t.Helper()
		w.eventually(when+" the arbiter and the simulated devices are those of before", func() (bool, string) {
			now := w.outliving()
			return slices.Equal(now, stay), fmt.Sprintf("%v, they were %v", now, stay)
		})
	}
	before := w.agentReady("")
	w.no(w.client.CoreV1().Pods("aliquot").Delete(w.ctx, before.Name, metav1.DeleteOptions{}))
	w.no(testcluster.AwaitGone(w.ctx, w.client.CoreV1().Pods("aliquot"), before.Name))
	w.byFloors("while no agent runs, and the next one starts")
	after := w.agentReady(string(before.UID))
	stayed("after the agent was replaced")
	w.remove("half")
	w.killed(after)
	stayed("after the agent was killed")
	w.shares("alone", map[string]part{"quarter": {800, 800}})
	w.remove("quarter", "tenth")
	w.empty()
	for _, name := range []string{"scheduler", "controller", "webhook"} {
		w.replaced("aliquot-" + name) // a scheduler was, by the Deployment
		pods, err := w.client.CoreV1().Pods("aliquot").List(w.ctx, metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=aliquot-" + name})
		w.no(err)
		for _, pod := range pods.Items {
			said, err := w.PodLog(w.ctx, "aliquot", pod.Name)
			w.no(err)
			if pod.Status.ContainerStatuses[0].RestartCount > 0 || strings.Contains(said, "forbidden") {
				t.Errorf("the %s was started again %d times, and said\n%s", name, pod.Status.ContainerStatuses[0].RestartCount, said)
			}
		}
		if len(pods.Items) != replicas {
			t.Errorf("of the %s there are %d pods", name, len(pods.Items))
		}
	}
}

// installAll loads the image and installs the whole chart.
func (w *world) installAll() {
	w.Helper()
	w.loadKube(w.chart().Image(), w.program, filepath.Join(root, "native", "dist"))
	w.install(w.everything())
}

// replicas is how many of scheduler, controller and webhook the chart installs.
const replicas = 2

// loadKube makes an image of a build of aliquot-kube, with what was built beside it.
func (w *world) loadKube(name, program, dist string) {
	w.Helper()
	beside, err := filepath.Glob(filepath.Join(filepath.Dir(program), "aliquot-cover")) // builds of some time ago have none
	w.no(err)
	image, err := images.Kube(name, program, dist, beside...)
	w.no(err)
	w.load(image)
}

// everything is values by which the chart installs all of itself, with the test's own devices and folders.
func (w *world) everything() map[string]any {
	return w.ChartValues(w.devices, w.run, w.state)
}

// asksPlugin has `kubectl aliquot` say what the pods have, and lower a ceiling and give it back, as users do who may edit the namespace and no more.
func (w *world) asksPlugin() {
	w.Helper()
	account := metav1.ObjectMeta{Namespace: "default", Name: "user"}
	_, err := w.client.CoreV1().ServiceAccounts("default").Create(w.ctx, &corev1.ServiceAccount{ObjectMeta: account}, metav1.CreateOptions{})
	w.no(err)
	_, err = w.client.RbacV1().RoleBindings("default").Create(w.ctx, &rbacv1.RoleBinding{
		ObjectMeta: account, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "edit"},
		Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: "default", Name: "user"}},
	}, metav1.CreateOptions{})
	w.no(err)
	kubeconfig, err := w.KubeconfigOf(w.ctx, "default", "user")
	w.no(err)
	config, err := w.RESTOf(kubeconfig)
	w.no(err)
	user, err := kubernetes.NewForConfig(config)
	w.no(err)
	w.may(user, authorizationv1.ResourceAttributes{Namespace: "default", Verb: "patch", Group: "aliquot.dev", Resource: "shares"})
	program := w.built("kubectl-aliquot")
	for _, c := range []struct {
		args  []string
		want  []string
		fails bool
	}{
		{[]string{"top"}, []string{"3 shares", "0.85 of 1.00", "0.25..0.80", "4Gi..8Gi", "Ready", "0.50..1.00", "What is used is not known: pods is forbidden", "takes the role aliquot-use", "default/large", "0.30, 1Gi"}, false},
		{[]string{"why", "half"}, []string{"half runs on node " + testcluster.NodeName, "0.50..1.00 of compute and 8Gi of memory"}, false},
		{[]string{"why", "large"}, []string{"large waits: "}, false},
		{[]string{"resize", "quarter", "--gpu", "0.25..0.30", "--wait", patience.String()}, []string{"quarter has 0.25..0.30 of compute and 4Gi..8Gi of memory"}, false},
		{[]string{"resize", "quarter", "--gpu", "0.30..0.80"}, []string{"its compute floor is 0.25 and fixed"}, true},
		{[]string{"resize", "quarter", "--gpu", "0.25..0.80", "--wait", patience.String()}, []string{"quarter has 0.25..0.80 of compute"}, false},
		{[]string{"top", "-A"}, []string{"forbidden"}, true},
	} {
		said, err := exec.CommandContext(w.ctx, program, append(c.args, "--kubeconfig", kubeconfig)...).CombinedOutput()
		for _, want := range c.want {
			if (err != nil) != c.fails || !strings.Contains(string(said), want) {
				w.Errorf("kubectl aliquot %s (%v) says\n%s\nwant %s", strings.Join(c.args, " "), err, said, want)
			}
		}
	}
	// Who may know what everybody uses sees that both use the device, and one of them more than its floor, which nobody else wants.
	_, err = w.client.RbacV1().RoleBindings(ours).Create(w.ctx, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "top"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "aliquot-use"},
		Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: "default", Name: "user"}},
	}, metav1.CreateOptions{})
	w.no(err)
	uses := regexp.MustCompile(`half +0\.50\.\.1\.00 +[5-9]\d% +\+\d+% +8Gi`)
	w.eventually("what is used is shown", func() (bool, string) {
		said, err := exec.CommandContext(w.ctx, program, "top", "--kubeconfig", kubeconfig).CombinedOutput()
		return err == nil && uses.Match(said), fmt.Sprintf("%v\n%s", err, said)
	})
}

// leaderEnds deletes the pod of the scheduler that leads, and waits until another one does: what comes then is decided by that.
func (w *world) leaderEnds() {
	w.Helper()
	leases := w.client.CoordinationV1().Leases(ours)
	was, err := leases.Get(w.ctx, "aliquot-scheduler", metav1.GetOptions{})
	w.no(err)
	pods, err := w.client.CoreV1().Pods(ours).List(w.ctx, metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=aliquot-scheduler"})
	w.no(err)
	at := slices.IndexFunc(pods.Items, func(pod corev1.Pod) bool { return strings.Contains(*was.Spec.HolderIdentity, pod.Name) })
	if at < 0 || len(pods.Items) != replicas {
		w.Fatalf("%s leads, of %d pods", *was.Spec.HolderIdentity, len(pods.Items))
	}
	w.no(w.client.CoreV1().Pods(ours).Delete(w.ctx, pods.Items[at].Name, metav1.DeleteOptions{}))
	_, err = testcluster.AwaitObject(w.ctx, leases, was.Name, "another one's", func(lease *coordinationv1.Lease) (bool, error) {
		holder := lease.Spec.HolderIdentity
		return holder != nil && *holder != "" && *holder != *was.Spec.HolderIdentity, nil
	})
	w.no(err)
	w.no(testcluster.AwaitGone(w.ctx, w.client.CoreV1().Pods(ours), pods.Items[at].Name))
}

// agentReady waits until the agent's pod is ready, and it is another than the one of this UID.
func (w *world) agentReady(other string) (pod corev1.Pod) {
	w.Helper()
	_, err := testcluster.AwaitObject(w.ctx, w.client.AppsV1().DaemonSets("aliquot"), "aliquot-agent", "a node with an agent", func(set *appsv1.DaemonSet) (bool, error) {
		return set.Status.ObservedGeneration == set.Generation && set.Status.DesiredNumberScheduled == 1, nil
	})
	w.no(err)
	w.eventually("the agent's pod is ready", func() (bool, string) {
		pods, err := w.client.CoreV1().Pods("aliquot").List(w.ctx, metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=aliquot-agent"})
		w.no(err)
		if len(pods.Items) != 1 || string(pods.Items[0].UID) == other {
			return false, fmt.Sprintf("%d pods", len(pods.Items))
		}
		pod = pods.Items[0]
		said, _ := w.PodLog(w.ctx, "aliquot", pod.Name)
		return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
		}), fmt.Sprintf("%+v\n%s", pod.Status, said)
	})
	return pod
}

// killed kills the process of an agent's pod and waits until kubelet has started it anew.
func (w *world) killed(pod corev1.Pod) {
	w.Helper()
	w.eventually("the agent's process is there to be killed", func() (found bool, instead string) {
		all := w.processesOf(string(pod.UID))
		for pid := range all {
			name, err := os.ReadFile(filepath.Join("/proc", fmt.Sprint(pid), "comm"))
			if err != nil || strings.TrimSpace(string(name)) != "aliquot-kube" {
				continue
			}
			w.no(syscall.Kill(pid, syscall.SIGKILL))
			found = true
		}
		return found, fmt.Sprint(all)
	})
	w.restarted(pod)
}

// restarted waits until kubelet has started an agent's pod anew, and it is ready.
func (w *world) restarted(pod corev1.Pod) {
	w.Helper()
	_, err := testcluster.AwaitObject(w.ctx, w.client.CoreV1().Pods("aliquot"), pod.Name, "an agent that was started again", func(now *corev1.Pod) (bool, error) {
		status := now.Status.ContainerStatuses
		return len(status) == 1 && status[0].RestartCount > pod.Status.ContainerStatuses[0].RestartCount && status[0].Ready, nil
	})
	w.no(err)
}

// outliving are the processes in the control group of what outlives agents.
func (w *world) outliving() []int {
	w.Helper()
	return slices.Sorted(maps.Keys(w.processesIn(w.Group() + "/aliquot")))
}

// serves waits until one of a component's pods has metrics with these words.
func (w *world) serves(component string, words ...string) {
	w.Helper()
	w.eventually(fmt.Sprintf("the metrics of the %s have %q", component, words), func() (bool, string) {
		pods, err := w.client.CoreV1().Pods(ours).List(w.ctx, metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=aliquot-" + component})
		w.no(err)
		var all strings.Builder
		for _, pod := range pods.Items {
			said, err := metricsOf(pod)
			if err == nil && !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(said, word) }) {
				return true, ""
			}
			fmt.Fprintf(&all, "%s: %v\n%s\n", pod.Name, err, said)
		}
		return false, all.String()
	})
}

// metricsOf are those of a pod of ours, in text, from its port of that name, which agents, schedulers, controllers and webhooks have.
func metricsOf(pod corev1.Pod) (string, error) {
	for _, port := range pod.Spec.Containers[0].Ports {
		if port.Name != "metrics" {
			continue
		}
		answer, err := http.Get(fmt.Sprintf("http://%s/metrics", net.JoinHostPort(pod.Status.PodIP, fmt.Sprint(port.ContainerPort))))
		if err != nil {
			return "", err
		}
		defer answer.Body.Close()
		said, err := io.ReadAll(answer.Body)
		return string(said), err
	}
	return "", errors.New("it has no port of metrics")
}
