package cgroup

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
)

func TestLocate(t *testing.T) {
	for _, test := range []struct {
		name, mounts, own string
		unified           string
		v1                map[string]string
		fails             bool
	}{
		{
			name:    "version 2 in a service",
			mounts:  "30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw\n",
			own:     "0::/system.slice/aliquot.service\n",
			unified: "/sys/fs/cgroup/system.slice/aliquot.service",
		},
		{
			name:    "version 2, moved into the leaf by a daemon before",
			mounts:  "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
			own:     "0::/system.slice/aliquot.service/aliquot-daemon\n",
			unified: "/sys/fs/cgroup/system.slice/aliquot.service",
		},
		{
			name: "both, controllers in version 1",
			mounts: "32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n" +
				"41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n",
			own: "4:memory:/user\n1:cpu:/\n0::/\n",
			v1:  map[string]string{"cpu": "/sys/fs/cgroup/cpu", "memory": "/sys/fs/cgroup/memory/user"},
		},
		{
			name:   "a container that sees its own part of the hierarchy",
			mounts: "32 31 0:29 /docker/abc /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n",
			own:    "1:cpu,cpuacct:/docker/abc/inner\n",
			v1:     map[string]string{"cpu": "/sys/fs/cgroup/cpu,cpuacct/inner"},
		},
		{name: "none", mounts: "1 0 8:1 / / rw - ext4 /dev/sda rw\n", own: "", fails: true},
	} {
		t.Run(test.name, func(t *testing.T) {
			tree := locate(test.mounts, test.own)
			if (tree.err != nil) != test.fails || tree.unified != test.unified || fmt.Sprint(tree.v1) != fmt.Sprint(map[string]string(test.v1)) {
				t.Errorf("got %q, %v, %v", tree.unified, tree.v1, tree.err)
			}
		})
	}
}

func TestWithoutLimitsThereIsNoGroupAndNoError(t *testing.T) {
	folders, err := (&Tree{err: os.ErrPermission}).Make("task", Limits{})
	if err != nil || len(folders) != 0 {
		t.Errorf("%v, %v", folders, err)
	}
	if _, err := (&Tree{err: os.ErrPermission}).Make("task", Limits{CPU: 1}); err == nil {
		t.Error("a limit that cannot be kept is not said")
	}
}

func TestProcessBeginsInsideItsLimits(t *testing.T) {
	tree := Open()
	task := fmt.Sprintf("test-%d", os.Getpid())
	folders, err := tree.Make(task, Limits{CPU: 1500, Memory: 64 << 20})
	if err != nil {
		t.Skipf("needs control groups that may be written: %v", err)
	}
	defer tree.Remove(task)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	before, err := os.ReadFile("/proc/thread-self/cgroup")
	if err != nil {
		t.Fatal(err)
	}
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	attributes := &syscall.SysProcAttr{}
	leave, err := Enter(folders, attributes)
	if err != nil {
		t.Fatal(err)
	}
	pid, err := syscall.ForkExec("/bin/cat", []string{"cat", "/proc/self/cgroup"}, &syscall.ProcAttr{
		Files: []uintptr{0, writer.Fd(), 2}, Sys: attributes,
	})
	leave()
	_ = writer.Close()
	if err != nil {
		t.Fatal(err)
	}
	var inside bytes.Buffer
	_, _ = inside.ReadFrom(reader)
	_ = reader.Close()
	if _, err := syscall.Wait4(pid, nil, 0, nil); err != nil {
		t.Fatal(err)
	}
	for _, folder := range folders {
		if !strings.Contains(inside.String(), filepath.Join(home, task)) {
			t.Errorf("not in %s: %s", folder, inside.String())
		}
	}
	if after, _ := os.ReadFile("/proc/thread-self/cgroup"); !bytes.Equal(after, before) {
		t.Errorf("the thread stayed inside: %s", after)
	}
	limits := map[string]string{"cpu.cfs_quota_us": "150000", "cpu.max": "150000 100000", "memory.limit_in_bytes": "67108864", "memory.max": "67108864"}
	seen := 0
	for _, folder := range folders {
		for file, want := range limits {
			if data, err := os.ReadFile(filepath.Join(folder, file)); err == nil {
				seen++
				if strings.TrimSpace(string(data)) != want {
					t.Errorf("%s/%s is %s, want %s", folder, file, data, want)
				}
			}
		}
	}
	if seen != 2 {
		t.Errorf("%d limits were found, want 2", seen)
	}
	tree.Remove(task)
	for _, folder := range folders {
		if exists(folder) {
			t.Errorf("%s is left", folder)
		}
	}
}
