package main

import (
	"errors"
	"flag"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/aliquot-dev/aliquot/host/kube/deploy"
)

// The programs know every option that the chart gives them: asked for help after these, they come as far as that.
func TestChartsOptions(t *testing.T) {
	chart, err := deploy.Read(filepath.Join("..", "..", "..", "..", "deploy", "chart"))
	if err != nil {
		t.Fatal(err)
	}
	objects, err := chart.Render(map[string]any{"agent": map[string]any{"simulate": "h200x1"}})
	if err != nil {
		t.Fatal(err)
	}
	tried := map[string]bool{}
	for _, one := range objects {
		var runs struct {
			Spec struct{ Template corev1.PodTemplateSpec }
		}
		if one.Kind != "DaemonSet" && one.Kind != "Deployment" {
			continue
		}
		if err := yaml.Unmarshal([]byte(one.YAML), &runs); err != nil {
			t.Fatal(err)
		}
		args := runs.Spec.Template.Spec.Containers[0].Args
		command := commands[args[0]]
		if command == nil {
			t.Fatalf("%s runs %v", one.Name, args)
		}
		if err := command(t.Context(), append(args[1:], "--help")); !errors.Is(err, flag.ErrHelp) {
			t.Errorf("%v: %v", args, err)
		}
		tried[args[0]] = true
	}
	if len(tried) != len(commands) {
		t.Errorf("the chart runs %v", tried)
	}
}
