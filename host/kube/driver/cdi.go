package driver

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	cdi "tags.cncf.io/container-device-interface/specs-go"

	"github.com/aliquot-dev/aliquot/node"
	"github.com/aliquot-dev/aliquot/node/device"
)

// cdiKind is the kind of CDI devices that a claim is; one device a claim, named by its UID, which is never another's.
const cdiKind = Name + "/claim"

func cdiID(uid string) string { return cdiKind + "=" + uid }

// container says where in the node's run folder is what a container needs, and where programs in it look for the driver.
type container struct {
	run string // RUN of docs/architecture.md, under the same path in the container
	cdi string // folder of the CDI files
}

// libraries are the folders in which programs look for the driver by default, on Debian's kin and Red Hat's.
var libraries = []string{"/usr/lib/x86_64-linux-gnu", "/usr/lib64"}

// taskFolder is where the shim looks for the task's folder in a container whose program has thrown its environment away.
const taskFolder = "/run/aliquot/task"

// edits is what a container of a task gets: the shim and the simulated driver, read-only, the task's folder, read-only but for the page
// that the tenant itself writes, and the environment of node. The run folder's own path is kept, since the shim has it in its run path.
//
// Folders are mounted rather than files where what is in them may be replaced while the container runs: the arbiter's socket is made anew when
// that starts. The shim is also laid over the places where programs look for the driver, and the task's folder put where the shim looks for
// one, for a program that throws its environment away.
func (c container) edits(uid string, launch node.Launch) (cdi.ContainerEdits, error) {
	if len(launch.Mounts) > 0 {
		return cdi.ContainerEdits{}, errors.New("the devices are real, and containers on those cannot be held to shares yet; start the agent with --simulate")
	}
	mount := func(from, to, mode string) *cdi.Mount {
		return &cdi.Mount{HostPath: from, ContainerPath: to, Options: []string{mode, "rbind", "nosuid", "nodev"}}
	}
	same := func(mode string, elements ...string) *cdi.Mount {
		path := filepath.Join(append([]string{c.run}, elements...)...)
		return mount(path, path, mode)
	}
	// The runtime would replace an image's own path of libraries; the mounts below do without one.
	env := slices.DeleteFunc(slices.Clone(launch.Env), func(variable string) bool { return strings.HasPrefix(variable, "LD_LIBRARY_PATH=") })
	edits := cdi.ContainerEdits{Env: env, Mounts: []*cdi.Mount{
		same("ro", "lib"), same("ro", "driver"), same("ro", "sim"), same("ro", "tasks", uid), same("rw", "tasks", uid, "tel"),
		mount(filepath.Join(c.run, "tasks", uid), taskFolder, "ro"), mount(filepath.Join(c.run, "tasks", uid, "tel"), filepath.Join(taskFolder, "tel"), "rw"),
	}}
	for _, folder := range libraries {
		for _, name := range device.LibraryNames() {
			edits.Mounts = append(edits.Mounts, mount(filepath.Join(c.run, "lib", name), filepath.Join(folder, name), "ro"))
		}
	}
	return edits, nil
}

// path is the file of a claim. The runtime takes the file's name for nothing; ours say whose they are.
func (c container) path(uid string) string {
	return filepath.Join(c.cdi, strings.ReplaceAll(cdiKind, "/", "-")+"_"+uid+".json")
}

// write makes a claim's CDI file.
func (c container) write(uid string, launch node.Launch) error {
	edits, err := c.edits(uid, launch)
	if err != nil {
		return err
	}
	content, err := json.MarshalIndent(cdi.Spec{
		Version: "0.7.0", Kind: cdiKind, Devices: []cdi.Device{{Name: uid, ContainerEdits: edits}},
	}, "", "\t")
	if err != nil {
		return err
	}
	if err := replaceFile(c.path(uid), content, 0o644); err != nil {
		return fmt.Errorf("write the CDI file: %w", err)
	}
	return nil
}

func (c container) remove(uid string) error {
	err := os.Remove(c.path(uid))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// list are the UIDs of the claims that have a CDI file. What was half written when a driver was killed is removed.
func (c container) list() ([]string, error) {
	half, err := filepath.Glob(c.path("*") + unfinished)
	if err != nil {
		return nil, err
	}
	for _, file := range half {
		if err := os.Remove(file); err != nil {
			return nil, err
		}
	}
	files, err := filepath.Glob(c.path("*"))
	if err != nil {
		return nil, err
	}
	before, after, _ := strings.Cut(c.path("*"), "*")
	for i, file := range files {
		files[i] = strings.TrimSuffix(strings.TrimPrefix(file, before), after)
	}
	return files, nil
}
