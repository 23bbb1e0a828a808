// Package cgroup holds tasks to limits of CPU and memory with the kernel's control groups, version 1 or 2, where the machine allows
// it. What comes in are a task's name and limits; what goes out are folders to put its processes into. It decides nothing, and
// says in one sentence what the machine does not allow.
package cgroup

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/aliquot-dev/aliquot/api"
)

const (
	// home is the group under which the groups of tasks are made, leaf the one that the daemon itself moves into: version 2 wants
	// processes in leaves only.
	home = "aliquot-tasks"
	leaf = "aliquot-daemon"

	period = 100_000 // µs, over which a CPU limit is kept
)

// Limits are what a task may use; 0: no limit.
type Limits struct {
	CPU    api.Milli // thousandths of a core
	Memory api.Bytes
}

// Tree is where the groups of this server's tasks are made.
type Tree struct {
	unified string            // folder of version 2; empty: version 1
	mount   string            // where version 2 is mounted
	v1      map[string]string // folder by controller
	err     error             // why no group can be made
	once    sync.Once         // for delegate
}

// Open finds where groups can be made. A machine on which none can is no error until a limit is asked for.
func Open() *Tree {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return &Tree{err: err}
	}
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return &Tree{err: err}
	}
	return locate(string(mounts), string(own))
}

// locate reads from mountinfo and /proc/self/cgroup where the controllers cpu and memory are and which group is ours.
func locate(mounts, own string) *Tree {
	paths := map[string]string{} // our group by controller; "" is version 2's
	for line := range strings.Lines(own) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) != 3 {
			continue
		}
		for _, controller := range strings.Split(parts[1], ",") {
			paths[controller] = parts[2]
		}
	}
	tree := &Tree{v1: map[string]string{}}
	var unified, mount string
	scanner := bufio.NewScanner(strings.NewReader(mounts))
	for scanner.Scan() {
		before, after, ok := strings.Cut(scanner.Text(), " - ")
		fields, types := strings.Fields(before), strings.Fields(after)
		if !ok || len(fields) < 5 || len(types) < 3 {
			continue
		}
		switch types[0] {
		case "cgroup2":
			unified, mount = below(fields[4], fields[3], paths[""]), fields[4]
		case "cgroup":
			for _, option := range strings.Split(types[2], ",") {
				if option == "cpu" || option == "memory" {
					tree.v1[option] = below(fields[4], fields[3], paths[option])
				}
			}
		}
	}
	switch {
	case len(tree.v1) > 0: // a machine with both keeps these controllers in version 1
	case unified != "":
		tree.unified, tree.mount = strings.TrimSuffix(unified, "/"+leaf), mount
	default:
		tree.err = errors.New("no control groups are mounted")
	}
	return tree
}

// below is the folder of a group, given where its hierarchy is mounted and which part of it is.
func below(mount, root, group string) string {
	inside, ok := strings.CutPrefix(group, strings.TrimSuffix(root, "/"))
	if !ok {
		inside = "" // outside of what is mounted, as in some containers: the mount is the best there is
	}
	return filepath.Join(mount, inside)
}

// delegate makes the groups under which tasks may have limits, and passes the controllers down. Where systemd rules the hierarchy they
// are in a scope that it hands to us; else below our own group, which this process leaves for a leaf.
func (t *Tree) delegate() error {
	isRoot := !exists(filepath.Join(t.unified, "cgroup.type"))
	switch {
	case exists(systemdRuns):
		folder, err := openScope(t.mount)
		if err != nil {
			return err
		}
		t.unified = folder
	case !isRoot:
		if err := empty(t.unified, filepath.Join(t.unified, leaf)); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(filepath.Join(t.unified, home), 0o755); err != nil {
		return err
	}
	for _, folder := range []string{t.unified, filepath.Join(t.unified, home)} {
		if err := put(folder, "cgroup.subtree_control", "+cpu +memory"); err != nil {
			return err
		}
	}
	return nil
}

// empty moves this process out of a group in which no other is; it refuses to move others' about.
func empty(from, to string) error {
	list, err := os.ReadFile(filepath.Join(from, "cgroup.procs"))
	if err != nil {
		return err
	}
	for _, pid := range strings.Fields(string(list)) {
		if pid != strconv.Itoa(os.Getpid()) {
			return fmt.Errorf("the control group %s holds other programs too: start the server as a service (deploy/aliquot.service)", from)
		}
	}
	return move(to, os.Getpid())
}

func move(to string, pid int) error {
	if err := os.MkdirAll(to, 0o755); err != nil {
		return err
	}
	return put(to, "cgroup.procs", strconv.Itoa(pid))
}

// Try says whether a task of this name can be held to its limits here. It leaves nothing behind.
func (t *Tree) Try(task string, limits Limits) error {
	_, err := t.Make(task, limits)
	if err == nil && limits != (Limits{}) {
		t.Remove(task)
	}
	return err
}

// Make makes the groups of a task and sets its limits. It returns the folders to Enter; without limits there are none.
func (t *Tree) Make(task string, limits Limits) ([]string, error) {
	if limits == (Limits{}) {
		return nil, nil
	}
	t.once.Do(func() {
		if t.err == nil && t.unified != "" {
			t.err = t.delegate()
		}
	})
	if t.err != nil {
		return nil, t.err
	}
	var folders []string
	set := func(base, file, value string) error {
		folder := filepath.Join(base, home, task)
		if err := os.MkdirAll(folder, 0o755); err != nil {
			return err
		}
		if len(folders) == 0 || folders[len(folders)-1] != folder {
			folders = append(folders, folder)
		}
		return put(folder, file, value)
	}
	quota := strconv.FormatInt(int64(limits.CPU)*period/1000, 10)
	memory := strconv.FormatInt(int64(limits.Memory), 10)
	cpuBase, cpuFile, cpuValue := t.v1["cpu"], "cpu.cfs_quota_us", quota
	memoryBase, memoryFile := t.v1["memory"], "memory.limit_in_bytes"
	if t.unified != "" {
		cpuBase, cpuFile, cpuValue = t.unified, "cpu.max", fmt.Sprintf("%s %d", quota, period)
		memoryBase, memoryFile = t.unified, "memory.max"
	}
	var err error
	if limits.CPU > 0 {
		if cpuBase == "" {
			return nil, errors.New("no control group for CPU is mounted")
		}
		err = set(cpuBase, cpuFile, cpuValue)
	}
	if limits.Memory > 0 && err == nil {
		if memoryBase == "" {
			return nil, errors.New("no control group for memory is mounted")
		}
		err = set(memoryBase, memoryFile, memory)
	}
	if err != nil {
		t.Remove(task)
		return nil, err
	}
	return folders, nil
}

// Remove removes the groups of a task, which must have no processes left.
func (t *Tree) Remove(task string) {
	bases := []string{t.unified, t.v1["cpu"], t.v1["memory"]}
	if t.mount != "" {
		bases = append(bases, scopeFolders(t.mount)...) // of a task that an earlier server started
	}
	for _, base := range bases {
		if base != "" {
			_ = os.Remove(filepath.Join(base, home, task)) // one that is not there is as good as removed
		}
	}
}

// Enter makes the next process that this thread starts with attributes begin inside the groups. The thread must be locked. The
// function returned, never nil, must be called after the start: it takes the thread out again.
func Enter(folders []string, attributes *syscall.SysProcAttr) (func(), error) {
	var undo []func()
	leave := func() {
		for _, one := range undo {
			one()
		}
	}
	for _, folder := range folders {
		if exists(filepath.Join(folder, "tasks")) { // version 1, where a single thread can be moved
			if err := put(folder, "tasks", "0"); err != nil {
				return leave, err
			}
			outside := filepath.Dir(filepath.Dir(folder))
			undo = append(undo, func() { _ = put(outside, "tasks", "0") })
			continue
		}
		fd, err := unix.Open(folder, unix.O_DIRECTORY|unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return leave, fmt.Errorf("open the group %s: %w", folder, err)
		}
		attributes.UseCgroupFD, attributes.CgroupFD = true, fd
		undo = append(undo, func() { _ = unix.Close(fd) })
	}
	return leave, nil
}

// OOMKills is how many processes of a group the kernel killed because it passed its memory limit; 0 where that is not known.
func OOMKills(folder string) int {
	for _, name := range []string{"memory.events", "memory.oom_control"} {
		data, err := os.ReadFile(filepath.Join(folder, name))
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(data)) {
			if count, ok := strings.CutPrefix(strings.TrimSpace(line), "oom_kill "); ok {
				kills, _ := strconv.Atoi(count)
				return kills
			}
		}
	}
	return 0
}

func put(folder, file, value string) error {
	path := filepath.Join(folder, file)
	// No O_CREATE: a file that is not there is a controller that is not.
	open, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = open.WriteString(value)
	return errors.Join(err, open.Close())
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
