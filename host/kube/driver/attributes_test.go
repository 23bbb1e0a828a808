package driver

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/dynamic-resource-allocation/deviceattribute"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/node"
	"github.com/aliquot-dev/aliquot/node/device"
)

// What is known of a device can be chosen by, with its type, and nothing else is said of it.
func TestAttributes(t *testing.T) {
	machine := t.TempDir()
	buses := filepath.Join(machine, "bus", "pci", "devices")
	if err := os.MkdirAll(buses, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("../../../devices/pci0000:c0/0000:c0:01.1/0000:c4:00.0", filepath.Join(buses, "0000:c4:00.0")); err != nil {
		t.Fatal(err)
	}
	one := 1
	all := device.About{
		Architecture: "Hopper", DriverVersion: "535.104.05", Capability: "9.0", PCI: "0000:c4:00.0", NUMANode: &one, LinkDomain: "ab-cd.7",
	}
	const always = "uuid=GPU-aa simulated=false model=H200"
	for name, test := range map[string]struct {
		about device.About
		want  string
	}{
		"everything": {all, always + " architecture=Hopper driverVersion=v535.104.5 computeCapability=v9.0.0 numaNode=1 linkDomain=ab-cd.7" +
			" resource.kubernetes.io/pciBusID=0000:c4:00.0 resource.kubernetes.io/pcieRoot=pci0000:c0"},
		"linked":             {device.About{Links: "GPU-aa"}, always + " links=GPU-aa"},
		"nothing":            {device.About{}, always},
		"a bus not here":     {device.About{PCI: "0000:c5:00.0"}, always + " resource.kubernetes.io/pciBusID=0000:c5:00.0"},
		"simulated":          {device.About{DriverVersion: "560.0-simgpu"}, always + " driverVersion=v560.0.0-simgpu"},
		"no version":         {device.About{DriverVersion: "610.1-", Capability: "1.2.3.4"}, always},
		"a name of 65 bytes": {device.About{LinkDomain: strings.Repeat("x", 65)}, always},
	} {
		d := h200
		d.About = test.about
		got := said(d, deviceattribute.WithFSFromRoot(machine))
		want := map[string]string{}
		for _, pair := range strings.Fields(test.want) {
			key, value, _ := strings.Cut(pair, "=")
			want[key] = value
		}
		if !maps.Equal(got, want) {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
}

// A latency class is offered of the devices of which one is declared, and of no others.
func TestDeclaredAttributes(t *testing.T) {
	near, far, other := h200, h200, h200
	near.UUID, far.UUID, other.UUID, other.Model = "GPU-aa", "GPU-bb", "GPU-cc", "A10"
	pool := offered(here, []node.Device{near, far, other}, api.LatencyClasses{{Class: 2, Of: "NVIDIA H200"}, {Class: 1, Of: "GPU-aa"}})
	var got []string
	for _, one := range pool.Pools[here].Slices[0].Devices {
		class := "none"
		if a, ok := one.Attributes["latencyClass"]; ok && a.IntValue != nil {
			class = fmt.Sprint(*a.IntValue)
		}
		got = append(got, one.Name+" "+class)
	}
	if want := []string{"gpu-aa 1", "gpu-bb 2", "gpu-cc none"}; !slices.Equal(got, want) {
		t.Errorf("the classes are %q, want %q", got, want)
	}
}

// said are a device's attributes as text; a version begins with v.
func said(d node.Device, machine ...deviceattribute.MachineModifier) map[string]string {
	text := map[string]string{}
	for name, a := range attributes(d, machine...) {
		switch {
		case a.StringValue != nil:
			text[string(name)] = *a.StringValue
		case a.VersionValue != nil:
			text[string(name)] = "v" + *a.VersionValue
		case a.BoolValue != nil:
			text[string(name)] = fmt.Sprint(*a.BoolValue)
		case a.IntValue != nil:
			text[string(name)] = fmt.Sprint(*a.IntValue)
		}
	}
	return text
}

// A node's devices are in slices of as many as the API server takes where one has a taint; without devices there is one slice.
func TestSlices(t *testing.T) {
	for _, c := range []struct {
		devices int
		want    []int
	}{{0, []int{0}}, {1, []int{1}}, {64, []int{64}}, {70, []int{64, 6}}, {130, []int{64, 64, 2}}} {
		all := make([]node.Device, c.devices)
		names := map[string]bool{}
		for i := range all {
			all[i] = h200
			all[i].UUID = fmt.Sprint("GPU-", i)
		}
		var got []int
		for _, slice := range offered(here, all, nil).Pools[here].Slices {
			got = append(got, len(slice.Devices))
			for _, d := range slice.Devices {
				names[d.Name] = true
			}
		}
		if !slices.Equal(got, c.want) || len(names) != c.devices {
			t.Errorf("%d devices are in slices of %v, want %v", c.devices, got, c.want)
		}
	}
}
