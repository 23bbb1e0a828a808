// Command run keeps a test cluster until it is told to end: to try things on by hand. Aliquot's images are on its node, and it says how to go on from there.
// With -build it builds all that any cluster is made of, and starts none.
package main

import (
	"context"
	"errors"
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
	var t trial
	build := flag.Bool("build", false, "only build what clusters are made of, into ALIQUOT_KUBE_CACHE")
	flag.StringVar(&t.devices, "simulate", "h200x2", "simulated devices that the node is to have once the chart is installed, as agent.simulate says them")
	flag.StringVar(&t.chart, "chart", "../../deploy/chart", "the chart's folder, which says what the image is called")
	flag.StringVar(&t.images, "images", "../../build/images", "folder of the images' tars, as `make images` writes them")
	flag.StringVar(&t.plugin, "plugin", "../../build/kubectl-aliquot", "kubectl-aliquot, as `make kubectl-aliquot` builds it")
	flag.Parse()
	if flag.NArg() > 0 {
		return fmt.Errorf("%q is not understood; it takes options alone, see -help", flag.Arg(0))
	}
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
	t.Cluster = cluster
	err = t.prepare(ctx)
	if err == nil {
		fmt.Print(t.guide())
		<-ctx.Done()
	}
	return errors.Join(err, cluster.Stop())
}
