package node

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// As read in a container of version 1 that was given the machine's /sys/fs/cgroup at /host, one of version 2 with its own part alone, and one
// that may not write.
func TestHierarchies(t *testing.T) {
	for _, c := range []struct {
		mounts string
		want   []string
		fails  bool
	}{
		{`10 1 0:20 /pods/1 /sys/fs/cgroup/cpu rw,relatime master:1 - cgroup cgroup rw,cpu
11 1 0:21 /pods/1 /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
12 1 0:20 / /host/cpu rw,relatime master:1 - cgroup cgroup rw,cpu
13 1 0:21 / /host/memory rw,relatime - cgroup cgroup rw,memory
14 1 0:20 / /again/cpu rw,relatime - cgroup cgroup rw,cpu
15 1 0:30 / /host/other rw,relatime - tmpfs tmpfs rw`, []string{"/host/cpu", "/host/memory"}, false},
		{"10 1 0:20 /../.. /sys/fs/cgroup rw,relatime - cgroup2 cgroup rw", nil, true},
		{"10 1 0:20 / /sys/fs/cgroup ro,relatime - cgroup2 cgroup rw", nil, true},
		{"10 1 0:20 / /sys/fs/cgroup rw,relatime - cgroup2 cgroup rw", []string{"/sys/fs/cgroup"}, false},
	} {
		got, err := hierarchies(strings.NewReader(c.mounts))
		if !slices.Equal(got, c.want) || (err != nil) != c.fails {
			t.Errorf("%s\nare %v, %v; want %v", c.mounts, got, err, c.want)
		}
	}
}

// What outlives the agent is in its own control group in every hierarchy, as the agent said, and the agent is not.
func TestStartsInGroup(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to make control groups")
	}
	name := fmt.Sprintf("aliquot-test-%d/inner", os.Getpid())
	within, err := openGroup(name)
	if err != nil {
		t.Skipf("this machine has no control groups that may be written: %v", err)
	}
	t.Cleanup(func() {
		for _, folder := range within {
			if err := os.Remove(folder); err != nil {
				t.Error(err)
			}
			if err := os.Remove(filepath.Dir(folder)); err != nil {
				t.Error(err)
			}
		}
	})
	p, err := startDetached(within, filepath.Join(t.TempDir(), "log"), nil, "/bin/cat", "/dev/zero")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.signal(9); err != nil {
			t.Error(err)
		}
		if err := p.waitFor(context.Background()); err != nil {
			t.Error(err)
		}
	})
	groups, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", p.pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(groups)) {
		if !strings.HasSuffix(strings.TrimSpace(line), "/"+name) {
			t.Errorf("it is in %s, want %s", line, name)
		}
	}
	if _, err := openGroup("../outside"); err == nil {
		t.Error("a group outside the hierarchies was taken")
	}
}
