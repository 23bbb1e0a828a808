package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/dynamic-resource-allocation/resourceslice"

	"github.com/aliquot-dev/aliquot/host/kube/annotation"
	"github.com/aliquot-dev/aliquot/host/kube/scheduler"
	"github.com/aliquot-dev/aliquot/host/kube/testcluster"
)

// cardDriver is another DRA driver, with two network cards, one of which has to be attached before it is used, and which do nothing to a container. Each has
// a device class, and there is one of all devices, whoever's.
const (
	cardDriver = "nic.example.com"
	farCards   = "far." + cardDriver
	whichever  = "whichever.example.com"
	isAttached = cardDriver + "/attached"

	cannotAttach = cardDriver + "/failed"
)

type cards struct{}

func (cards) PrepareResourceClaims(_ context.Context, claims []*resourceapi.ResourceClaim) (map[types.UID]kubeletplugin.PrepareResult, error) {
	all := map[types.UID]kubeletplugin.PrepareResult{}
	for _, claim := range claims {
		all[claim.UID] = kubeletplugin.PrepareResult{}
	}
	return all, nil
}

func (cards) UnprepareResourceClaims(_ context.Context, claims []kubeletplugin.NamespacedObject) (map[types.UID]error, error) {
	all := map[types.UID]error{}
	for _, claim := range claims {
		all[claim.UID] = nil
	}
	return all, nil
}

func (cards) HandleError(context.Context, error, string) {}

// besideCard has pods ask for a share and the only network card of a kind in one claim: the first has both, and the next waits until it goes. One that asks by
// a class of whoever's devices has a share.
func (w *world) besideCard(command []string) {
	w.Helper()
	end := w.startCards()
	defer end()
	with := work{name: "carded", compute: 100, memory: "1Gi", beside: cardDriver, command: command, scheduler: scheduler.Name}
	w.submit(with)
	w.trains("carded")
	with.name = "cardless"
	w.submit(with)
	w.told("carded", `"compute":"0.10"`)
	w.unplaced("cardless", "it asks for devices of other drivers in the same claim")
	w.submit(work{name: "whichever", class: whichever, compute: 100, memory: "1Gi", command: command, scheduler: scheduler.Name})
	w.trains("whichever")
	w.told("whichever", `"compute":"0.10"`)
	w.remove("carded", "whichever")
	w.trains("cardless")
	w.remove("cardless")
	w.gangBeside(with)
	w.attaches(with)
}

// attaches has a pod wait for its card to be attached, with a share in one claim and by a claim for the card alone: it starts then. One that could not be attached is
// given back, and had anew.
func (w *world) attaches(with work) {
	w.Helper()
	with.name, with.beside = "attached", farCards
	w.submit(with)
	w.tellsOf("attached", "BindingConditionsPending")
	w.reports("attached", w.claim("attached").Name, cannotAttach)
	w.reports("attached", w.claim("attached").Name, isAttached)
	w.trains("attached")
	w.remove("attached")

	claims, name := w.client.ResourceV1().ResourceClaims("default"), "far"
	_, err := claims.Create(w.ctx, &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{
		Requests: []resourceapi.DeviceRequest{{Name: "card", Exactly: &resourceapi.ExactDeviceRequest{DeviceClassName: farCards}}},
	}}}, metav1.CreateOptions{})
	w.no(err)
	w.admitted(w.waiting("alone", func(pod *corev1.Pod) {
		pod.Spec.SchedulerName = scheduler.Name
		pod.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "card", ResourceClaimName: &name}}
		pod.Spec.Containers[0].Resources.Claims = []corev1.ResourceClaim{{Name: "card"}}
	}))
	w.tellsOf("alone", "BindingConditionsPending")
	w.reports("alone", name, cannotAttach)
	w.reports("alone", name, isAttached)
	w.starts("alone")
	w.remove("alone")
	w.no(claims.Delete(w.ctx, name, metav1.DeleteOptions{}))
}

// reports has the cards' driver say how it goes with the card that a claim of a pod was given, which it waits for and has said nothing of yet.
func (w *world) reports(name, claim, condition string) {
	w.Helper()
	claims := w.client.ResourceV1().ResourceClaims("default")
	given, err := testcluster.AwaitObject(w.ctx, claims, claim, "a claim that is allocated, and of which nothing is said", func(claim *resourceapi.ResourceClaim) (bool, error) {
		return claim.Status.Allocation != nil && len(claim.Status.Devices) == 0, nil
	})
	w.no(err)
	pod, err := w.client.CoreV1().Pods("default").Get(w.ctx, name, metav1.GetOptions{})
	w.no(err)
	if pod.Spec.NodeName != "" {
		w.Fatalf("%s is on node %s, and its card is not attached", name, pod.Spec.NodeName)
	}
	for _, r := range given.Status.Allocation.Devices.Results {
		if r.Driver == cardDriver {
			given.Status.Devices = append(given.Status.Devices, resourceapi.AllocatedDeviceStatus{Driver: r.Driver, Pool: r.Pool, Device: r.Device, Conditions: []metav1.Condition{
				{Type: condition, Status: metav1.ConditionTrue, Reason: "Tried", Message: "as the test has it", LastTransitionTime: metav1.Now()},
			}})
		}
	}
	_, err = claims.UpdateStatus(w.ctx, given, metav1.UpdateOptions{})
	w.no(err)
}

// gangBeside has gangs whose claims the engine has no words for: of two that both need the only card none is placed, and of two of which one has a choice
// of devices both are, once both can be had.
func (w *world) gangBeside(with work) {
	w.Helper()
	member := func(gang string, i int, change func(*work)) string {
		one := with
		one.name, one.labels = fmt.Sprint(gang, "-", i), map[string]string{annotation.Gang: gang, annotation.GangMin: "2"}
		change(&one)
		w.submit(one)
		return one.name
	}
	unplaced := func(why string, names ...string) {
		for _, name := range names {
			w.unplaced(name, why)
		}
		for _, name := range names {
			pod, err := w.client.CoreV1().Pods("default").Get(w.ctx, name, metav1.GetOptions{})
			w.no(err)
			if claim := w.claim(name); pod.Spec.NodeName != "" || claim.Status.Allocation != nil {
				w.Fatalf("%s is on node %q with %+v, and its gang does not fit", name, pod.Spec.NodeName, claim.Status.Allocation)
			}
		}
	}
	same := func(*work) {}
	none := "no node that takes it has such devices free"
	both := []string{member("cards", 0, same), member("cards", 1, same)}
	unplaced(none, both...)
	w.remove(both...)
	w.submit(work{name: "ahead", compute: 800, memory: "1Gi", command: with.command, scheduler: scheduler.Name})
	w.trains("ahead")
	pair := []string{member("pair", 0, same), member("pair", 1, func(one *work) { one.beside, one.choice, one.compute = "", true, 400 })}
	unplaced(none, pair...)
	w.remove("ahead")
	for _, name := range pair {
		w.trains(name)
	}
	w.remove(pair...)
}

// startCards starts that driver, and returns what ends it.
func (w *world) startCards() (end func()) {
	w.Helper()
	client, err := kubernetes.NewForConfig(w.Cluster.REST()) // what it does is nothing that a test begins
	w.no(err)
	for class, far := range map[string]bool{cardDriver: false, farCards: true} {
		_, err = client.ResourceV1().DeviceClasses().Create(w.ctx, &resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: class}, Spec: resourceapi.DeviceClassSpec{
			Selectors: []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{Expression: fmt.Sprintf("device.driver == %q && device.attributes[%[1]q].far == %v", cardDriver, far)}}},
		}}, metav1.CreateOptions{})
		w.no(err)
	}
	_, err = client.ResourceV1().DeviceClasses().Create(w.ctx, &resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: whichever}}, metav1.CreateOptions{})
	w.no(err)
	folder := filepath.Join(w.Kubelet(), "plugins", cardDriver)
	w.no(os.MkdirAll(folder, 0o750))
	helper, err := kubeletplugin.Start(w.ctx, cards{}, kubeletplugin.DriverName(cardDriver), kubeletplugin.NodeName(testcluster.NodeName), kubeletplugin.KubeClient(client),
		kubeletplugin.PluginDataDirectoryPath(folder), kubeletplugin.RegistrarDirectoryPath(filepath.Join(w.Kubelet(), "plugins_registry")))
	w.no(err)
	w.no(helper.PublishResources(w.ctx, resourceslice.DriverResources{Pools: map[string]resourceslice.Pool{
		testcluster.NodeName: {Slices: []resourceslice.Slice{{Devices: []resourceapi.Device{
			{Name: "card-0", Attributes: isFar(false)},
			{Name: "card-1", Attributes: isFar(true), BindingConditions: []string{isAttached}, BindingFailureConditions: []string{cannotAttach}},
		}}}},
	}}))
	return func() {
		helper.Stop()
		w.no(os.RemoveAll(folder))
	}
}

func isFar(is bool) map[resourceapi.QualifiedName]resourceapi.DeviceAttribute {
	return map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{"far": {BoolValue: &is}}
}
