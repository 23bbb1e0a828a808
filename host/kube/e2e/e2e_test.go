// Package e2e runs Aliquot's parts for Kubernetes on a real node: real containers, the real shim in them, simulated devices.
package e2e

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"

	"github.com/aliquot-dev/aliquot/host/kube/annotation"
	"github.com/aliquot-dev/aliquot/host/kube/deploy"
	"github.com/aliquot-dev/aliquot/host/kube/driver"
	"github.com/aliquot-dev/aliquot/host/kube/images"
	"github.com/aliquot-dev/aliquot/host/kube/testcluster"
)

// root is the repository's.
var root = filepath.Join("..", "..", "..")

// chartFolder is where the chart is.
var chartFolder = filepath.Join(root, "deploy", "chart")

// cache is where what the cluster is built of is kept, and what is built of it here: go links a program that is there and current not again.
var cache = cmp.Or(os.Getenv("ALIQUOT_KUBE_CACHE"), filepath.Join(root, "build", "kube"))

// examples is the image of the example programs.
const examples = images.ExamplesName

// world is a cluster with a node agent on its node.
type world struct {
	*testing.T
	*testcluster.Cluster
	shared     *shared
	ctx        context.Context
	client     kubernetes.Interface
	program    string // aliquot-kube
	kubeconfig string // of the agent's own account
	devices    string
	run        string // the agent's run folder
	state      string
	sims       string               // folder of the simulated devices' socket and record
	agent      *testcluster.Process // nil: agents are pods
}

// begin starts a cluster and an agent on it, as a process of the node, with these simulated devices.
func begin(t *testing.T, devices string) *world {
	t.Helper()
	return beginWith(t, devices, map[string]any{})
}

// beginWith is begin with more values of the chart, of which it installs nothing that runs unless they say so.
func beginWith(t *testing.T, devices string, values map[string]any) *world {
	t.Helper()
	w := beginCluster(t, devices)
	w.withAgent(values)
	return w
}

// withAgent installs all of the chart that does not run, with these values besides, and starts an agent as a process of the node.
func (w *world) withAgent(values map[string]any) {
	w.Helper()
	all := w.everything()
	for _, component := range []string{"scheduler", "webhook", "controller"} {
		all[component] = map[string]any{"enabled": false}
	}
	all["agent"].(map[string]any)["enabled"] = false
	maps.Copy(all, values)
	w.install(all)
	var err error
	w.kubeconfig, err = w.KubeconfigOf(w.ctx, ours, "aliquot-agent")
	w.no(err)
	w.startAgent()
}

// rendered is what the chart installs where nothing is said but of devices.
func rendered(t *testing.T, devices string) []deploy.Object {
	t.Helper()
	chart, err := deploy.Read(chartFolder)
	if err != nil {
		t.Fatal(err)
	}
	objects, err := chart.Render(map[string]any{"agent": map[string]any{"simulate": devices}})
	if err != nil {
		t.Fatal(err)
	}
	return objects
}

// beginEmpty is beginCluster where not even our kinds of object are there.
func beginEmpty(t *testing.T, devices string) *world {
	t.Helper()
	w := beginCluster(t, devices)
	w.no(w.shared.strip(w.ctx, t))
	return w
}

// beginCluster has a shared cluster, in which nothing of Aliquot is yet but its kinds of object, and the image of the examples. Its node is to have
// these simulated devices. Other tests work in others meanwhile.
func beginCluster(t *testing.T, devices string) *world {
	t.Helper()
	shared := lent.take(t)
	ctx := t.Context()
	if deadline, is := t.Deadline(); is { // what is waited for then says so, and the clusters are ended
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, deadline.Add(-2*time.Minute))
		t.Cleanup(cancel)
	}
	still.begins(t, shared)
	still.gate(ctx, shared)
	shared.ready(ctx, t)
	w := &world{
		T: t, Cluster: shared.Cluster, shared: shared, ctx: ctx, devices: devices,
		run: filepath.Join(shared.Folder(), "agent"), state: filepath.Join(shared.Folder(), "agent-state"),
	}
	w.sims = filepath.Join(w.run, "sim")
	shared.last = w
	var err error
	w.client, err = kubernetes.NewForConfig(w.REST())
	w.no(err)
	t.Cleanup(func() {
		if !t.Failed() {
			return
		}
		t.Logf("the agent said:\n%s\nthe scheduler said:\n%s", shared.Log("agent"), shared.Log("scheduler"))
		if err := shared.end(); err != nil {
			t.Error(err)
		}
	})
	w.program = w.built("aliquot-kube")
	w.built("aliquot-cover") // which agents look for beside that
	w.loadExamples()
	return w
}

// builds are those of programs, by their names, for all tests of this process: each is built once.
var builds sync.Map

// built is a program of this module, by its name.
func (w *world) built(name string) string {
	w.Helper()
	build, _ := builds.LoadOrStore(name, sync.OnceValues(func() (string, error) {
		program, err := filepath.Abs(filepath.Join(cache, name))
		if err != nil {
			return "", err
		}
		if said, err := exec.Command("go", "build", "-buildvcs=false", "-ldflags", "-s -w", "-o", program, "github.com/aliquot-dev/aliquot/host/kube/cmd/"+name).CombinedOutput(); err != nil {
			return "", fmt.Errorf("build %s: %w\n%s", name, err, said)
		}
		return program, nil
	}))
	program, err := build.(func() (string, error))()
	w.no(err)
	return program
}

// install makes what Helm would install with these values of the chart, where our kinds of object are there already, which is nothing that it installs over.
func (w *world) install(values map[string]any) {
	w.Helper()
	objects, err := w.chart().Render(values)
	w.no(err)
	w.no(w.Create(w.ctx, deploy.Stream(w.missing(objects))))
}

// helm has Helm do something with the release that users call aliquot.
func (w *world) helm(what string, args ...string) {
	w.Helper()
	said, err := w.Helm(w.ctx, append([]string{what, "aliquot"}, args...)...)
	w.no(err)
	w.Logf("helm %s says:\n%s", what, said)
}

// valuesFile is a file with these values, for Helm.
func (w *world) valuesFile(values map[string]any) string {
	w.Helper()
	text, err := yaml.Marshal(values)
	w.no(err)
	file := filepath.Join(w.TempDir(), "values.yaml")
	w.no(os.WriteFile(file, text, 0o600))
	return file
}

func (w *world) chart() deploy.Chart {
	w.Helper()
	chart, err := deploy.Read(chartFolder)
	w.no(err)
	return chart
}

// no fails the test on an error.
func (w *world) no(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// startAgent starts the agent, also after one that was killed and with more options, and waits until kubelet knows it and its devices are offered.
func (w *world) startAgent(options ...string) {
	w.Helper()
	w.startAgentWith(nil, options...)
	select {
	case <-w.agent.Ended():
		w.Fatalf("the agent has ended:\n%s", w.agent.Log())
	default:
	}
}

// startAgentWith is startAgent with more in its environment. Where that has it end, it waits until then.
func (w *world) startAgentWith(environment []string, options ...string) {
	w.Helper()
	before := strings.Count(w.Log("agent"), "msg=serving")
	w.launchAgent(environment, options...)
	w.eventually("the agent serves or has ended", func() (bool, string) {
		select {
		case <-w.agent.Ended():
			return true, ""
		default:
		}
		return strings.Count(w.agent.Log(), "msg=serving") > before, w.agent.Log()
	})
}

// launchAgent is startAgentWith that waits for nothing.
func (w *world) launchAgent(environment []string, options ...string) {
	w.Helper()
	var err error
	w.agent, err = w.Start("agent", environment, w.program, append([]string{
		"agent", "--node-name", testcluster.NodeName, "--kubeconfig", w.kubeconfig, "--simulate", w.devices,
		"--run", w.run, "--state", w.state, "--cdi", w.CDI(), "--kubelet", w.Kubelet(),
	}, options...)...)
	w.no(err)
}

// withoutPrograms has the agent's run folder be on a file system in which no program can be started, until the end of the test, as /run is on Debian and Ubuntu.
func (w *world) withoutPrograms() {
	w.Helper()
	w.no(os.MkdirAll(w.run, 0o755))
	w.no(unix.Mount("tmpfs", w.run, "tmpfs", unix.MS_NOEXEC|unix.MS_NOSUID|unix.MS_NODEV, "mode=755"))
	w.Cleanup(func() {
		if err := unix.Unmount(w.run, unix.MNT_DETACH); err != nil {
			w.Error(err)
		}
	})
}

// loadExamples makes the image of the example programs, with the test cluster's own program in it.
func (w *world) loadExamples() {
	w.Helper()
	image, err := images.Examples(filepath.Join(root, "build", "examples"), filepath.Join(root, "native", "dist"))
	w.no(err)
	image.Files["/bin/pod"] = filepath.Join(cache, "pod")
	w.load(image)
}

// patience is how long is waited for what takes a moment, also on a machine on which everything takes ten times as long.
const patience = 3 * time.Minute

// eventually waits for something that nobody tells of. What is so instead stands in the error.
func (w *world) eventually(what string, is func() (bool, string)) {
	w.Helper()
	if ok, instead := within(patience, is); !ok {
		w.Fatalf("waited %v until %s; instead:\n%s", patience, what, instead)
	}
}

// within waits until something is so, for a time at most, and says what is so instead.
func within(atMost time.Duration, is func() (bool, string)) (ok bool, instead string) {
	look := time.NewTicker(100 * time.Millisecond)
	defer look.Stop()
	late := time.After(atMost)
	for {
		if ok, instead = is(); ok {
			return true, ""
		}
		select {
		case <-late:
			return false, instead
		case <-look.C:
		}
	}
}

// work is a pod with a share, in the full form of asking.
type work struct {
	name    string
	compute int64  // floor, thousandths of a device
	memory  string // floor
	ceiling string // a ShareConfig's ceiling, in JSON; empty: no ShareConfig
	weight  int32  // that the ShareConfig says, too; 0: none, so that the floor is
	user    int64
	command []string

	class     string // of the device; empty: ours
	beside    string // device class of another driver's of which it asks for a device in the same claim; empty: none
	choice    bool   // it would rather have two such devices on its node
	libraries string // where it looks for libraries first; empty: nowhere
	scheduler string // that places it; empty: the stock one
	labels    map[string]string
	queue     string // empty: its namespace's
	grace     int64  // seconds that it has to end; 0: it is gone from the API server at once
	cpu       string // that it requests; empty: a tenth of a processor
}

// submit makes a claim's template and a pod that uses it.
func (w *world) submit(one work) {
	w.Helper()
	w.admitted(w.sharing(one))
}

// sharing is a pod with a share, and makes its claim's template.
func (w *world) sharing(one work) *corev1.Pod {
	w.Helper()
	request := resourceapi.DeviceRequest{Name: "gpu", Exactly: &resourceapi.ExactDeviceRequest{
		DeviceClassName: cmp.Or(one.class, driver.Name), AllocationMode: resourceapi.DeviceAllocationModeExactCount, Count: 1,
		Capacity: &resourceapi.CapacityRequirements{Requests: map[resourceapi.QualifiedName]resource.Quantity{
			driver.Compute: *resource.NewQuantity(one.compute, resource.DecimalSI), driver.Memory: resource.MustParse(one.memory),
		}},
	}}
	if one.choice {
		r := request.Exactly
		request.Exactly = nil
		for _, count := range []int64{2, 1} {
			request.FirstAvailable = append(request.FirstAvailable, resourceapi.DeviceSubRequest{
				Name: fmt.Sprint("of-", count), DeviceClassName: r.DeviceClassName, AllocationMode: r.AllocationMode, Count: count, Capacity: r.Capacity,
			})
		}
	}
	spec := resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{Requests: []resourceapi.DeviceRequest{request}}}
	if one.beside != "" {
		spec.Devices.Requests = append(spec.Devices.Requests, resourceapi.DeviceRequest{Name: "beside", Exactly: &resourceapi.ExactDeviceRequest{DeviceClassName: one.beside}})
	}
	if one.ceiling != "" {
		var weight string
		if one.weight != 0 {
			weight = fmt.Sprintf(`,"weight":%d`, one.weight)
		}
		spec.Devices.Config = []resourceapi.DeviceClaimConfiguration{{DeviceConfiguration: resourceapi.DeviceConfiguration{
			Opaque: &resourceapi.OpaqueDeviceConfiguration{Driver: driver.Name, Parameters: runtime.RawExtension{
				Raw: fmt.Appendf(nil, `{"apiVersion":"aliquot.dev/v1alpha1","kind":"ShareConfig","ceiling":%s%s}`, one.ceiling, weight),
			}},
		}}}
	}
	_, err := w.client.ResourceV1().ResourceClaimTemplates("default").Create(w.ctx, &resourceapi.ResourceClaimTemplate{
		ObjectMeta: metav1.ObjectMeta{Name: one.name}, Spec: resourceapi.ResourceClaimTemplateSpec{Spec: spec},
	}, metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict})
	w.no(err)
	pod := w.pod(one)
	pod.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "share", ResourceClaimTemplateName: &one.name}}
	pod.Spec.Containers[0].Resources.Claims = []corev1.ResourceClaim{{Name: "share"}}
	return pod
}

// wholes is how containers ask for whole devices, by number.
const wholes = "deviceclass.resource.kubernetes.io/" + driver.Name

// submitWhole makes a pod that has a limit of one whole device, as it would with a device plugin.
func (w *world) submitWhole(one work) {
	w.Helper()
	w.admitted(w.limited(one, wholes))
}

// limited is a pod that has a limit of one of what has this name.
func (w *world) limited(one work, name corev1.ResourceName) *corev1.Pod {
	pod := w.pod(one)
	pod.Spec.Containers[0].Resources.Limits = corev1.ResourceList{name: resource.MustParse("1")}
	return pod
}

// pod is one with a single container and no device. It asks for some of the processors, as programs that use devices do: one that asks for none has what
// others leave, and then its device waits for it.
func (w *world) pod(one work) *corev1.Pod {
	var annotations map[string]string
	if one.queue != "" {
		annotations = map[string]string{annotation.Queue: one.queue}
	}
	var environment []corev1.EnvVar
	if one.libraries != "" {
		environment = append(environment, corev1.EnvVar{Name: "LD_LIBRARY_PATH", Value: one.libraries})
	}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: one.name, Labels: one.labels, Annotations: annotations},
		Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyNever, TerminationGracePeriodSeconds: &one.grace, SchedulerName: one.scheduler,
			Containers: []corev1.Container{{
				Name: "main", Image: examples, Command: one.command, Env: environment, SecurityContext: &corev1.SecurityContext{RunAsUser: &one.user},
				Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cmp.Or(one.cpu, "100m"))}},
			}},
		},
	}
}

// claim is the only one of a pod.
func (w *world) claim(name string) *resourceapi.ResourceClaim {
	w.Helper()
	pod, err := w.client.CoreV1().Pods("default").Get(w.ctx, name, metav1.GetOptions{})
	w.no(err)
	names := claimsOf(pod)
	if len(names) != 1 {
		w.Fatalf("pod %s has the claims %v, want one", name, names)
	}
	claim, err := w.client.ResourceV1().ResourceClaims("default").Get(w.ctx, names[0], metav1.GetOptions{})
	w.no(err)
	return claim
}

// claimsOf are the names of a pod's claims: those it asks for, and the one that the scheduler made for its limits of whole devices.
func claimsOf(pod *corev1.Pod) (names []string) {
	for _, status := range pod.Status.ResourceClaimStatuses {
		if status.ResourceClaimName != nil {
			names = append(names, *status.ResourceClaimName)
		}
	}
	if made := pod.Status.ExtendedResourceClaimStatus; made != nil {
		names = append(names, made.ResourceClaimName)
	}
	return names
}

// remove deletes pods and waits until they and their claims are gone, and their processes have ended.
func (w *world) remove(names ...string) {
	w.Helper()
	pods := w.client.CoreV1().Pods("default")
	var all []corev1.Pod
	for _, name := range names {
		pod, err := pods.Get(w.ctx, name, metav1.GetOptions{})
		w.no(err)
		all = append(all, *pod)
		w.no(pods.Delete(w.ctx, name, metav1.DeleteOptions{}))
	}
	for _, name := range names {
		w.no(testcluster.AwaitGone(w.ctx, pods, name))
	}
	w.goneWith(all...)
}

// goneWith waits until the claims of pods that are gone are, too, and their processes have ended.
func (w *world) goneWith(pods ...corev1.Pod) {
	w.Helper()
	for i := range pods {
		for _, claim := range claimsOf(&pods[i]) {
			w.no(testcluster.AwaitGone(w.ctx, w.client.ResourceV1().ResourceClaims("default"), claim))
		}
	}
	w.eventually("their processes have ended", func() (bool, string) { // where they have no time for it their pods go first
		left := map[int]bool{}
		for i := range pods {
			maps.Copy(left, w.processesOf(string(pods[i].UID)))
		}
		return len(left) == 0, fmt.Sprint(left)
	})
}
