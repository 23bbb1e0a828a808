package device

import (
	"fmt"
	"log/slog"
	"strings"
	"sync"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/aliquot-dev/aliquot/api"
)

// granularity is what the driver hands memory out in, bytes: what may be granted is rounded down to it.
const granularity = 2 << 20

// gpu is one device as NVML knows it.
type gpu struct {
	Info
	handle nvml.Device
	whole  string // UUID of the GPU that it is, or is a partition of: faults are the GPU's
	minor  int    // by which that GPU's device file is named
}

// nvmlBackend is NVIDIA's management library, real or simulated.
type nvmlBackend struct {
	library nvml.Interface
	driver  *driver
	log     *slog.Logger
	machine files
	sysfs   string // where the machine tells of its devices; empty: these are none of it
	release func()
	gpus    []gpu
	notes   []string
	faults  *faults

	listening nvml.EventSet
	listens   bool // the library reports faults

	events chan Event
	stop   chan struct{}
	done   sync.WaitGroup
	use    sync.RWMutex // held by those who read, so that the library is not closed under them
	ended  bool
}

func newNVML(d *driver, options Options) *nvmlBackend {
	b := &nvmlBackend{
		driver: d, machine: machineOf(options), log: options.Log, notes: d.notes, faults: newFaults(), events: make(chan Event), stop: make(chan struct{}),
	}
	if b.log == nil {
		b.log = slog.New(slog.DiscardHandler)
	}
	if !options.Simulated {
		b.sysfs = "/sys"
	}
	return b
}

func openNVML(d *driver, options Options) (Backend, error) {
	b := newNVML(d, options)
	release, err := load(d, options.Socket, func(library nvml.Interface) error {
		b.library = library
		if err := b.discover(); err != nil {
			return err
		}
		// From here on no fault is missed, whoever opens the backend takes them when it is ready.
		b.listening, b.listens = b.register()
		return nil
	})
	if err != nil {
		return nil, err
	}
	b.release = release
	b.done.Go(b.watch)
	return b, nil
}

// usableNVML is Usable by NVIDIA's management library.
func usableNVML(d *driver, options Options) error {
	b, err := lookNVML(d, options)
	if err != nil {
		return err
	}
	if len(b.gpus) == 0 {
		return fmt.Errorf("%w: %s lists no GPU that can be shared. %s", ErrNoDriver, d.root.machine(d.management), strings.Join(b.notes, " "))
	}
	if _, err := b.machine.common(); err != nil {
		return fmt.Errorf("%w: %w", ErrNoDriver, err)
	}
	return nil
}

// lookNVML is what NVIDIA's management library knows now; it is closed again.
func lookNVML(d *driver, options Options) (*nvmlBackend, error) {
	b := newNVML(d, options)
	release, err := load(d, options.Socket, func(library nvml.Interface) error {
		b.library = library
		return b.discover()
	})
	if err != nil {
		return nil, err
	}
	defer release()
	_ = b.library.Shutdown() // what it found is all that is asked of it
	return b, nil
}

// failed is an error of NVML in words.
func failed(what string, ret nvml.Return) error {
	return fmt.Errorf("%s: %s (NVML)", what, ret.Error())
}

// has says whether the library defines a symbol. Calling one that it lacks would end the process.
func (b *nvmlBackend) has(symbol string) bool {
	return b.library.Extensions().LookupSymbol(symbol) == nil
}

func (b *nvmlBackend) discover() error {
	count, ret := b.library.DeviceGetCount()
	if ret != nvml.SUCCESS {
		return failed("count the GPUs", ret)
	}
	for i := range count {
		handle, ret := b.library.DeviceGetHandleByIndex(i)
		if ret != nvml.SUCCESS {
			b.notes = append(b.notes, fmt.Sprintf("GPU %d does not answer (%s) and is left out.", i, ret.Error()))
			continue
		}
		whole, err := b.describe(handle, i)
		if err != nil {
			b.notes = append(b.notes, fmt.Sprintf("GPU %d is left out: %v.", i, err))
			continue
		}
		whole.whole, whole.minor, whole.About = whole.UUID, i, b.about(handle)
		if minor, ret := handle.GetMinorNumber(); ret == nvml.SUCCESS {
			whole.minor = minor // as its index is, as a rule
		}
		if !b.partitioned(handle) {
			b.gpus = append(b.gpus, whole)
			continue
		}
		found := len(b.gpus)
		b.discoverParts(whole)
		if len(b.gpus) == found {
			b.notes = append(b.notes, fmt.Sprintf("GPU %d (%s) is in MIG mode and has no instance, so it cannot be shared; create instances with nvidia-smi mig, or turn MIG mode off.", i, whole.UUID))
		}
	}
	b.link()
	return nil
}

// partitioned says whether a GPU is in MIG mode: then its instances are the devices, not itself.
func (b *nvmlBackend) partitioned(handle nvml.Device) bool {
	if !b.has("nvmlDeviceGetMigMode") || !b.has("nvmlDeviceGetMaxMigDeviceCount") || !b.has("nvmlDeviceGetMigDeviceHandleByIndex") {
		return false
	}
	mode, _, ret := handle.GetMigMode()
	return ret == nvml.SUCCESS && mode == nvml.DEVICE_MIG_ENABLE
}

func (b *nvmlBackend) discoverParts(whole gpu) {
	count, ret := whole.handle.GetMaxMigDeviceCount()
	if ret != nvml.SUCCESS {
		b.notes = append(b.notes, fmt.Sprintf("The instances of GPU %s cannot be listed (%s).", whole.UUID, ret.Error()))
		return
	}
	for i := range count {
		handle, ret := whole.handle.GetMigDeviceHandleByIndex(i)
		if ret != nvml.SUCCESS {
			continue // not every index is taken
		}
		part, err := b.describe(handle, whole.Index)
		if err != nil {
			b.notes = append(b.notes, fmt.Sprintf("Instance %d of GPU %s is left out: %v.", i, whole.UUID, err))
			continue
		}
		part.Parent, part.whole, part.minor, part.About = whole.UUID, whole.UUID, whole.minor, whole.About
		part.About.LinkDomain = "" // instances have no links
		b.gpus = append(b.gpus, part)
	}
}

func (b *nvmlBackend) describe(handle nvml.Device, index int) (gpu, error) {
	uuid, ret := handle.GetUUID()
	if ret != nvml.SUCCESS {
		return gpu{}, failed("its UUID", ret)
	}
	model, ret := handle.GetName()
	if ret != nvml.SUCCESS {
		return gpu{}, failed("its model", ret)
	}
	total, _, err := b.memory(handle)
	if err != nil {
		return gpu{}, err
	}
	info := Info{UUID: uuid, Index: index, Model: model, Memory: total / granularity * granularity}
	return gpu{Info: info, handle: handle}, nil
}

// memory is what may be granted of a device, and what of it is used.
func (b *nvmlBackend) memory(handle nvml.Device) (total, used api.Bytes, err error) {
	if b.has("nvmlDeviceGetMemoryInfo_v2") {
		// Only this version tells what the driver keeps for itself from what is used.
		if memory, ret := handle.GetMemoryInfo_v2(); ret == nvml.SUCCESS {
			return api.Bytes(memory.Total - memory.Reserved), api.Bytes(memory.Used), nil
		}
	}
	memory, ret := handle.GetMemoryInfo()
	if ret != nvml.SUCCESS {
		return 0, 0, failed("its memory", ret)
	}
	return api.Bytes(memory.Total), api.Bytes(memory.Used), nil
}

// Capabilities is what Aliquot can do on these devices. Instances are listed, but made by others.
func (b *nvmlBackend) Capabilities() Capabilities {
	return Capabilities{Discover: true, LimitCompute: true, LimitMemory: true, Meter: true}
}

// Devices lists what was found.
func (b *nvmlBackend) Devices() []Info {
	infos := make([]Info, len(b.gpus))
	for i, g := range b.gpus {
		infos[i] = g.Info
	}
	return infos
}

// Notes says what cannot be shared or escapes.
func (b *nvmlBackend) Notes() []string { return b.notes }

// Launch says how to start a program.
func (b *nvmlBackend) Launch(devices []string) Launch { return b.driver.launch(devices) }

// Container says how to make a container.
func (b *nvmlBackend) Container(devices []string) (Container, error) {
	return b.withFiles(b.driver.container(devices), devices)
}

// Administrator says how to make one without the shim.
func (b *nvmlBackend) Administrator(devices []string) (Container, error) {
	return b.withFiles(b.driver.administrator(devices), devices)
}

// withFiles is a container with the files of its devices.
func (b *nvmlBackend) withFiles(c Container, devices []string) (Container, error) {
	if b.driver.simulated {
		return c, nil
	}
	if err := b.driver.replaced(); err != nil {
		return c, err
	}
	var err error
	c.Devices, err = b.files(devices)
	return c, err
}

// Replaced says that the driver was.
func (b *nvmlBackend) Replaced() error { return b.driver.replaced() }

// Events gives changes of condition.
func (b *nvmlBackend) Events() <-chan Event { return b.events }

// Read reads one device. What the driver does not tell of it (a partition's utilisation) stays nil.
func (b *nvmlBackend) Read(uuid string) (Reading, error) {
	b.use.RLock()
	defer b.use.RUnlock()
	if b.ended {
		return Reading{}, fmt.Errorf("read device %s: the backend is closed", uuid)
	}
	for _, g := range b.gpus {
		if g.UUID != uuid {
			continue
		}
		_, used, err := b.memory(g.handle)
		if err != nil {
			return Reading{}, fmt.Errorf("read device %s: %w", uuid, err)
		}
		reading := Reading{MemoryUsed: &used}
		if g.Parent == "" {
			if use, ret := g.handle.GetUtilizationRates(); ret == nvml.SUCCESS {
				busy := min(api.Milli(use.Gpu)*10, api.WholeDevice)
				reading.Busy = &busy
			}
		}
		processes, ret := g.handle.GetComputeRunningProcesses()
		if ret != nvml.SUCCESS && ret != nvml.ERROR_NOT_SUPPORTED {
			return reading, fmt.Errorf("read device %s: %w", uuid, failed("its processes", ret))
		}
		if ret == nvml.ERROR_NOT_SUPPORTED {
			reading.Unseen = api.UnseenProcesses
		}
		for _, p := range processes {
			process := Process{PID: int(p.Pid)}
			if int64(p.UsedGpuMemory) != nvml.VALUE_NOT_AVAILABLE {
				memory := api.Bytes(p.UsedGpuMemory)
				process.Memory = &memory
			} else {
				reading.Unseen = api.UnseenMemory
			}
			reading.Processes = append(reading.Processes, process)
		}
		return reading, nil
	}
	return Reading{}, fmt.Errorf("read device %s: no such device", uuid)
}

// Close ends the listening and lets the library go. Closing again does nothing.
func (b *nvmlBackend) Close() error {
	b.use.Lock()
	defer b.use.Unlock()
	if b.ended {
		return nil
	}
	b.ended = true
	close(b.stop)
	b.done.Wait()
	close(b.events)
	defer b.release()
	if ret := b.library.Shutdown(); ret != nvml.SUCCESS && ret != nvml.ERROR_UNINITIALIZED {
		return failed("close the driver's management library", ret)
	}
	return nil
}
