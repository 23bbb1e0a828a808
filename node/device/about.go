package device

import (
	"fmt"
	"math/bits"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// About is what is known of a device beyond what a share needs, for who chooses among devices. Empty or nil is not known.
type About struct {
	Architecture  string // the maker's name for the generation, as Hopper
	DriverVersion string
	Capability    string // the compute capability, MAJOR.MINOR
	PCI           string // where it is on the PCI bus, domain:bus:device.function in lower case; of a partition where its GPU is
	NUMANode      *int   // the memory node that its bus is at
	LinkDomain    string // devices of the same one reach each other over the maker's links, also from machine to machine
	Links         string // GPUs of this machine with the same reach each other over the maker's links; the UUID of the first of them
}

// architectures are NVML's.
var architectures = map[nvml.DeviceArchitecture]string{
	nvml.DEVICE_ARCH_KEPLER: "Kepler", nvml.DEVICE_ARCH_MAXWELL: "Maxwell", nvml.DEVICE_ARCH_PASCAL: "Pascal", nvml.DEVICE_ARCH_VOLTA: "Volta",
	nvml.DEVICE_ARCH_TURING: "Turing", nvml.DEVICE_ARCH_AMPERE: "Ampere", nvml.DEVICE_ARCH_ADA: "Ada", nvml.DEVICE_ARCH_HOPPER: "Hopper",
	nvml.DEVICE_ARCH_BLACKWELL: "Blackwell",
}

// about asks the driver, and the machine, of a whole GPU. A simulated one is on no bus of this machine, and its driver says which memory node it is at.
func (b *nvmlBackend) about(handle nvml.Device) About {
	var about About
	if b.has("nvmlSystemGetDriverVersion") {
		if version, ret := b.library.SystemGetDriverVersion(); ret == nvml.SUCCESS {
			about.DriverVersion = version
		}
	}
	if b.has("nvmlDeviceGetArchitecture") {
		if architecture, ret := handle.GetArchitecture(); ret == nvml.SUCCESS {
			about.Architecture = architectures[architecture]
		}
	}
	if b.has("nvmlDeviceGetCudaComputeCapability") {
		if major, minor, ret := handle.GetCudaComputeCapability(); ret == nvml.SUCCESS {
			about.Capability = fmt.Sprintf("%d.%d", major, minor)
		}
	}
	if b.sysfs == "" {
		if b.has("nvmlDeviceGetMemoryAffinity") {
			if nodes, ret := handle.GetMemoryAffinity(maxMemoryNodes, nvml.AFFINITY_SCOPE_NODE); ret == nvml.SUCCESS {
				about.NUMANode = onlyNode(nodes)
			}
		}
		return about
	}
	if b.has("nvmlDeviceGetPciInfo") {
		if pci, ret := handle.GetPciInfo(); ret == nvml.SUCCESS {
			about.PCI = fmt.Sprintf("%04x:%02x:%02x.0", pci.Domain, pci.Bus, pci.Device)
			about.NUMANode = b.numaNode(about.PCI)
		}
	}
	if b.has("nvmlDeviceGetGpuFabricInfo") {
		if fabric, ret := handle.GetGpuFabricInfo(); ret == nvml.SUCCESS {
			about.LinkDomain = linkDomain(fabric)
		}
	}
	return about
}

// numaNode is the memory node of a place on the bus, by the kernel's word (-1 is its word for not knowing).
func (b *nvmlBackend) numaNode(pci string) *int {
	text, err := os.ReadFile(filepath.Join(b.sysfs, "bus", "pci", "devices", pci, "numa_node"))
	if err != nil {
		return nil
	}
	node, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || node < 0 {
		return nil
	}
	return &node
}

// maxMemoryNodes is how many memory nodes a driver may tell of.
const maxMemoryNodes = 64

// onlyNode is the one memory node of a set; nil: it has none, or several.
func onlyNode(set []uint) *int {
	var found *int
	for i, word := range set {
		for ; word != 0; word &= word - 1 {
			if found != nil {
				return nil
			}
			node := i*bits.UintSize + bits.TrailingZeros(word)
			found = &node
		}
	}
	return found
}

// linkDomain names the clique of a fabric that a GPU has joined; a GPU that is of none, or has not joined it yet, has no name of one.
func linkDomain(fabric nvml.GpuFabricInfo) string {
	id := fabric.ClusterUuid
	if fabric.State != nvml.GPU_FABRIC_STATE_COMPLETED || nvml.Return(fabric.Status) != nvml.SUCCESS || id == [16]uint8{} {
		return ""
	}
	return fmt.Sprintf("%x-%x-%x-%x-%x.%d", id[:4], id[4:6], id[6:8], id[8:10], id[10:], fabric.CliqueId)
}

// link notes of whole GPUs which of the others they reach over the maker's links, themselves or over one that they reach.
func (b *nvmlBackend) link() {
	if !b.has("nvmlDeviceGetP2PStatus") {
		return
	}
	first := linked(len(b.gpus), func(i, k int) bool {
		if b.gpus[i].Parent != "" || b.gpus[k].Parent != "" {
			return false // instances have no links
		}
		status, ret := b.gpus[i].handle.GetP2PStatus(b.gpus[k].handle, nvml.P2P_CAPS_INDEX_NVLINK)
		return ret == nvml.SUCCESS && status == nvml.P2P_STATUS_OK
	})
	for i, of := range first {
		if of >= 0 {
			b.gpus[i].About.Links = b.gpus[of].UUID
		}
	}
}

// linked is, for each of so many, the first one of its group, those being in one group that are joined, also over others; -1: it is joined with none.
func linked(count int, joined func(i, k int) bool) []int {
	first := make([]int, count)
	for i := range first {
		first[i] = -1
	}
	var visit func(i, of int)
	visit = func(i, of int) {
		first[i] = of
		for k := range count {
			if k != i && first[k] < 0 && joined(i, k) {
				visit(k, of)
			}
		}
	}
	for i := range first {
		if first[i] < 0 {
			visit(i, i)
			if !slices.Contains(first[i+1:], i) {
				first[i] = -1
			}
		}
	}
	return first
}
