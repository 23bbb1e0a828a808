package images

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// made is an image of the same program, made anew in a folder of its own at another time and under another umask.
func made(t *testing.T, age time.Duration, mode os.FileMode, content string) (digest string, archive []byte) {
	t.Helper()
	folder := t.TempDir()
	image := Image{Name: "there.example/thing:1", Files: map[string]string{}, Program: []string{"/bin/thing"}, Command: []string{"one"}, User: "7"}
	for at, text := range map[string]string{"/bin/thing": content, "/etc/deep/below/thing.conf": "b"} {
		file := filepath.Join(folder, filepath.Base(at))
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if filepath.Dir(at) == "/bin" {
			if err := os.Chmod(file, mode); err != nil {
				t.Fatal(err)
			}
		}
		when := time.Now().Add(-age)
		if err := os.Chtimes(file, when, when); err != nil {
			t.Fatal(err)
		}
		image.Files[at] = file
	}
	var to bytes.Buffer
	digest, err := image.Write(&to)
	if err != nil {
		t.Fatal(err)
	}
	return digest, to.Bytes()
}

func TestReproducible(t *testing.T) {
	first, one := made(t, time.Hour, 0o700, "a")
	second, two := made(t, 0, 0o755, "a")
	if first != second || !bytes.Equal(one, two) {
		t.Errorf("the same files give %s and %s", first, second)
	}
	for what, again := range map[string]string{"other content": digestOf(made(t, 0, 0o755, "b")), "no program": digestOf(made(t, 0, 0o644, "a"))} {
		if again == first {
			t.Errorf("%s gives the same digest", what)
		}
	}
}

func digestOf(digest string, _ []byte) string { return digest }

// Everything is where its digest says, from the index down to the layer, and is what was asked for.
func TestLayout(t *testing.T) {
	digest, archive := made(t, 0, 0o755, "a")
	files := unpacked(t, archive)
	var index, manifest struct {
		Manifests, Layers []descriptor
		Config            descriptor
	}
	read(t, files["index.json"], &index)
	if len(index.Manifests) != 1 || index.Manifests[0].Digest != digest || index.Manifests[0].Annotations["io.containerd.image.name"] != "there.example/thing:1" {
		t.Fatalf("the index is %+v", index)
	}
	blob := func(one descriptor) []byte {
		t.Helper()
		content := files["blobs/sha256/"+strings.TrimPrefix(one.Digest, "sha256:")]
		if len(content) != one.Size || one.Digest != fmt.Sprintf("sha256:%x", sha256.Sum256(content)) {
			t.Fatalf("%+v holds %d bytes of something else", one, len(content))
		}
		return content
	}
	read(t, blob(index.Manifests[0]), &manifest)
	var config struct {
		Config struct {
			Entrypoint, Cmd []string
			User            string
		}
		RootFS struct {
			DiffIDs []string `json:"diff_ids"`
		}
	}
	read(t, blob(manifest.Config), &config)
	if !slices.Equal(config.Config.Entrypoint, []string{"/bin/thing"}) || !slices.Equal(config.Config.Cmd, []string{"one"}) || config.Config.User != "7" ||
		!slices.Equal(config.RootFS.DiffIDs, []string{manifest.Layers[0].Digest}) {
		t.Errorf("its configuration is %+v", config)
	}
	layer := unpacked(t, blob(manifest.Layers[0]))
	if string(layer["bin/thing"]) != "a" || string(layer["etc/deep/below/thing.conf"]) != "b" || layer["etc/deep/"] == nil {
		t.Errorf("its files are %q", layer)
	}
}

func unpacked(t *testing.T, archive []byte) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	for reader := tar.NewReader(bytes.NewReader(archive)); ; {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		content, failed := io.ReadAll(reader)
		if err := errors.Join(err, failed); err != nil {
			t.Fatal(err)
		}
		files[header.Name] = content
	}
}

func read(t *testing.T, raw []byte, into any) {
	t.Helper()
	if err := json.Unmarshal(raw, into); err != nil {
		t.Fatalf("%v: %s", err, raw)
	}
}

// A program comes with its loader and all libraries that these need in turn, but those that are left out.
func TestNeeds(t *testing.T) {
	var image Image
	if err := image.AddProgram("/bin/env", "/usr/bin/env"); err != nil {
		t.Fatal(err)
	}
	var names []string
	for at := range image.Files {
		names = append(names, filepath.Base(at))
	}
	if image.Files["/bin/env"] != "/usr/bin/env" || !slices.Contains(names, "libc.so.6") || !slices.ContainsFunc(names, func(s string) bool { return strings.HasPrefix(s, "ld-linux") }) {
		t.Errorf("env comes with %v", names)
	}
	var without Image
	if err := without.AddNeeds("/usr/bin/env", "libc.so.6"); err != nil {
		t.Fatal(err)
	}
	for at := range without.Files {
		if filepath.Base(at) == "libc.so.6" {
			t.Error("what is to be left out is there")
		}
	}
	if err := without.AddProgram("/bin/none", filepath.Join(t.TempDir(), "none")); err == nil {
		t.Error("a program that is not there was added")
	}
}

// The image of aliquot-kube runs it and nothing else, and has what the native parts need on a node.
func TestKube(t *testing.T) {
	dist := t.TempDir()
	if _, err := Kube("there.example/kube:1", "/usr/bin/env", dist); err == nil || !strings.Contains(err.Error(), "run make native") {
		t.Errorf("without native parts: %v", err)
	}
	part := filepath.Join(dist, "bin", "aliquot-arbiter")
	if err := errors.Join(os.Mkdir(filepath.Dir(part), 0o755), os.Symlink("/usr/bin/env", part)); err != nil {
		t.Fatal(err)
	}
	image, err := Kube("there.example/kube:1", "/usr/bin/env", dist, "/usr/bin/true")
	if err != nil {
		t.Fatal(err)
	}
	if image.Files["/bin/aliquot-kube"] != "/usr/bin/env" || !slices.Equal(image.Program, []string{"/bin/aliquot-kube"}) || len(image.Command) > 0 {
		t.Errorf("the image is %+v", image)
	}
	if image.Files["/bin/true"] != "/usr/bin/true" {
		t.Errorf("what is to be beside it is not: %+v", image)
	}
	for at := range image.Files {
		if strings.Contains(at, "arbiter") {
			t.Errorf("%s is in the image beside the program that carries it", at)
		}
	}
}

func TestExamples(t *testing.T) {
	folder, dist := t.TempDir(), t.TempDir()
	if _, err := Examples(folder, dist); err == nil || !strings.Contains(err.Error(), "run make examples") {
		t.Errorf("without programs: %v", err)
	}
	for _, name := range exampleNames {
		if err := os.Symlink("/usr/bin/env", filepath.Join(folder, name)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := Examples(folder, dist); err == nil || !strings.Contains(err.Error(), "run make native") {
		t.Errorf("without native parts: %v", err)
	}
	if err := errors.Join(os.Mkdir(filepath.Join(dist, "shim"), 0o755), os.Symlink("/usr/bin/env", filepath.Join(dist, "shim", "libcuda.so.1"))); err != nil {
		t.Fatal(err)
	}
	image, err := Examples(folder, dist)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("../../../deploy/demo.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var demo corev1.Pod
	if err := yaml.UnmarshalStrict(text, &demo); err != nil {
		t.Fatal(err)
	}
	for _, one := range demo.Spec.Containers {
		if one.Image != image.Name || image.Files[one.Command[0]] == "" {
			t.Errorf("the demo runs %s of the image %s; there is %s, with %v", one.Command[0], one.Image, image.Name, image.Files)
		}
	}
}
