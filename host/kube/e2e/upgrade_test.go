package e2e

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/aliquot-dev/aliquot/host/kube/deploy"
	"github.com/aliquot-dev/aliquot/host/kube/testcluster"
)

// upgradeFrom is whose build is upgraded to this one.
var upgradeFrom = flag.String("upgrade.from", "HEAD^", "revision of this repository from which is upgraded (TestUpgrade)")

// The chart and the image of an earlier revision are upgraded to those of this one, as Helm does it, while pods run, which asked in both ways: they
// run on, the same processes within the same shares, also while the agent is replaced; ceilings of theirs change, new pods start beside them, one
// that does not fit says why, and all of it goes. An agent that another replaces leaves no gap.
func TestUpgrade(t *testing.T) {
	earlier := sourceOf(t, *upgradeFrom)
	program, built := filepath.Join(earlier, "aliquot-kube"), make(chan error, 1)
	go func() { // while other tests work
		built <- cmp.Or(made(t.Context(), earlier, "make", "native"),
			made(t.Context(), filepath.Join(earlier, "host", "kube"), "go", "build", "-buildvcs=false", "-ldflags", "-s -w", "-o", program, "./cmd/aliquot-kube"))
	}()
	w := beginEmpty(t, "h200x1")
	w.no(<-built)
	repository, _, _ := strings.Cut(w.chart().Image(), ":")
	w.loadKube(repository+":earlier", program, filepath.Join(earlier, "native", "dist"))
	w.loadKube(w.chart().Image(), w.program, filepath.Join(root, "native", "dist"))

	values, _, _ := w.everything()
	values["image"] = map[string]any{"tag": "earlier"}
	metricsPort := values["agent"].(map[string]any)["metricsPort"]
	delete(values["controller"].(map[string]any), "metricsPort") // there was none once
	installed := w.upgrade(filepath.Join(earlier, "deploy", "chart"), values, nil)
	before := w.agentReady("")
	w.offers()
	trainer := []string{"/bin/trainer", "--seconds", "0", "--kernel-us", "5000", "--progress", "0"}
	w.admitted(w.annotated(work{name: "quarter", command: trainer}, "gpu", "0.25..0.80", "memory", "4Gi..8Gi"))
	w.trains("quarter")
	w.submit(work{name: "half", compute: 500, memory: "8Gi", ceiling: `{"compute":"1.00"}`, user: 1000, command: trainer})
	w.trains("half")
	run := w.pids("quarter")
	maps.Copy(run, w.pids("half"))

	values, _, _ = w.everything()                                 // other ports: the next one starts before the last one ends
	values["agent"].(map[string]any)["metricsPort"] = metricsPort // which an agent takes over with the rest
	w.upgrade(filepath.Join(root, "deploy", "chart"), values, installed)
	share := func(when string) {
		t.Helper()
		both := w.usedOver(10*time.Second, "quarter", "half")
		t.Logf("%s, thousandths of the device: %v", when, both)
		if both["quarter"] < 250-tolerated || both["half"] < 500-tolerated || both["quarter"] > 800+tolerated {
			t.Errorf("%s, with floors of 250 and 500 and a ceiling of 800, they used %v", when, both)
		}
	}
	share("while it is upgraded")
	if after := w.agentReady(string(before.UID)); after.Spec.Containers[0].Image != w.chart().Image() {
		t.Errorf("the agent's image is %s, want %s", after.Spec.Containers[0].Image, w.chart().Image())
	}
	for _, name := range []string{"scheduler", "webhook", "controller"} {
		w.replaced("aliquot-" + name)
	}
	share("after it")
	w.no(change(w.ctx, w.sharesAs(w.Kubeconfig()), w.claim("quarter").Name, `{"ceiling":{"compute":"0.60"}}`))
	w.untilCeiling(string(w.claim("quarter").UID), 600)
	w.admitted(w.annotated(work{name: "tenth", command: trainer}, "gpu", "0.10", "memory", "1Gi"))
	w.trains("tenth")
	w.handsOver()
	w.admitted(w.annotated(work{name: "large", command: trainer}, "gpu", "0.30", "memory", "1Gi"))
	w.unplaced("large", "0.30 of a device")
	now := w.pids("quarter")
	maps.Copy(now, w.pids("half"))
	if !maps.Equal(now, run) {
		t.Errorf("the pods had the processes %v and have %v", run, now)
	}
	w.remove("half")
	w.trains("large")
	w.remove("quarter", "tenth", "large")
	w.empty()
}

// sourceOf is a folder with what a revision of this repository holds. It is kept beside what the cluster is built of, for the next time.
func sourceOf(t *testing.T, revision string) string {
	t.Helper()
	said, err := exec.CommandContext(t.Context(), "git", "-C", root, "rev-parse", "--verify", "--quiet", revision+"^{commit}").CombinedOutput()
	if err != nil {
		t.Fatalf("this repository has no %s to upgrade from (%v %s); fetch its history, or give another by -upgrade.from", revision, err, said)
	}
	// Always the same folder, for what the compiler made for one it does not take for another.
	folder, err := filepath.Abs(filepath.Join(cache, "earlier"))
	if err != nil {
		t.Fatal(err)
	}
	commit := strings.TrimSpace(string(said))
	note := filepath.Join(folder, ".revision")
	if have, err := os.ReadFile(note); err == nil && string(have) == commit {
		return folder
	}
	unpack := exec.CommandContext(t.Context(), "bash", "-c", `set -o pipefail; rm -rf "$2" && mkdir -p "$2" && git -C "$0" archive "$1" | tar -x -C "$2" && printf %s "$1" >"$3"`, root, commit, folder, note)
	if said, err := unpack.CombinedOutput(); err != nil {
		t.Fatalf("unpack %s: %v\n%s", revision, err, said)
	}
	return folder
}

// made runs a command that builds something of another revision in its folder, behind everything else that has something to do. A make that this test
// runs under is none of its.
func made(ctx context.Context, folder, name string, args ...string) error {
	command := exec.CommandContext(ctx, "nice", slices.Concat([]string{"-n", "19", name}, args)...)
	command.Dir = folder
	command.Env = slices.DeleteFunc(os.Environ(), func(one string) bool { return strings.HasPrefix(one, "MAKE") || strings.HasPrefix(one, "MFLAGS=") })
	if said, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("in %s: %s: %w\n%s", folder, command, err, said)
	}
	return nil
}

// upgrade makes what a chart has, in place of what was installed of another, and returns it.
func (w *world) upgrade(folder string, values map[string]any, installed []deploy.Object) []deploy.Object {
	w.Helper()
	chart, err := deploy.Read(folder)
	w.no(err)
	objects, err := chart.Render(values)
	w.no(err)
	w.no(w.Apply(w.ctx, deploy.Stream(objects)))
	gone := slices.DeleteFunc(slices.Clone(installed), func(old deploy.Object) bool {
		return slices.ContainsFunc(objects, func(one deploy.Object) bool { return one.Kind == old.Kind && one.Name == old.Name })
	})
	w.no(w.Delete(w.ctx, deploy.Stream(gone)))
	return objects
}

// replaced waits until a Deployment's only pod is of its last template.
func (w *world) replaced(name string) {
	w.Helper()
	_, err := testcluster.AwaitObject(w.ctx, w.client.AppsV1().Deployments("aliquot"), name, "a Deployment whose pods are all replaced", func(d *appsv1.Deployment) (bool, error) {
		s := d.Status
		return s.ObservedGeneration == d.Generation && s.UpdatedReplicas == 1 && s.Replicas == 1 && s.AvailableReplicas == 1, nil
	})
	if err != nil {
		w.Fatal(fmt.Errorf("upgrade %s: %w", name, err))
	}
}
