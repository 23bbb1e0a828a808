package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/retry"
	cdi "tags.cncf.io/container-device-interface/specs-go"

	"github.com/aliquot-dev/aliquot/host/kube/testcluster"
)

// Pods that mean ill, beside one with a share: what the API server refuses, by a policy of ours or by Pod Security, and what those reach that nobody
// refused. docs/threat-model.md says the same in words.
func TestHostile(t *testing.T) {
	w := begin(t, "h200x1")
	w.secure("restricted")
	victim := w.sharing(work{name: "victim", compute: 250, memory: "4Gi", user: 1000, command: []string{"/bin/trainer", "--seconds", "0", "--kernel-us", "5000", "--progress", "0"}})
	confine(victim)
	w.admitted(victim) // what has a share needs no more than this level gives
	w.trains("victim")
	task := filepath.Join("tasks", string(w.claim("victim").UID))

	link := filepath.Join(t.TempDir(), "link")
	w.no(os.Symlink(w.run, link))
	w.pathsRefused(task)
	w.secure("baseline")
	w.podSecurity(link)
	w.secure("")
	w.reached(link, task)
	w.forged(filepath.Base(task))
	w.edits()
	w.ephemeral()
	w.trains("victim")
	w.remove("victim")
	w.empty()
}

// secure has Pod Security hold the namespace to a level; empty: to none.
func (w *world) secure(level string) {
	w.Helper()
	label := "null"
	if level != "" {
		label = fmt.Sprintf("%q", level)
	}
	_, err := w.client.CoreV1().Namespaces().Patch(w.ctx, "default", types.MergePatchType,
		fmt.Appendf(nil, `{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":%s}}}`, label), metav1.PatchOptions{})
	w.no(err)
	w.eventually("Pod Security holds pods to the level "+level, func() (bool, string) {
		err := w.tried(w.pod(work{name: "tried"}))
		if level == "restricted" {
			return err != nil && strings.Contains(err.Error(), `violates PodSecurity "restricted`), fmt.Sprint(err)
		}
		privileged := w.pod(work{name: "tried"})
		privileged.Spec.HostPID = true
		return err == nil && (w.tried(privileged) == nil) == (level == ""), fmt.Sprint(err)
	})
}

// confine has a pod ask for no more than the level restricted gives.
func confine(pod *corev1.Pod) {
	yes, no := true, false
	pod.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{
		RunAsUser: pod.Spec.Containers[0].SecurityContext.RunAsUser, RunAsNonRoot: &yes, AllowPrivilegeEscalation: &no,
		Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}, SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
	}
}

// tried says whether a pod would be taken; it is not made.
func (w *world) tried(pod *corev1.Pod) error {
	namespace := pod.Namespace
	if namespace == "" {
		namespace = "default"
	}
	_, err := w.client.CoreV1().Pods(namespace).Create(w.ctx, pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}, FieldValidation: metav1.FieldValidationStrict})
	return err
}

// withFolder is a pod with a folder of the node, at /node in its container.
func (w *world) withFolder(one work, folder string) *corev1.Pod {
	pod := w.pod(one)
	pod.Spec.Volumes = []corev1.Volume{{Name: "node", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: folder}}}}
	pod.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "node", MountPath: "/node"}}
	return pod
}

// pathsRefused tries volumes of the agent's folders, which a policy of ours refuses in every namespace but our own.
func (w *world) pathsRefused(task string) {
	w.Helper()
	w.withoutDoubts("aliquot-folders", "aliquot-node-folders", "aliquot-tenants")
	w.secure("")
	w.warned()
	const ours, nodes = "for agents alone", "for the node's own agents"
	paths := map[string]string{
		w.run: ours, w.run + "/": ours, filepath.Join(w.run, task): ours, "/." + strings.ReplaceAll(w.run, "/", "//") + "/./sim": ours, w.state: ours,
		w.Kubelet() + "/plugins/gpu.aliquot.dev": ours, w.run + "-of-another": "",
		w.Kubelet() + "/plugins": nodes, w.Kubelet() + "/plugins/another": "", w.Kubelet() + "/plugins_registry": nodes, w.Kubelet() + "/plugins_registry/x.sock": nodes,
		w.CDI(): nodes, "/etc/cdi": nodes, "/var/run/cdi/": nodes, "/run/cdi/aliquot.json": nodes, "/run/cdi-of-another": "", "/etc": "",
	}
	for path, want := range paths {
		pod := w.withFolder(work{name: "tried"}, path)
		w.eventually("a volume of "+path+" is refused, or not: "+want, func() (bool, string) {
			err := w.tried(pod)
			return (want == "") == (err == nil) && (err == nil || strings.Contains(err.Error(), want)), fmt.Sprint(err)
		})
	}
	// Agents of the node may have what is theirs, where the chart or Pod Security says that a namespace is for such.
	for namespace, mayHave := range map[string]func(want string) bool{
		"aliquot":     func(string) bool { return true },
		"kube-system": func(want string) bool { return want != ours },
		"drivers":     func(want string) bool { return want != ours },
	} {
		if namespace == "drivers" {
			_, err := w.client.CoreV1().Namespaces().Create(w.ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
				Name: namespace, Labels: map[string]string{"pod-security.kubernetes.io/enforce": "privileged"},
			}}, metav1.CreateOptions{})
			w.no(err)
		}
		for path, want := range paths {
			agent := w.withFolder(work{name: "tried"}, path)
			agent.Namespace = namespace
			w.eventually("agents in "+namespace+" may have "+path+", or not", func() (bool, string) {
				err := w.tried(agent)
				return (err == nil) == mayHave(want), fmt.Sprint(err)
			})
		}
	}
	w.no(w.client.CoreV1().Namespaces().Delete(w.ctx, "drivers", metav1.DeleteOptions{}))
}

// warnings are what an API server warned of.
type warnings struct{ said []string }

func (w *warnings) HandleWarningHeader(_ int, _, text string) { w.said = append(w.said, text) }

// warned has a namespace given a queue and no level of Pod Security, of which the API server warns.
func (w *world) warned() {
	w.Helper()
	heard := &warnings{}
	config := w.REST()
	config.WarningHandler = heard
	client, err := kubernetes.NewForConfig(config)
	w.no(err)
	w.eventually("the API server warns of a queue without Pod Security", func() (bool, string) { // once it goes by the policy
		_, err := client.CoreV1().Namespaces().Patch(w.ctx, "default", types.MergePatchType, []byte(`{"metadata":{"labels":{"aliquot.dev/queue":"team"}}}`),
			metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
		w.no(err)
		return len(heard.said) == 1 && strings.Contains(heard.said[0], "kubectl label namespace default pod-security.kubernetes.io/enforce=baseline"), fmt.Sprint(heard.said)
	})
}

// podSecurity tries what the level baseline refuses.
func (w *world) podSecurity(link string) {
	w.Helper()
	yes := true
	for name, change := range map[string]func(*corev1.PodSpec){
		"a folder of the node": func(spec *corev1.PodSpec) { *spec = w.withFolder(work{name: "tried"}, link).Spec },
		"privileged":           func(spec *corev1.PodSpec) { spec.Containers[0].SecurityContext.Privileged = &yes },
		"the node's processes": func(spec *corev1.PodSpec) { spec.HostPID = true },
		"the node's network":   func(spec *corev1.PodSpec) { spec.HostNetwork = true },
		"the node's IPC":       func(spec *corev1.PodSpec) { spec.HostIPC = true },
		"a capability": func(spec *corev1.PodSpec) {
			spec.Containers[0].SecurityContext.Capabilities = &corev1.Capabilities{Add: []corev1.Capability{"SYS_ADMIN"}}
		},
	} {
		pod := w.pod(work{name: "tried"})
		change(&pod.Spec)
		if err := w.tried(pod); err == nil || !strings.Contains(err.Error(), `violates PodSecurity "baseline`) {
			w.Errorf("a pod with %s: got %v, want Pod Security to refuse it", name, err)
		}
	}
	privileged := corev1.EphemeralContainerCommon{Name: "privileged", Image: examples, SecurityContext: &corev1.SecurityContext{Privileged: &yes}}
	if err := w.debug(corev1.EphemeralContainer{EphemeralContainerCommon: privileged}); err == nil || !strings.Contains(err.Error(), `violates PodSecurity "baseline`) {
		w.Errorf("a privileged ephemeral container: got %v, want Pod Security to refuse it", err)
	}
}

// debug puts an ephemeral container into the victim's pod, as `kubectl debug` does. Kubelet may write into the pod meanwhile.
func (w *world) debug(one corev1.EphemeralContainer) error {
	w.Helper()
	pods := w.client.CoreV1().Pods("default")
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		pod, err := pods.Get(w.ctx, "victim", metav1.GetOptions{})
		w.no(err)
		pod.Spec.EphemeralContainers = append(pod.Spec.EphemeralContainers, one)
		_, err = pods.UpdateEphemeralContainers(w.ctx, "victim", pod, metav1.UpdateOptions{FieldValidation: metav1.FieldValidationStrict})
		return err
	})
}

// reached tries to open the victim's pages for writing where nobody refuses the pod: by a folder of the node that is reached by a link, and by the
// victim's process. Other users may not; its own user may write what the tenant itself may; root may write everything.
func (w *world) reached(link, task string) {
	w.Helper()
	var victim []int
	w.eventually("the victim's program is found", func() (bool, string) {
		victim = nil
		for pid := range w.pids("victim") {
			if said, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid)); err == nil && strings.TrimSpace(string(said)) == "trainer" {
				victim = append(victim, pid)
			}
		}
		return len(victim) == 1, fmt.Sprint(victim)
	})
	process := fmt.Sprintf("/proc/%d/root/run/aliquot/task", victim[0])
	const opened, denied = "opened", "permission denied"
	attempts := []struct {
		name     string
		user     int64
		folder   string
		tel, ctl string
	}{
		{"stranger", 2000, filepath.Join("/node", task), denied, denied},
		{"kin", 1000, filepath.Join("/node", task), opened, denied},
		{"root", 0, filepath.Join("/node", task), opened, opened},
		{"stranger-by-process", 2000, process, denied, denied},
		{"kin-by-process", 1000, process, opened, denied},
	}
	var names []string
	for _, c := range attempts {
		command := []string{"/bin/pod", "opens", filepath.Join(c.folder, "tel"), filepath.Join(c.folder, "ctl")}
		pod := w.pod(work{name: c.name, user: c.user, command: command})
		if c.folder == process {
			pod.Spec.HostPID = true
		} else {
			pod = w.withFolder(work{name: c.name, user: c.user, command: command}, link)
		}
		w.admitted(pod)
		names = append(names, c.name)
	}
	for _, c := range attempts {
		_, err := w.AwaitPod(w.ctx, "default", c.name, corev1.PodSucceeded)
		w.no(err)
		said, err := w.PodLog(w.ctx, "default", c.name)
		w.no(err)
		if lines := strings.Split(said, "\n"); len(lines) != 3 || !strings.HasSuffix(lines[0], "tel: "+c.tel) || !strings.HasSuffix(lines[1], "ctl: "+c.ctl) {
			w.Errorf("%s, as user %d, says\n%swant tel: %s, ctl: %s", c.name, c.user, said, c.tel, c.ctl)
		}
	}
	w.remove(names...)
}

// forged makes a pod with an annotation by which a container runtime would give its containers the victim's claim, if it came to it: kubelet passes none of a
// pod's on, so that not even root finds driver or pages.
func (w *world) forged(claim string) {
	w.Helper()
	var file cdi.Spec
	w.no(json.Unmarshal(w.cdiFile(claim), &file))
	if len(file.Devices) != 1 {
		w.Fatalf("the victim's CDI file has the devices %+v, want one", file.Devices)
	}
	pages := []string{"/run/aliquot/task/tel", filepath.Join(w.run, "tasks", claim, "ctl")}
	pod := w.pod(work{name: "forged", command: append([]string{"/bin/pod", "opens"}, pages...)})
	pod.Annotations = map[string]string{"cdi.k8s.io/forged": file.Kind + "=" + file.Devices[0].Name}
	smi := *pod.Spec.Containers[0].DeepCopy()
	smi.Name, smi.Command = "smi", []string{"/bin/smi"}
	pod.Spec.Containers = append(pod.Spec.Containers, smi)
	w.admitted(pod)
	_, err := w.AwaitPod(w.ctx, "default", "forged", corev1.PodFailed) // for there is no driver
	w.no(err)
	for container, wants := range map[string][]string{
		"main": {pages[0] + ": no such file or directory", pages[1] + ": no such file or directory"},
		"smi":  {"libnvidia-ml.so.1: cannot open shared object file"},
	} {
		said, err := w.client.CoreV1().Pods("default").GetLogs("forged", &corev1.PodLogOptions{Container: container}).DoRaw(w.ctx)
		w.no(err)
		for _, want := range wants {
			if !strings.Contains(string(said), want) {
				w.Errorf("with the annotations %v the container %s says\n%swant %s", pod.Annotations, container, said, want)
			}
		}
	}
	w.remove("forged")
}

// ephemeral puts containers into the victim's pod while it runs: they cannot be given its claim, and see no driver. Who looks into the other container's
// files from there, as its user, finds its own pages and no others'.
func (w *world) ephemeral() {
	w.Helper()
	container := func(name, target string, command ...string) corev1.EphemeralContainer {
		user := int64(1000)
		return corev1.EphemeralContainer{TargetContainerName: target, EphemeralContainerCommon: corev1.EphemeralContainerCommon{
			Name: name, Image: examples, Command: command, SecurityContext: &corev1.SecurityContext{RunAsUser: &user},
		}}
	}
	claimed := container("claimed", "", "/bin/smi")
	claimed.Resources.Claims = []corev1.ResourceClaim{{Name: "share"}}
	if err := w.debug(claimed); err == nil || !strings.Contains(err.Error(), "resources: Forbidden") {
		w.Errorf("an ephemeral container with a claim: got %v, want it refused", err)
	}
	for _, c := range []struct {
		container corev1.EphemeralContainer
		want      []string
	}{
		{container("beside", "", "/bin/smi"), []string{"libnvidia-ml.so.1: cannot open shared object file"}},
		{container("within", "main", "/bin/pod", "opens", "/proc/1/root/run/aliquot/task/tel", "/proc/1/root/run/aliquot/task/ctl"), []string{"tel: opened", "ctl: permission denied"}},
	} {
		w.no(w.debug(c.container))
		name := c.container.Name
		_, err := testcluster.AwaitObject(w.ctx, w.client.CoreV1().Pods("default"), "victim", "a pod whose ephemeral container "+name+" has ended", func(pod *corev1.Pod) (bool, error) {
			return slices.ContainsFunc(pod.Status.EphemeralContainerStatuses, func(one corev1.ContainerStatus) bool {
				return one.Name == name && one.State.Terminated != nil
			}), nil
		})
		w.no(err)
		said, err := w.client.CoreV1().Pods("default").GetLogs("victim", &corev1.PodLogOptions{Container: name}).DoRaw(w.ctx)
		w.no(err)
		for _, want := range c.want {
			if !strings.Contains(string(said), want) {
				w.Errorf("the ephemeral container %s says\n%swant %s", name, said, want)
			}
		}
	}
}
