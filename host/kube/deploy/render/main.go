// Command render writes the chart as Helm would install it, for machines that have none:
//
//	go run ./deploy/render --set agent.simulate=h200x2 | kubectl apply --server-side -f -
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"

	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/strvals"

	"github.com/aliquot-dev/aliquot/host/kube/deploy"
)

func main() {
	if err := render(os.Args[1:], os.Stdout); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return
		}
		fmt.Fprintln(os.Stderr, "render:", err)
		os.Exit(1)
	}
}

func render(args []string, to io.Writer) error {
	options := flag.NewFlagSet("render", flag.ContinueOnError)
	folder := options.String("chart", "../../deploy/chart", "the chart's folder")
	var files, sets, versions []string
	options.Func("api-versions", "a version that the cluster serves beside Kubernetes' own, as monitoring.coreos.com/v1 where it has the Prometheus operator; may be given several times", func(one string) error {
		versions = append(versions, one)
		return nil
	})
	options.Func("values", "a file of values; of several the later ones count", func(file string) error {
		files = append(files, file)
		return nil
	})
	options.Func("set", "a value, as agent.simulate=h200x2, whatever files say; may be given several times", func(one string) error {
		sets = append(sets, one)
		return nil
	})
	if err := options.Parse(args); err != nil {
		return err
	}
	if options.NArg() > 0 {
		return fmt.Errorf("%q is not understood; it takes options alone, see --help", options.Arg(0))
	}
	values, err := valuesOf(files, sets)
	if err != nil {
		return err
	}
	chart, err := deploy.Read(*folder)
	if err != nil {
		return err
	}
	objects, err := chart.Render(values, versions...)
	if err != nil {
		return err
	}
	_, err = to.Write(deploy.Stream(objects))
	return err
}

// valuesOf are the values of files, and over them those that were set, as Helm has it.
func valuesOf(files, sets []string) (map[string]any, error) {
	values := map[string]any{}
	for _, file := range files {
		read, err := chartutil.ReadValuesFile(file)
		if err != nil {
			return nil, fmt.Errorf("--values %s: %w", file, err)
		}
		values = chartutil.CoalesceTables(read.AsMap(), values)
	}
	for _, one := range sets {
		if err := strvals.ParseInto(one, values); err != nil {
			return nil, fmt.Errorf("--set %s: %w", one, err)
		}
	}
	return values, nil
}
