package controller

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"slices"
	"time"
)

// skew is by how much clocks of machines may differ: certificates hold for so long before they are made.
const skew = 5 * time.Minute

// identity is a certificate with its key, and that of the authority which signed it and nothing else: its key is thrown away. All PEM.
type identity struct{ authority, certificate, key []byte }

// issue makes an identity for these hosts, names or addresses, that holds for so long.
func issue(hosts []string, now time.Time, life time.Duration) (identity, error) {
	authority, err := newTemplate(now, life)
	if err != nil {
		return identity{}, err
	}
	authority.IsCA, authority.MaxPathLenZero, authority.KeyUsage = true, true, x509.KeyUsageCertSign
	signer, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return identity{}, err
	}
	signed, err := x509.CreateCertificate(rand.Reader, authority, authority, signer.Public(), signer)
	if err != nil {
		return identity{}, err
	}
	if authority, err = x509.ParseCertificate(signed); err != nil {
		return identity{}, err
	}
	own, err := newTemplate(now, life)
	if err != nil {
		return identity{}, err
	}
	own.KeyUsage, own.ExtKeyUsage = x509.KeyUsageDigitalSignature, []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	for _, host := range hosts {
		if address := net.ParseIP(host); address != nil {
			own.IPAddresses = append(own.IPAddresses, address)
		} else {
			own.DNSNames = append(own.DNSNames, host)
		}
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return identity{}, err
	}
	certificate, err := x509.CreateCertificate(rand.Reader, own, authority, key.Public(), signer)
	if err != nil {
		return identity{}, err
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	return identity{block("CERTIFICATE", signed), block("CERTIFICATE", certificate), block("PRIVATE KEY", secret)}, err
}

// newTemplate is what all certificates here have. Authorities differ in name, so that one is never taken for another.
func newTemplate(now time.Time, life time.Duration) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, err
	}
	return &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: fmt.Sprintf("aliquot-webhook-%x", serial)}, BasicConstraintsValid: true,
		NotBefore: now.Add(-skew), NotAfter: now.Add(life),
	}, nil
}

func block(kind string, content []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: content})
}

// serves says whether an identity can be shown at a moment by a server with these hosts, and from when until when.
func (i identity) serves(hosts []string, now time.Time) (begin, end time.Time, ok bool) {
	pair, err := tls.X509KeyPair(i.certificate, i.key)
	trusted := x509.NewCertPool()
	if err != nil || !trusted.AppendCertsFromPEM(i.authority) {
		return begin, end, false
	}
	for _, host := range hosts {
		if _, err := pair.Leaf.Verify(x509.VerifyOptions{Roots: trusted, DNSName: host, CurrentTime: now}); err != nil {
			return begin, end, false
		}
	}
	return pair.Leaf.NotBefore.Add(skew), pair.Leaf.NotAfter, true
}

// holding is what the webhook's Secret holds: what the webhook shows, what it is to show next, and the authorities of what it showed before.
type holding struct {
	current, next identity
	before        []byte
}

// trust is what API servers must trust, whichever of these a webhook shows.
func (h holding) trust() []byte {
	return slices.Concat(h.current.authority, h.next.authority, h.before)
}

// turn is one step of a rotation. A next identity is made when a third of the current one's life is left, and becomes the current one once all
// API servers are sure to trust it: proven says whether they are. What a webhook may still show stays trusted until it ends by itself. So
// whatever a webhook or an API server knows that is no older than the time it takes to prove, they agree. What cannot be used is made anew.
func (h holding) turn(hosts []string, now time.Time, life time.Duration, proven func(authority []byte) bool) (holding, error) {
	var err error
	h.before = living(h.before, now)
	begin, end, ok := h.current.serves(hosts, now)
	_, _, staged := h.next.serves(hosts, now)
	switch {
	case !ok:
		h.before = living(slices.Concat(h.current.authority, h.before), now)
		h.next = identity{}
		h.current, err = issue(hosts, now, life)
	case staged && proven(h.next.authority):
		h.before = slices.Concat(h.current.authority, h.before)
		h.current, h.next = h.next, identity{}
	case !staged && now.After(end.Add(-end.Sub(begin)/3)):
		h.next, err = issue(hosts, now, life)
	case !staged:
		h.next = identity{}
	}
	return h, err
}

// living are those of some certificates that have not ended.
func living(bundle []byte, now time.Time) []byte {
	var kept []byte
	for {
		var one *pem.Block
		if one, bundle = pem.Decode(bundle); one == nil {
			return kept
		}
		if certificate, err := x509.ParseCertificate(one.Bytes); err == nil && now.Before(certificate.NotAfter) {
			kept = append(kept, pem.EncodeToMemory(one)...)
		}
	}
}

// contains says whether a bundle has an authority in it.
func contains(bundle, authority []byte) bool {
	return len(authority) > 0 && bytes.Contains(bundle, authority)
}
