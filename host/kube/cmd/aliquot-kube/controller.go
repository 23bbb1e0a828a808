package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"

	"github.com/aliquot-dev/aliquot/host/kube/controller"
)

// control runs the controller until it is told to end, or another has its place.
func control(ctx context.Context, args []string) error {
	options := flag.NewFlagSet("aliquot-kube controller", flag.ContinueOnError)
	kubeconfig := options.String("kubeconfig", "", "how to reach the API server; empty: as a pod does")
	namespace := options.String("namespace", "aliquot", "where its Lease and the webhook's Secret are")
	secret := options.String("secret", "aliquot-webhook-tls", "the Secret that it keeps the webhook's certificate in")
	webhook := options.String("webhook", "aliquot", "the MutatingWebhookConfiguration that it has API servers trust the webhook by")
	life := options.Duration("certificate-life", 90*24*time.Hour, "how long a certificate of the webhook holds; the next takes over when a third of that is left")
	elect := options.Bool("leader-elect", true, "work only while holding the Lease; of several one does")
	metrics := options.String("metrics", "", "address at which it serves metrics (/metrics, for Prometheus) and whether it is ready (/readyz) and works (/livez), as :9467; empty: none")
	keep := options.Duration("keep-templates", 10*time.Minute, "how long a template stays that no pod names any more")
	if err := parse(options, args); err != nil {
		return err
	}
	if *life < time.Minute || *keep < 0 {
		return fmt.Errorf("--certificate-life %v --keep-templates %v: give the certificate a minute at least, and templates 0s or more", *life, *keep)
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	config, err := connect(*kubeconfig)
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	counted := controller.NewMetrics()
	seen := newMonitor(false, log)
	defer seen.Close()
	seen.add(counted)
	seen.ready.Store(true) // one that does not lead takes over at once
	if err := seen.serve(*metrics); err != nil {
		return err
	}
	broadcaster := record.NewBroadcaster(record.WithContext(ctx))
	defer broadcaster.Shutdown()
	broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: client.CoreV1().Events("")})
	templates, err := controller.NewTemplates(controller.TemplatesConfig{
		Client: client, Events: broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: "aliquot-controller"}), Clock: clock.RealClock{}, Keep: *keep, Metrics: counted, Log: log,
	})
	if err != nil {
		return err
	}
	rotation := controller.NewRotation(controller.RotationConfig{
		Client: client, Clock: clock.RealClock{}, Namespace: *namespace, Secret: *secret, Webhook: *webhook, Life: *life, Settle: min(time.Minute, *life/10), Metrics: counted, Log: log,
	})
	objects, err := dynamic.NewForConfig(config)
	if err != nil {
		return err
	}
	conditions, err := controller.NewConditions(controller.ConditionsConfig{Client: objects, Clock: clock.RealClock{}, Metrics: counted, Log: log})
	if err != nil {
		return err
	}
	leads := func() {
		counted.Leads(true)
		log.Info("controlling", "namespace", *namespace)
	}
	works := []func(context.Context) error{templates.Run, rotation.Run, conditions.Run}
	if !*elect {
		leads()
		return together(ctx, works)
	}
	return alone(ctx, client, *namespace, seen.renews(), leads, works)
}

// together does these until ctx or one of them ends, which ends the others.
func together(ctx context.Context, works []func(context.Context) error) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	failed := make([]error, len(works))
	var all sync.WaitGroup
	for i, work := range works {
		all.Go(func() {
			failed[i] = work(ctx)
			stop()
		})
	}
	all.Wait()
	return errors.Join(failed...)
}

// alone does these until ctx ends, once no other controller does. It ends with an error where another has taken over, or one of these ends.
func alone(ctx context.Context, client kubernetes.Interface, namespace string, renews *leaderelection.HealthzAdaptor, begins func(), works []func(context.Context) error) error {
	name, err := os.Hostname()
	if err != nil {
		return err
	}
	led, lost := make(chan context.Context, 1), make(chan struct{})
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: &resourcelock.LeaseLock{
			LeaseMeta: metav1.ObjectMeta{Namespace: namespace, Name: "aliquot-controller"}, Client: client.CoordinationV1(),
			LockConfig: resourcelock.ResourceLockConfig{Identity: name + "_" + string(uuid.NewUUID())},
		},
		LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 2 * time.Second, ReleaseOnCancel: true, WatchDog: renews,
		Callbacks: leaderelection.LeaderCallbacks{OnStartedLeading: func(ctx context.Context) { led <- ctx }, OnStoppedLeading: func() {}},
	})
	if err != nil {
		return err
	}
	electing, stop := context.WithCancel(ctx)
	defer stop()
	go func() {
		elector.Run(electing)
		close(lost)
	}()
	select {
	case <-lost:
	case leading := <-led: // ends when it leads no more
		begins()
		err = together(leading, works)
	}
	stop()
	<-lost
	if err != nil || ctx.Err() != nil {
		return err
	}
	return errors.New("another controller has taken over, or the API server did not answer in time; start it again")
}
