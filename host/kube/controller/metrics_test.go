package controller

import (
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	clocktesting "k8s.io/utils/clock/testing"
)

// values are those of all metrics by name, and by label where they have one.
func values(t *testing.T, m *Metrics) map[string]float64 {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(m)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]float64{}
	for _, family := range families {
		for _, one := range family.GetMetric() {
			name := family.GetName()
			for _, label := range one.GetLabel() {
				name += "/" + label.GetValue()
			}
			all[name] = one.GetGauge().GetValue() + one.GetCounter().GetValue()
		}
	}
	return all
}

// When the certificate ends is known once there is one, and each attempt that fails is counted.
func TestMetricsOfCertificate(t *testing.T) {
	counted, clock, fails := NewMetrics(), clocktesting.NewFakeClock(time.Unix(1_700_000_000, 0)), true
	client := fake.NewClientset(configuration())
	client.PrependReactor("create", "secrets", func(clienttesting.Action) (bool, runtime.Object, error) { return fails, nil, errors.New("no answer") })
	r := NewRotation(RotationConfig{
		Client: client, Clock: clock, Namespace: "aliquot", Secret: "tls", Webhook: configuration().Name, Life: 90 * 24 * time.Hour, Settle: time.Minute,
		Metrics: counted, Log: slog.New(slog.DiscardHandler),
	})
	const end = "aliquot_controller_certificate_end_timestamp_seconds"
	if err := r.see(t.Context()); err == nil {
		t.Error("it says nothing of what failed")
	}
	if at, is := values(t, counted)[end]; is {
		t.Errorf("a certificate that nobody keeps ends at %v", at)
	}
	fails = false
	if err := r.see(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := values(t, counted)[end]; got != 1_700_000_000+90*86400 {
		t.Errorf("it ends at %f", got)
	}
	counted.Leads(true)
	if got := values(t, counted)["aliquot_controller_leading"]; got != 1 {
		t.Errorf("leading is %v", got)
	}
}
