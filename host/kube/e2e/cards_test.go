package e2e

import (
	"context"
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

// cardDriver is another DRA driver, with one network card, which does nothing to a container.
const cardDriver = "nic.example.com"

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

// besideCard has pods ask for a share and the only network card in one claim: the first has both, and the next waits until it goes.
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
}

// startCards starts that driver, and returns what ends it.
func (w *world) startCards() (end func()) {
	w.Helper()
	client, err := kubernetes.NewForConfig(w.Cluster.REST()) // what it does is nothing that a test begins
	w.no(err)
	_, err = client.ResourceV1().DeviceClasses().Create(w.ctx, &resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: cardDriver}, Spec: resourceapi.DeviceClassSpec{
		Selectors: []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{Expression: `device.driver == "` + cardDriver + `"`}}},
	}}, metav1.CreateOptions{})
	w.no(err)
	folder := filepath.Join(w.Kubelet(), "plugins", cardDriver)
	w.no(os.MkdirAll(folder, 0o750))
	helper, err := kubeletplugin.Start(w.ctx, cards{}, kubeletplugin.DriverName(cardDriver), kubeletplugin.NodeName(testcluster.NodeName), kubeletplugin.KubeClient(client),
		kubeletplugin.PluginDataDirectoryPath(folder), kubeletplugin.RegistrarDirectoryPath(filepath.Join(w.Kubelet(), "plugins_registry")))
	w.no(err)
	w.no(helper.PublishResources(w.ctx, resourceslice.DriverResources{Pools: map[string]resourceslice.Pool{
		testcluster.NodeName: {Slices: []resourceslice.Slice{{Devices: []resourceapi.Device{{Name: "card-0"}}}}},
	}}))
	return func() {
		helper.Stop()
		w.no(os.RemoveAll(folder))
	}
}
