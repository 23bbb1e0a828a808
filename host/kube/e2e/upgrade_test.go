package e2e

import (
	"fmt"
	"maps"
	"path/filepath"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/aliquot-dev/aliquot/host/kube/images"
	"github.com/aliquot-dev/aliquot/host/kube/testcluster"
)

// The chart and the image of an earlier revision, which Helm installed, are upgraded to those of this one by Helm, as docs/kubernetes.md says, while pods run, which asked in both ways: they
// run on, the same processes within the same shares, also while the agent is replaced; ceilings of theirs change, new pods start beside them. Helm then goes back to the earlier
// revision, and forward again, while pods start all along: an agent that one of another build replaces leaves no gap. One that does not fit says why, and all of it goes.
func TestUpgrade(t *testing.T) {
	built := make(chan error, 1)
	var before earlier
	go func() { // while other tests work
		var err error
		before, err = buildEarlier(t.Context())
		built <- err
	}()
	w := beginEmpty(t, "h200x1")
	w.no(<-built)
	t.Logf("what is upgraded differs in %v", before.differs)
	w.loadKube(w.chart().ImageOf("earlier"), before.program, dist(before.folder))
	w.loadKube(w.chart().ImageOf("next"), w.program, dist(root))
	next, err := images.WriteValues(w.TempDir(), "next") // as `make images` does
	w.no(err)

	w.helm("install", filepath.Join(before.folder, "deploy", "chart"), "--values", w.valuesFile(w.everything()), "--set", "image.tag=earlier")
	agent := w.agentReady("")
	w.runsOnly(string(agent.UID), before.program, w.program)
	w.runsOnly(w.Group()+"/aliquot", before.arbiter, arbiterIn(root))
	w.offers()
	trainer := []string{"/bin/trainer", "--seconds", "0", "--kernel-us", "5000", "--progress", "0"}
	w.admitted(w.annotated(work{name: "quarter", command: trainer}, "gpu", "0.25..0.80", "memory", "4Gi..8Gi"))
	w.trains("quarter")
	w.submit(work{name: "half", compute: 500, memory: "8Gi", ceiling: `{"compute":"1.00"}`, user: 1000, command: trainer})
	w.trains("half")
	run := w.pids("quarter")
	maps.Copy(run, w.pids("half"))

	upgrade := func() { w.helm("upgrade", chartFolder, "--reset-then-reuse-values", "--values", next) }
	upgrade()
	w.sharesOver(10*time.Second, "while it is upgraded", quarterAndHalf, thirds)
	agent = w.agentReady(string(agent.UID))
	w.agentSays(agent, "msg=serving") // it is ready before, while it waits for the one that it replaces
	w.runsOnly(string(agent.UID), w.program, before.program)
	w.runsOnly(w.Group()+"/aliquot", arbiterIn(root), before.arbiter)
	for _, name := range []string{"scheduler", "webhook", "controller"} {
		w.replaced("aliquot-" + name)
	}
	w.byFloors("after it")
	w.no(change(w.ctx, w.sharesAs(w.Kubeconfig()), w.claim("quarter").Name, `{"ceiling":{"compute":"0.60"}}`))
	w.untilCeiling(string(w.claim("quarter").UID), 600)
	w.admitted(w.annotated(work{name: "tenth", command: trainer}, "gpu", "0.10", "memory", "1Gi"))
	w.trains("tenth")
	w.handsOver(func() { w.helm("rollback") })
	agent = w.agentReady(string(agent.UID))
	w.agentSays(agent, "msg=serving")
	w.runsOnly(string(agent.UID), before.program, w.program)
	w.runsOnly(w.Group()+"/aliquot", before.arbiter, arbiterIn(root))
	for _, name := range []string{"scheduler", "webhook", "controller"} {
		w.replaced("aliquot-" + name)
	}
	w.sharesOver(3*time.Second, "gone back", map[string]part{"quarter": {250, 600}, "half": {500, 1000}}, thirds)
	w.admitted(w.annotated(work{name: "large", command: trainer}, "gpu", "0.30", "memory", "1Gi"))
	w.unplaced("large", "0.30 of a device")
	w.runOn(run, "quarter", "half")
	w.remove("half")
	w.trains("large")
	run = w.pids("quarter")
	w.handsOver(upgrade)
	w.runOn(run, "quarter")
	w.remove("quarter", "tenth", "large")
	w.empty()
}

// replaced waits until a Deployment's pods are of its last template.
func (w *world) replaced(name string) {
	w.Helper()
	_, err := testcluster.AwaitObject(w.ctx, w.client.AppsV1().Deployments("aliquot"), name, "a Deployment whose pods are all replaced", func(d *appsv1.Deployment) (bool, error) {
		s := d.Status
		return s.ObservedGeneration == d.Generation && s.UpdatedReplicas == replicas && s.Replicas == replicas && s.AvailableReplicas == replicas, nil
	})
	if err != nil {
		w.Fatal(fmt.Errorf("upgrade %s: %w", name, err))
	}
}
