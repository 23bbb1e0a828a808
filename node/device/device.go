// Package device finds the accelerators of a machine and reads them: one backend a vendor, with what it can do declared, so that
// the rest of the system asks capabilities and never names. The simulated devices come through the same backend as real ones,
// because the simulated driver speaks the vendor's interface. In go the run folder and where to look for a driver; out come
// devices, readings, word of devices that fail, and how a program must be started so that it finds the shim in the driver's
// place. It never decides what a failing device means for the work on it.
package device

import (
	"errors"
	"log/slog"

	"github.com/aliquot-dev/aliquot/api"
)

// ErrNoDriver is a machine without a driver that a backend knows.
var ErrNoDriver = errors.New("no GPU driver found")

// Capabilities is what a backend can do.
type Capabilities struct {
	Discover     bool // finds devices by itself
	Partition    bool // makes and removes hardware partitions
	LimitCompute bool // compute floors and ceilings, changed while a task runs
	LimitMemory  bool // memory floors and ceilings, changed while a task runs
	Meter        bool // measures device time by task
}

// Info is a device as it was found.
type Info struct {
	UUID   string
	Index  int // the driver's, for display only
	Model  string
	Memory api.Bytes // that may be granted: total less what the driver keeps
	Parent string    // UUID of the device that this is a partition of; empty: none
	About  About
}

// Reading is what a device does now, by the driver's word. A nil pointer is not known.
type Reading struct {
	MemoryUsed *api.Bytes
	Busy       *api.Milli
	Processes  []Process
	Unseen     api.Unseen // what the driver does not tell of its processes; empty: it tells of all, with their memory
}

// Process is a process that computes on a device.
type Process struct {
	PID    int
	Memory *api.Bytes // nil: not known
}

// Condition is how well a device is.
type Condition int

// The conditions. Sick runs on but should be looked at; Gone answers nothing or lost its state.
const (
	Well Condition = iota
	Sick
	Gone
	Same // as it was: a program on it failed, and the driver said so
)

// Event is a change of a device's condition or, with Same, a fault that changes nothing; with the reason in one sentence.
type Event struct {
	UUID      string
	Condition Condition
	Reason    string
}

// Mount is a file or folder to bind over another, in order.
type Mount struct{ Source, Target string }

// Launch is how a program must be started to find the shim in the driver's place.
type Launch struct {
	Env    []string // KEY=VALUE
	Mounts []Mount  // empty: the environment alone does it
	Notes  []string // what escapes, one sentence each
}

// Library is one that programs ask for and are to find in no version but ours: every file of its name, whatever version follows that, is to be covered by another.
type Library struct {
	Name string // libcuda.so
	By   string // path in the container, one of its mounts' targets
}

// Container is what a container needs to use devices, and to find the shim in the driver's place.
type Container struct {
	Env       []string  // KEY=VALUE
	Mounts    []Mount   // to be made read-only; sources are paths of the machine
	Devices   []string  // device files of the machine, which the container has under the same path
	Task      string    // where the task's folder is to be, for a program that throws its environment away
	Libraries []Library // of which an image may have its own, which is to be covered
	Behind    []string  // the driver behind the shim, as paths in the container, which is not
}

// Backend is one way to devices.
type Backend interface {
	Capabilities() Capabilities
	// Devices lists what was found when the backend was opened, in the driver's order.
	Devices() []Info
	// Notes says what was found but cannot be shared, and why.
	Notes() []string
	// Read reads one device.
	Read(uuid string) (Reading, error)
	// Events gives changes of condition until Close, which closes it.
	Events() <-chan Event
	// Launch says how to start a program that was granted these devices, in this order.
	Launch(devices []string) Launch
	// Container says the same of a container. It fails where device files are not there and cannot be made.
	Container(devices []string) (Container, error)
	// Administrator is Container without the shim, and without a task.
	Administrator(devices []string) (Container, error)
	// Replaced says that the driver that was found is not there any more: who opened the backend is to open another, in another process.
	Replaced() error
	Close() error
}

// Options says where to find devices and where to make the driver reachable for the shim.
type Options struct {
	Run       string // the run folder, with the native parts installed
	Simulated bool   // the simulated driver's devices instead of the machine's
	Socket    string // of the simulated driver
	// Folders is where the driver's libraries are looked for; empty: the linker's cache and the usual folders.
	Folders []string
	Root    Root // in which the driver's files are, Folders too; of a simulated driver there is none
	Log     *slog.Logger
}

// Open finds the driver, makes it reachable for the shim and lists its devices. It wraps ErrNoDriver where there is none.
func Open(options Options) (Backend, error) {
	driver, err := findHere(options)
	if err != nil {
		return nil, err
	}
	if err := driver.arrange(); err != nil {
		return nil, err
	}
	return openNVML(driver, options)
}

// findHere finds the driver, and has its devices found where its own program that sees to that is not here.
func findHere(options Options) (*driver, error) {
	driver, err := findDriver(options)
	if err != nil || options.Root.own() {
		return driver, err
	}
	if err := machineOf(options).makeGPUs(); err != nil && options.Log != nil { // what lacks shows when devices are looked for
		options.Log.Warn("not all device files of GPUs could be made", "error", err)
	}
	return driver, nil
}

// Usable says why a machine has no device that containers could be given, with ErrNoDriver where it may have some later; nil: it has. It leaves the run folder alone.
func Usable(options Options) error {
	driver, err := findHere(options)
	if err != nil {
		return err
	}
	return usableNVML(driver, options)
}

// Count says how many devices the driver that Open would use knows, instances of one each for one.
func Count(folders []string) (int, error) {
	driver, err := findDriver(Options{Folders: folders})
	if err != nil {
		return 0, err
	}
	b, err := lookNVML(driver, Options{Folders: folders})
	if err != nil {
		return 0, err
	}
	return len(b.gpus), nil
}

// Present says whether the machine has a driver that Open would use, and if not, why.
func Present(folders []string) error {
	_, err := findDriver(Options{Folders: folders})
	return err
}
