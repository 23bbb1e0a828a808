package e2e

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/aliquot-dev/aliquot/host/kube/deploy"
	"github.com/aliquot-dev/aliquot/host/kube/testcluster"
)

// What docs/kubernetes.md says of uninstalling by Helm: everything goes but what is said there. Pods with shares that are still there run on,
// within these; what they hold is taken back by the agent of the next installation.
func TestUninstall(t *testing.T) {
	w := beginEmpty(t, "h200x1")
	w.loadKube(w.chart().Image(), w.program, filepath.Join(root, "native", "dist"))
	values := w.valuesFile(w.everything())
	w.helm("install", chartFolder, "--values", values)
	w.agentReady("")
	w.offers()
	trainer := []string{"/bin/trainer", "--seconds", "0", "--kernel-us", "5000", "--progress", "0"}
	w.admitted(w.annotated(work{name: "quarter", command: trainer}, "gpu", "0.25..0.80", "memory", "4Gi..8Gi"))
	w.trains("quarter")
	w.submit(work{name: "half", compute: 500, memory: "8Gi", ceiling: `{"compute":"1.00"}`, user: 1000, command: trainer, grace: 10})
	w.trains("half")
	run := w.pids("quarter")
	maps.Copy(run, w.pids("half"))

	w.uninstall()
	w.byFloors("without Aliquot's pods")
	w.runOn(run, "quarter", "half")
	pods := w.client.CoreV1().Pods("default")
	w.no(pods.Delete(w.ctx, "half", metav1.DeleteOptions{}))
	w.eventually("the pod has ended, and waits for an agent", func() (bool, string) {
		pod, err := pods.Get(w.ctx, "half", metav1.GetOptions{})
		w.no(err)
		ended := len(pod.Status.ContainerStatuses) == 1 && len(w.processesOf(string(pod.UID))) == 0
		return ended && pod.DeletionTimestamp != nil, fmt.Sprintf("%+v", pod.Status)
	})
	w.helm("install", chartFolder, "--values", values) // over the definitions that stayed
	w.no(testcluster.AwaitGone(w.ctx, pods, "half"))
	w.trains("quarter")
	w.remove("quarter")
	w.empty()

	w.uninstall()
	w.nothingLeft()
}

// uninstall has Helm uninstall what it installed, and waits until it is gone.
func (w *world) uninstall() {
	w.Helper()
	w.helm("uninstall")
	w.no(testcluster.AwaitGone(w.ctx, w.client.CoreV1().Namespaces(), ours))
}

// nothingLeft does what docs/kubernetes.md says is to be done after Helm, and checks that nothing is left but what it names, and then nothing at all.
func (w *world) nothingLeft() {
	w.Helper()
	// Kubelet removes the slices of a driver that has gone, after a while.
	offered, err := w.client.ResourceV1().ResourceSlices().List(w.ctx, metav1.ListOptions{})
	w.no(err)
	for _, one := range offered.Items {
		w.no(testcluster.AwaitGone(w.ctx, w.client.ResourceV1().ResourceSlices(), one.Name))
	}
	want := []string{"customresourcedefinitions/policies.aliquot.dev", "customresourcedefinitions/queues.aliquot.dev", "customresourcedefinitions/shares.aliquot.dev"}
	for _, name := range w.templates() {
		want = append(want, "resourceclaimtemplates/"+name)
	}
	w.left(want...)
	objects, err := w.chart().Render(map[string]any{"agent": map[string]any{"enabled": false}})
	w.no(err)
	w.no(w.Delete(w.ctx, deploy.Stream(keptOf(objects))))
	w.no(w.client.ResourceV1().ResourceClaimTemplates("default").DeleteCollection(w.ctx, metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "aliquot.dev/made-for"}))
	w.left()
	w.leftOnNode()
}

// keptOf are the definitions among objects.
func keptOf(objects []deploy.Object) []deploy.Object {
	return slices.DeleteFunc(slices.Clone(objects), func(one deploy.Object) bool { return !isKind(one) })
}

func isKind(one deploy.Object) bool { return one.Kind == "CustomResourceDefinition" }

// passed are kinds of which nothing counts as left: what was told, what the API server makes of definitions, and two that it warns of.
var passed = []string{"events", "apiservices", "componentstatuses", "endpoints"}

// left waits until these are all the objects of ours that the API server has, of whatever other kind.
func (w *world) left(want ...string) {
	w.Helper()
	w.eventually(fmt.Sprintf("of ours there is no more than %v", want), func() (bool, string) {
		var have []string
		err := each(w.ctx, w.Cluster, func(kind metav1.APIResource, _ schema.GroupVersionResource, one *unstructured.Unstructured) {
			of := strings.Contains(one.GetName(), "aliquot") || one.GetNamespace() == ours || one.GetLabels()["app.kubernetes.io/part-of"] == "aliquot"
			if of {
				have = append(have, kind.Name+"/"+one.GetName())
			}
		})
		if err != nil { // a definition that goes
			return false, err.Error()
		}
		slices.Sort(have)
		return slices.Equal(have, want), fmt.Sprint(have)
	})
}

// leftOnNode ends what outlives agents, removes their two folders, and checks that nothing else of ours is on the node.
func (w *world) leftOnNode() {
	w.Helper()
	var stay []int
	w.eventually("in the control group are the arbiter and the simulated devices alone", func() (bool, string) { // a look at all processes may miss one
		stay = w.outliving()
		return len(stay) == 2, fmt.Sprint(stay)
	})
	for _, pid := range stay {
		w.no(syscall.Kill(pid, syscall.SIGTERM))
	}
	w.eventually("they have ended", func() (bool, string) { left := w.outliving(); return len(left) == 0, fmt.Sprint(left) })
	mounts, err := os.ReadFile("/proc/self/mounts")
	w.no(err)
	for mount := range strings.Lines(string(mounts)) {
		if strings.Contains(mount, w.run) || strings.Contains(mount, w.state) {
			w.Errorf("there is still the mount %s", mount)
		}
	}
	w.no(os.RemoveAll(w.run))
	w.no(os.RemoveAll(w.state))
	w.no(os.RemoveAll(filepath.Join(w.Kubelet(), "plugins", "gpu.aliquot.dev")))
	w.eventually("kubelet has removed what it had of ours", func() (bool, string) { // it looks for what pods leave every two seconds
		var left []string
		w.no(filepath.WalkDir(w.Kubelet(), func(path string, entry os.DirEntry, err error) error {
			if err != nil && !os.IsNotExist(err) {
				return err
			}
			if strings.Contains(filepath.Base(path), "aliquot") {
				left = append(left, path)
			}
			return nil
		}))
		return len(left) == 0, strings.Join(left, "\n")
	})
	entries, err := os.ReadDir(w.CDI())
	w.no(err)
	if len(entries) > 0 {
		w.Errorf("in the folder of CDI files there is still %v", entries)
	}
}
