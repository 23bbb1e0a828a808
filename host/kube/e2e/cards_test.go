package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/dynamic-resource-allocation/resourceslice"

	"github.com/aliquot-dev/aliquot/host/kube/scheduler"
	"github.com/aliquot-dev/aliquot/host/kube/testcluster"
)

// cardDriver is another DRA driver, with two network cards, one of which has to be attached before it is used, and which do nothing to a container. Each has
// a device class.
const (
	cardDriver = "nic.example.com"
	farCards   = "far." + cardDriver
	isAttached = cardDriver + "/attached"
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

// besideCard has pods ask for a share and the only network card of a kind in one claim: the first has both, and the next waits until it goes.
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
	w.remove("carded")
	w.trains("cardless")
	w.remove("cardless")
	w.gangBeside(with)
	w.attaches(with)
}

// attaches has a pod wait for its card to be attached, and start then.
func (w *world) attaches(with work) {
	w.Helper()
	with.name, with.beside = "attached", farCards
	w.submit(with)
	w.tellsOf("attached", "BindingConditionsPending", isAttached)
	pod, err := w.client.CoreV1().Pods("default").Get(w.ctx, "attached", metav1.GetOptions{})
	w.no(err)
	claim := w.claim("attached")
	if pod.Spec.NodeName != "" || claim.Status.Allocation == nil {
		w.Fatalf("it is on node %q with %+v, and its card is not attached", pod.Spec.NodeName, claim.Status.Allocation)
	}
	for _, r := range claim.Status.Allocation.Devices.Results {
		if r.Driver == cardDriver {
			claim.Status.Devices = append(claim.Status.Devices, resourceapi.AllocatedDeviceStatus{Driver: r.Driver, Pool: r.Pool, Device: r.Device, Conditions: []metav1.Condition{
				{Type: isAttached, Status: metav1.ConditionTrue, Reason: "Attached", LastTransitionTime: metav1.Now()},
			}})
		}
	}
	_, err = w.client.ResourceV1().ResourceClaims("default").UpdateStatus(w.ctx, claim, metav1.UpdateOptions{})
	w.no(err)
	w.trains("attached")
	w.remove("attached")
}

// gangBeside has gangs whose claims the engine has no words for: of two that both need the only card none is placed, and of two of which one has a choice
// of devices both are, once both can be had.
func (w *world) gangBeside(with work) {
	w.Helper()
	member := func(gang string, i int, change func(*work)) string {
		one := with
		one.name, one.labels = fmt.Sprint(gang, "-", i), map[string]string{scheduler.GangLabel: gang, scheduler.GangMinLabel: "2"}
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
	folder := filepath.Join(w.Kubelet(), "plugins", cardDriver)
	w.no(os.MkdirAll(folder, 0o750))
	helper, err := kubeletplugin.Start(w.ctx, cards{}, kubeletplugin.DriverName(cardDriver), kubeletplugin.NodeName(testcluster.NodeName), kubeletplugin.KubeClient(client),
		kubeletplugin.PluginDataDirectoryPath(folder), kubeletplugin.RegistrarDirectoryPath(filepath.Join(w.Kubelet(), "plugins_registry")))
	w.no(err)
	w.no(helper.PublishResources(w.ctx, resourceslice.DriverResources{Pools: map[string]resourceslice.Pool{
		testcluster.NodeName: {Slices: []resourceslice.Slice{{Devices: []resourceapi.Device{
			{Name: "card-0", Attributes: isFar(false)},
			{Name: "card-1", Attributes: isFar(true), BindingConditions: []string{isAttached}, BindingFailureConditions: []string{cardDriver + "/failed"}},
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
