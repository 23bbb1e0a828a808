package images

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"sigs.k8s.io/yaml"
)

// valuesName is the file beside an image that tells the chart its tag.
const valuesName = "values.yaml"

var noTag = regexp.MustCompile(`[^A-Za-z0-9_.-]`)

// Tag is what an image of this version, as `git describe --always --dirty` says it, is called by: programs of another version have another tag, so that an upgrade to them replaces what
// runs. One that is of no commit says what is in the image, too, by the first 8 hexadecimal digits of its digest.
func Tag(image Image, version string) (string, error) {
	tag := strings.TrimLeft(noTag.ReplaceAllString(version, "-"), ".-")
	if tag == "" {
		return "", fmt.Errorf("name an image by its version: there is nothing in %q that a tag can have", version)
	}
	if !strings.HasSuffix(tag, "-dirty") && tag != "unknown" {
		return tag, nil
	}
	digest, err := image.Write(io.Discard)
	if err != nil {
		return "", err
	}
	return tag + "-" + strings.TrimPrefix(digest, "sha256:")[:8], nil
}

// values are those of the chart that say which image it runs.
type values struct {
	Image struct {
		Tag string `json:"tag"`
	} `json:"image"`
}

// WriteValues writes the values with which the chart runs the image of this tag into a folder, and returns their file.
func WriteValues(folder, tag string) (file string, err error) {
	var v values
	v.Image.Tag = tag
	raw, err := yaml.Marshal(v)
	if err != nil {
		return "", err
	}
	file = filepath.Join(folder, valuesName)
	return file, os.WriteFile(file, raw, 0o644)
}

// ReadTag is the tag of the image in a folder, by the values beside it.
func ReadTag(folder string) (string, error) {
	raw, err := os.ReadFile(filepath.Join(folder, valuesName))
	if err != nil {
		return "", err
	}
	var v values
	if err := yaml.UnmarshalStrict(raw, &v); err != nil {
		return "", fmt.Errorf("read the image's tag from %s: %w", filepath.Join(folder, valuesName), err)
	}
	if v.Image.Tag == "" {
		return "", fmt.Errorf("read the image's tag from %s: it says none", filepath.Join(folder, valuesName))
	}
	return v.Image.Tag, nil
}
