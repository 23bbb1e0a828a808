package testcluster

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// certified is how long certificates hold: longer than any test runs.
const certified = 7 * 24 * time.Hour

// authority signs all certificates of one cluster.
type authority struct {
	folder      string
	certificate *x509.Certificate
	key         crypto.Signer
}

// identity is whom a certificate is of: a user of the API server by name and groups, or a server by its names and addresses.
type identity struct {
	file      string // NAME.crt and NAME.key
	name      string
	groups    []string
	addresses []net.IP
	hosts     []string
}

// newAuthority makes the folder's ca.crt. Its key stays in memory.
func newAuthority(folder string) (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test cluster"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(certified), KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	certificate, err := x509.ParseCertificate(raw)
	if err != nil {
		return nil, err
	}
	a := &authority{folder: folder, certificate: certificate, key: key}
	return a, writePEM(a.path("ca.crt"), "CERTIFICATE", raw, 0o644)
}

func (a *authority) path(name string) string { return filepath.Join(a.folder, name) }

// sign makes a certificate that serves at both ends of a connection, and its key.
func (a *authority) sign(who identity) error {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 100))
	if err != nil {
		return err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	raw, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: who.name, Organization: who.groups},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(certified), KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}, IPAddresses: who.addresses, DNSNames: who.hosts,
	}, a.certificate, key.Public(), a.key)
	if err != nil {
		return err
	}
	return errors.Join(writePEM(a.path(who.file+".crt"), "CERTIFICATE", raw, 0o644), writeKey(a.path(who.file+".key"), key))
}

func writeKey(path string, key *ecdsa.PrivateKey) error {
	raw, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return err
	}
	return writePEM(path, "EC PRIVATE KEY", raw, 0o600)
}

func writePEM(path, kind string, content []byte, mode os.FileMode) error {
	return os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: content}), mode)
}

// certify makes the certificates of all parts, the key of service accounts, and a kubeconfig for each client.
func (c *Cluster) certify() error {
	a, err := newAuthority(c.state.path("pki"))
	if err != nil {
		return fmt.Errorf("make certificates: %w", err)
	}
	c.signs = a
	everywhere, err := addresses()
	if err != nil {
		return fmt.Errorf("make certificates: %w", err)
	}
	service := net.ParseIP("10.96.0.1")
	for _, who := range []identity{
		{file: "etcd", name: "etcd", addresses: local},
		{file: "apiserver", name: "kube-apiserver", addresses: append([]net.IP{service, c.gateway()}, local...), hosts: []string{"kubernetes", "kubernetes.default.svc"}},
		{file: "apiserver-kubelet", name: "kube-apiserver-kubelet", groups: []string{"system:masters"}},
		{file: "kubelet-server", name: NodeName, addresses: everywhere, hosts: []string{NodeName}},
		{file: "admin", name: "admin", groups: []string{"system:masters"}},
		{file: "controller-manager", name: "system:kube-controller-manager"},
		{file: "scheduler", name: "system:kube-scheduler"},
		{file: "kubelet", name: "system:node:" + NodeName, groups: []string{"system:nodes"}},
	} {
		if err := a.sign(who); err != nil {
			return fmt.Errorf("make the certificate of %s: %w", who.file, err)
		}
	}
	accounts, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fmt.Errorf("make the key of service accounts: %w", err)
	}
	if err := writeKey(a.path("accounts.key"), accounts); err != nil {
		return fmt.Errorf("make the key of service accounts: %w", err)
	}
	for _, client := range []string{"admin", "controller-manager", "scheduler", "kubelet"} {
		if err := c.writeKubeconfig(client); err != nil {
			return fmt.Errorf("write the kubeconfig of %s: %w", client, err)
		}
	}
	return nil
}

// local are the addresses of servers that are for this machine alone.
var local = []net.IP{net.IPv4(127, 0, 0, 1)}

// addresses are all of this machine's.
func addresses() ([]net.IP, error) {
	found, err := net.InterfaceAddrs()
	if err != nil {
		return nil, err
	}
	var all []net.IP
	for _, one := range found {
		if network, ok := one.(*net.IPNet); ok {
			all = append(all, network.IP)
		}
	}
	return all, nil
}
