package main

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"os"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/aliquot-dev/aliquot/host/kube/api/v1alpha1"
	"github.com/aliquot-dev/aliquot/host/kube/webhook"
)

// answerPods runs the webhook until it is told to end.
func answerPods(ctx context.Context, args []string) error {
	options := flag.NewFlagSet("aliquot-kube webhook", flag.ContinueOnError)
	kubeconfig := options.String("kubeconfig", "", "how to reach the API server; empty: as a pod does")
	listen := options.String("listen", ":8443", "where to answer the API server; also /healthz and /readyz")
	namespace := options.String("namespace", "aliquot", "where the Secret is")
	secret := options.String("secret", "aliquot-webhook-tls", "the Secret with its certificate, which `aliquot-kube controller` makes")
	metrics := options.String("metrics", "", "address at which it serves metrics (/metrics, for Prometheus) and whether it works (/livez), as :9466; empty: none")
	scheduler := options.String("scheduler", "aliquot-scheduler", "the scheduler that pods with devices of Aliquot go to; empty: they stay with their own")
	if err := parse(options, args); err != nil {
		return err
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
	objects, err := dynamic.NewForConfig(config)
	if err != nil {
		return err
	}
	certificate, err := webhook.Follow(ctx, client, *namespace, *secret, log)
	if err != nil {
		return err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", *listen)
	if err != nil {
		return err
	}
	log.Info("answering", "on", listener.Addr().String(), "scheduler", *scheduler)
	queues := func(ctx context.Context) ([]*v1alpha1.Queue, *v1alpha1.Policy, error) {
		return v1alpha1.Tenants(ctx, objects)
	}
	one := webhook.New(webhook.Config{Client: client, Queues: queues, Scheduler: *scheduler, Log: log})
	seen := newMonitor(false, log)
	defer seen.Close()
	seen.add(one.Metrics())
	seen.add(certificate)
	seen.ready.Store(true)
	if err := seen.serve(*metrics); err != nil {
		return err
	}
	return one.Serve(ctx, listener, certificate)
}

// parse reads options, and nothing but options.
func parse(options *flag.FlagSet, args []string) error {
	if err := options.Parse(args); err != nil {
		return err
	}
	if options.NArg() > 0 {
		return fmt.Errorf("%q is not understood; it takes options alone, see --help", options.Arg(0))
	}
	return nil
}

// connect says how to reach the API server. What it allows us at once is for it to say.
func connect(kubeconfig string) (*rest.Config, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("find the API server: %w", err)
	}
	config.QPS, config.Burst = -1, 0
	return config, nil
}
