package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/aliquot-dev/aliquot/host/kube/deploy"
	"github.com/aliquot-dev/aliquot/host/kube/images"
	"github.com/aliquot-dev/aliquot/host/kube/testcluster"
)

// trial is a cluster on which Aliquot is tried by hand.
type trial struct {
	*testcluster.Cluster
	devices string // simulated ones
	chart   string // folder of the chart
	images  string // folder of the images' tars
	plugin  string // kubectl-aliquot
}

// programs is the folder of what is called by hand, for PATH.
func (t *trial) programs() string { return filepath.Join(t.Folder(), "bin") }

// values is the file of what the chart is to be told of this cluster.
func (t *trial) values() string { return filepath.Join(t.Folder(), "values.yaml") }

// prepare gives the node the images, and the cluster's folder the programs and the values.
func (t *trial) prepare(ctx context.Context) error {
	chart, err := deploy.Read(t.chart)
	if err != nil {
		return err
	}
	tag, err := images.ReadTag(t.images)
	if err != nil {
		return fmt.Errorf("find out what image there is: %w; run make images", err)
	}
	for file, name := range map[string]string{"aliquot-kube.tar": chart.ImageOf(tag), "aliquot-examples.tar": images.ExamplesName} {
		file = filepath.Join(t.images, file)
		if _, err := os.Stat(file); err != nil {
			return fmt.Errorf("give the node the image %s: %w; run make images", name, err)
		}
		if err := t.Import(ctx, file, name); err != nil {
			return err
		}
	}
	if err := t.link(ctx); err != nil {
		return err
	}
	all := t.ChartValues(t.devices, filepath.Join(t.Folder(), "agent"), filepath.Join(t.Folder(), "agent-state"))
	all["image"] = map[string]any{"tag": tag}
	values, err := yaml.Marshal(all)
	if err != nil {
		return err
	}
	return os.WriteFile(t.values(), values, 0o600)
}

// link makes the folder of programs.
func (t *trial) link(ctx context.Context) error {
	if err := os.Mkdir(t.programs(), 0o755); err != nil {
		return err
	}
	kubectl, err := t.KubectlProgram(ctx)
	if err != nil {
		return err
	}
	helm, err := t.HelmProgram(ctx)
	if err != nil {
		return err
	}
	plugin, err := filepath.Abs(t.plugin)
	if err != nil {
		return err
	}
	if _, err := os.Stat(plugin); err != nil {
		return fmt.Errorf("find kubectl-aliquot: %w; run make kubectl-aliquot", err)
	}
	for _, program := range []string{kubectl, helm, plugin, t.Program("ctr")} {
		if err := os.Symlink(program, filepath.Join(t.programs(), filepath.Base(program))); err != nil {
			return err
		}
	}
	return nil
}

// guide says what to type, from the repository's folder.
func (t *trial) guide() string {
	return strings.NewReplacer("KUBECONFIG_FILE", t.Kubeconfig(), "PROGRAMS", t.programs(), "VALUES", t.values(), "LOGS", t.Logs(), "SOCKET", filepath.Join(t.Folder(), "run", "containerd.sock")).Replace(`
The cluster is ready, and Aliquot's images are on its node. To try Aliquot, in another terminal, in the folder of this repository:

  export KUBECONFIG=KUBECONFIG_FILE PATH="PROGRAMS:$PATH"
  helm install aliquot deploy/chart --wait --values VALUES
  kubectl apply -f deploy/demo.yaml
  kubectl aliquot top -A
  kubectl aliquot why demo
  kubectl aliquot resize demo --gpu 0.25..0.40
  kubectl logs --follow demo --container smi

Images that you make anew: ctr -a SOCKET -n k8s.io images import build/images/aliquot-kube.tar
Logs of the cluster's own processes are in LOGS. Ctrl-C here ends everything.
`)
}
