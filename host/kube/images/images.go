// Package images makes container images of files of this machine, as tars of the OCI image layout that `ctr images import` takes: no Docker
// daemon, no registry, no base image. What comes in are programs and where they lie in the image; the libraries that they were linked against
// come with them. The same files give the same digest. It neither builds programs nor sends images anywhere.
//
// It is written here and not a library's (go-containerregistry), as an image of one layer takes less than calling that would.
package images

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"debug/elf"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// Image is a container image, made of files of this machine.
type Image struct {
	Name    string            // with a registry's name and a tag: testcluster.local/trainer:1
	Files   map[string]string // by their absolute path in the image, files here; links are followed, root owns all
	Program []string          // what it runs, whatever arguments a pod gives
	Command []string          // what it runs otherwise, or the arguments that a pod may replace
	User    string            // who runs it; empty: root
}

// AddProgram puts a program into the image, with the loader and the libraries that it was linked against, except those named.
func (i *Image) AddProgram(at, file string, without ...string) error {
	if err := i.AddNeeds(file, without...); err != nil {
		return err
	}
	i.Files[at] = file
	return nil
}

// AddNeeds puts into the image what a program or library was linked against, except those named, without the file itself.
func (i *Image) AddNeeds(file string, without ...string) error {
	if i.Files == nil {
		i.Files = map[string]string{}
	}
	for todo := []string{file}; len(todo) > 0; todo = todo[1:] {
		loader, needs, err := linkedAgainst(todo[0])
		if err != nil {
			return fmt.Errorf("put %s into an image: %w", file, err)
		}
		if loader != "" {
			i.Files[loader] = loader
		}
		for _, name := range needs {
			if slices.Contains(without, name) {
				continue
			}
			library, err := findLibrary(name)
			if err != nil {
				return fmt.Errorf("put %s into an image: %w", file, err)
			}
			if _, have := i.Files[library]; !have {
				i.Files[library] = library
				todo = append(todo, library)
			}
		}
	}
	return nil
}

// addLibrary puts a library into the image, with what it was linked against itself.
func (i *Image) addLibrary(name string) error {
	file, err := findLibrary(name)
	if err != nil {
		return fmt.Errorf("make image %s: %w", i.Name, err)
	}
	return i.AddProgram(file, file)
}

// linkedAgainst says which loader and libraries a program or library asks for.
func linkedAgainst(file string) (loader string, libraries []string, err error) {
	f, err := elf.Open(file)
	if err != nil {
		return "", nil, err
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			raw, err := io.ReadAll(p.Open())
			if err != nil {
				return "", nil, err
			}
			loader = string(bytes.TrimRight(raw, "\x00"))
		}
	}
	libraries, err = f.ImportedLibraries()
	return loader, libraries, err
}

func findLibrary(name string) (string, error) {
	for _, folder := range []string{"/lib/x86_64-linux-gnu", "/lib/aarch64-linux-gnu", "/lib64", "/usr/lib64", "/lib", "/usr/lib"} {
		if file := filepath.Join(folder, name); fileExists(file) {
			return file, nil
		}
	}
	return "", fmt.Errorf("no %s on this machine", name)
}

func fileExists(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}

// Media types of the OCI image format, version 1.
const (
	ociIndex    = "application/vnd.oci.image.index.v1+json"
	ociManifest = "application/vnd.oci.image.manifest.v1+json"
	ociConfig   = "application/vnd.oci.image.config.v1+json"
	ociLayer    = "application/vnd.oci.image.layer.v1.tar"
)

// descriptor names a blob by what is in it.
type descriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int               `json:"size"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

// Write writes the image as a tar of the OCI image layout: one layer, nothing compressed. The digest is the manifest's: the same files give
// the same one, whenever and wherever they lie.
func (i Image) Write(to io.Writer) (digest string, err error) {
	layer, err := i.layer()
	if err != nil {
		return "", fmt.Errorf("make image %s: %w", i.Name, err)
	}
	if digest, err = i.layout(to, layer); err != nil {
		return "", fmt.Errorf("write image %s: %w", i.Name, err)
	}
	return digest, nil
}

// layout writes the layout of the image with this layer.
func (i Image) layout(to io.Writer, layer []byte) (digest string, err error) {
	archive := tar.NewWriter(to)
	blob := func(mediaType string, content []byte) (descriptor, error) {
		sum := fmt.Sprintf("%x", sha256.Sum256(content))
		return descriptor{MediaType: mediaType, Digest: "sha256:" + sum, Size: len(content)}, writeTar(archive, "blobs/sha256/"+sum, 0o644, content)
	}
	object := func(mediaType string, content any) (descriptor, error) {
		raw, err := json.Marshal(content)
		if err != nil {
			return descriptor{}, err
		}
		return blob(mediaType, raw)
	}
	layers, err := blob(ociLayer, layer)
	if err != nil {
		return "", err
	}
	config, err := object(ociConfig, map[string]any{
		"architecture": runtime.GOARCH, "os": "linux",
		"config": map[string]any{"Entrypoint": i.Program, "Cmd": i.Command, "User": i.User, "Env": []string{"PATH=/bin:/usr/bin"}},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{layers.Digest}},
	})
	if err != nil {
		return "", err
	}
	manifest, err := object(ociManifest, map[string]any{"schemaVersion": 2, "mediaType": ociManifest, "config": config, "layers": []descriptor{layers}})
	if err != nil {
		return "", err
	}
	manifest.Annotations = map[string]string{"io.containerd.image.name": i.Name, "org.opencontainers.image.ref.name": i.Name}
	index, err := json.Marshal(map[string]any{"schemaVersion": 2, "mediaType": ociIndex, "manifests": []descriptor{manifest}})
	if err != nil {
		return "", err
	}
	return manifest.Digest, errors.Join(writeTar(archive, "oci-layout", 0o644, []byte(`{"imageLayoutVersion":"1.0.0"}`)),
		writeTar(archive, "index.json", 0o644, index), archive.Close())
}

// layer is a tar of the image's files and the folders that they are in.
func (i Image) layer() ([]byte, error) {
	var raw bytes.Buffer
	archive := tar.NewWriter(&raw)
	made := map[string]bool{}
	folders := func(at string) error {
		var missing []string
		for folder := path.Dir(at); folder != "/" && folder != "." && !made[folder]; folder = path.Dir(folder) {
			missing = append(missing, folder)
			made[folder] = true
		}
		for _, folder := range slices.Backward(missing) {
			header := &tar.Header{Typeflag: tar.TypeDir, Name: strings.TrimPrefix(folder, "/") + "/", Mode: 0o755}
			if err := archive.WriteHeader(header); err != nil {
				return err
			}
		}
		return nil
	}
	for _, at := range slices.Sorted(maps.Keys(i.Files)) {
		content, err := os.ReadFile(i.Files[at])
		if err != nil {
			return nil, err
		}
		info, err := os.Stat(i.Files[at])
		if err != nil {
			return nil, err
		}
		mode := os.FileMode(0o644) // whatever the umask was under which the file was made
		if info.Mode().Perm()&0o111 != 0 {
			mode = 0o755
		}
		if err := errors.Join(folders(at), writeTar(archive, strings.TrimPrefix(at, "/"), mode, content)); err != nil {
			return nil, err
		}
	}
	return raw.Bytes(), archive.Close()
}

func writeTar(archive *tar.Writer, name string, mode os.FileMode, content []byte) error {
	if err := archive.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: int64(mode), Size: int64(len(content))}); err != nil {
		return err
	}
	_, err := archive.Write(content)
	return err
}
