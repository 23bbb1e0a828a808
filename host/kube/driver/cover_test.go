package driver

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	cdi "tags.cncf.io/container-device-interface/specs-go"

	"github.com/aliquot-dev/aliquot/host/kube/cover"
	"github.com/aliquot-dev/aliquot/node/device"
)

// hooksOf are those in a claim's CDI file.
func (s *site) hooksOf(p plugin, uid string) []*cdi.Hook {
	s.Helper()
	raw, err := os.ReadFile(p.specs.path(uid))
	if err != nil {
		s.Fatal(err)
	}
	var spec cdi.Spec
	if err := json.Unmarshal(raw, &spec); err != nil || len(spec.Devices) != 1 {
		s.Fatalf("%s: %v", raw, err)
	}
	return spec.Devices[0].ContainerEdits.Hooks
}

// coverers are the programs that lie in the plugin's folder.
func (s *site) coverers() []string {
	s.Helper()
	files, err := filepath.Glob(filepath.Join(s.config.plugin(), coverName+"*"))
	if err != nil {
		s.Fatal(err)
	}
	return files
}

// TestCovers: a container is given its pages, and has covered what there is to cover, by a program that lies on the node; a claim that an earlier agent prepared, too,
// once this one has begun, and by its own program after another. That of the agent before stays, for who has read its CDI files; older ones do not.
func TestCovers(t *testing.T) {
	s := newSite(t, t.TempDir())
	p := s.open()
	s.prepare(p, claimOf("a", 250, 1<<30, ""))
	hooks := func(path string, libraries ...cover.Library) []*cdi.Hook {
		order, seconds := cover.Order{Pages: "/run/aliquot/tasks/a", Libraries: libraries, Behind: []string{"/run/aliquot/driver/libcuda-real.so.1"}}, coverSeconds
		return []*cdi.Hook{{HookName: "createContainer", Path: path, Timeout: &seconds, Args: append([]string{path}, order.Arguments()...)}}
	}
	if got, want := s.hooksOf(p, "a"), hooks(string(p.covers)); !reflect.DeepEqual(got, want) {
		t.Errorf("of a container in which there is nothing to cover the hooks are %+v, want %+v", got, want)
	}
	s.agent.covered = []device.Library{{Name: "libcuda.so", By: "/lib/libcuda.so.1"}}
	ages(t, string(p.covers), 11)
	before := []string{string(p.covers)}
	for i, build := range []string{"one", "another", "a third"} {
		if err := os.WriteFile(s.config.Cover, []byte(build), 0o755); err != nil {
			t.Fatal(err)
		}
		p = s.open()
		path := string(p.covers)
		if got, want := s.hooksOf(p, "a"), hooks(path, cover.Library{Name: "libcuda.so", By: "/lib/libcuda.so.1"}); !reflect.DeepEqual(got, want) {
			t.Errorf("the hooks are %+v, want %+v", got, want)
		}
		info, err := os.Stat(path)
		if content, read := os.ReadFile(path); err != nil || read != nil || string(content) != build || info.Mode() != 0o755 {
			t.Errorf("the program is %q, %v (%v, %v)", content, info, err, read)
		}
		before = append(before, path)
		if got, want := s.coverers(), before[i:]; !sameFiles(got, want) {
			t.Errorf("the programs %v are there, want %v", got, want)
		}
		ages(t, path, 10-i)
	}
	half := before[3] + unfinished
	if err := os.WriteFile(half, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	s.open()
	if got := s.coverers(); !sameFiles(got, before[2:]) {
		t.Errorf("after one that was killed in the middle the programs %v are there, want %v", got, before[2:])
	}
}

// ages has a program laid some hours ago.
func ages(t *testing.T, path string, hours int) {
	t.Helper()
	then := time.Now().Add(-time.Duration(hours) * time.Hour)
	if err := os.Chtimes(path, then, then); err != nil {
		t.Fatal(err)
	}
}

func sameFiles(a, b []string) bool {
	a, b = slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b))
	return slices.Equal(a, b)
}

// TestCovererWherePrograms: the program lies where the container runtime can start it; where that is nowhere, or it was not installed, the agent says what to do.
func TestCovererWherePrograms(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	without, with := t.TempDir(), t.TempDir()
	if err := unix.Mount("tmpfs", without, "tmpfs", unix.MS_NOEXEC, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(without, 0); err != nil {
			t.Error(err)
		}
	})
	program := filepath.Join(t.TempDir(), "aliquot-cover")
	if _, err := layCoverer(program, with); err == nil || !strings.Contains(err.Error(), "installed beside aliquot-kube") {
		t.Errorf("without the program: %v", err)
	}
	if err := os.WriteFile(program, []byte("x"), 0o755); err != nil {
		t.Fatal(err)
	}
	if got, err := layCoverer(program, without, with); err != nil || filepath.Dir(string(got)) != with {
		t.Errorf("it lies at %s (%v)", got, err)
	}
	if _, err := layCoverer(program, without); err == nil || !strings.Contains(err.Error(), without+", as they are mounted with noexec; give another folder with --state") {
		t.Errorf("got %v", err)
	}
}
