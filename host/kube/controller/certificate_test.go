package controller

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"log/slog"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	clocktesting "k8s.io/utils/clock/testing"
)

const webhookHost = "aliquot-webhook.aliquot.svc"

func configuration() *admissionv1.MutatingWebhookConfiguration {
	return &admissionv1.MutatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "aliquot"},
		Webhooks: []admissionv1.MutatingWebhook{{
			Name: "pods.aliquot.dev", ClientConfig: admissionv1.WebhookClientConfig{Service: &admissionv1.ServiceReference{Namespace: "aliquot", Name: "aliquot-webhook"}},
		}},
	}
}

// turning is a rotation with certificates of an hour that settles within two minutes, and its API server.
type turning struct {
	*testing.T
	client *fake.Clientset
	clock  *clocktesting.FakeClock
	*Rotation
}

func turns(t *testing.T) *turning {
	w := &turning{T: t, client: fake.NewClientset(configuration()), clock: clocktesting.NewFakeClock(time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC))}
	w.restart()
	return w
}

func (w *turning) restart() {
	w.Rotation = NewRotation(RotationConfig{
		Client: w.client, Clock: w.clock, Namespace: "aliquot", Secret: "tls", Webhook: "aliquot", Life: time.Hour, Settle: 2 * time.Minute, Log: slog.New(slog.DiscardHandler),
	})
}

// known is what a webhook shows and an API server trusts, each as it was at one moment.
type known struct {
	shown   *x509.Certificate
	trusted []byte
}

// know reads what there is, past the client that may fail.
func (w *turning) know() known {
	w.Helper()
	object, err := w.client.Tracker().Get(corev1.SchemeGroupVersion.WithResource("secrets"), "aliquot", "tls")
	if err != nil {
		w.Fatal(err)
	}
	secret := object.(*corev1.Secret)
	pair, err := tls.X509KeyPair(secret.Data[corev1.TLSCertKey], secret.Data[corev1.TLSPrivateKeyKey])
	if err != nil {
		w.Fatal(err)
	}
	if object, err = w.client.Tracker().Get(admissionv1.SchemeGroupVersion.WithResource("mutatingwebhookconfigurations"), "", "aliquot"); err != nil {
		w.Fatal(err)
	}
	return known{pair.Leaf, object.(*admissionv1.MutatingWebhookConfiguration).Webhooks[0].ClientConfig.CABundle}
}

// agree says whether an API server that trusts these takes a certificate for the host.
func agree(shown *x509.Certificate, trusted []byte, host string, at time.Time) error {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(trusted)
	_, err := shown.Verify(x509.VerifyOptions{Roots: roots, DNSName: host, CurrentTime: at})
	return err
}

// Over many lives, whatever a webhook shows and an API server trusts that is no older than it may take either to know, they agree. This holds
// also where every fourth write fails, before it was done or after, and where the controller begins anew at any time.
func TestRotation(t *testing.T) {
	for _, failing := range []bool{false, true} {
		w := turns(t)
		dice := rand.New(rand.NewPCG(1, 2))
		if err := w.see(t.Context()); err != nil {
			t.Fatal(err)
		}
		if failing {
			w.client.PrependReactor("*", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
				if action.GetVerb() == "get" || dice.IntN(4) > 0 {
					return false, nil, nil
				}
				if dice.IntN(2) == 0 {
					if _, _, err := clienttesting.ObjectReaction(w.client.Tracker())(action); err != nil {
						return true, nil, err
					}
				}
				return true, nil, errors.New("no answer")
			})
		}
		past, serials := []known{w.know()}, map[string]bool{}
		const step, lag = 30 * time.Second, 4 // together as long as it takes to settle
		for range 3 * int(time.Hour/step) {
			w.clock.Step(step)
			if failing && dice.IntN(10) == 0 {
				w.restart()
			}
			if err := w.see(t.Context()); err != nil && !failing {
				t.Fatal(err)
			}
			past = append(past, w.know())
			recent := past[max(0, len(past)-lag):]
			serials[recent[len(recent)-1].shown.SerialNumber.String()] = true
			tried := map[string]bool{}
			for i, server := range recent {
				for j, client := range recent {
					pair := server.shown.SerialNumber.String() + string(client.trusted)
					if tried[pair] {
						continue
					}
					tried[pair] = true
					if err := agree(server.shown, client.trusted, webhookHost, w.clock.Now()); err != nil {
						t.Fatalf("failing %v, at %v: what was shown %d steps ago is not taken by what was trusted %d steps ago: %v", failing, w.clock.Now(), len(recent)-1-i, len(recent)-1-j, err)
					}
				}
			}
		}
		// A third of an hour before its end another takes over: 3 hours are 4 or 5 of these.
		if len(serials) < 4 || len(serials) > 6 {
			t.Errorf("failing %v: in 3 hours there were %d certificates of an hour, want 4 to 6", failing, len(serials))
		}
		if n := strings.Count(string(past[len(past)-1].trusted), "BEGIN"); n > 3 {
			t.Errorf("failing %v: %d authorities are trusted: those that have ended are to go", failing, n)
		}
	}
}

// A certificate that cannot be used is made anew at once: of other hosts, ended, or damaged.
func TestMadeAnew(t *testing.T) {
	for name, spoil := range map[string]func(w *turning) (host string){
		"another host": func(w *turning) string {
			moved, url := configuration(), "https://127.0.0.1:8443/pods"
			moved.Webhooks[0].ClientConfig = admissionv1.WebhookClientConfig{URL: &url, CABundle: w.know().trusted}
			if err := w.client.Tracker().Update(admissionv1.SchemeGroupVersion.WithResource("mutatingwebhookconfigurations"), moved, ""); err != nil {
				w.Fatal(err)
			}
			return "127.0.0.1"
		},
		"ended": func(w *turning) string {
			w.clock.Step(2 * time.Hour)
			return webhookHost
		},
		"damaged": func(w *turning) string {
			secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "aliquot", Name: "tls"}, Data: map[string][]byte{"tls.crt": []byte("nonsense"), "next.crt": []byte("more")}}
			if err := w.client.Tracker().Update(corev1.SchemeGroupVersion.WithResource("secrets"), secret, "aliquot"); err != nil {
				w.Fatal(err)
			}
			return webhookHost
		},
		"gone": func(w *turning) string {
			if err := w.client.Tracker().Delete(corev1.SchemeGroupVersion.WithResource("secrets"), "aliquot", "tls"); err != nil {
				w.Fatal(err)
			}
			return webhookHost
		},
	} {
		w := turns(t)
		if err := w.see(t.Context()); err != nil {
			t.Fatal(err)
		}
		host := spoil(w)
		if err := w.see(t.Context()); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		now := w.know()
		if err := agree(now.shown, now.trusted, host, w.clock.Now()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		before := now.shown
		if err := w.see(t.Context()); err != nil || !w.know().shown.Equal(before) {
			t.Errorf("%s: nothing has changed, and there is another certificate, %v", name, err)
		}
	}
}

// An authority signs one certificate and nothing after: its key is nowhere.
func TestAuthorityIsThrownAway(t *testing.T) {
	w := turns(t)
	if err := w.see(t.Context()); err != nil {
		t.Fatal(err)
	}
	secret, err := w.client.CoreV1().Secrets("aliquot").Get(t.Context(), "tls", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for key, value := range secret.Data {
		if key == corev1.TLSPrivateKeyKey {
			continue
		}
		if strings.Contains(string(value), "PRIVATE") {
			t.Errorf("%s holds a private key", key)
		}
	}
	if _, err := tls.X509KeyPair(secret.Data["ca.crt"], secret.Data[corev1.TLSPrivateKeyKey]); err == nil {
		t.Error("the authority has the server's key")
	}
}

// Without a webhook nothing is certified.
func TestNoWebhook(t *testing.T) {
	w := turns(t)
	w.Webhook = "another"
	if err := w.see(t.Context()); err != nil {
		t.Error(err)
	}
	if made, err := w.client.CoreV1().Secrets("aliquot").List(t.Context(), metav1.ListOptions{}); err != nil || len(made.Items) > 0 {
		t.Errorf("there is %v, %v", made, err)
	}
}
