package testcluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// taken is what clusters with a node change outside their folders, and how it was before: it is written down before anything is changed, so that also
// a later one can take it back. The last of those that work at the same time does.
type taken struct {
	Settings map[string]string // of the kernel, by their file
	Absent   []string          // folders that were not there
	Clusters map[state]int     // that work now, or were killed and not started again since, and the number of each one's network
}

// settings are what kubelet and the network plugins set.
var settings = []string{
	"/proc/sys/vm/overcommit_memory", "/proc/sys/vm/panic_on_oom", "/proc/sys/kernel/panic", "/proc/sys/kernel/panic_on_oops",
	"/proc/sys/kernel/keys/root_maxkeys", "/proc/sys/kernel/keys/root_maxbytes", "/proc/sys/net/ipv4/ip_forward",
}

// elsewhere are the folders that kubelet, containerd and the network plugins write to whatever they are told.
var elsewhere = []string{
	"/var/lib/kubelet", "/var/lib/cni", "/var/log/containers", "/var/log/pods", "/run/containerd", "/usr/libexec/kubernetes", "/run/netns",
}

// book is the file in which that is written, of all clusters of a machine. It is there while one of them is.
type book string

// machineBook is this machine's.
const machineBook book = "/var/lib/aliquot-testclusters.json"

// networks is how many clusters with nodes may work at the same time.
const networks = 256

// enter writes a cluster into the book, the first with how the machine is, and gives its network a number, from 0 on, that no other has.
func (b book) enter(s state) (number int, err error) {
	err = b.change(func(t *taken) error {
		if len(t.Clusters) == 0 {
			if err := t.look(); err != nil {
				return err
			}
		}
		for number = range networks {
			if !slices.Contains(slices.Collect(maps.Values(t.Clusters)), number) {
				t.Clusters[s] = number
				return nil
			}
		}
		return fmt.Errorf("there are %d clusters: end one of %v", networks, slices.Sorted(maps.Keys(t.Clusters)))
	})
	return number, err
}

// leave takes a cluster, of which nothing runs any more, out of the book. The last gives back what was changed; it stays in the book where that fails.
func (b book) leave(s state) error {
	return b.change(func(t *taken) error {
		if _, in := t.Clusters[s]; !in {
			return nil
		}
		if len(t.Clusters) == 1 {
			if err := t.giveBack(); err != nil {
				return err
			}
		}
		delete(t.Clusters, s)
		return nil
	})
}

// change changes what is in the book, alone. After an error it is as it was.
func (b book) change(do func(*taken) error) error {
	lock, err := takeLock(string(b)+".lock", unix.LOCK_EX)
	if err != nil {
		return err
	}
	defer lock.Close()
	t := taken{}
	content, err := os.ReadFile(string(b))
	if err == nil {
		if err := json.Unmarshal(content, &t); err != nil {
			return fmt.Errorf("read %s: %w; look what of it is still there, then remove the file", b, err)
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if t.Clusters == nil {
		t.Clusters = map[state]int{}
	}
	if err := do(&t); err != nil {
		return err
	}
	if len(t.Clusters) == 0 {
		if err := os.Remove(string(b)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	}
	return writeJSON(string(b), t)
}

// look notes how the machine is. A folder whose parent is not there either is noted as that parent.
func (t *taken) look() error {
	t.Settings = map[string]string{}
	for _, file := range settings {
		content, err := os.ReadFile(file)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return fmt.Errorf("note the kernel's settings: %w", err)
		}
		t.Settings[file] = strings.TrimSpace(string(content))
	}
	for _, folder := range elsewhere {
		missing := ""
		for at := folder; ; at = filepath.Dir(at) {
			if _, err := os.Lstat(at); !errors.Is(err, fs.ErrNotExist) {
				break
			}
			missing = at
		}
		if missing != "" && !slices.Contains(t.Absent, missing) {
			t.Absent = append(t.Absent, missing)
		}
	}
	return nil
}

// giveBack makes the machine what it was. Nothing of any cluster may run any more.
func (t *taken) giveBack() error {
	var failed []error
	for file, before := range t.Settings {
		if now, err := os.ReadFile(file); err == nil && strings.TrimSpace(string(now)) == before {
			continue
		}
		failed = append(failed, os.WriteFile(file, []byte(before), 0))
	}
	for _, folder := range t.Absent {
		failed = append(failed, removeFolder(folder))
	}
	return errors.Join(failed...)
}

// removeFolder removes a folder with what is mounted in it; if that stays, so does all, because what is mounted is not ours to remove.
func removeFolder(folder string) error {
	if err := unmountBelow(folder); err != nil {
		return err
	}
	return os.RemoveAll(folder)
}

// unmountBelow takes away every mount on or below a folder, the last made first.
func unmountBelow(folder string) error {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	var below []string
	for line := range strings.Lines(string(mounts)) {
		fields := strings.Fields(line)
		if len(fields) < 5 {
			continue
		}
		// Spaces and backslashes come as octal numbers.
		at := strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(fields[4])
		if at == folder || strings.HasPrefix(at, folder+"/") {
			below = append(below, at)
		}
	}
	var failed []error
	for _, at := range slices.Backward(below) {
		if err := unix.Unmount(at, unix.MNT_DETACH); err != nil && !errors.Is(err, unix.EINVAL) {
			failed = append(failed, fmt.Errorf("unmount %s: %w", at, err))
		}
	}
	return errors.Join(failed...)
}
