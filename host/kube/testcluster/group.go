package testcluster

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// group is the control group of a cluster, in every hierarchy: what it starts itself is in `system`, kubelet makes `kubepods` beside it.
// So whatever the cluster ever started is found again, by whoever looks, also after its parents have ended.
type group struct {
	name    string   // in its hierarchies, without a slash
	folders []string // of all hierarchies
	track   string   // of these, the one that the cluster's own processes are in
}

// system is where the cluster's own processes are; what is started in it stays there, also containers' shims.
const system = "system"

// findGroup looks where the group is or would be; it makes nothing.
func findGroup(name string) (*group, error) {
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return nil, fmt.Errorf("find control groups: %w", err)
	}
	g := &group{name: name}
	for line := range strings.Lines(string(mounts)) {
		fields := strings.Fields(line)
		if len(fields) < 3 {
			continue
		}
		switch fields[2] {
		case "cgroup":
			g.folders = append(g.folders, filepath.Join(fields[1], name))
		case "cgroup2": // with those of version 1 beside it, it has no controllers; runc uses it all the same
			g.folders = append(g.folders, filepath.Join(fields[1], name))
		}
	}
	if len(g.folders) == 0 {
		return nil, errors.New("find control groups: none are mounted; mount them at /sys/fs/cgroup")
	}
	g.track = g.folders[0]
	return g, nil
}

// weights are the files by which a group has more of the processors than others that want them too, and what is in them: twenty times the usual, in
// version 1 and in version 2.
var weights = map[string]string{"cpu.shares": "20480", "cpu.weight": "2000"}

// first has what is in the group go before what is not, wherever both have something to do on the same processors.
func (g *group) first() error {
	for _, folder := range g.folders {
		for file, weight := range weights {
			if _, err := os.Stat(filepath.Join(folder, file)); err != nil {
				continue // another controller's hierarchy, or the other version
			}
			if err := os.WriteFile(filepath.Join(folder, file), []byte(weight), 0); err != nil {
				return fmt.Errorf("give a control group more of the processors: %w", err)
			}
		}
	}
	return nil
}

// make makes the group in every hierarchy.
func (g *group) make() error {
	for _, folder := range g.folders {
		parent := filepath.Dir(folder)
		if controllers, err := os.ReadFile(filepath.Join(parent, "cgroup.controllers")); err == nil { // version 2 asks for each
			for _, controller := range strings.Fields(string(controllers)) {
				// One that cannot be had is found missing by kubelet, which says so.
				_ = os.WriteFile(filepath.Join(parent, "cgroup.subtree_control"), []byte("+"+controller), 0)
			}
		}
		if err := os.MkdirAll(filepath.Join(folder, system), 0o755); err != nil {
			return fmt.Errorf("make a control group: %w", err)
		}
		// In version 1 a new group has neither processors nor memory nodes, and nothing can run in it.
		for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
			if err := cmp.Or(inherit(folder, file), inherit(filepath.Join(folder, system), file)); err != nil {
				return fmt.Errorf("make a control group: %w", err)
			}
		}
		promise(folder)
		promise(filepath.Join(folder, system))
	}
	return nil
}

// realTime is what of each processor, in µs of each second, a cluster's own processes may have in real time: simulated devices and arbiters, which take much less.
const realTime = 120_000

// promise lets processes of a group run in real time, where groups have to be allowed to (version 1, CONFIG_RT_GROUP_SCHED): on nodes they may, as a rule. For more
// clusters than seven there is not enough, and those run with a priority.
func promise(folder string) {
	_ = os.WriteFile(filepath.Join(folder, "cpu.rt_runtime_us"), []byte(strconv.Itoa(realTime)), 0)
}

// inherit gives a group of version 1 what its parent has, where it has nothing.
func inherit(folder, file string) error {
	have, err := os.ReadFile(filepath.Join(folder, file))
	if errors.Is(err, fs.ErrNotExist) || err == nil && strings.TrimSpace(string(have)) != "" {
		return nil
	}
	if err != nil {
		return err
	}
	parents, err := os.ReadFile(filepath.Join(filepath.Dir(folder), file))
	if errors.Is(err, fs.ErrNotExist) { // version 2: empty means that of the parent
		return nil
	}
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(folder, file), parents, 0)
}

// add puts a process into the group. One that has ended by then, which is for those to find who started it, need not be in it.
func (g *group) add(pid int) error {
	err := os.WriteFile(filepath.Join(g.track, system, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if errors.Is(err, unix.EINVAL) { // as the kernel says it of a process in real time
		return fmt.Errorf("put process %d into the cluster's control group: %w: it runs in real time, and the group could not be allowed to, as others have all that there is (cpu.rt_runtime_us); run fewer clusters at once", pid, err)
	}
	return err
}

// processes are all in the group and below it, in every hierarchy.
func (g *group) processes() ([]int, error) { return processesBelow(g.folders...) }

// processesOf are those of a pod's containers, by its UID; kubelet has a group for each pod, below that of its class of service.
func (g *group) processesOf(uid string) ([]int, error) {
	var folders []string
	for _, class := range []string{"", "burstable", "besteffort"} {
		folders = append(folders, filepath.Join(g.track, "kubepods", class, "pod"+uid))
	}
	return processesBelow(folders...)
}

// processesBelow are all in these groups and below them, in order.
func processesBelow(folders ...string) ([]int, error) {
	var all []int
	for _, folder := range folders {
		err := filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			if err != nil || !entry.IsDir() {
				return err
			}
			file, err := os.Open(filepath.Join(path, "cgroup.procs"))
			if err != nil {
				return nil // the group ended between these lines
			}
			defer file.Close()
			for lines := bufio.NewScanner(file); lines.Scan(); {
				if pid, err := strconv.Atoi(lines.Text()); err == nil && pid > 0 {
					all = append(all, pid)
				}
			}
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("list the processes of a control group: %w", err)
		}
	}
	slices.Sort(all)
	return slices.Compact(all), nil
}

// kill ends every process in the group, also those that these start meanwhile.
func (g *group) kill(ctx context.Context) error {
	look := time.NewTicker(often)
	defer look.Stop()
	for {
		all, err := g.processes()
		if err != nil || len(all) == 0 {
			return err
		}
		for _, pid := range all {
			if err := g.killOne(ctx, pid); err != nil {
				return fmt.Errorf("end process %d: %w", pid, err)
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("end the processes %v of a control group: %w", all, ctx.Err())
		case <-look.C:
		}
	}
}

// killOne ends a process that is still in the group and waits until it has ended. Its number is held meanwhile.
func (g *group) killOne(ctx context.Context, pid int) error {
	held, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return err
	}
	defer unix.Close(held)
	of, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil || !inGroup(string(of), g.name) {
		return nil // it has ended, and the number may be another's
	}
	if err := unix.PidfdSendSignal(held, unix.SIGKILL, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return err
	}
	for {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(held), Events: unix.POLLIN}}, int(often.Milliseconds()))
		if n > 0 || err != nil && !errors.Is(err, unix.EINTR) {
			return err
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

// inGroup says whether what /proc/PID/cgroup has is below a group of this name. In a container its paths may begin with the container's own.
func inGroup(of, name string) bool {
	for line := range strings.Lines(of) {
		fields := strings.SplitN(line, ":", 3) // hierarchy, controllers, path
		if len(fields) == 3 && strings.Contains(fields[2], "/"+name+"/") {
			return true
		}
	}
	return false
}

// remove removes the group with everything below it, which must have no processes. The kernel may need a moment to see that.
func (g *group) remove(ctx context.Context) error {
	look := time.NewTicker(often)
	defer look.Stop()
	for _, folder := range g.folders {
		for {
			err := removeGroups(folder)
			if err == nil {
				break
			}
			select {
			case <-ctx.Done():
				return fmt.Errorf("remove a control group: %w", err)
			case <-look.C:
			}
		}
	}
	return nil
}

// removeGroups removes a folder of control groups from the leaves up: its files cannot be removed, and go with it.
func removeGroups(folder string) error {
	entries, err := os.ReadDir(folder)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if entry.IsDir() {
			if err := removeGroups(filepath.Join(folder, entry.Name())); err != nil {
				return err
			}
		}
	}
	if err := unix.Rmdir(folder); err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("%s: %w", folder, err)
	}
	return nil
}
