package webhook

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
)

// secret holds a certificate for 127.0.0.1 with a serial number.
func secret(t *testing.T, serial int64) *corev1.Secret {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(serial), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "aliquot", Name: "tls"}, Data: map[string][]byte{
		corev1.TLSCertKey:       pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate}),
		corev1.TLSPrivateKeyKey: pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: raw}),
	}}
}

// shown asks over TLS whether the server is ready, trusting what a Secret holds.
func shown(at net.Addr, trusted *corev1.Secret) error {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(trusted.Data[corev1.TLSCertKey])
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}}}
	answer, err := client.Get("https://" + at.String() + "/readyz")
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if said, err := io.ReadAll(answer.Body); err != nil || answer.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s, %v", answer.Status, said, err)
	}
	return nil
}

// It shows whichever certificate the Secret holds, without being started anew, and the last good one while that holds none.
func TestServe(t *testing.T) {
	client := fake.NewClientset()
	ctx, stop := context.WithCancel(context.Background())
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	certificate, err := Follow(ctx, client, "aliquot", "tls", log)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- New(Config{Client: client, Log: log}).Serve(ctx, listener, certificate) }()
	first, second := secret(t, 1), secret(t, 2)
	if err := shown(listener.Addr(), first); err == nil {
		t.Error("it is ready without a certificate")
	}
	until := func(what string, trusted *corev1.Secret) {
		t.Helper()
		look := time.NewTicker(5 * time.Millisecond)
		defer look.Stop()
		within := time.After(time.Minute)
		for {
			err := shown(listener.Addr(), trusted)
			if err == nil {
				return
			}
			select {
			case <-within:
				t.Fatalf("%s is not shown: %v", what, err)
			case <-look.C:
			}
		}
	}
	secrets := client.CoreV1().Secrets("aliquot")
	if _, err := secrets.Create(ctx, first, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	until("the first", first)
	if _, err := secrets.Update(ctx, second, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	until("the second", second)
	certificate.take(&corev1.Secret{ObjectMeta: second.ObjectMeta, Data: map[string][]byte{corev1.TLSCertKey: []byte("nonsense")}})
	until("the second, still", second)
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// What it answers is counted: by what became of pods, and by why they were refused.
func TestMetrics(t *testing.T) {
	w := begin(t)
	w.ask(pod())
	w.ask(pod(quarter))
	w.ask(pod(quarter, on("node1")))
	w.ask(pod(quarter, limited(wholes, "1")))
	w.ask(pod(annotated("gpu", "a quarter", "memory", "4Gi")))
	w.ask(pod(quarter, annotated("queue", "short"), priority(51)))
	answer, registry := httptest.NewRecorder(), prometheus.NewRegistry()
	registry.MustRegister(w.webhook.Metrics())
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	for _, want := range []string{
		`aliquot_webhook_reviews_total{result="unchanged"} 1`, `aliquot_webhook_reviews_total{result="changed"} 1`, `aliquot_webhook_reviews_total{result="refused"} 4`,
		`aliquot_webhook_reviews_total{result="failed"} 0`, `aliquot_webhook_refused_total{reason="node"} 1`, `aliquot_webhook_refused_total{reason="ways"} 1`,
		`aliquot_webhook_refused_total{reason="annotations"} 1`, `aliquot_webhook_refused_total{reason="queue"} 1`, `aliquot_webhook_refused_total{reason="limits"} 0`,
		`aliquot_webhook_review_seconds_count 6`,
	} {
		if said := answer.Body.String(); !strings.Contains(said, want+"\n") {
			t.Errorf("the metrics lack %q:\n%s", want, said)
		}
	}
}

// When the certificate ends that is shown is told, and nothing while there is none.
func TestCertificateEnds(t *testing.T) {
	s := &Secret{namespace: "aliquot", name: "tls", log: slog.New(slog.NewTextHandler(t.Output(), nil))}
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(s)
	if told, err := registry.Gather(); err != nil || len(told) > 0 {
		t.Errorf("without a certificate it tells %v, %v", told, err)
	}
	s.take(secret(t, 1))
	told, err := registry.Gather()
	if err != nil || len(told) != 1 || int64(told[0].GetMetric()[0].GetGauge().GetValue()) != s.now.Load().Leaf.NotAfter.Unix() {
		t.Errorf("it tells %v, %v", told, err)
	}
}
