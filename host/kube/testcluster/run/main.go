// Command run keeps a test cluster until it is told to end: to try things on by hand. With -build it builds all that any is made of, and starts none.
package main

import (
	"context"
	"flag"
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
	build := flag.Bool("build", false, "only build what clusters are made of, into ALIQUOT_KUBE_CACHE")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	cache, log := os.Getenv("ALIQUOT_KUBE_CACHE"), slog.New(slog.NewTextHandler(os.Stderr, nil))
	if *build {
		return testcluster.Build(ctx, cache, log)
	}
	cluster, err := testcluster.Start(ctx, testcluster.Config{Cache: cache, State: "/var/lib/aliquot-cluster", Log: log})
	if err != nil {
		return err
	}
	fmt.Printf("export KUBECONFIG=%s\nIts logs are in %s. Ctrl-C ends it.\n", cluster.Kubeconfig(), cluster.Logs())
	<-ctx.Done()
	return cluster.Stop()
}
