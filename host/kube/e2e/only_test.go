package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/aliquot-dev/aliquot/host/kube/annotation"
	"github.com/aliquot-dev/aliquot/host/kube/testcluster"
)

// A cluster whose only scheduler is ours, installed by the chart: it places the chart's other parts, a DaemonSet and Deployments, and beside pods
// with shares everything that knows nothing of it: a Deployment, a Job, pods that a node's labels, taints, ports, a scheduling gate or a volume keep
// waiting, and one of a higher priority, for which others are evicted.
func TestOnlyScheduler(t *testing.T) {
	w := beginCluster(t, "h200x1")
	w.shared.alone = true
	w.no(w.Kill("kube-scheduler"))
	w.loadKube(w.chart().Image(), w.program, filepath.Join(root, "native", "dist"))
	values := w.everything()
	values["scheduler"] = map[string]any{"also": []any{corev1.DefaultSchedulerName}, "nodeName": testcluster.NodeName}
	w.install(values)
	w.agentReady("")
	trainer := []string{"/bin/trainer", "--seconds", "0", "--kernel-us", "5000", "--progress", "0"}
	w.admitted(w.annotated(work{name: "shared", command: trainer}, "gpu", "0.50", "memory", "1Gi"))
	w.trains("shared")
	w.job()
	w.held()
	w.ports()
	w.volume()
	w.evicts()
	if now, err := w.client.CoreV1().Pods("default").Get(w.ctx, "shared", metav1.GetOptions{}); err != nil || now.Status.Phase != corev1.PodRunning {
		t.Errorf("the pod with a share is %+v: %v", now, err)
	}
	w.remove("shared")
	w.empty()
	for _, name := range []string{"scheduler", "controller", "webhook", "agent"} {
		pods, err := w.client.CoreV1().Pods("aliquot").List(w.ctx, metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=aliquot-" + name})
		w.no(err)
		want := replicas
		if name == "agent" {
			want = 1
		}
		if len(pods.Items) != want {
			t.Errorf("of the %s there are %d pods", name, len(pods.Items))
		}
		for _, pod := range pods.Items {
			said, err := w.PodLog(w.ctx, "aliquot", pod.Name)
			w.no(err)
			if strings.Contains(said, "forbidden") || strings.Contains(said, "panic") {
				t.Errorf("the %s said\n%s", name, said)
			}
		}
	}
}

// waiting is a pod without devices that waits to be told to end.
func (w *world) waiting(name string, changes ...func(*corev1.Pod)) *corev1.Pod {
	pod := w.pod(work{name: name, command: []string{"/bin/pod"}})
	for _, change := range changes {
		change(pod)
	}
	return pod
}

// starts waits until a pod runs.
func (w *world) starts(name string) *corev1.Pod {
	w.Helper()
	pod, err := w.AwaitPod(w.ctx, "default", name, corev1.PodRunning)
	w.no(err)
	return pod
}

// job has a Job of three pods, two at once, done.
func (w *world) job() {
	w.Helper()
	completions, parallelism := int32(3), int32(2)
	_, err := w.client.BatchV1().Jobs("default").Create(w.ctx, &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: "three"}, Spec: batchv1.JobSpec{
			Completions: &completions, Parallelism: &parallelism,
			Template: corev1.PodTemplateSpec{Spec: w.pod(work{command: []string{"/bin/pod", "say", "done"}}).Spec},
		},
	}, metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict})
	w.no(err)
	_, err = testcluster.AwaitObject(w.ctx, w.client.BatchV1().Jobs("default"), "three", "a job that is done", func(job *batchv1.Job) (bool, error) {
		return job.Status.Succeeded == completions, nil
	})
	w.no(err)
}

// held has pods wait for a label of the node, a toleration of its taint, and a gate that is taken away.
func (w *world) held() {
	w.Helper()
	nodes := w.client.CoreV1().Nodes()
	change := func(patch string) {
		w.Helper()
		_, err := nodes.Patch(w.ctx, testcluster.NodeName, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{})
		w.no(err)
	}
	w.admitted(w.waiting("affine", func(pod *corev1.Pod) {
		pod.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
			NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "disk", Operator: corev1.NodeSelectorOpIn, Values: []string{"fast"}}}}},
		}}}
	}))
	w.unplaced("affine", "node affinity/selector")
	change(`{"metadata":{"labels":{"disk":"fast"}}}`)
	w.starts("affine")

	// Nodes and pods come to the scheduler by two watches: it knows of the taint once a pod runs that asks for the label given with it.
	change(`{"metadata":{"labels":{"team":"a"}},"spec":{"taints":[{"key":"team","value":"a","effect":"NoSchedule"}]}}`)
	w.admitted(w.waiting("tolerant", func(pod *corev1.Pod) {
		pod.Spec.NodeSelector = map[string]string{"team": "a"}
		pod.Spec.Tolerations = []corev1.Toleration{{Key: "team", Operator: corev1.TolerationOpExists}}
	}))
	w.starts("tolerant")
	w.admitted(w.waiting("repelled"))
	w.unplaced("repelled", "untolerated taint")
	change(`{"spec":{"taints":null}}`)
	w.starts("repelled")

	w.admitted(w.waiting("gated", func(pod *corev1.Pod) {
		pod.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "example.com/wait"}}
	}))
	w.admitted(w.waiting("after")) // and runs, while the other does not
	w.starts("after")
	gated, err := w.client.CoreV1().Pods("default").Get(w.ctx, "gated", metav1.GetOptions{})
	w.no(err)
	if gated.Spec.NodeName != "" {
		w.Errorf("it runs on %s, and has a gate", gated.Spec.NodeName)
	}
	_, err = w.client.CoreV1().Pods("default").Patch(w.ctx, "gated", types.MergePatchType, []byte(`{"spec":{"schedulingGates":null}}`), metav1.PatchOptions{})
	w.no(err)
	w.starts("gated")
	w.remove("affine", "repelled", "tolerant", "gated", "after")
}

// ports has a pod wait for a port of the node that another has.
func (w *world) ports() {
	w.Helper()
	port := func(pod *corev1.Pod) {
		pod.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 8080, HostPort: 18080, HostIP: "127.0.0.1"}}
	}
	w.admitted(w.waiting("first", port))
	_, err := testcluster.AwaitObject(w.ctx, w.client.CoreV1().Pods("default"), "first", "a pod that has a node", func(pod *corev1.Pod) (bool, error) {
		return pod.Spec.NodeName != "", nil
	})
	w.no(err)
	w.admitted(w.waiting("second", port))
	w.unplaced("second", "free ports")
	w.remove("first")
	w.starts("second")
	w.remove("second")
}

// volume has a pod's volume chosen once it is known where the pod runs, and bound before it starts there.
func (w *world) volume() {
	w.Helper()
	folder := filepath.Join(w.Folder(), "volume")
	w.no(os.MkdirAll(folder, 0o755)) // it is there where this cluster had this test before
	late, class := storagev1.VolumeBindingWaitForFirstConsumer, "late"
	_, err := w.client.StorageV1().StorageClasses().Create(w.ctx, &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: class}, Provisioner: "kubernetes.io/no-provisioner", VolumeBindingMode: &late,
	}, metav1.CreateOptions{})
	w.no(err)
	size := corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Mi")}
	_, err = w.client.CoreV1().PersistentVolumeClaims("default").Create(w.ctx, &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: "data"}, Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, StorageClassName: &class, Resources: corev1.VolumeResourceRequirements{Requests: size},
		},
	}, metav1.CreateOptions{})
	w.no(err)
	w.admitted(w.waiting("stores", func(pod *corev1.Pod) {
		pod.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}}}
		pod.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "data", MountPath: "/data"}}
	}))
	w.unplaced("stores", "persistent volumes to bind")
	_, err = w.client.CoreV1().PersistentVolumes().Create(w.ctx, &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: "disk"}, Spec: corev1.PersistentVolumeSpec{
			Capacity: size, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, StorageClassName: class,
			PersistentVolumeSource: corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: folder}},
			NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchExpressions: []corev1.NodeSelectorRequirement{{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{testcluster.NodeName}}},
			}}}},
		},
	}, metav1.CreateOptions{})
	w.no(err)
	w.starts("stores")
	claim, err := w.client.CoreV1().PersistentVolumeClaims("default").Get(w.ctx, "data", metav1.GetOptions{})
	w.no(err)
	if claim.Spec.VolumeName != "disk" || claim.Status.Phase != corev1.ClaimBound {
		w.Errorf("its claim is %+v", claim)
	}
	w.remove("stores")
}

// evicts has a pod of a higher priority run in place of one of two of a Deployment, which makes another that waits.
func (w *world) evicts() {
	w.Helper()
	_, err := w.client.SchedulingV1().PriorityClasses().Create(w.ctx, &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "urgent"}, Value: 1000}, metav1.CreateOptions{})
	w.no(err)
	node, err := w.client.CoreV1().Nodes().Get(w.ctx, testcluster.NodeName, metav1.GetOptions{})
	w.no(err)
	cpu := *resource.NewMilliQuantity(node.Status.Allocatable.Cpu().MilliValue()/3, resource.DecimalSI) // of which there is room for two beside what runs
	asks := corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: cpu}}
	replicas, app := int32(2), map[string]string{"app": "plain"}
	plain := w.waiting("plain")
	plain.Spec.RestartPolicy, plain.Spec.Containers[0].Resources = corev1.RestartPolicyAlways, asks
	_, err = w.client.AppsV1().Deployments("default").Create(w.ctx, &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "plain"}, Spec: appsv1.DeploymentSpec{
			Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: app},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: app}, Spec: plain.Spec},
		},
	}, metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict})
	w.no(err)
	available := func(want int32) {
		w.Helper()
		_, err := testcluster.AwaitObject(w.ctx, w.client.AppsV1().Deployments("default"), "plain", fmt.Sprintf("a deployment of which %d pods run", want), func(d *appsv1.Deployment) (bool, error) {
			return d.Status.ReadyReplicas == want && d.Status.Replicas == replicas, nil
		})
		w.no(err)
	}
	available(2)
	w.admitted(w.waiting("urgent", func(pod *corev1.Pod) {
		pod.Spec.PriorityClassName, pod.Spec.Containers[0].Resources = "urgent", asks
	}))
	w.starts("urgent")
	w.tellsOf("urgent", "Evicting", "1 pods of lower priority are evicted from node "+testcluster.NodeName)
	available(1)
	w.remove("urgent")
	available(2)
	w.evictsForGang(asks)
	available(2)
	background := metav1.DeletePropagationBackground
	w.no(w.client.AppsV1().Deployments("default").Delete(w.ctx, "plain", metav1.DeleteOptions{PropagationPolicy: &background}))
}

// evictsForGang has both pods of a gang with shares, which are of a higher priority, run in place of two without.
func (w *world) evictsForGang(asks corev1.ResourceRequirements) {
	w.Helper()
	trainer := []string{"/bin/trainer", "--seconds", "0", "--kernel-us", "5000", "--progress", "0"}
	pair := []string{"pair-0", "pair-1"}
	for _, name := range pair {
		pod := w.annotated(work{name: name, command: trainer, labels: map[string]string{annotation.Gang: "pair", annotation.GangMin: "2"}}, "gpu", "0.20", "memory", "1Gi")
		pod.Spec.PriorityClassName, pod.Spec.Containers[0].Resources = "urgent", asks
		w.admitted(pod)
	}
	for _, name := range pair {
		w.trains(name)
		w.tellsOf(name, "Evicting", "2 pods of lower priority are evicted from node "+testcluster.NodeName+" for its gang")
	}
	w.remove(pair...)
}
