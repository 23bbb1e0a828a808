package device

import (
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/NVIDIA/go-nvml/pkg/dl"
	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// socketVariable tells the simulated driver's libraries where their server is, where that is not beside them.
const socketVariable = "ALIQUOT_SIMGPU"

// loaded is the management library of this process. There can be only one: the dynamic linker binds go-nvml's calls to the first
// that is loaded, and for good, so that one must also never be unmapped. A second simulated driver (another run folder, in tests)
// is therefore spoken to through the library of the first.
var loaded struct {
	sync.Mutex
	path      string
	simulated bool
	socket    string
	users     int
}

// load brings the management library up, has start make use of it, and returns what to call when it is no longer used, after
// Shutdown. The simulated library may connect only while start runs.
func load(d *driver, socket string, start func(nvml.Interface) error) (release func(), err error) {
	loaded.Lock()
	defer loaded.Unlock()
	path := d.root.here(d.management)
	other := loaded.path != "" && loaded.path != path
	switch {
	case other && !(loaded.simulated && d.simulated):
		return nil, fmt.Errorf("load %s: this process has loaded %s, and a process can use only one; start another process", path, loaded.path)
	case loaded.users > 0 && loaded.socket != socket:
		return nil, fmt.Errorf("load %s: this process uses the simulated driver at %s; close that first", path, loaded.socket)
	}
	if other {
		path = loaded.path
	}
	if loaded.path == "" {
		// Loaded once more than go-nvml does, so that its unloading never unmaps what the calls are bound to.
		if err := dl.New(path, dl.RTLD_LAZY|dl.RTLD_GLOBAL|dl.RTLD_NODELETE).Open(); err != nil {
			return nil, fmt.Errorf("load the driver's management library: %w", err)
		}
		loaded.path, loaded.simulated = path, d.simulated // for good, whether it finds a driver or not
	}
	if d.simulated {
		defer setenv(socketVariable, socket)()
	}
	library := nvml.New(nvml.WithLibraryPath(path))
	switch ret := library.Init(); ret {
	case nvml.SUCCESS:
	case nvml.ERROR_DRIVER_NOT_LOADED, nvml.ERROR_LIBRARY_NOT_FOUND:
		return nil, fmt.Errorf("%w: %s is installed, but says %q; is the kernel module loaded (lsmod | grep nvidia)?", ErrNoDriver, d.root.machine(d.management), ret.Error())
	case nvml.ERROR_LIB_RM_VERSION_MISMATCH:
		return nil, fmt.Errorf("%w: the kernel module is of another version than %s (%s); reboot this machine, or load the module anew", ErrNoDriver, d.root.machine(d.management), ret.Error())
	default:
		return nil, failed("start "+path, ret)
	}
	loaded.socket = socket
	if err := start(library); err != nil {
		_ = library.Shutdown()
		return nil, err
	}
	loaded.users++
	return func() {
		loaded.Lock()
		defer loaded.Unlock()
		loaded.users--
	}, nil
}

// setenv sets a variable for the C library too and returns what puts it back.
func setenv(name, value string) func() {
	before, was := os.LookupEnv(name)
	err := os.Setenv(name, value)
	return func() {
		if was {
			err = errors.Join(err, os.Setenv(name, before))
		} else {
			err = errors.Join(err, os.Unsetenv(name))
		}
		_ = err // only a name or value with a NUL fails, and neither has one
	}
}
