// Package test holds what is true of the repository as a whole.
package test

import (
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/aliquot-dev/aliquot"

// layers are the folders from the lowest up, as docs/architecture.md tells them. A folder stands for everything in it.
var layers = [][]string{
	{"api", "internal/proc", "internal/point", "native"},
	{"divide", "engine"},
	{"node", "ledger", "store"},
	{"server", "host"},
	{"cli"},
	{"cmd"},
	{"bench", "gpu", "test", "host/kube/bench"},
}

// sideways are the imports allowed between folders of one layer: hosts speak the types of the server that serves them, and queues are
// due what the rule of divide gives them, real GPUs are judged as simulated ones are, and all benchmarks report in one way.
var sideways = map[string][]string{"host": {"server"}, "engine": {"divide"}, "gpu": {"bench"}, "host/kube/bench": {"bench"}}

// pure folders hold decisions: they import the standard library and what is below them, and of the standard library nothing
// that knows the time, another goroutine or the outside world. native and internal/point are not for them.
var pure = []string{"api", "divide", "engine"}

var impure = []string{"context", "crypto/rand", "io/fs", "log", "log/slog", "math/rand", "math/rand/v2", "net", "os", "plugin", "runtime", "sync", "syscall", "unsafe"}

// homes are the modules that belong to some folders alone, so that what they do stays there. host/kube is a module of its own, with commands and
// metrics of its own.
var homes = map[string][]string{
	"github.com/NVIDIA/go-nvml": {"node/device"}, // no vendor's name outside
	"modernc.org/sqlite":        {"store"},
	"github.com/danielgtaylor":  {"server"},
	"github.com/spf13/cobra":    {"cli", "host/kube/cmd"},
	"charm.land":                {"cli"},
	"github.com/knadh/koanf":    {"cli"},
	"github.com/containerd":     {"host/local"},
	"github.com/coreos":         {"host/local"},
	"github.com/godbus":         {"host/local"},
	"github.com/prometheus":     {"server", "host/kube"},
	"k8s.io":                    {"host/kube"},
}

// imported is one import of one file that is no test.
type imported struct {
	file   string // relative to the repository
	folder string // of the file
	path   string
}

func TestImportsGoDownwards(t *testing.T) {
	for _, i := range imports(t) {
		target, ours := strings.CutPrefix(i.path, module+"/")
		if !ours {
			continue
		}
		from, room := layerOf(i.folder)
		to, targetRoom := layerOf(target)
		switch {
		case from < 0 || to < 0:
			t.Errorf("%s: %s has no layer; give it one here and in docs/architecture.md", i.file, map[bool]string{true: i.folder, false: target}[from < 0])
		case room == targetRoom:
		case to > from:
			t.Errorf("%s imports %s, which is above it", i.file, target)
		case to == from && !slices.Contains(sideways[room], targetRoom):
			t.Errorf("%s imports %s, which is beside it", i.file, target)
		}
	}
}

func TestDecisionsArePure(t *testing.T) {
	seen := map[string]bool{}
	for _, i := range imports(t) {
		room := roomAmong(pure, i.folder)
		if room == "" {
			continue
		}
		seen[room] = true
		target, ours := strings.CutPrefix(i.path, module+"/")
		switch {
		case ours && roomAmong(pure, target) == "":
			t.Errorf("%s imports %s: %s may import only %v", i.file, target, room, pure)
		case !ours && strings.Contains(strings.Split(i.path, "/")[0], "."):
			t.Errorf("%s imports %s: %s may import only the standard library", i.file, i.path, room)
		case !ours && (slices.Contains(impure, i.path) || strings.HasPrefix(i.path, "net/") || strings.HasPrefix(i.path, "os/")):
			t.Errorf("%s imports %s: decisions know no clock, no other goroutine and no outside world", i.file, i.path)
		case i.path == "time" && room != "api":
			t.Errorf("%s imports time: time comes in with the event", i.file)
		}
	}
	for _, room := range pure {
		if !seen[room] {
			t.Errorf("no import was found in %s: is it still there?", room)
		}
	}
}

func TestModulesStayAtHome(t *testing.T) {
	for _, i := range imports(t) {
		for prefix, folders := range homes {
			athome := slices.ContainsFunc(folders, func(home string) bool { return within(i.folder, home) })
			if (i.path == prefix || strings.HasPrefix(i.path, prefix+"/")) && !athome {
				t.Errorf("%s imports %s, which belongs to %s", i.file, i.path, strings.Join(folders, " and "))
			}
		}
	}
}

// layerOf is the number of the layer that a folder is in and the room of that layer, the innermost one, or -1.
func layerOf(folder string) (layer int, room string) {
	layer = -1
	for number, rooms := range layers {
		if in := roomAmong(rooms, folder); len(in) > len(room) {
			layer, room = number, in
		}
	}
	return layer, room
}

func roomAmong(rooms []string, folder string) string {
	for _, room := range rooms {
		if within(folder, room) {
			return room
		}
	}
	return ""
}

func within(folder, room string) bool { return folder == room || strings.HasPrefix(folder, room+"/") }

// imports are all imports of all Go files that are no tests, whatever their build constraints.
func imports(t *testing.T) []imported {
	t.Helper()
	const root = ".."
	var all []imported
	err := filepath.WalkDir(root, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(root, name)
		if err != nil {
			return err
		}
		base := entry.Name()
		if entry.IsDir() {
			if relative == "build" || relative == "shared" || base == "testdata" || base != ".." && strings.HasPrefix(base, ".") {
				return fs.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(base, ".go") || strings.HasSuffix(base, "_test.go") {
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		relative = filepath.ToSlash(relative)
		for _, spec := range file.Imports {
			target, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return err
			}
			all = append(all, imported{file: relative, folder: path.Dir(relative), path: target})
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(all) == 0 {
		t.Fatal("no Go file was found: the test must run in the repository")
	}
	return all
}
