package driver

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/aliquot-dev/aliquot/internal/point"
	"github.com/aliquot-dev/aliquot/node"
)

// phase is how far a claim is. What is to be done is written down before it is begun, and that it was done after.
type phase string

const (
	preparing   phase = "preparing"   // no container has it yet: kubelet was not answered
	prepared    phase = "prepared"    // containers may have it
	unpreparing phase = "unpreparing" // no container has it any more
)

// checkpointVersion is the format of a checkpoint. A driver reads those of its own version and of older ones.
const checkpointVersion = 1

// checkpoint is what is remembered of one claim, also over a reboot.
type checkpoint struct {
	Version   int
	Phase     phase
	Namespace string
	Name      string
	Task      node.Task // its UID is the claim's

	// Access are the devices, by UUID, of a claim that gives access as an administrator, in the order of its results. Its task has no grants.
	Access []string `json:",omitempty"`
}

// has says whether a claim has anything of a device.
func (c checkpoint) has(device string) bool {
	return slices.Contains(c.Access, device) || slices.ContainsFunc(c.Task.Grants, func(g node.Grant) bool { return g.Device == device })
}

// same says whether two are of what differs in nothing but ceilings, which change while a claim is prepared.
func (c checkpoint) same(other checkpoint) bool {
	return sameFloors(c.Task.Grants, other.Task.Grants) && slices.Equal(c.Access, other.Access)
}

// checkpoints is the folder in which each claim has a file named by its UID: a line with the checksum of the bytes after it, then JSON.
type checkpoints string

var errDamaged = errors.New("damaged checkpoint")

func (c checkpoints) path(uid string) string { return filepath.Join(string(c), uid) }

// write replaces a claim's checkpoint, on the disk before it returns.
func (c checkpoints) write(one checkpoint) error {
	content, err := one.content()
	if err != nil {
		return err
	}
	if err := replaceFile(c.path(one.Task.UID), content, 0o600); err != nil {
		return fmt.Errorf("write the checkpoint of claim %s/%s: %w", one.Namespace, one.Name, err)
	}
	return nil
}

// content is a checkpoint as its file has it.
func (c checkpoint) content() ([]byte, error) {
	c.Version = checkpointVersion
	body, err := json.Marshal(c)
	return summed(body), err
}

// summed is a body after its checksum.
func summed(body []byte) []byte {
	sum := sha256.Sum256(body)
	return slices.Concat([]byte(hex.EncodeToString(sum[:])+"\n"), body)
}

func (c checkpoints) remove(uid string) error {
	err := os.Remove(c.path(uid))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// read is a claim's checkpoint; found says whether there is one.
func (c checkpoints) read(uid string) (one checkpoint, found bool, err error) {
	content, err := os.ReadFile(c.path(uid))
	if errors.Is(err, fs.ErrNotExist) {
		return checkpoint{}, false, nil
	}
	if err != nil {
		return checkpoint{}, false, err
	}
	one, err = parseCheckpoint(content)
	if err == nil && one.Task.UID != uid {
		err = fmt.Errorf("%w: it is of claim %s", errDamaged, one.Task.UID)
	}
	if err != nil {
		err = fmt.Errorf("%s: %w", c.path(uid), err)
	}
	return one, true, err
}

func parseCheckpoint(content []byte) (checkpoint, error) {
	said, body, _ := bytes.Cut(content, []byte("\n"))
	if sum := sha256.Sum256(body); string(said) != hex.EncodeToString(sum[:]) {
		return checkpoint{}, fmt.Errorf("%w: its checksum is wrong", errDamaged)
	}
	var format struct{ Version int } // read first: of another version the rest may be of other types
	if err := json.Unmarshal(body, &format); err != nil {
		return checkpoint{}, fmt.Errorf("%w: %w", errDamaged, err)
	}
	if format.Version < 1 || format.Version > checkpointVersion {
		return checkpoint{}, fmt.Errorf("it has version %d, this driver speaks 1 to %d; run the driver that wrote it, or a newer one", format.Version, checkpointVersion)
	}
	var one checkpoint
	if err := json.Unmarshal(body, &one); err != nil {
		return checkpoint{}, fmt.Errorf("%w: %w", errDamaged, err)
	}
	return one, nil
}

// list are the UIDs of all claims with a checkpoint. What was half written when a driver was killed is removed.
func (c checkpoints) list() ([]string, error) {
	entries, err := os.ReadDir(string(c))
	if err != nil {
		return nil, fmt.Errorf("list the checkpoints: %w", err)
	}
	var uids []string
	for _, entry := range entries {
		if strings.HasSuffix(entry.Name(), unfinished) {
			if err := os.Remove(c.path(entry.Name())); err != nil {
				return nil, err
			}
			continue
		}
		uids = append(uids, entry.Name())
	}
	return uids, nil
}

// unfinished ends the name of a file that is being written; no CDI file is taken for one whose name ends so.
const unfinished = ".new"

// replaceFile replaces a file by rename, so that it is always whole, and has both on the disk.
func replaceFile(path string, content []byte, mode os.FileMode) error {
	temporary := path + unfinished
	file, err := os.OpenFile(temporary, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, mode)
	if err != nil {
		return err
	}
	_, err = file.Write(content)
	if err := errors.Join(err, file.Sync(), file.Close()); err != nil {
		return err
	}
	point.Here("kube.file.written")
	if err := os.Rename(temporary, path); err != nil {
		return err
	}
	folder, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(folder.Sync(), folder.Close())
}
