package testcluster

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// within is how long one part may take until it is ready. It is long because two processors may be busy with much else.
const within = 5 * time.Minute

// startStore starts etcd and the API server.
func (c *Cluster) startStore(ctx context.Context) error {
	if err := c.startEtcd(ctx); err != nil {
		return err
	}
	return c.startServer(ctx)
}

// runControllers starts the controller manager.
func (c *Cluster) runControllers(context.Context) error {
	_, err := c.Start("kube-controller-manager", c.roomy(), c.programs["kube-controller-manager"],
		"--kubeconfig="+c.state.kubeconfig("controller-manager"), "--authentication-kubeconfig="+c.state.kubeconfig("controller-manager"),
		"--authorization-kubeconfig="+c.state.kubeconfig("controller-manager"), "--leader-elect=false", "--use-service-account-credentials",
		"--service-account-private-key-file="+c.state.pki("accounts.key"), "--root-ca-file="+c.state.pki("ca.crt"),
		"--bind-address=127.0.0.1", fmt.Sprintf("--secure-port=%d", c.ports.controllers))
	return err
}

// runScheduler starts the stock scheduler.
func (c *Cluster) runScheduler(context.Context) error {
	_, err := c.Start("kube-scheduler", c.roomy(), c.programs["kube-scheduler"],
		"--kubeconfig="+c.state.kubeconfig("scheduler"), "--authentication-kubeconfig="+c.state.kubeconfig("scheduler"),
		"--authorization-kubeconfig="+c.state.kubeconfig("scheduler"), "--leader-elect=false",
		"--bind-address=127.0.0.1", fmt.Sprintf("--secure-port=%d", c.ports.scheduler))
	return err
}

// startEtcd starts etcd, which need not survive the machine's end and so never waits for the disk.
func (c *Cluster) startEtcd(ctx context.Context) error {
	clients, peers := fmt.Sprintf("https://127.0.0.1:%d", c.ports.etcd), fmt.Sprintf("https://127.0.0.1:%d", c.ports.etcdPeer)
	certificate, key, ca := c.state.pki("etcd.crt"), c.state.pki("etcd.key"), c.state.pki("ca.crt")
	etcd, err := c.Start("etcd", c.roomy(), c.programs["etcd"], "--name=test", "--data-dir="+c.state.path("etcd"), "--unsafe-no-fsync",
		"--listen-client-urls="+clients, "--advertise-client-urls="+clients, "--cert-file="+certificate, "--key-file="+key,
		"--client-cert-auth", "--trusted-ca-file="+ca,
		"--listen-peer-urls="+peers, "--initial-advertise-peer-urls="+peers, "--initial-cluster=test="+peers,
		"--peer-cert-file="+certificate, "--peer-key-file="+key, "--peer-client-cert-auth", "--peer-trusted-ca-file="+ca)
	if err != nil {
		return err
	}
	client, err := c.secured("etcd")
	if err != nil {
		return err
	}
	defer client.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	return etcd.ready(ctx, func(ctx context.Context) error { return get(ctx, client, clients+"/readyz") })
}

// startServer makes the cluster's client and starts the API server.
func (c *Cluster) startServer(ctx context.Context) (err error) {
	if c.rest, err = c.RESTOf(c.Kubeconfig()); err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	if c.client, err = kubernetes.NewForConfig(c.rest); err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	return c.runServer(ctx)
}

// RESTOf is how one with a kubeconfig connects. A test waits for the cluster, not for its own client; and with a dialer of its own this does not share
// connections and certificates, which client-go keeps by the names of their files, with an earlier cluster's.
func (c *Cluster) RESTOf(kubeconfig string) (*rest.Config, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, err
	}
	config.QPS, config.Burst = -1, 0
	config.Dial = (&net.Dialer{}).DialContext
	return config, nil
}

// runServer starts the API server, and waits until it answers. Those of its clients that had ended without it are there again then.
func (c *Cluster) runServer(ctx context.Context) error {
	bind := net.IPv4zero // pods reach it at the node's address for them, which is not there yet
	if c.control {
		bind = net.IPv4(127, 0, 0, 1)
	}
	args := []string{
		fmt.Sprintf("--etcd-servers=https://127.0.0.1:%d", c.ports.etcd), "--etcd-cafile=" + c.state.pki("ca.crt"),
		"--etcd-certfile=" + c.state.pki("etcd.crt"), "--etcd-keyfile=" + c.state.pki("etcd.key"),
		"--bind-address=" + bind.String(), fmt.Sprintf("--secure-port=%d", c.ports.apiserver), "--endpoint-reconciler-type=none",
		"--client-ca-file=" + c.state.pki("ca.crt"), "--tls-cert-file=" + c.state.pki("apiserver.crt"), "--tls-private-key-file=" + c.state.pki("apiserver.key"),
		"--service-account-issuer=https://kubernetes.default.svc", "--service-account-key-file=" + c.state.pki("accounts.key"),
		"--service-account-signing-key-file=" + c.state.pki("accounts.key"), "--service-cluster-ip-range=10.96.0.0/16",
		"--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction", "--allow-privileged",
		"--enable-aggregator-routing", // webhooks' services are found by their pods: there is no kube-proxy
		"--kubelet-certificate-authority=" + c.state.pki("ca.crt"), "--kubelet-client-certificate=" + c.state.pki("apiserver-kubelet.crt"),
		"--kubelet-client-key=" + c.state.pki("apiserver-kubelet.key"), "--kubelet-preferred-address-types=InternalIP",
	}
	if c.control {
		args = append(args, "--disable-admission-plugins=TaintNodesByCondition")
	}
	args = append(args, c.more...)
	noted, err := c.audit.options(c.state)
	if err != nil {
		return err
	}
	args = append(args, noted...)
	server, err := c.Start("kube-apiserver", c.roomy(), c.programs["kube-apiserver"], args...)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	err = server.ready(ctx, func(ctx context.Context) error {
		said, err := c.client.Discovery().RESTClient().Get().AbsPath("/readyz").DoRaw(ctx)
		if err != nil && len(said) > 0 {
			return fmt.Errorf("%w: %s", err, said)
		}
		return err
	})
	if err != nil {
		return err
	}
	return c.revive(ctx)
}

// secured is a client with one of the cluster's certificates, that trusts them.
func (c *Cluster) secured(who string) (*http.Client, error) {
	own, err := tls.LoadX509KeyPair(c.state.pki(who+".crt"), c.state.pki(who+".key"))
	if err != nil {
		return nil, err
	}
	ca, err := os.ReadFile(c.state.pki("ca.crt"))
	if err != nil {
		return nil, err
	}
	trusted := x509.NewCertPool()
	if !trusted.AppendCertsFromPEM(ca) {
		return nil, errors.New("ca.crt holds no certificate")
	}
	return &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{Certificates: []tls.Certificate{own}, RootCAs: trusted, MinVersion: tls.VersionTLS12}}}, nil
}

// get asks for an address, which must answer with 200.
func get(ctx context.Context, client *http.Client, url string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	said, err := io.ReadAll(io.LimitReader(response.Body, 4096))
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", response.Status, strings.TrimSpace(string(said)))
	}
	return err
}
