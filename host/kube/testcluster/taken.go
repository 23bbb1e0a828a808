package testcluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// taken is what a cluster changes outside its folder, and how it was before: it is written down before anything is changed, so that also
// the next one can take it back.
type taken struct {
	Settings map[string]string // of the kernel, by their file
	Absent   []string          // folders that were not there
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

func (s state) takenFile() string { return s.path("taken.json") }

// takeNote writes down how the machine is. A folder whose parent is not there either is noted as that parent.
func takeNote(s state) error {
	t := &taken{Settings: map[string]string{}}
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
	content, err := json.MarshalIndent(t, "", "\t")
	if err != nil {
		return err
	}
	return os.WriteFile(s.takenFile(), content, 0o600)
}

// readNote reads what an earlier cluster of this folder changed; nothing, where there was none.
func readNote(s state) (*taken, error) {
	content, err := os.ReadFile(s.takenFile())
	if errors.Is(err, fs.ErrNotExist) {
		return &taken{}, nil
	}
	if err != nil {
		return nil, err
	}
	var t taken
	if err := json.Unmarshal(content, &t); err != nil {
		return nil, fmt.Errorf("read %s: %w; look what of it is still there, then remove the file", s.takenFile(), err)
	}
	return &t, nil
}

// giveBack makes the machine what it was. Nothing of the cluster may run any more.
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
