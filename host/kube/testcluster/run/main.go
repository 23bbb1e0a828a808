// Command run keeps a test cluster until it is told to end: to try things on by hand.
package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/aliquot-dev/aliquot/host/kube/testcluster"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "kube-cluster:", err)
		os.Exit(1)
	}
}

func run() error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	cluster, err := testcluster.Start(ctx, testcluster.Config{
		Cache: os.Getenv("ALIQUOT_KUBE_CACHE"), State: "/var/lib/aliquot-cluster", Log: slog.New(slog.NewTextHandler(os.Stderr, nil)),
	})
	if err != nil {
		return err
	}
	fmt.Printf("export KUBECONFIG=%s\nIts logs are in %s. Ctrl-C ends it.\n", cluster.Kubeconfig(), cluster.Logs())
	<-ctx.Done()
	return cluster.Stop()
}
