package driver

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	cdi "tags.cncf.io/container-device-interface/specs-go"

	"github.com/aliquot-dev/aliquot/host/kube/cover"
	"github.com/aliquot-dev/aliquot/node"
)

// coverName begins the name of the program that container runtimes run for each container with a share; the build of it follows.
const coverName = "aliquot-cover-"

// coverSeconds is how long it may take; for most containers it takes milliseconds.
const coverSeconds = 10

// coverer is the program on the node, by its path there. Each build has a file of its own, for CDI files name it, and a runtime may have read the last one's.
type coverer string

// layCoverer puts the program on the node, into the first of the folders in which programs may be started. The run folder of an agent that is a container is none
// of those where the node's /run is not: what it mounts there, the container runtime does not see.
func layCoverer(program string, folders ...string) (coverer, error) {
	content, err := os.ReadFile(program)
	if err != nil {
		return "", fmt.Errorf("lay the program that begins containers with shares onto the node: %w; it is built and installed beside aliquot-kube", err)
	}
	for _, folder := range folders {
		if err := os.MkdirAll(folder, 0o755); err != nil {
			return "", fmt.Errorf("lay the program that begins containers with shares onto the node: %w", err)
		}
		var is unix.Statfs_t
		if err := unix.Statfs(folder, &is); err != nil {
			return "", fmt.Errorf("look at the file system of %s: %w", folder, err)
		}
		if is.Flags&unix.ST_NOEXEC != 0 {
			continue
		}
		path := filepath.Join(folder, fmt.Sprintf("%s%.6x", coverName, sha256.Sum256(content)))
		now := time.Now()
		have, err := os.ReadFile(path)
		if err != nil || !bytes.Equal(have, content) {
			err = errors.Join(replaceFile(path, content, 0o755), os.Chmod(path, 0o755)) // whatever the umask
		} else {
			err = os.Chtimes(path, now, now) // as the last that was used
		}
		if err != nil {
			return "", fmt.Errorf("lay the program that begins containers with shares onto the node: %w", err)
		}
		return coverer(path), nil
	}
	return "", fmt.Errorf("the container runtime can start no program in any of %s, as they are mounted with noexec; give another folder with --state", strings.Join(folders, ", "))
}

// removeEarlier removes the programs of earlier agents but for the last one's.
func (c coverer) removeEarlier() error {
	files, err := filepath.Glob(filepath.Join(filepath.Dir(string(c)), coverName+"*"))
	if err != nil {
		return err
	}
	type program struct {
		path string
		info fs.FileInfo
	}
	var earlier []program
	for _, file := range files {
		if strings.HasSuffix(file, unfinished) { // of an agent that was killed
			if err := os.Remove(file); err != nil {
				return err
			}
			continue
		}
		info, err := os.Stat(file)
		if err != nil {
			return err
		}
		if file != string(c) {
			earlier = append(earlier, program{file, info})
		}
	}
	slices.SortFunc(earlier, func(a, b program) int {
		return cmp.Or(b.info.ModTime().Compare(a.info.ModTime()), cmp.Compare(a.path, b.path))
	})
	for i, one := range earlier {
		if i == 0 {
			continue
		}
		if err := os.Remove(one.path); err != nil {
			return err
		}
	}
	return nil
}

// hooks have the container runtime run the program after a container's mounts are made and before its program begins: it gives the container its pages, and covers
// what there is to cover. A container without a share has none.
func (c coverer) hooks(made node.Container) []*cdi.Hook {
	if made.Pages == "" && len(made.Libraries) == 0 {
		return nil
	}
	order, seconds := cover.Order{Pages: made.Pages, Behind: made.Behind}, coverSeconds
	for _, one := range made.Libraries {
		order.Libraries = append(order.Libraries, cover.Library{Name: one.Name, By: one.By})
	}
	return []*cdi.Hook{{HookName: "createContainer", Path: string(c), Args: append([]string{string(c)}, order.Arguments()...), Timeout: &seconds}}
}
