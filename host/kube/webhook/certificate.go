package webhook

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// Secret is the certificate that a Secret holds, as it is now: the controller changes it before it ends.
type Secret struct {
	namespace, name string
	log             *slog.Logger
	now             atomic.Pointer[tls.Certificate]
}

// Follow follows a Secret until ctx ends. It need not be there yet.
func Follow(ctx context.Context, client kubernetes.Interface, namespace, name string, log *slog.Logger) (*Secret, error) {
	s := &Secret{namespace: namespace, name: name, log: log}
	factory := informers.NewSharedInformerFactoryWithOptions(client, 10*time.Minute, informers.WithNamespace(namespace),
		informers.WithTweakListOptions(func(options *metav1.ListOptions) {
			options.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()
		}))
	informer := factory.Core().V1().Secrets().Informer()
	if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: s.take, UpdateFunc: func(_, now any) { s.take(now) }}); err != nil {
		return nil, err
	}
	factory.StartWithContext(ctx)
	return s, nil
}

// take takes a certificate in. One that cannot be used is none: the one before is shown on.
func (s *Secret) take(object any) {
	secret, ok := object.(*corev1.Secret)
	if !ok || secret.Namespace != s.namespace || secret.Name != s.name {
		return
	}
	pair, err := tls.X509KeyPair(secret.Data[corev1.TLSCertKey], secret.Data[corev1.TLSPrivateKeyKey])
	if err != nil {
		s.log.Warn("the Secret holds no certificate; the one before is shown on", "secret", s.namespace+"/"+s.name, "error", err)
		return
	}
	if before := s.now.Swap(&pair); before == nil || !before.Leaf.Equal(pair.Leaf) {
		s.log.Info("showing a certificate", "serial", pair.Leaf.SerialNumber, "until", pair.Leaf.NotAfter)
	}
}

var ends = prometheus.NewDesc("aliquot_webhook_certificate_end_timestamp_seconds", "When the certificate ends that is shown; without a value while there is none.", nil, nil)

// Describe and Collect make it a collector of when the certificate ends.
func (s *Secret) Describe(to chan<- *prometheus.Desc) { to <- ends }

func (s *Secret) Collect(to chan<- prometheus.Metric) {
	if now := s.now.Load(); now != nil {
		to <- prometheus.MustNewConstMetric(ends, prometheus.GaugeValue, float64(now.Leaf.NotAfter.Unix()))
	}
}

// Certificate is for tls.Config.
func (s *Secret) Certificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	if now := s.now.Load(); now != nil {
		return now, nil
	}
	return nil, errors.New("the Secret " + s.namespace + "/" + s.name + " holds no certificate yet; the controller makes it: see whether that runs")
}
