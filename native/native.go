// Package native carries the native parts inside the binary: the shim, the arbiter and the simulated driver, as `make native`
// built them into dist. What comes out is files; it decides nothing.
package native

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
)

//go:embed all:dist
var dist embed.FS

// ErrNotBuilt is a binary that was built without its native parts.
var ErrNotBuilt = errors.New("this binary was built without its native parts; build it with `make build`")

// markerLength is the room that the shim's run path has for the driver's folder: see native/shim.
const markerLength = 256

// marker is the run path with which the shim is linked.
var marker = func() []byte {
	text := "/@ALIQUOT-DRIVER-FOLDER@"
	return []byte(text + strings.Repeat("/", markerLength-len(text)))
}()

// The folders under which the native parts lie in dist, and under which Install puts them.
var folders = []struct {
	dist, installed string
	mode            fs.FileMode
}{
	{"bin", "bin", 0o755},
	{"shim", "lib", 0o644},
	{"sim", "sim/driver", 0o644},
}

// What Install puts where, relative to the run folder.
const (
	Arbiter = "bin/aliquot-arbiter"
	SimGPU  = "bin/aliquot-simgpu"
	Shim    = "lib"        // folder of the shim's libraries
	Sim     = "sim/driver" // folder of the simulated driver's libraries
	Driver  = "driver"     // folder in which the shim looks for the driver; not filled by Install

	// Task is the folder in which the shim finds its task when the environment does not say where; only a task's own mount namespace has it.
	Task = Driver + "/task"
	// LastTask is where it looks for that after, in any namespace.
	LastTask = "/run/aliquot/task"
)

// Install puts the native parts under run: the programs into bin, the shim, made to look for the driver in run/driver, into lib,
// the simulated driver into sim/driver. A file that has the right content stays as it is; another is replaced by rename, so
// that programs that run from it or have it mapped keep theirs.
func Install(run string) error {
	root, err := fs.Sub(dist, "dist")
	if err != nil {
		return err
	}
	return install(root, run)
}

func install(parts fs.FS, run string) error {
	run, err := filepath.Abs(run)
	if err != nil {
		return fmt.Errorf("install the native parts: %w", err)
	}
	for _, need := range []string{"bin/aliquot-arbiter", "bin/aliquot-simgpu", "shim/libcuda.so.1", "shim/libnvidia-ml.so.1", "sim/libcuda.so.1", "sim/libnvidia-ml.so.1"} {
		if _, err := fs.Stat(parts, need); err != nil {
			return fmt.Errorf("install the native parts: %s is missing: %w", path.Base(need), ErrNotBuilt)
		}
	}
	for _, folder := range folders {
		to := filepath.Join(run, folder.installed)
		// Whatever the umask: tasks of other users look into it.
		if err := errors.Join(os.MkdirAll(to, 0o755), os.Chmod(to, 0o755)); err != nil {
			return fmt.Errorf("install the native parts: %w", err)
		}
		entries, err := fs.ReadDir(parts, folder.dist)
		if err != nil {
			return fmt.Errorf("install the native parts: %w", err)
		}
		for _, entry := range entries {
			content, err := fs.ReadFile(parts, path.Join(folder.dist, entry.Name()))
			if err != nil {
				return fmt.Errorf("install the native parts: %w", err)
			}
			if folder.dist == "shim" {
				if content, err = pointTo(content, filepath.Join(run, Driver)); err != nil {
					return fmt.Errorf("install the native parts: %s: %w", entry.Name(), err)
				}
			}
			if err := replace(filepath.Join(to, entry.Name()), content, folder.mode); err != nil {
				return fmt.Errorf("install the native parts: %w", err)
			}
		}
	}
	// Programs built against the development name find the shim too.
	return link("libcuda.so.1", filepath.Join(run, Shim, "libcuda.so"))
}

// pointTo writes the driver's folder over the marker in a shim's run path.
func pointTo(shim []byte, folder string) ([]byte, error) {
	if len(folder) >= markerLength {
		return nil, fmt.Errorf("the driver's folder %s has %d characters, the shim has room for %d; choose a shorter run folder", folder, len(folder), markerLength-1)
	}
	if count := bytes.Count(shim, marker); count != 1 {
		return nil, fmt.Errorf("found %d run path markers in the shim, want 1; rebuild with `make build`", count)
	}
	// The linker splits a run path at colons and expands dollar signs.
	if strings.ContainsAny(folder, ":$;") {
		return nil, fmt.Errorf("the run folder %s contains one of `:;$`, which a library path cannot; choose another", folder)
	}
	padded := make([]byte, markerLength)
	copy(padded, folder)
	return bytes.Replace(shim, marker, padded, 1), nil
}

// replace gives the file at name this content and mode, by rename and only where it differs.
func replace(name string, content []byte, mode fs.FileMode) error {
	if info, err := os.Lstat(name); err == nil && info.Mode() == mode {
		if have, err := os.ReadFile(name); err == nil && bytes.Equal(have, content) {
			return nil
		}
	}
	temporary, err := os.CreateTemp(filepath.Dir(name), ".new-*")
	if err != nil {
		return err
	}
	_, err = temporary.Write(content)
	err = errors.Join(err, temporary.Chmod(mode), temporary.Close())
	if err == nil {
		err = os.Rename(temporary.Name(), name)
	}
	if err != nil {
		_ = os.Remove(temporary.Name())
	}
	return err
}

// link makes name a symbolic link to target, by rename.
func link(target, name string) error {
	if have, err := os.Readlink(name); err == nil && have == target {
		return nil
	}
	temporary := name + ".new"
	_ = os.Remove(temporary)
	if err := os.Symlink(target, temporary); err != nil {
		return fmt.Errorf("install the native parts: %w", err)
	}
	return os.Rename(temporary, name)
}
