package device

import (
	"errors"
	"log/slog"
	"reflect"
	"strings"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock"
)

// The simulated driver has no partitions, so these tests stand in for the library.

func mockDevice(uuid string, memory uint64, parts ...nvml.Device) *mock.Device {
	return &mock.Device{
		GetUUIDFunc:          func() (string, nvml.Return) { return uuid, nvml.SUCCESS },
		GetNameFunc:          func() (string, nvml.Return) { return "Model " + uuid, nvml.SUCCESS },
		GetMemoryInfo_v2Func: func() (nvml.Memory_v2, nvml.Return) { return nvml.Memory_v2{}, nvml.ERROR_NOT_SUPPORTED },
		GetMemoryInfoFunc:    func() (nvml.Memory, nvml.Return) { return nvml.Memory{Total: memory, Used: 5}, nvml.SUCCESS },
		GetMigModeFunc: func() (int, int, nvml.Return) {
			if parts == nil {
				return 0, 0, nvml.ERROR_NOT_SUPPORTED
			}
			return nvml.DEVICE_MIG_ENABLE, nvml.DEVICE_MIG_ENABLE, nvml.SUCCESS
		},
		GetMaxMigDeviceCountFunc: func() (int, nvml.Return) { return 7, nvml.SUCCESS },
		GetMigDeviceHandleByIndexFunc: func(i int) (nvml.Device, nvml.Return) {
			// Not every index is taken, and the first that is need not be 0.
			if i == 0 || i > len(parts) {
				return nil, nvml.ERROR_NOT_FOUND
			}
			return parts[i-1], nvml.SUCCESS
		},
		GetComputeRunningProcessesFunc: func() ([]nvml.ProcessInfo, nvml.Return) {
			return []nvml.ProcessInfo{{Pid: 1, UsedGpuMemory: 7}, {Pid: 2, UsedGpuMemory: ^uint64(0)}}, nvml.SUCCESS
		},
		GetMinorNumberFunc:           func() (int, nvml.Return) { return 0, nvml.ERROR_NOT_SUPPORTED },
		GetArchitectureFunc:          func() (nvml.DeviceArchitecture, nvml.Return) { return nvml.DEVICE_ARCH_UNKNOWN, nvml.SUCCESS },
		GetCudaComputeCapabilityFunc: func() (int, int, nvml.Return) { return 0, 0, nvml.ERROR_NOT_SUPPORTED },
		GetPciInfoFunc:               func() (nvml.PciInfo, nvml.Return) { return nvml.PciInfo{}, nvml.ERROR_NOT_SUPPORTED },
		GetGpuFabricInfoFunc:         func() (nvml.GpuFabricInfo, nvml.Return) { return nvml.GpuFabricInfo{}, nvml.ERROR_NOT_SUPPORTED },
		GetP2PStatusFunc: func(nvml.Device, nvml.GpuP2PCapsIndex) (nvml.GpuP2PStatus, nvml.Return) {
			return nvml.P2P_STATUS_NOT_SUPPORTED, nvml.SUCCESS
		},
		GetMemoryAffinityFunc:   func(int, nvml.AffinityScope) ([]uint, nvml.Return) { return []uint{1}, nvml.ERROR_NOT_SUPPORTED },
		GetUtilizationRatesFunc: func() (nvml.Utilization, nvml.Return) { return nvml.Utilization{Gpu: 42}, nvml.SUCCESS },
	}
}

func mocked(t *testing.T, lacks string, devices ...nvml.Device) *nvmlBackend {
	t.Helper()
	b := &nvmlBackend{
		log: slog.New(slog.DiscardHandler), faults: newFaults(), events: make(chan Event, 16), stop: make(chan struct{}),
		library: &mock.Interface{
			SystemGetDriverVersionFunc: func() (string, nvml.Return) { return "", nvml.ERROR_NOT_SUPPORTED },
			DeviceGetCountFunc:         func() (int, nvml.Return) { return len(devices), nvml.SUCCESS },
			DeviceGetHandleByIndexFunc: func(i int) (nvml.Device, nvml.Return) { return devices[i], nvml.SUCCESS },
			ExtensionsFunc: func() nvml.ExtendedInterface {
				return &mock.ExtendedInterface{LookupSymbolFunc: func(symbol string) error {
					if lacks != "" && strings.Contains(symbol, lacks) {
						return errors.New("no such symbol")
					}
					return nil
				}}
			},
		},
	}
	if err := b.discover(); err != nil {
		t.Fatal(err)
	}
	return b
}

// TestPartitions: a GPU in MIG mode is not a device, its instances are; one without instances is left out and said to be.
func TestPartitions(t *testing.T) {
	part := mockDevice("MIG-a", 10<<20+1)
	b := mocked(t, "", mockDevice("GPU-a", 80<<20, part), mockDevice("GPU-b", 80<<20), mockDevice("GPU-c", 16<<20), emptyMIG("GPU-d"))
	want := []Info{
		{UUID: "MIG-a", Index: 0, Model: "Model MIG-a", Memory: 10 << 20, Parent: "GPU-a"},
		{UUID: "GPU-b", Index: 1, Model: "Model GPU-b", Memory: 80 << 20},
		{UUID: "GPU-c", Index: 2, Model: "Model GPU-c", Memory: 16 << 20},
	}
	if got := b.Devices(); !reflect.DeepEqual(got, want) {
		t.Errorf("devices %+v, want %+v", got, want)
	}
	if notes := b.Notes(); len(notes) != 1 || !strings.Contains(notes[0], "GPU-d") || !strings.Contains(notes[0], "nvidia-smi mig") {
		t.Errorf("notes %q", notes)
	}
	reading, err := b.Read("MIG-a")
	if err != nil || reading.Busy != nil || *reading.MemoryUsed != 5 {
		t.Errorf("a partition: %+v, %v; want no utilisation, which it does not have", reading, err)
	}
	reading, err = b.Read("GPU-c")
	if err != nil || *reading.Busy != 420 || len(reading.Processes) != 2 || *reading.Processes[0].Memory != 7 || reading.Processes[1].Memory != nil {
		t.Errorf("a GPU: %+v, %v", reading, err)
	}
	b.tell("GPU-a", Gone, "a fault of the GPU")
	if e := <-b.events; e.UUID != "MIG-a" || e.Condition != Gone {
		t.Errorf("event %+v, want one of the instance on the GPU", e)
	}
}

func emptyMIG(uuid string) nvml.Device {
	d := mockDevice(uuid, 80<<20)
	d.GetMigModeFunc = func() (int, int, nvml.Return) {
		return nvml.DEVICE_MIG_ENABLE, nvml.DEVICE_MIG_ENABLE, nvml.SUCCESS
	}
	return d
}

// TestOldLibrary: a function that the library lacks is never called; calling it would end the process.
func TestOldLibrary(t *testing.T) {
	d := mockDevice("GPU-a", 16<<20)
	d.GetMigModeFunc, d.GetMemoryInfo_v2Func = nil, nil // the mock panics when these are called
	if got := mocked(t, "nvml", d).Devices(); len(got) != 1 || got[0].Memory != 16<<20 {
		t.Errorf("devices %+v", got)
	}
}

// TestErrorsBeforeAnybodyListened: memory errors that the driver reported while no agent ran are told of when one comes, for the whole GPU;
// what an older library cannot tell is not asked.
func TestErrorsBeforeAnybodyListened(t *testing.T) {
	device := func(uuid string, count uint64, pending, failed bool, parts ...nvml.Device) *mock.Device {
		d := mockDevice(uuid, 80<<20, parts...)
		d.GetRemappedRowsFunc = func() (int, int, bool, bool, nvml.Return) { return 0, 0, pending, failed, nvml.SUCCESS }
		d.GetTotalEccErrorsFunc = func(of nvml.MemoryErrorType, since nvml.EccCounterType) (uint64, nvml.Return) {
			if of != nvml.MEMORY_ERROR_TYPE_UNCORRECTED || since != nvml.VOLATILE_ECC {
				return 99, nvml.SUCCESS // what was corrected, or is older than the last reset
			}
			return count, nvml.SUCCESS
		}
		return d
	}
	parted := device("GPU-d", 0, true, false, mockDevice("MIG-d", 10<<20))
	devices := []nvml.Device{device("GPU-a", 0, false, false), device("GPU-b", 2, false, false), device("GPU-c", 0, true, true), parted}
	b := mocked(t, "", devices...)
	b.library.(*mock.Interface).DeviceGetHandleByUUIDFunc = func(string) (nvml.Device, nvml.Return) { return parted, nvml.SUCCESS }
	b.askStanding()
	b.askStanding() // told once
	told := map[string]Event{}
	for len(b.events) > 0 {
		e := <-b.events
		if _, again := told[e.UUID]; again || e.Condition != Sick {
			t.Errorf("event %+v", e)
		}
		told[e.UUID] = e
	}
	for uuid, reason := range map[string]string{"GPU-b": "last reset: 2", "GPU-c": "replaced", "MIG-d": "needs a reset"} {
		if !strings.Contains(told[uuid].Reason, reason) {
			t.Errorf("of %s: %+v, want %q", uuid, told[uuid], reason)
		}
	}
	if len(told) != 3 {
		t.Errorf("told of %v", told)
	}

	old := mockDevice("GPU-a", 16<<20) // the mock panics when it is asked what it has no function for
	b = mocked(t, "nvmlDeviceGet", old)
	if b.askStanding(); len(b.events) > 0 {
		t.Errorf("told of %+v", <-b.events)
	}
}
