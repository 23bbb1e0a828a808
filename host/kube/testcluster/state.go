package testcluster

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// state is the folder of a cluster that runs.
type state string

// longestState leaves room for kubelet's longest socket in the 107 characters that one may have.
const longestState = 40

func (s state) path(elements ...string) string {
	return filepath.Join(append([]string{string(s)}, elements...)...)
}

func (s state) pki(name string) string { return s.path("pki", name) }

func (s state) kubeconfig(client string) string { return s.path("kubeconfig", client) }

func (s state) containerd() string { return s.path("run", "containerd.sock") }

// groupName is the name of the control group: of the folder, so that whoever finds the folder finds it.
func (s state) groupName() string {
	return "aliquot-testcluster" + strings.ReplaceAll(string(s), "/", "-")
}

func checkState(path string) (state, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	if len(path) > longestState {
		return "", fmt.Errorf("use the folder %s: its path has %d characters and may have %d, because sockets lie in it; choose a shorter one", path, len(path), longestState)
	}
	if os.Geteuid() != 0 {
		return "", errors.New("start a test cluster: kubelet and containerd need root, this is another user; run it as root")
	}
	return state(path), nil
}

// make makes the folders.
func (s state) make() error {
	for _, folder := range []string{"", "pki", "kubeconfig", "log", "run", "etcd", "kubelet", "kubelet/plugins", "kubelet/plugins_registry", "containerd", "cni", "cdi", "images"} {
		if err := os.MkdirAll(s.path(folder), 0o755); err != nil {
			return err
		}
	}
	return os.Chmod(s.path("pki"), 0o700)
}

// lock makes sure that there is one cluster in a folder. The lock lies beside it, so that it is there before and after.
func (s state) lock() (*lock, error) {
	if err := os.MkdirAll(filepath.Dir(string(s)), 0o755); err != nil {
		return nil, err
	}
	file, err := takeLock(string(s)+".lock", unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return nil, fmt.Errorf("start a test cluster in %s: another works there; wait until it has ended or choose another folder", s)
	}
	return file, err
}

// ports are those of one cluster, on loopback but for kubelet's and, where there is a node, the API server's, which are on every address, with certificates.
type ports struct {
	etcd, etcdPeer, apiserver, controllers, scheduler, kubelet int
}

// findPorts finds those of a cluster.
func findPorts() (p ports, err error) {
	wanted := []*int{&p.etcd, &p.etcdPeer, &p.apiserver, &p.controllers, &p.scheduler, &p.kubelet}
	free, err := FreePorts(len(wanted))
	for i := range free {
		*wanted[i] = free[i]
	}
	return p, err
}

// given are the ports that FreePorts found.
var given sync.Map

// FreePorts finds none below lowestPort, and chooses where it can choose from fewPorts at least.
const (
	lowestPort = 10_000
	fewPorts   = 1000
)

// FreePorts finds TCP ports that are free, none of which it found before. They are below those that the kernel gives to whoever asks for any, which would take one of these
// before it is used; where there are few below, they are the kernel's choice. What wants one that another process has taken all the same ends, and says so.
func FreePorts(n int) (found []int, err error) {
	chosen, err := kernelsPorts()
	if err != nil {
		return nil, fmt.Errorf("find free ports: %w", err)
	}
	for len(found) < n {
		wanted := 0
		if chosen-lowestPort >= fewPorts {
			wanted = lowestPort + rand.IntN(chosen-lowestPort)
		}
		listener, err := net.Listen("tcp4", fmt.Sprint(":", wanted))
		if wanted > 0 && errors.Is(err, unix.EADDRINUSE) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("find free ports: %w", err)
		}
		defer listener.Close() // all are held until the last is found, so that none comes twice
		port := listener.Addr().(*net.TCPAddr).Port
		if _, before := given.LoadOrStore(port, true); !before {
			found = append(found, port)
		}
	}
	return found, nil
}

// kernelsPorts is the lowest port that the kernel gives to whoever listens at any or connects.
func kernelsPorts() (lowest int, err error) {
	said, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range")
	if err == nil {
		_, err = fmt.Sscan(string(said), &lowest)
	}
	return lowest, err
}

func (c *Cluster) server() string { return fmt.Sprintf("https://127.0.0.1:%d", c.ports.apiserver) }

// writeKubeconfig is for a client whose certificate is in pki.
func (c *Cluster) writeKubeconfig(client string) error {
	return clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"test": {Server: c.server(), CertificateAuthority: c.state.pki("ca.crt")}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{client: {ClientCertificate: c.state.pki(client + ".crt"), ClientKey: c.state.pki(client + ".key")}},
		Contexts:       map[string]*clientcmdapi.Context{"test": {Cluster: "test", AuthInfo: client}},
		CurrentContext: "test",
	}, c.state.kubeconfig(client))
}
