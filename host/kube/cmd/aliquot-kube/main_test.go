package main

import (
	"context"
	"errors"
	"flag"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	core "k8s.io/client-go/testing"
	"sigs.k8s.io/yaml"

	"github.com/aliquot-dev/aliquot/host/kube/deploy"
	"github.com/aliquot-dev/aliquot/node"
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

// told is a log of which somebody waits for the first line.
type told chan string

func (t told) Write(line []byte) (int, error) {
	select {
	case t <- string(line):
	default:
	}
	return len(line), nil
}

// An agent on a node without a driver is ready, for it has nothing to do; where another serves the node it is not, so that this one stays.
func TestAwaitsDevices(t *testing.T) {
	for _, served := range []bool{false, true} {
		finds := node.Config{Run: t.TempDir(), DriverRoot: device.Root{Here: t.TempDir(), Machine: "/of/the/node"}}
		lock, err := os.Create(filepath.Join(finds.Run, "agent.lock"))
		if err != nil {
			t.Fatal(err)
		}
		defer lock.Close()
		if served {
			if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
				t.Fatal(err)
			}
		}
		log := make(told, 1)
		seen := newMonitor(false, slog.New(slog.NewTextHandler(log, nil)))
		defer seen.Close()
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- awaitDevices(ctx, finds, seen) }()
		if line := <-log; !strings.Contains(line, "the driver's root /of/the/node") {
			t.Errorf("it says %s", line)
		}
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) || seen.ready.Load() == served {
			t.Errorf("where another serves the node (%v) it is ready: %v; ended: %v", served, seen.ready.Load(), err)
		}
	}
}

// DeviceTaintRules are followed where the API server has them, also if it does not answer at first.
func TestTaintRules(t *testing.T) {
	client := fake.NewClientset()
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	look := func() bool {
		t.Helper()
		has, err := taintRules(t.Context(), client, log)
		if err != nil {
			t.Fatal(err)
		}
		return has
	}
	if look() {
		t.Error("an API server without the API is said to have rules")
	}
	api := &metav1.APIResourceList{GroupVersion: "resource.k8s.io/v1beta2", APIResources: []metav1.APIResource{{Name: "resourceslices"}}}
	client.Resources = append(client.Resources, api)
	if look() {
		t.Error("an API server that has others of the API is said to have rules")
	}
	api.APIResources = append(api.APIResources, metav1.APIResource{Name: "devicetaintrules"})
	fails := 1
	client.PrependReactor("get", "resource", func(core.Action) (bool, runtime.Object, error) {
		fails--
		if fails >= 0 {
			return true, nil, errors.New("nobody answers")
		}
		return false, nil, nil
	})
	if !look() || fails >= 0 {
		t.Errorf("rules that there are are not found, or it was not asked again: %d", fails)
	}
}
