// Package testcluster is a real Kubernetes of one node for tests: etcd, the API server, the controller manager, the stock scheduler,
// kubelet, containerd and runc, built from Go modules whose every version is pinned, started as processes on loopback, kubelet and API server on every address, with
// certificates of their own, and images made here, so that neither a registry nor Docker is needed. What comes in is where to keep what
// is built and what runs; what goes out is a client, a kubeconfig, the kubelet's folders, and each process' log.
//
// It changes nothing of the machine for longer than it runs: processes are in control groups of its own and are ended by these,
// mounts, network namespaces and what kubelet writes elsewhere are taken back by Stop, or, where that never ran, by the next
// Start of the same folder. Several may run at the same time, each in a folder of its own: the last one that ends takes back what they have in common. Config.Control leaves the node out, and everything that is only for one, and builds KWOK. Operate adds the
// controllers of JobSets or LeaderWorkerSets, and Helm installs charts. It simulates nothing and knows nothing of GPUs: drivers and schedulers under test are
// started by the test, and ChartValues are what Aliquot's chart has to be told of it.
//
// It needs root, Linux with overlayfs and control groups of version 1 or 2, a C compiler, pkg-config and libseccomp's headers for runc
// (scripts/setup kube installs them), and an address beside loopback's, since kubelet takes none of loopback for its node.
package testcluster

import (
	"log/slog"
	"os"
	"strconv"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// Config says where a cluster works.
type Config struct {
	// Cache keeps what was built, a folder for each part and version; made if it is not there, never emptied.
	Cache string

	// State holds everything of the cluster that runs: made by Start, removed by Stop. It must be on a file system that overlayfs can
	// write to, and its path have at most 40 characters, because sockets lie in it. What a cluster that was killed left there is taken
	// back first; one that still runs is left alone and Start fails.
	State string

	// Control has etcd and the API server run alone, for many nodes that only seem to be there: no controllers, no scheduler, no node, so
	// new nodes do not get the taint that a controller would take off again, and namespaces no default account.
	Control bool

	// Kinds is a YAML stream of definitions of kinds of object that are there before controllers begin. Of others the garbage collector hears when it
	// next looks, half a minute later, and collects none of them before.
	Kinds []byte

	// Audit is what of the requests to the API server is noted, over its restarts.
	Audit Audit

	// Log gets a line for each thing that is begun; nil: nobody is told.
	Log *slog.Logger
}

// NodeName is the name of the only node.
const NodeName = "node1"

// Cluster is one that runs. Its methods may be called from several goroutines, but Stop last.
type Cluster struct {
	log      *slog.Logger
	cache    string
	control  bool
	more     []string // options of the API server
	audit    Audit
	programs programs
	state    state
	book     book
	network  int // number of the network of its pods
	lock     *lock
	ports    ports
	group    *group
	signs    *authority

	processes processes
	rest      *rest.Config
	client    kubernetes.Interface
}

// Client is an administrator's.
func (c *Cluster) Client() kubernetes.Interface { return c.client }

// REST is how an administrator connects.
func (c *Cluster) REST() *rest.Config { return rest.CopyConfig(c.rest) }

// Kubeconfig is the path of an administrator's kubeconfig.
func (c *Cluster) Kubeconfig() string { return c.state.kubeconfig("admin") }

// ServerForPods is where pods with a network of their own reach the API server. There is no kube-proxy, so its service leads nowhere.
func (c *Cluster) ServerForPods() (host, port string) {
	return c.gateway().String(), strconv.Itoa(c.ports.apiserver)
}

// Kubelet is kubelet's folder: plugins and plugins_registry are in it.
func (c *Cluster) Kubelet() string { return c.state.path("kubelet") }

// CDI is the folder in which containerd looks for CDI specifications.
func (c *Cluster) CDI() string { return c.state.path("cdi") }

// Logs is the folder of the logs of all processes, and of pods.
func (c *Cluster) Logs() string { return c.state.path("log") }

// Program is the path of a program that was built for it, by its name: kwok is, for a control plane alone.
func (c *Cluster) Program(name string) string { return c.programs[name] }

// Folder is the cluster's own, for what a test adds to it: it is removed by Stop.
func (c *Cluster) Folder() string { return string(c.state) }

// Group is the cluster's control group, as a path below the root of each hierarchy: what is in it ends with the cluster.
func (c *Cluster) Group() string { return c.group.name }

// ProcessesOf are those of a pod's containers, by the pod's UID, as far as they are in the control groups that kubelet made for it.
func (c *Cluster) ProcessesOf(uid string) ([]int, error) { return c.group.processesOf(uid) }

// Log is what one of the cluster's processes has said: etcd, kube-apiserver, kube-controller-manager, kube-scheduler, containerd,
// kubelet, or one that was started beside them.
func (c *Cluster) Log(name string) string {
	said, err := os.ReadFile(c.state.path("log", name+".log"))
	if err != nil {
		return err.Error()
	}
	return string(said)
}
