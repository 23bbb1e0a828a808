package native

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
)

func parts(version string) fstest.MapFS {
	file := func(content string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(content)} }
	return fstest.MapFS{
		"bin/aliquot-arbiter":    file("arbiter " + version),
		"bin/aliquot-simgpu":     file("simgpu " + version),
		"shim/libcuda.so.1":      file("head\x00" + string(marker) + "\x00tail " + version),
		"shim/libnvidia-ml.so.1": file("head\x00" + string(marker) + "\x00tail " + version),
		"sim/libcuda.so.1":       file("cuda " + version),
		"sim/libnvidia-ml.so.1":  file("nvml " + version),
	}
}

func TestInstall(t *testing.T) {
	run := t.TempDir()
	if err := install(parts("1"), run); err != nil {
		t.Fatal(err)
	}
	shim := read(t, run, "lib/libcuda.so.1")
	folder := filepath.Join(run, "driver")
	want := "head\x00" + folder + strings.Repeat("\x00", markerLength-len(folder)) + "\x00tail 1"
	if string(shim) != want {
		t.Errorf("the shim's run path is not %s: %q", folder, shim)
	}
	if target, err := os.Readlink(filepath.Join(run, "lib/libcuda.so")); err != nil || target != "libcuda.so.1" {
		t.Errorf("lib/libcuda.so points to %q, %v", target, err)
	}
	if info, err := os.Stat(filepath.Join(run, Arbiter)); err != nil || info.Mode() != 0o755 {
		t.Errorf("arbiter: %v, %v", info, err)
	}
}

// TestInstallAgain: what is right keeps its inode, what is not gets a new one, and whoever has the old file open keeps it.
func TestInstallAgain(t *testing.T) {
	run := t.TempDir()
	if err := install(parts("1"), run); err != nil {
		t.Fatal(err)
	}
	before := stat(t, run, Arbiter)
	running, err := os.Open(filepath.Join(run, Arbiter))
	if err != nil {
		t.Fatal(err)
	}
	defer running.Close()

	if err := install(parts("1"), run); err != nil {
		t.Fatal(err)
	}
	if !os.SameFile(before, stat(t, run, Arbiter)) {
		t.Error("the same content was installed anew")
	}
	if err := install(parts("2"), run); err != nil {
		t.Fatal(err)
	}
	if os.SameFile(before, stat(t, run, Arbiter)) {
		t.Error("new content was written into the running file")
	}
	old := make([]byte, 64)
	n, _ := running.Read(old)
	if string(old[:n]) != "arbiter 1" || !bytes.Equal(read(t, run, Arbiter), []byte("arbiter 2")) {
		t.Errorf("running %q, installed %q", old[:n], read(t, run, Arbiter))
	}
	left, err := filepath.Glob(filepath.Join(run, "*", ".new-*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestInstallRefuses(t *testing.T) {
	missing := parts("1")
	delete(missing, "sim/libcuda.so.1")
	if err := install(missing, t.TempDir()); !errors.Is(err, ErrNotBuilt) || !strings.Contains(err.Error(), "make build") {
		t.Errorf("without a part: %v", err)
	}
	unmarked := parts("1")
	unmarked["shim/libcuda.so.1"] = &fstest.MapFile{Data: []byte("no marker")}
	if err := install(unmarked, t.TempDir()); err == nil || !strings.Contains(err.Error(), "0 run path markers") {
		t.Errorf("without a marker: %v", err)
	}
	if _, err := pointTo(marker, "/"+strings.Repeat("x", markerLength)); err == nil || !strings.Contains(err.Error(), "shorter run folder") {
		t.Errorf("too long a folder: %v", err)
	}
	if _, err := pointTo(marker, "/run/a:b"); err == nil || !strings.Contains(err.Error(), "choose another") {
		t.Errorf("a colon: %v", err)
	}
}

func read(t *testing.T, run, name string) []byte {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(run, name))
	if err != nil {
		t.Fatal(err)
	}
	return content
}

func stat(t *testing.T, run, name string) os.FileInfo {
	t.Helper()
	info, err := os.Stat(filepath.Join(run, name))
	if err != nil {
		t.Fatal(err)
	}
	return info
}
