package filter

import (
	"context"
	"maps"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/utils/ptr"

	"github.com/aliquot-dev/aliquot/host/kube/scheduler"
)

const (
	zone = "topology.kubernetes.io/zone"
	host = "kubernetes.io/hostname"
)

// over makes filters over a cluster that holds the objects given, through a client and informers as in a real one.
func over(t *testing.T, objects ...runtime.Object) (*Filters, *fake.Clientset) {
	t.Helper()
	client := fake.NewClientset(objects...)
	factory := informers.NewSharedInformerFactory(client, 0)
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(factory.Shutdown)
	t.Cleanup(cancel)
	f, err := New(ctx, client, factory, scheduler.Name)
	if err != nil {
		t.Fatal(err)
	}
	factory.Start(ctx.Done())
	if err := f.WaitForSync(ctx); err != nil {
		t.Fatal(err)
	}
	allWatched(t, client)
	return f, client
}

// allWatched waits until everything is watched that was listed: client-go's fake server tells nobody what is deleted before that.
func allWatched(t *testing.T, client *fake.Clientset) {
	t.Helper()
	until(t, "everything is watched", func() bool {
		unwatched := map[string]int{}
		for _, action := range client.Actions() {
			switch action.GetVerb() {
			case "list":
				unwatched[action.GetResource().Resource]++
			case "watch":
				unwatched[action.GetResource().Resource]--
			}
		}
		return !slices.ContainsFunc(slices.Collect(maps.Values(unwatched)), func(lists int) bool { return lists > 0 })
	})
}

// until waits for a condition that informers bring about. It gives up after so many looks, which are a minute at least, and not by the clock: for as long as
// the machine does not let this process run nobody looks, and nothing can become so.
func until(t *testing.T, what string, is func() bool) {
	t.Helper()
	const lookEvery = time.Millisecond
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	for looks := 0; !is(); looks++ {
		if looks > int(time.Minute/lookEvery) {
			t.Fatalf("waited a minute for: %s", what)
		}
		<-look.C
	}
}

// node is a machine of 4 CPUs, 8 GiB and 32 pods in a zone.
func node(name, in string, change ...func(*v1.Node)) *v1.Node {
	n := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{zone: in, host: name}}}
	n.Status.Allocatable = list("cpu", "4", "memory", "8Gi", "pods", "32")
	for _, c := range change {
		c(n)
	}
	n.Status.Capacity = n.Status.Allocatable
	return n
}

// pod is a pod of namespace default that asks for little.
func pod(name string, change ...func(*v1.Pod)) *v1.Pod {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: types.UID(name), Labels: map[string]string{}}}
	p.Spec.Containers = []v1.Container{{Name: "main", Image: "work"}}
	for _, c := range change {
		c(p)
	}
	return p
}

func on(node string) func(*v1.Pod) { return func(p *v1.Pod) { p.Spec.NodeName = node } }

func labelled(key, value string) func(*v1.Pod) {
	return func(p *v1.Pod) { p.Labels[key] = value }
}

func asks(pairs ...string) func(*v1.Pod) {
	return func(p *v1.Pod) {
		p.Spec.Containers[0].Resources = v1.ResourceRequirements{Requests: list(pairs...), Limits: list(pairs...)}
	}
}

func port(number int32) func(*v1.Pod) {
	return func(p *v1.Pod) {
		p.Spec.Containers[0].Ports = []v1.ContainerPort{{HostPort: number, ContainerPort: number, Protocol: v1.ProtocolTCP}}
	}
}

func priority(of int32) func(*v1.Pod) { return func(p *v1.Pod) { p.Spec.Priority = &of } }

// mounts gives a pod a volume by claim.
func mounts(claim string) func(*v1.Pod) {
	return func(p *v1.Pod) {
		p.Spec.Volumes = append(p.Spec.Volumes, v1.Volume{Name: claim, VolumeSource: v1.VolumeSource{
			PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: claim},
		}})
	}
}

// beside and apart are required affinity to, and anti-affinity against, pods with a label app over a topology.
func beside(app, topology string) func(*v1.Pod) {
	return func(p *v1.Pod) {
		affinity(p).PodAffinity = &v1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []v1.PodAffinityTerm{term(app, topology)}}
	}
}

func apart(app, topology string) func(*v1.Pod) {
	return func(p *v1.Pod) {
		affinity(p).PodAntiAffinity = &v1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []v1.PodAffinityTerm{term(app, topology)}}
	}
}

func spread(app, topology string) func(*v1.Pod) {
	return func(p *v1.Pod) {
		p.Labels["app"] = app
		p.Spec.TopologySpreadConstraints = []v1.TopologySpreadConstraint{{
			MaxSkew: 1, TopologyKey: topology, WhenUnsatisfiable: v1.DoNotSchedule, LabelSelector: selects(app),
		}}
	}
}

func affinity(p *v1.Pod) *v1.Affinity {
	if p.Spec.Affinity == nil {
		p.Spec.Affinity = &v1.Affinity{}
	}
	return p.Spec.Affinity
}

func term(app, topology string) v1.PodAffinityTerm {
	return v1.PodAffinityTerm{TopologyKey: topology, LabelSelector: selects(app)}
}

func selects(app string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}
}

// onlyIn requires nodes whose label has, or with without true has not, the value.
func onlyIn(key, value string, without bool) func(*v1.Pod) {
	return func(p *v1.Pod) {
		affinity(p).NodeAffinity = &v1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: where(key, value, without)}
	}
}

func where(key, value string, without bool) *v1.NodeSelector {
	operator := v1.NodeSelectorOpIn
	if without {
		operator = v1.NodeSelectorOpNotIn
	}
	return &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{{
		MatchExpressions: []v1.NodeSelectorRequirement{{Key: key, Operator: operator, Values: []string{value}}},
	}}}
}

func list(pairs ...string) v1.ResourceList {
	l := v1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		l[v1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return l
}

// volume is a bound persistent volume with its claim: usable in one zone, by node affinity or, with byLabel, by its zone label.
func volume(name, in string, byLabel bool) []runtime.Object {
	pv := freeVolume(name, in)
	if byLabel {
		pv.Spec.NodeAffinity = nil
		pv.Labels = map[string]string{zone: in}
	}
	pv.Spec.ClaimRef = &v1.ObjectReference{Kind: "PersistentVolumeClaim", Namespace: "default", Name: name, UID: types.UID("claim-" + name)}
	pv.Status.Phase = v1.VolumeBound
	pvc := waiting(name)
	pvc.Spec.VolumeName = name
	pvc.Status.Phase = v1.ClaimBound
	pvc.Annotations = map[string]string{"pv.kubernetes.io/bind-completed": "yes"}
	return []runtime.Object{pv, pvc}
}

// freeVolume is a persistent volume of class late that no claim has, usable in one zone.
func freeVolume(name, in string) *v1.PersistentVolume {
	return &v1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: "1"},
		Spec: v1.PersistentVolumeSpec{
			Capacity: list("storage", "1Gi"), AccessModes: []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce}, StorageClassName: "late",
			PersistentVolumeSource: v1.PersistentVolumeSource{CSI: &v1.CSIPersistentVolumeSource{Driver: "disk.example", VolumeHandle: name}},
			NodeAffinity:           &v1.VolumeNodeAffinity{Required: where(zone, in, false)},
		},
		Status: v1.PersistentVolumeStatus{Phase: v1.VolumeAvailable},
	}
}

// waiting is a claim of class late, for a volume of 1 GiB, that is bound when its pod has a node.
func waiting(name string) *v1.PersistentVolumeClaim {
	return &v1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: types.UID("claim-" + name), ResourceVersion: "1"},
		Spec: v1.PersistentVolumeClaimSpec{
			AccessModes: []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce}, StorageClassName: ptr.To("late"),
			Resources: v1.VolumeResourceRequirements{Requests: list("storage", "1Gi")},
		},
		Status: v1.PersistentVolumeClaimStatus{Phase: v1.ClaimPending},
	}
}

// late is the storage class that waits for a pod's node, and makes no volumes.
func late() *storagev1.StorageClass {
	return &storagev1.StorageClass{
		ObjectMeta:  metav1.ObjectMeta{Name: "late"},
		Provisioner: "kubernetes.io/no-provisioner", VolumeBindingMode: ptr.To(storagev1.VolumeBindingWaitForFirstConsumer),
	}
}

// deviceClass selects a driver's devices; extended is the resource that stands for one, or empty.
func deviceClass(name, driver, extended string) *resourceapi.DeviceClass {
	class := &resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: resourceapi.DeviceClassSpec{
		Selectors: []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{Expression: `device.driver == "` + driver + `"`}}},
	}}
	if extended != "" {
		class.Spec.ExtendedResourceName = &extended
	}
	return class
}

// deviceClaim asks for a device of each class.
func deviceClaim(name string, classes ...string) *resourceapi.ResourceClaim {
	claim := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: types.UID(name), ResourceVersion: "1"}}
	for _, class := range classes {
		claim.Spec.Devices.Requests = append(claim.Spec.Devices.Requests, resourceapi.DeviceRequest{
			Name: class[:3], Exactly: &resourceapi.ExactDeviceRequest{DeviceClassName: class, AllocationMode: resourceapi.DeviceAllocationModeExactCount, Count: 1},
		})
	}
	return claim
}

// slice publishes one device of a driver on a node.
func slice(node, driver string) *resourceapi.ResourceSlice {
	return &resourceapi.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: node + "-" + driver}, Spec: resourceapi.ResourceSliceSpec{
		Driver: driver, NodeName: &node, Pool: resourceapi.ResourcePool{Name: node, ResourceSliceCount: 1},
		Devices: []resourceapi.Device{{Name: "device-0"}},
	}}
}

// uses gives a pod a claim for devices.
func uses(claim string) func(*v1.Pod) {
	return func(p *v1.Pod) {
		p.Spec.ResourceClaims = append(p.Spec.ResourceClaims, v1.PodResourceClaim{Name: claim, ResourceClaimName: &claim})
		p.Spec.Containers[0].Resources.Claims = append(p.Spec.Containers[0].Resources.Claims, v1.ResourceClaim{Name: claim})
	}
}
