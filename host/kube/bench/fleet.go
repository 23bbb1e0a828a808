package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/host/kube/deploy"
	"github.com/aliquot-dev/aliquot/host/kube/driver"
	"github.com/aliquot-dev/aliquot/host/kube/testcluster"
	"github.com/aliquot-dev/aliquot/node"
	"github.com/aliquot-dev/aliquot/node/device"
)

// namespace is where claims and pods are.
const namespace = "default"

// devices are a node's.
const devices = 8

// creators is how many objects are made at once, where that is not measured.
const creators = 24

// leaseSeconds is for how long the Lease of a node holds: renewed every quarter, in the usual 40 s those of 5,000 nodes would be 500 writes a second.
const leaseSeconds = 3600

//go:embed stages.yaml
var stages []byte

// fleet is a control plane whose nodes only seem to be there.
type fleet struct {
	*testcluster.Cluster
	client kubernetes.Interface // an administrator's
	writes kubernetes.Interface // of the scheduler's account, which the API server asks about its roles, and has wait its turn, as it does not an administrator
	nodes  int
}

// begin starts a control plane and gives it nodes with devices, and all of the chart that does not run. Close ends it.
func (b *bench) begin(ctx context.Context, nodes int) (*fleet, error) {
	cluster, err := testcluster.Start(ctx, testcluster.Config{Cache: b.cache, State: b.state, Control: true, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		return nil, err
	}
	f := &fleet{Cluster: cluster, nodes: nodes}
	if err = f.fill(ctx, b.root); err != nil {
		err = fmt.Errorf("make %d nodes: %w", nodes, err)
		if stop := cluster.Stop(); stop != nil {
			err = fmt.Errorf("%w; and %w", err, stop)
		}
		return nil, err
	}
	return f, nil
}

func (f *fleet) fill(ctx context.Context, root string) error {
	var err error
	if f.client, err = clientOf(f.REST()); err != nil {
		return err
	}
	if err := f.install(ctx, root); err != nil {
		return err
	}
	kubeconfig, err := f.schedulers(ctx)
	if err != nil {
		return err
	}
	account, err := f.RESTOf(kubeconfig)
	if err != nil {
		return err
	}
	if f.writes, err = clientOf(account); err != nil {
		return err
	}
	no := false
	without := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}, AutomountServiceAccountToken: &no}
	if _, err := f.client.CoreV1().ServiceAccounts(namespace).Create(ctx, without, metav1.CreateOptions{}); err != nil {
		return err
	}
	if err := f.startKWOK(); err != nil {
		return err
	}
	ready := follow(ctx, f.client.CoreV1().Nodes(), &corev1.Node{}, "", isReady)
	defer ready.stop()
	err = each(ctx, f.nodes, creators, func(ctx context.Context, i int) error {
		if _, err := f.client.CoreV1().Nodes().Create(ctx, newNode(i), metav1.CreateOptions{}); err != nil {
			return err
		}
		_, err := f.client.ResourceV1().ResourceSlices().Create(ctx, newSlice(i), metav1.CreateOptions{})
		return err
	})
	if err != nil {
		return err
	}
	if err := ready.await(ctx, f.nodes, nil); err != nil {
		return fmt.Errorf("wait until KWOK has all nodes ready: %w\n%s", err, f.Log("kwok"))
	}
	return nil
}

// clientOf is a client that speaks as the scheduler's own does.
func clientOf(config *rest.Config) (kubernetes.Interface, error) {
	config.ContentType, config.AcceptContentTypes = runtime.ContentTypeProtobuf, runtime.ContentTypeProtobuf+","+runtime.ContentTypeJSON
	return kubernetes.NewForConfig(config)
}

// schedulers is the kubeconfig of the scheduler's account.
func (f *fleet) schedulers(ctx context.Context) (string, error) {
	return f.KubeconfigOf(ctx, "aliquot", "aliquot-scheduler")
}

// install makes what of the chart is no program: kinds of objects, the device class, accounts.
func (f *fleet) install(ctx context.Context, root string) error {
	chart, err := deploy.Read(filepath.Join(root, "deploy", "chart"))
	if err != nil {
		return err
	}
	values := map[string]any{}
	for _, component := range []string{"agent", "scheduler", "webhook", "controller"} {
		values[component] = map[string]any{"enabled": false}
	}
	values["scheduler"] = map[string]any{"enabled": true, "replicas": 0} // its account
	objects, err := chart.Render(values)
	if err != nil {
		return err
	}
	return f.Create(ctx, deploy.Stream(objects))
}

// startKWOK has KWOK say that nodes are ready, and hold their Leases.
func (f *fleet) startKWOK() error {
	config := filepath.Join(f.Folder(), "kwok.yaml")
	if err := os.WriteFile(config, stages, 0o600); err != nil {
		return err
	}
	_, err := f.Start("kwok", nil, f.Program("kwok"), "--kubeconfig", f.Kubeconfig(), "--manage-all-nodes=true",
		fmt.Sprintf("--node-lease-duration-seconds=%d", leaseSeconds), "--config", config)
	return err
}

// listed is how often the API server was asked for pods.
var listed = regexp.MustCompile(`(?m)^apiserver_request_total\{code="200",[^}]*group="",resource="pods",[^}]*verb="LIST",[^}]*\} (\S+)$`)

// settled waits until KWOK has asked for the pods of each node, which it does once and at a pace of its own, for minutes where there are thousands.
func (f *fleet) settled(ctx context.Context) error {
	look := time.NewTicker(200 * time.Millisecond)
	defer look.Stop()
	within, cancel := context.WithTimeoutCause(ctx, 5*time.Minute, errors.New("it took more than five minutes"))
	defer cancel()
	for {
		told, err := f.Client().CoreV1().RESTClient().Get().AbsPath("/metrics").DoRaw(within)
		if err != nil {
			return fmt.Errorf("wait until KWOK knows all nodes: %w", err)
		}
		var all float64
		for _, one := range listed.FindAllSubmatch(told, -1) {
			n, err := strconv.ParseFloat(string(one[1]), 64)
			if err != nil {
				return fmt.Errorf("wait until KWOK knows all nodes: %w", err)
			}
			all += n
		}
		if all >= float64(f.nodes) {
			return nil
		}
		select {
		case <-look.C:
		case <-within.Done():
			return fmt.Errorf("wait until KWOK knows all nodes: %w: it has asked for pods %.0f times for %d nodes", context.Cause(within), all, f.nodes)
		}
	}
}

func isReady(n *corev1.Node) bool {
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

func nodeName(i int) string { return fmt.Sprintf("node-%05d", i) }

// newNode is one with room for many pods.
func newNode(i int) *corev1.Node {
	room := corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("192"), corev1.ResourceMemory: resource.MustParse("2Ti"), corev1.ResourcePods: resource.MustParse("250"),
	}
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: nodeName(i), Labels: map[string]string{corev1.LabelHostname: nodeName(i), corev1.LabelArchStable: "amd64", corev1.LabelOSStable: "linux"}},
		Status:     corev1.NodeStatus{Capacity: room, Allocatable: room},
	}
}

func deviceUUID(n, d int) string { return fmt.Sprintf("GPU-%08x-%04x-4000-8000-000000000000", n, d) }

// newSlice is what a node agent would tell of a node's devices.
func newSlice(i int) *resourceapi.ResourceSlice {
	name := nodeName(i)
	slice := &resourceapi.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: name + "-gpus"}, Spec: resourceapi.ResourceSliceSpec{
		Driver: driver.Name, NodeName: &name, Pool: resourceapi.ResourcePool{Name: name, Generation: 1, ResourceSliceCount: 1},
	}}
	for d := range devices {
		numa := d / 4
		slice.Spec.Devices = append(slice.Spec.Devices, driver.Published(node.Device{
			UUID: deviceUUID(i, d), Index: d, Model: "H200", Memory: 140 << 30, Health: api.Healthy,
			About: device.About{Architecture: "Hopper", DriverVersion: "580.65.06", Capability: "9.0", NUMANode: &numa, LinkDomain: name},
		}))
	}
	return slice
}

// program builds aliquot-kube into a folder.
func program(ctx context.Context, folder string) (string, error) {
	path := filepath.Join(folder, "aliquot-kube")
	build := exec.CommandContext(ctx, "go", "build", "-o", path, "github.com/aliquot-dev/aliquot/host/kube/cmd/aliquot-kube")
	if said, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the scheduler: %w\n%s", err, said)
	}
	return path, nil
}
