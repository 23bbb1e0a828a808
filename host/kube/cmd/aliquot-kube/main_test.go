package main

import (
	"errors"
	"flag"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/aliquot-dev/aliquot/host/kube/deploy"
	"github.com/aliquot-dev/aliquot/node/device"
)

// The programs know every option that the chart gives them: asked for help after these, they come as far as that.
func TestChartsOptions(t *testing.T) {
	chart, err := deploy.Read(filepath.Join("..", "..", "..", "..", "deploy", "chart"))
	if err != nil {
		t.Fatal(err)
	}
	var objects []deploy.Object
	for _, devices := range []string{"h200x1", ""} {
		more, err := chart.Render(map[string]any{"agent": map[string]any{"simulate": devices}})
		if err != nil {
			t.Fatal(err)
		}
		objects = append(objects, more...)
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

// The driver is in the file system that the agent has, too, or in another: in a container of its own, or in the node's, seen from one.
func TestDriverRoot(t *testing.T) {
	for _, c := range []struct {
		onNode, mounted string
		want            device.Root
	}{
		{"/", "", device.Root{}},
		{"/run/nvidia/driver/", "", device.Root{Here: "/run/nvidia/driver", Machine: "/run/nvidia/driver"}},
		{"/", "/driver", device.Root{Here: "/driver", Machine: "/"}},
		{"/run/nvidia/driver", "/driver", device.Root{Here: "/driver", Machine: "/run/nvidia/driver"}},
	} {
		if got := driverRoot(c.onNode, c.mounted); got != c.want {
			t.Errorf("%s seen at %q: %+v, want %+v", c.onNode, c.mounted, got, c.want)
		}
	}
}
