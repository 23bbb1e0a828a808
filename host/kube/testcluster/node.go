package testcluster

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	corev1 "k8s.io/api/core/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// pause is the image of sandboxes.
const pause = "testcluster.local/pause:1"

// podNetwork is where pods have their addresses, of the cluster's number: reserved for benchmarks of networks (RFC 2544), so hardly in use. It has
// room for more pods than kubelet runs.
func (c *Cluster) podNetwork() string { return fmt.Sprintf("198.18.%d.0/24", c.network) }

// gateway is the node's address for its pods, which is there while there are any.
func (c *Cluster) gateway() net.IP { return net.IPv4(198, 18, byte(c.network), 1) }

// startNode starts containerd, gives it the image of sandboxes, then kubelet.
func (c *Cluster) startNode(ctx context.Context) error {
	if err := c.writeNode(); err != nil {
		return fmt.Errorf("configure the node: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	if err := c.runContainerd(ctx); err != nil {
		return err
	}
	if err := c.Load(ctx, Image{Name: pause, Files: map[string]string{"/pod": c.programs["pod"]}, Command: []string{"/pod"}}); err != nil {
		return err
	}
	if err := c.runKubelet(ctx); err != nil {
		return err
	}
	_, err := AwaitObject(ctx, c.client.CoreV1().Nodes(), NodeName, "a ready node", func(node *corev1.Node) (bool, error) {
		for _, condition := range node.Status.Conditions {
			if condition.Type == corev1.NodeReady {
				return condition.Status == corev1.ConditionTrue, nil
			}
		}
		return false, nil
	})
	if err != nil {
		return fmt.Errorf("%w\n%s", err, tail(c.Log("kubelet")))
	}
	// Pods are refused until their account is there.
	_, err = AwaitObject(ctx, c.client.CoreV1().ServiceAccounts("default"), "default", "the account of pods",
		func(*corev1.ServiceAccount) (bool, error) { return true, nil })
	return err
}

// runContainerd starts containerd, and waits until it answers.
func (c *Cluster) runContainerd(ctx context.Context) error {
	containerd, err := c.Start("containerd", c.roomy(), c.programs["containerd"], "--config="+c.state.path("containerd.toml"))
	if err != nil {
		return err
	}
	return containerd.ready(ctx, func(ctx context.Context) error {
		return c.runtime(func(connection grpc.ClientConnInterface) error {
			_, err := cri.NewRuntimeServiceClient(connection).Version(ctx, &cri.VersionRequest{})
			return err
		})
	})
}

// runKubelet starts kubelet. What it does is for others to see.
func (c *Cluster) runKubelet(context.Context) error {
	_, err := c.Start("kubelet", c.roomy(), c.programs["kubelet"], "--kubeconfig="+c.state.kubeconfig("kubelet"),
		"--config="+c.state.path("kubelet.json"), "--root-dir="+c.state.path("kubelet"), "--hostname-override="+NodeName)
	return err
}

// runtime calls containerd's side of the container runtime interface.
func (c *Cluster) runtime(call func(grpc.ClientConnInterface) error) error {
	connection, err := grpc.NewClient("unix://"+c.state.containerd(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer connection.Close()
	return call(connection)
}

// writeNode writes the configurations of containerd, the network plugins and kubelet.
func (c *Cluster) writeNode() error {
	programs := filepath.Dir(c.programs["ptp"])
	// restrict_oom_score_adj: where this process may not lower its score, runc would fail to lower a pod's.
	containerd := fmt.Sprintf(`version = 3
root = %[1]q
state = %[2]q
disabled_plugins = ["io.containerd.nri.v1.nri"]

[grpc]
  address = %[3]q

[plugins.'io.containerd.internal.v1.opt']
  path = %[4]q

[plugins.'io.containerd.cri.v1.images'.pinned_images]
  sandbox = %[5]q

[plugins.'io.containerd.cri.v1.runtime']
  enable_cdi = true
  cdi_spec_dirs = [%[6]q]
  restrict_oom_score_adj = true
  netns_mounts_under_state_dir = true

[plugins.'io.containerd.cri.v1.runtime'.cni]
  bin_dirs = [%[7]q]
  conf_dir = %[8]q

[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"

[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
  BinaryName = %[9]q
`, c.state.path("containerd", "root"), c.state.path("containerd", "state"), c.state.containerd(), c.state.path("containerd", "opt"),
		pause, c.CDI(), programs, c.state.path("cni"), c.programs["runc"])
	if err := os.WriteFile(c.state.path("containerd.toml"), []byte(containerd), 0o644); err != nil {
		return err
	}
	// One pair of interfaces for each pod, which goes with its network namespace: no bridge is left behind.
	network := map[string]any{"cniVersion": "1.0.0", "name": "testcluster", "plugins": []any{map[string]any{
		"type": "ptp", "ipam": map[string]any{
			"type": "host-local", "dataDir": c.state.path("run", "addresses"),
			"ranges": [][]any{{map[string]any{"subnet": c.podNetwork()}}}, "routes": []any{map[string]any{"dst": "0.0.0.0/0"}},
		},
	}}}
	if err := writeJSON(c.state.path("cni", "10-pods.conflist"), network); err != nil {
		return err
	}
	return writeJSON(c.state.path("kubelet.json"), c.kubeletConfig())
}

// kubeletConfig is kubelet's configuration (kubelet.config.k8s.io/v1beta1). It makes do with control groups of version 1 and keeps running on a
// disk that is nearly full.
func (c *Cluster) kubeletConfig() map[string]any {
	return map[string]any{
		"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
		"port": c.ports.kubelet, "healthzPort": 0,
		"tlsCertFile": c.state.pki("kubelet-server.crt"), "tlsPrivateKeyFile": c.state.pki("kubelet-server.key"),
		"authentication": map[string]any{
			"anonymous": map[string]any{"enabled": false}, "webhook": map[string]any{"enabled": false},
			"x509": map[string]any{"clientCAFile": c.state.pki("ca.crt")},
		},
		"authorization":            map[string]any{"mode": "Webhook"},
		"containerRuntimeEndpoint": "unix://" + c.state.containerd(),
		"cgroupDriver":             "cgroupfs", "cgroupRoot": "/" + c.group.name, "failCgroupV1": false, "failSwapOn": false,
		"enforceNodeAllocatable": []string{}, "oomScoreAdj": 0, "makeIPTablesUtilChains": false,
		"volumePluginDir": c.state.path("kubelet", "volume-plugins"), "podLogsDir": c.state.path("log", "pods"),
		"evictionHard": map[string]string{"memory.available": "100Mi", "nodefs.available": "1%", "imagefs.available": "1%", "nodefs.inodesFree": "1%"},
		// A test's pods end when they are told to; readiness is told of at once.
		"shutdownGracePeriod": "0s", "syncFrequency": "1s",
		// Nobody answers there, for no pod asks for names; where nothing is said kubelet warns of each pod that it starts.
		"clusterDNS": []string{c.gateway().String()},
	}
}

func writeJSON(path string, content any) error {
	raw, err := json.MarshalIndent(content, "", "\t")
	if err != nil {
		return err
	}
	return os.WriteFile(path, raw, 0o644)
}
