package device

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock"
)

// TestAbout: what the driver and the machine say of a GPU is known, and what they do not say is not.
func TestAbout(t *testing.T) {
	told := mockDevice("GPU-a", 80<<20)
	told.GetArchitectureFunc = func() (nvml.DeviceArchitecture, nvml.Return) { return nvml.DEVICE_ARCH_HOPPER, nvml.SUCCESS }
	told.GetCudaComputeCapabilityFunc = func() (int, int, nvml.Return) { return 9, 0, nvml.SUCCESS }
	told.GetPciInfoFunc = func() (nvml.PciInfo, nvml.Return) { return nvml.PciInfo{Domain: 0, Bus: 0xc4, Device: 1}, nvml.SUCCESS }
	fabric := nvml.GpuFabricInfo{ClusterUuid: [16]uint8{0xab, 15: 0xcd}, CliqueId: 7, State: nvml.GPU_FABRIC_STATE_COMPLETED}
	told.GetGpuFabricInfoFunc = func() (nvml.GpuFabricInfo, nvml.Return) { return fabric, nvml.SUCCESS }
	sysfs := t.TempDir()
	place := filepath.Join(sysfs, "bus", "pci", "devices", "0000:c4:01.0")
	if err := os.MkdirAll(place, 0o700); err != nil {
		t.Fatal(err)
	}
	machine := func(numa string) {
		if err := os.WriteFile(filepath.Join(place, "numa_node"), []byte(numa+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	machine("1")
	b := mocked(t, "", told)
	b.sysfs = sysfs
	b.library.(*mock.Interface).SystemGetDriverVersionFunc = func() (string, nvml.Return) { return "570.86.15", nvml.SUCCESS }
	got := b.about(told)
	if node := got.NUMANode; node == nil || *node != 1 {
		t.Errorf("memory node %v", node)
	}
	got.NUMANode = nil
	want := About{Architecture: "Hopper", DriverVersion: "570.86.15", Capability: "9.0", PCI: "0000:c4:01.0", LinkDomain: "ab000000-0000-0000-0000-0000000000cd.7"}
	if got != want {
		t.Errorf("known is %+v, want %+v", got, want)
	}

	machine("-1")
	fabric.State = nvml.GPU_FABRIC_STATE_IN_PROGRESS
	want.LinkDomain = ""
	if got := b.about(told); got != want {
		t.Errorf("without a fabric and a memory node %+v is known, want %+v", got, want)
	}
	b.sysfs = "" // simulated
	want.PCI = ""
	if got := b.about(told); got != want {
		t.Errorf("of a simulated one %+v is known, want %+v", got, want)
	}
	b = mocked(t, "nvmlDeviceGet", told)
	b.sysfs = sysfs
	if got := b.about(told); got != (About{}) {
		t.Errorf("of an old library %+v is known", got)
	}
	b = mocked(t, "", mockDevice("GPU-b", 80<<20))
	b.sysfs = sysfs
	if got := b.about(mockDevice("GPU-b", 80<<20)); got != (About{}) {
		t.Errorf("of a GPU that says nothing %+v is known", got)
	}
}

// TestAboutSimulated: the simulated driver says what its model is.
func TestAboutSimulated(t *testing.T) {
	options, _ := simulated(t, "h200x1,a10x1")
	devices := openSimulated(t, options).Devices()
	for i, want := range []About{{Architecture: "Hopper", Capability: "9.0"}, {Architecture: "Ampere", Capability: "8.6"}} {
		got := devices[i].About
		if got.DriverVersion == "" {
			t.Error("it says no driver version")
		}
		if got.DriverVersion = ""; got != want {
			t.Errorf("known is %+v, want %+v", got, want)
		}
	}
}

// TestJoinedSimulated: simulated devices are linked with each other, and at memory nodes, as their list says.
func TestJoinedSimulated(t *testing.T) {
	options, _ := simulated(t, "h200x3,a10x2,linked=2,numa=3")
	devices := openSimulated(t, options).Devices()
	of := func(i int) string { return devices[i].UUID }
	for i, want := range []struct {
		links string
		numa  int
	}{{of(0), 0}, {of(0), 0}, {of(2), 0}, {of(2), 1}, {"", 1}} {
		if got := devices[i].About; got.Links != want.links || got.NUMANode == nil || *got.NUMANode != want.numa {
			t.Errorf("device %d is linked with %q, at memory node %v; want %+v", i, got.Links, got.NUMANode, want)
		}
	}
}

// A device is at a memory node if it is at one alone.
func TestOnlyNode(t *testing.T) {
	for want, sets := range map[int][][]uint{-1: {nil, {0, 0}, {3}, {1, 1}}, 0: {{1}}, 5: {{32, 0}}, 64: {{0, 1}}} {
		for _, set := range sets {
			got := -1
			if node := onlyNode(set); node != nil {
				got = *node
			}
			if got != want {
				t.Errorf("of %v the node is %d, want %d", set, got, want)
			}
		}
	}
}

// GPUs that are linked with each other, also over others, are of the group of the first; one that is linked with none is of none.
func TestLinked(t *testing.T) {
	for name, one := range map[string]struct {
		links [][2]int
		want  []int
	}{
		"none":            {nil, []int{-1, -1, -1, -1, -1}},
		"pairs":           {[][2]int{{0, 3}, {1, 2}}, []int{0, 1, 1, 0, -1}},
		"all by a switch": {[][2]int{{0, 1}, {0, 2}, {0, 3}, {0, 4}, {1, 2}, {1, 3}, {1, 4}, {2, 3}, {2, 4}, {3, 4}}, []int{0, 0, 0, 0, 0}},
		"a chain":         {[][2]int{{4, 2}, {2, 1}}, []int{-1, 1, 1, -1, 1}},
	} {
		got := linked(5, func(i, k int) bool {
			return slices.Contains(one.links, [2]int{i, k}) || slices.Contains(one.links, [2]int{k, i})
		})
		if !slices.Equal(got, one.want) {
			t.Errorf("%s: the groups are %v, want %v", name, got, one.want)
		}
	}
}

// TestLinks: the driver is asked of each pair of GPUs whether a link joins it, and never of instances or where it cannot tell.
func TestLinks(t *testing.T) {
	a, b, c, part := mockDevice("GPU-a", 80<<20), mockDevice("GPU-b", 80<<20), mockDevice("GPU-c", 80<<20), mockDevice("MIG-d", 10<<20)
	to := func(other nvml.Device) func(nvml.Device, nvml.GpuP2PCapsIndex) (nvml.GpuP2PStatus, nvml.Return) {
		return func(asked nvml.Device, what nvml.GpuP2PCapsIndex) (nvml.GpuP2PStatus, nvml.Return) {
			if asked == other && what == nvml.P2P_CAPS_INDEX_NVLINK {
				return nvml.P2P_STATUS_OK, nvml.SUCCESS
			}
			return nvml.P2P_STATUS_NOT_SUPPORTED, nvml.SUCCESS
		}
	}
	a.GetP2PStatusFunc, c.GetP2PStatusFunc, part.GetP2PStatusFunc = to(c), to(a), to(a)
	for lacks, want := range map[string][]string{"": {"", "GPU-a", "", "GPU-a"}, "nvmlDeviceGetP2PStatus": {"", "", "", ""}} {
		backend := mocked(t, lacks, mockDevice("GPU-d", 80<<20, part), a, b, c)
		var got []string
		for _, d := range backend.Devices() {
			got = append(got, d.About.Links)
		}
		if !slices.Equal(got, want) {
			t.Errorf("lacking %q: the links are %q, want %q", lacks, got, want)
		}
	}
}
