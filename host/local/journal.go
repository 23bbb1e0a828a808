package local

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/aliquot-dev/aliquot/engine"
	"github.com/aliquot-dev/aliquot/internal/point"
)

// journalsKept is how many files of the event log are kept, the one being written included.
const journalsKept = 8

const journalSuffix = ".events"

// journal is the engine's event log: numbered files, each beginning with a snapshot, so that each can be replayed alone. What is
// appended lies in memory until sync. Its errors are kept until sync, which is asked before anything is acted upon.
type journal struct {
	folder string
	limit  int64
	number int

	file   *os.File
	length int64 // of the file, whole records only
	begun  int64 // of its snapshot
	buffer bytes.Buffer
	writer *engine.LogWriter
	dirty  bool
	failed error // of an append

	taps []*tap // who is given what is on disk
}

func (h *Host) openJournal() error {
	h.journal = &journal{folder: filepath.Join(h.State, "events"), limit: h.EventLimit}
	numbers, err := h.journal.numbers()
	if err != nil {
		return fmt.Errorf("open the event log: %w", err)
	}
	if len(numbers) > 0 {
		h.journal.number = numbers[len(numbers)-1]
	}
	return h.journal.begin(h.engine)
}

// begin starts the next file with a snapshot of the engine as it is.
func (j *journal) begin(from *engine.Engine) error {
	number := j.number + 1
	path := filepath.Join(j.folder, fmt.Sprintf("%08d%s", number, journalSuffix))
	// A file of this number can only be a torn one that nothing was acted upon for.
	file, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return fmt.Errorf("begin an event log: %w", err)
	}
	var buffer bytes.Buffer
	_, err = engine.NewLogWriter(&buffer, from.Snapshot())
	if err == nil {
		_, err = file.Write(buffer.Bytes())
	}
	if err == nil {
		err = file.Sync()
	}
	if err != nil {
		return errors.Join(fmt.Errorf("begin an event log: %w", err), file.Close(), os.Remove(path))
	}
	point.Here("local.journal.begun")
	old := j.file
	*j = journal{folder: j.folder, limit: j.limit, number: number, file: file, length: int64(buffer.Len()), begun: int64(buffer.Len()), taps: j.taps}
	j.writer = engine.ContinueLog(&j.buffer) // from here on into memory, until sync
	if old != nil {
		err = old.Close()
	}
	return errors.Join(err, j.prune())
}

// append adds a step.
func (j *journal) append(event engine.Event, actions []engine.Action) {
	j.dirty = true
	j.failed = errors.Join(j.failed, j.writer.Append(event, actions))
}

// sync puts what was appended on disk. After an error the file is as it was, and the next sync tries again.
func (j *journal) sync() error {
	if !j.dirty {
		return nil
	}
	if j.failed != nil {
		return fmt.Errorf("write the event log: %w", j.failed)
	}
	n, err := j.file.WriteAt(j.buffer.Bytes(), j.length)
	if err == nil {
		err = j.file.Sync()
	}
	if err != nil {
		return errors.Join(fmt.Errorf("write the event log: %w", err), j.file.Truncate(j.length))
	}
	point.Here("local.journal.synced")
	j.length += int64(n)
	for _, t := range j.taps {
		t.give(j.buffer.Bytes())
	}
	j.buffer.Reset()
	j.dirty = false
	return nil
}

// rotate begins a new file once what follows the snapshot in this one is long enough: a snapshot may be longer than that by itself, and is not
// to be written anew with each step. Everything appended must be on disk.
func (j *journal) rotate(from *engine.Engine) error {
	if j.dirty || j.length-j.begun < j.limit {
		return nil
	}
	return j.begin(from)
}

func (j *journal) close() error { return errors.Join(j.sync(), j.file.Close()) }

func (j *journal) numbers() ([]int, error) {
	entries, err := os.ReadDir(j.folder)
	if err != nil {
		return nil, err
	}
	var numbers []int
	for _, entry := range entries {
		if text, ok := strings.CutSuffix(entry.Name(), journalSuffix); ok {
			if number, err := strconv.Atoi(text); err == nil {
				numbers = append(numbers, number)
			}
		}
	}
	slices.Sort(numbers)
	return numbers, nil
}

// prune removes the oldest files beyond those that are kept.
func (j *journal) prune() error {
	numbers, err := j.numbers()
	if err != nil {
		return err
	}
	for _, number := range numbers[:max(0, len(numbers)-journalsKept)] {
		err = errors.Join(err, os.Remove(filepath.Join(j.folder, fmt.Sprintf("%08d%s", number, journalSuffix))))
	}
	return err
}

// Replay takes an event log of a host, feeds its events to an engine of this version and holds what that decides against what was
// decided then. The first difference, and damage, is an error that names its place.
func Replay(path string) (*engine.Replayed, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("replay: %w", err)
	}
	defer func() { _ = file.Close() }()
	replayed, err := engine.Replay(file)
	if err != nil {
		return nil, fmt.Errorf("replay %s: %w", path, err)
	}
	return replayed, nil
}
