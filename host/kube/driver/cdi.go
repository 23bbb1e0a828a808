package driver

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	cdi "tags.cncf.io/container-device-interface/specs-go"

	"github.com/aliquot-dev/aliquot/node"
)

// cdiKind is the kind of CDI devices that a claim is; one device a claim, named by its UID, which is never another's.
const cdiKind = Name + "/claim"

func cdiID(uid string) string { return cdiKind + "=" + uid }

// specs is the folder of the CDI files, each of which says what the containers of a claim get.
type specs string

// edits is a container in the words of CDI.
func edits(made node.Container, covers coverer) cdi.ContainerEdits {
	edits := cdi.ContainerEdits{Env: made.Env, Hooks: covers.hooks(made)}
	for _, m := range made.Mounts { // private, so that none that is made in another goes back to the node
		mode := "rw"
		if m.ReadOnly {
			mode = "ro"
		}
		edits.Mounts = append(edits.Mounts, &cdi.Mount{HostPath: m.Source, ContainerPath: m.Target, Options: []string{mode, "rbind", "rprivate", "nosuid", "nodev"}})
	}
	for _, path := range made.Devices {
		edits.DeviceNodes = append(edits.DeviceNodes, &cdi.DeviceNode{Path: path, Permissions: "rw"})
	}
	return edits
}

// path is the file of a claim. The runtime takes the file's name for nothing; ours say whose they are.
func (c specs) path(uid string) string {
	return filepath.Join(string(c), strings.ReplaceAll(cdiKind, "/", "-")+"_"+uid+".json")
}

// write makes a claim's CDI file, which says the claim's name, where that is known, to who has nothing but this file.
func (c specs) write(one checkpoint, made node.Container, covers coverer) error {
	uid := one.Task.UID
	device := cdi.Device{Name: uid, ContainerEdits: edits(made, covers)}
	if one.Name != "" {
		device.Annotations = map[string]string{nameAnnotation: summedName(uid, one.Namespace, one.Name)}
	}
	content, err := json.MarshalIndent(cdi.Spec{Version: "0.7.0", Kind: cdiKind, Devices: []cdi.Device{device}}, "", "\t")
	if err != nil {
		return err
	}
	if err := replaceFile(c.path(uid), content, 0o644); err != nil {
		return fmt.Errorf("write the CDI file: %w", err)
	}
	return nil
}

// nameAnnotation is the annotation of a CDI device that says which claim it is.
const nameAnnotation = Name + "/claim"

// summedName is a claim's namespace and name as nameAnnotation has them, with a checksum: by a wrong name a claim that somebody has would be taken for gone.
func summedName(uid, namespace, name string) string {
	named := namespace + "/" + name
	sum := sha256.Sum256([]byte(uid + " " + named))
	return named + " " + hex.EncodeToString(sum[:])
}

// claim is the namespace and name of a claim by its CDI file.
func (c specs) claim(uid string) (namespace, name string, err error) {
	content, err := os.ReadFile(c.path(uid))
	if err != nil {
		return "", "", err
	}
	var spec cdi.Spec
	if err := json.Unmarshal(content, &spec); err != nil {
		return "", "", fmt.Errorf("%s: %w", c.path(uid), err)
	}
	for _, device := range spec.Devices {
		said := device.Annotations[nameAnnotation]
		named, _, _ := strings.Cut(said, " ")
		namespace, name, _ := strings.Cut(named, "/")
		if name != "" && said == summedName(uid, namespace, name) {
			return namespace, name, nil
		}
	}
	return "", "", fmt.Errorf("%s does not say the claim's name, or not with its checksum", c.path(uid))
}

func (c specs) remove(uid string) error {
	err := os.Remove(c.path(uid))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// list are the UIDs of the claims that have a CDI file. What was half written when a driver was killed is removed.
func (c specs) list() ([]string, error) {
	half, err := filepath.Glob(c.path("*") + unfinished)
	if err != nil {
		return nil, err
	}
	for _, file := range half {
		if err := os.Remove(file); err != nil {
			return nil, err
		}
	}
	files, err := filepath.Glob(c.path("*"))
	if err != nil {
		return nil, err
	}
	before, after, _ := strings.Cut(c.path("*"), "*")
	for i, file := range files {
		files[i] = strings.TrimSuffix(strings.TrimPrefix(file, before), after)
	}
	return files, nil
}
