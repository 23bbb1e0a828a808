package controller

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/url"
	"slices"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"

	"github.com/aliquot-dev/aliquot/internal/point"
)

// RotationConfig says what Rotation works with.
type RotationConfig struct {
	Client            kubernetes.Interface
	Clock             clock.Clock
	Namespace, Secret string        // where the certificate is
	Webhook           string        // the MutatingWebhookConfiguration whose clients are to trust it
	Life              time.Duration // of a certificate
	Settle            time.Duration // until all API servers know of what they are to trust
	Metrics           *Metrics      // nil: nothing is counted
	Log               *slog.Logger
}

// Rotation keeps the webhook's certificate: it makes one for the hosts by which the API server finds the webhook, has the API server trust
// it, and makes the next in time.
type Rotation struct {
	RotationConfig
	trusted []byte    // the next authority, as it was found to be trusted
	since   time.Time // when it first was
	missing bool      // there was no webhook at the last look
}

// NewRotation makes one, which does nothing before it runs.
func NewRotation(config RotationConfig) *Rotation { return &Rotation{RotationConfig: config} }

// The keys of the Secret, beside those of every TLS secret for what is shown now.
const (
	keyAuthority       = "ca.crt"
	keyNextAuthority   = "next-ca.crt"
	keyNextCertificate = "next.crt"
	keyNextKey         = "next.key"
	keyBefore          = "before-ca.crt"
)

// Run works until ctx ends.
func (r *Rotation) Run(ctx context.Context) error {
	for {
		wait := min(time.Minute, r.Life/50)
		if err := r.see(ctx); err != nil && ctx.Err() == nil {
			r.Metrics.failed(ofCertificate)
			r.Log.Warn("the webhook's certificate is not as it should be; trying again", "error", err)
			wait = min(wait, 5*time.Second)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-r.Clock.After(wait):
		}
	}
}

// see takes one step, where one is to be taken.
func (r *Rotation) see(ctx context.Context) error {
	config, err := r.Client.AdmissionregistrationV1().MutatingWebhookConfigurations().Get(ctx, r.Webhook, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		if !r.missing {
			r.Log.Info("there is no webhook to make a certificate for", "webhook", r.Webhook)
		}
		r.missing = true
		return nil
	}
	r.missing = false
	if err != nil {
		return fmt.Errorf("find out by which name API servers find the webhook: %w", err)
	}
	hosts, err := hostsOf(config)
	if err != nil {
		return err
	}
	secret, err := r.Client.CoreV1().Secrets(r.Namespace).Get(ctx, r.Secret, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	made := err != nil
	if made {
		secret = &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: r.Namespace, Name: r.Secret}, Type: corev1.SecretTypeTLS}
	}
	now := r.Clock.Now()
	have := holdingOf(secret)
	r.note(config, have.next.authority, now)
	turned, err := have.turn(hosts, now, r.Life, func(authority []byte) bool {
		return bytes.Equal(authority, r.trusted) && now.Sub(r.since) >= r.Settle
	})
	if err != nil {
		return err
	}
	if err := r.keep(ctx, secret, made, turned); err != nil {
		return fmt.Errorf("keep the certificate in Secret %s/%s: %w", r.Namespace, r.Secret, err)
	}
	r.Metrics.shown(turned.current)
	point.Here("kube.certificate.kept")
	if err := r.haveTrusted(ctx, config, turned.trust()); err != nil {
		return fmt.Errorf("have API servers trust the webhook: %w", err)
	}
	return nil
}

// note remembers since when the next authority is trusted.
func (r *Rotation) note(config *admissionv1.MutatingWebhookConfiguration, next []byte, now time.Time) {
	everywhere := len(next) > 0 && !slices.ContainsFunc(config.Webhooks, func(w admissionv1.MutatingWebhook) bool {
		return !contains(w.ClientConfig.CABundle, next)
	})
	switch {
	case !everywhere:
		r.trusted = nil
	case !bytes.Equal(r.trusted, next):
		r.trusted, r.since = next, now
	}
}

// hostsOf are the names and addresses by which API servers find the webhook, each once.
func hostsOf(config *admissionv1.MutatingWebhookConfiguration) ([]string, error) {
	var hosts []string
	for _, w := range config.Webhooks {
		switch c := w.ClientConfig; {
		case c.Service != nil:
			hosts = append(hosts, c.Service.Name+"."+c.Service.Namespace+".svc")
		case c.URL != nil:
			at, err := url.Parse(*c.URL)
			if err != nil {
				return nil, fmt.Errorf("read where webhook %s is: %w", w.Name, err)
			}
			hosts = append(hosts, at.Hostname())
		}
	}
	if len(hosts) == 0 {
		return nil, fmt.Errorf("the MutatingWebhookConfiguration %s names no webhook; install it again", config.Name)
	}
	slices.Sort(hosts)
	return slices.Compact(hosts), nil
}

func holdingOf(secret *corev1.Secret) holding {
	data := secret.Data
	return holding{
		current: identity{data[keyAuthority], data[corev1.TLSCertKey], data[corev1.TLSPrivateKeyKey]},
		next:    identity{data[keyNextAuthority], data[keyNextCertificate], data[keyNextKey]},
		before:  data[keyBefore],
	}
}

// keep writes what is held into a Secret, or into one that is made, where it is not so already. It fails where another has written meanwhile.
func (r *Rotation) keep(ctx context.Context, secret *corev1.Secret, made bool, h holding) error {
	data := map[string][]byte{}
	for key, value := range map[string][]byte{
		keyAuthority: h.current.authority, corev1.TLSCertKey: h.current.certificate, corev1.TLSPrivateKeyKey: h.current.key,
		keyNextAuthority: h.next.authority, keyNextCertificate: h.next.certificate, keyNextKey: h.next.key, keyBefore: h.before,
	} {
		if len(value) > 0 {
			data[key] = value
		}
	}
	same := len(data) == len(secret.Data)
	for key, value := range data {
		same = same && bytes.Equal(secret.Data[key], value)
	}
	if same {
		return nil
	}
	written := secret.DeepCopy()
	written.Data = data
	var err error
	if made {
		_, err = r.Client.CoreV1().Secrets(r.Namespace).Create(ctx, written, metav1.CreateOptions{})
	} else {
		_, err = r.Client.CoreV1().Secrets(r.Namespace).Update(ctx, written, metav1.UpdateOptions{})
	}
	if err == nil {
		r.Log.Info("the webhook's certificate was turned", "staged", len(h.next.certificate) > 0)
	}
	return err
}

// haveTrusted has the API servers trust a bundle, where they do not already.
func (r *Rotation) haveTrusted(ctx context.Context, config *admissionv1.MutatingWebhookConfiguration, bundle []byte) error {
	type operation struct {
		Op    string `json:"op"`
		Path  string `json:"path"`
		Value any    `json:"value"`
	}
	var patch []operation
	for i, w := range config.Webhooks {
		if !bytes.Equal(w.ClientConfig.CABundle, bundle) {
			// Another's list may have come meanwhile: the name is checked with it.
			patch = append(patch, operation{"test", fmt.Sprintf("/webhooks/%d/name", i), w.Name}, operation{"add", fmt.Sprintf("/webhooks/%d/clientConfig/caBundle", i), bundle})
		}
	}
	if len(patch) == 0 {
		return nil
	}
	text, err := json.Marshal(patch)
	if err != nil {
		return err
	}
	_, err = r.Client.AdmissionregistrationV1().MutatingWebhookConfigurations().Patch(ctx, config.Name, types.JSONPatchType, text, metav1.PatchOptions{FieldManager: "aliquot-controller"})
	if err == nil {
		r.Log.Info("API servers were told whom to trust", "webhook", config.Name, "authorities", strings.Count(string(bundle), "BEGIN"))
	}
	return err
}
