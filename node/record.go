package node

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
)

// recordName is the agent's own file in a task's folder: what was asked for, in the agent's words, which the pages do not hold
// in full. It is written before the pages are, so that a page left half written can be written again from it.
const recordName = "task.json"

// recordVersion is the format of a record.
const recordVersion = 1

// errDamagedRecord is a record that is not what was written.
var errDamagedRecord = errors.New("damaged record")

// record is what recordName holds: a line with the checksum of the rest, then JSON.
type record struct {
	Version int
	Task    Task
	Ending  bool // Unprepare has begun and must be finished
}

func (r record) write(name string) error {
	r.Version = recordVersion
	body, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return writeFile(name, append([]byte(checksum(body)+"\n"), body...), 0o600)
}

func readRecord(name string) (record, error) {
	content, err := os.ReadFile(name)
	if err != nil {
		return record{}, err
	}
	return parseRecord(name, content)
}

func parseRecord(name string, content []byte) (record, error) {
	sum, body, _ := bytes.Cut(content, []byte("\n"))
	if string(sum) != checksum(body) {
		return record{}, fmt.Errorf("%s: %w: its checksum is wrong", name, errDamagedRecord)
	}
	var r record
	if err := json.Unmarshal(body, &r); err != nil {
		return record{}, fmt.Errorf("%s: %w: %w", name, errDamagedRecord, err)
	}
	if r.Version != recordVersion {
		return record{}, fmt.Errorf("%s: %w: version %d, this program speaks version %d", name, errDamagedRecord, r.Version, recordVersion)
	}
	return r, nil
}

func checksum(body []byte) string {
	sum := sha256.Sum256(body)
	return hex.EncodeToString(sum[:])
}
