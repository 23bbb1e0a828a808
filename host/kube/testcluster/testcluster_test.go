package testcluster_test

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/aliquot-dev/aliquot/host/kube/testcluster"
)

// Everything that the cluster is for: a node that gets ready, an image made here, a pod scheduled onto it and run by runc, what it said
// read through API server and kubelet, its end, and a machine as it was before. The first cluster's process is killed while a pod runs; what that leaves
// behind is taken back by the next one in its folder, which is the one that is looked at.
func TestPod(t *testing.T) {
	if os.Getenv(leave) != "" {
		leaves(t)
	}
	before := machine(t)
	killed := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestPod$", "-test.v")
	killed.Env = append(os.Environ(), leave+"=1")
	said, err := killed.CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Fatalf("it was not killed with its cluster running: %v\n%s", err, said)
	}
	if now := machine(t); maps.Equal(now, before) {
		t.Fatal("it left nothing behind")
	}
	cluster, stop := start(t)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()

	program := filepath.Join(t.TempDir(), "pod")
	copyFile(t, filepath.Join(cache(), "pod"), program)
	if err := cluster.Load(ctx, testcluster.Image{Name: "testcluster.local/say:1", Files: map[string]string{"/bin/pod": program}, Command: []string{"/bin/pod", "say", "by default"}}); err != nil {
		t.Fatal(err)
	}
	pods := cluster.Client().CoreV1().Pods("default")
	for name, command := range map[string][]string{"by-default": nil, "as-told": {"/bin/pod", "say", "as told"}} {
		if _, err := pods.Create(ctx, pod(name, command), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string]string{"by-default": "by default\n", "as-told": "as told\n"} {
		done, err := cluster.AwaitPod(ctx, "default", name, corev1.PodSucceeded)
		if err != nil {
			t.Fatal(err)
		}
		if done.Spec.NodeName != testcluster.NodeName || !strings.HasPrefix(done.Status.PodIP, "198.18.") {
			t.Errorf("pod %s ran on node %q with address %q", name, done.Spec.NodeName, done.Status.PodIP)
		}
		if said, err := cluster.PodLog(ctx, "default", name); err != nil || said != want {
			t.Errorf("pod %s said %q, %v; want %q", name, said, err, want)
		}
		if err := pods.Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
		if err := testcluster.AwaitGone(ctx, pods, name); err != nil {
			t.Error(err)
		}
	}
	kubectl, err := cluster.KubectlProgram(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if said, err := exec.CommandContext(ctx, kubectl, "--kubeconfig", cluster.Kubeconfig(), "get", "nodes", "-o", "name").CombinedOutput(); err != nil || string(said) != "node/"+testcluster.NodeName+"\n" {
		t.Errorf("kubectl lists the nodes\n%s%v", said, err)
	}
	// Processes that may have ended before they are put into the cluster's control group.
	for range 20 {
		p, err := cluster.Start("brief", nil, "/bin/true")
		if err != nil {
			t.Fatal(err)
		}
		<-p.Ended()
	}
	// One that runs on: it must end with the cluster.
	if _, err := pods.Create(ctx, pod("runs-on", []string{"/bin/pod"}), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := cluster.AwaitPod(ctx, "default", "runs-on", corev1.PodRunning); err != nil {
		t.Fatal(err)
	}
	stop()
	unchanged(t, before)
}

// leave is the environment variable that makes this test binary start a cluster and leave it running.
const leave = "ALIQUOT_TEST_LEAVE_CLUSTER"

// leaves starts a cluster with a pod that runs, and leaves both running.
func leaves(t *testing.T) {
	cluster, _ := start(t)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	sandbox := pod("runs-on", nil)
	sandbox.Spec.Containers[0].Image = "testcluster.local/pause:1"
	if _, err := cluster.Client().CoreV1().Pods("default").Create(ctx, sandbox, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := cluster.AwaitPod(ctx, "default", "runs-on", corev1.PodRunning); err != nil {
		t.Fatal(err)
	}
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
}

// unchanged checks that the machine is as it was. The kernel takes pods' network interfaces away some time after the last process that used them has ended.
func unchanged(t *testing.T, before map[string]bool) {
	t.Helper()
	look, late := time.NewTicker(50*time.Millisecond), time.After(3*time.Minute)
	defer look.Stop()
	after := machine(t)
	for waits := true; waits && !maps.Equal(before, after); after = machine(t) {
		select {
		case <-look.C:
		case <-late:
			waits = false
		}
	}
	for line := range before {
		if !after[line] {
			t.Errorf("the machine lost %s", line)
		}
	}
	for line := range after {
		if !before[line] {
			t.Errorf("the machine was left with %s", line)
		}
	}
}

func pod(name string, command []string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyNever,
			Containers:    []corev1.Container{{Name: "main", Image: "testcluster.local/say:1", Command: command}},
		},
	}
}

// cache is where make e2e builds, unless it is told otherwise.
func cache() string {
	return cmp.Or(os.Getenv("ALIQUOT_KUBE_CACHE"), filepath.Join("..", "..", "..", "build", "kube"))
}

// start starts a cluster that ends with the test, or earlier by stop.
func start(t *testing.T) (cluster *testcluster.Cluster, stop func()) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Minute)
	defer cancel()
	cluster, err := testcluster.Start(ctx, testcluster.Config{
		Cache: cache(), State: "/var/lib/aliquot-e2e", Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		if err := cluster.Stop(); err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(stop)
	return cluster, stop
}

// machine is what a cluster changes while it runs and must give back: mounts, settings, and what lies where kubelet, containerd and the
// network plugins write.
func machine(t *testing.T) map[string]bool {
	t.Helper()
	all := map[string]bool{}
	for _, file := range []string{"/proc/self/mounts", "/proc/sys/vm/overcommit_memory", "/proc/sys/kernel/panic", "/proc/sys/kernel/panic_on_oops", "/proc/sys/net/ipv4/ip_forward"} {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(content)) {
			all[file+": "+strings.TrimSpace(line)] = true
		}
	}
	for _, pattern := range []string{
		"/sys/fs/cgroup/*/*aliquot-testcluster*", "/sys/fs/cgroup/*aliquot-testcluster*", "/sys/class/net/*", "/var/lib/*", "/var/log/*", "/run/*", "/usr/libexec/*",
	} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range found {
			all[path] = true
		}
	}
	delete(all, "/var/lib/aliquot-e2e.lock")
	delete(all, "/var/lib/aliquot-testclusters.json.lock")
	delete(all, "/run/mount") // mount(8) makes it where nothing was mounted since the machine started
	return all
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	content, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(to, content, 0o755); err != nil {
		t.Fatal(err)
	}
}
