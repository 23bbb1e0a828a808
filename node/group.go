package node

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// group is a control group in every hierarchy of the machine, for what outlives the agent: a container runtime ends all that is in a
// container's own group when its first process has ended. Its folders; none: what is started stays in the agent's group.
type group []string

// openGroup makes the group of this name, a path below the root of each hierarchy; empty: there is none.
func openGroup(name string) (group, error) {
	if name == "" {
		return nil, nil
	}
	if !filepath.IsLocal(name) {
		return nil, fmt.Errorf("use control group %q: write its path below the root of the hierarchies, as aliquot", name)
	}
	mounts, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("use control group %s: %w", name, err)
	}
	defer mounts.Close()
	roots, err := hierarchies(mounts)
	if err != nil {
		return nil, fmt.Errorf("use control group %s: %w", name, err)
	}
	var g group
	for _, root := range roots {
		if err := makeGroup(root, name); err != nil {
			return nil, fmt.Errorf("use control group %s: %w", name, err)
		}
		g = append(g, filepath.Join(root, name))
	}
	return g, nil
}

// hierarchies are the folders at which whole hierarchies of control groups are mounted, one of each, from proc_pid_mountinfo(5). A container
// sees its own part of them unless it was given the machine's.
func hierarchies(mounts io.Reader) ([]string, error) {
	var roots []string
	known := map[string]bool{} // by device number, which is the hierarchy's own
	for lines := bufio.NewScanner(mounts); lines.Scan(); {
		before, after, found := strings.Cut(lines.Text(), " - ")
		fields, kind := strings.Fields(before), strings.Fields(after)
		if !found || len(fields) < 6 || len(kind) < 1 || kind[0] != "cgroup" && kind[0] != "cgroup2" {
			continue
		}
		device, root, at := fields[2], fields[3], fields[4]
		if readOnly := strings.Split(fields[5], ",")[0] == "ro"; root == "/" && !readOnly && !known[device] {
			known[device] = true
			roots = append(roots, at)
		}
	}
	if len(roots) == 0 {
		return nil, errors.New("none of the machine's control groups can be written here; give a container the machine's /sys/fs/cgroup")
	}
	return roots, nil
}

// makeGroup makes a group below a hierarchy's root. In version 1 a new group has neither processors nor memory nodes and nothing can
// run in it: it gets its parent's.
func makeGroup(root, name string) error {
	folder := root
	for _, element := range strings.Split(filepath.Clean(name), string(filepath.Separator)) {
		parent := folder
		folder = filepath.Join(parent, element)
		if err := os.Mkdir(folder, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
			if err := inherit(parent, folder, file); err != nil {
				return err
			}
		}
	}
	return nil
}

// inherit gives a group what its parent has of something, where there is such a thing and it has none.
func inherit(parent, folder, file string) error {
	have, err := os.ReadFile(filepath.Join(folder, file))
	if errors.Is(err, fs.ErrNotExist) || err == nil && strings.TrimSpace(string(have)) != "" {
		return nil
	}
	if err != nil {
		return err
	}
	theirs, err := os.ReadFile(filepath.Join(parent, file))
	if errors.Is(err, fs.ErrNotExist) { // the root of version 2, where nothing means all
		return nil
	}
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(folder, file), theirs, 0)
}

// take moves a process into the group.
func (g group) take(pid int) error {
	var failed error
	for _, folder := range g {
		err := os.WriteFile(filepath.Join(folder, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0)
		if err != nil && !errors.Is(err, unix.ESRCH) { // one that has ended is missed by whoever waits for its answer
			failed = errors.Join(failed, fmt.Errorf("move process %d into control group %s: %w", pid, folder, err))
		}
	}
	return failed
}
