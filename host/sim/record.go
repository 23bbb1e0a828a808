package sim

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/engine"
	"github.com/aliquot-dev/aliquot/engine/fleet"
)

// Record is what an engine was told and what it decided, from a snapshot on.
type Record struct {
	name     string // of its file, of several the last
	snapshot []byte
	steps    []recordedStep
	differs  *engine.DiffError // where this engine decides otherwise than the one that wrote it, nil: nowhere
}

// recordedStep is an event and the actions that it gave.
type recordedStep struct {
	event   engine.Event
	actions []engine.Action
}

// rejected says that the event changed nothing.
func (s *recordedStep) rejected() bool {
	return slices.ContainsFunc(s.actions, func(a engine.Action) bool { _, no := a.(engine.Reject); return no })
}

// logRecord is a record of an event log, and logSnapshot what of its snapshot is needed here.
type logRecord struct {
	Snapshot []byte            `json:"snapshot"`
	Event    json.RawMessage   `json:"event"`
	Actions  []json.RawMessage `json:"actions"`
}

type logSnapshot struct {
	Now       engine.Time     `json:"now"`
	Policy    engine.Policy   `json:"policy"`
	Fleet     fleet.State     `json:"fleet"`
	Queues    []api.QueueSpec `json:"queues"`
	Workloads []struct {
		Workload  engine.Workload `json:"workload"`
		Of        string          `json:"of"`    // of a further replica
		First     int             `json:"first"` // and its number
		Came      engine.Time     `json:"came"`
		Cancelled bool            `json:"cancelled"`
		Tasks     []struct {
			Node     string      `json:"node"`
			Started  bool        `json:"started"`
			Since    engine.Time `json:"since"`
			Evicting bool        `json:"evicting"`
		} `json:"tasks"`
	} `json:"workloads"`
}

// OpenRecord reads an event log of a server, or of a folder of such the files from the last start of the server on, after holding every decision of
// the engine against those in it. A torn last record is passed over.
func OpenRecord(path string) (*Record, error) { return onlySame(openRecord(path)) }

// openRecord is OpenRecord of a log by which this engine may decide otherwise, too.
func openRecord(path string) (*Record, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("read the event log: %w", err)
	}
	if info.IsDir() {
		return openFolder(path)
	}
	text, err := os.ReadFile(path) //nolint:gosec // the path is the user's own word
	if err != nil {
		return nil, fmt.Errorf("read the event log: %w", err)
	}
	r, _, err := replayRecord(path, text)
	return r, err
}

// openFolder joins the files that each go on where the one before ends.
func openFolder(path string) (*Record, error) {
	files, err := filepath.Glob(filepath.Join(path, "*.events"))
	if err != nil {
		return nil, fmt.Errorf("read the event log: %w", err)
	}
	slices.Sort(files) // numbered with leading zeros
	var all *Record
	var end []byte // the state after all of it
	var wrong error
	for _, file := range files {
		text, err := os.ReadFile(file) //nolint:gosec // the path is the user's own word
		if err != nil {
			return nil, fmt.Errorf("read the event log: %w", err)
		}
		var r *Record
		var after []byte
		if r, after, wrong = replayRecord(file, text); wrong != nil {
			all = nil
			continue
		}
		if all != nil && bytes.Equal(end, r.snapshot) {
			all.steps = append(all.steps, r.steps...)
			all.name, all.differs = r.name, r.differs
		} else {
			all = r
		}
		end = after
	}
	switch {
	case wrong != nil:
		return nil, wrong
	case all == nil:
		return nil, fmt.Errorf("there is no event log in %s: name the folder events of a server's state, or one of its files", path)
	}
	return all, nil
}

// ReadRecord reads an event log that begins with a snapshot; name is for errors.
func ReadRecord(name string, text []byte) (*Record, error) {
	r, _, err := replayRecord(name, text)
	return onlySame(r, err)
}

// onlySame refuses a record by which this engine decides otherwise than the one that wrote it.
func onlySame(r *Record, err error) (*Record, error) {
	if err == nil && r.differs != nil {
		err = fmt.Errorf("%s: this version of Aliquot decides otherwise than the one that wrote the log, so the two policies cannot be told from the two versions: %w", r.name, r.differs)
	}
	if err != nil {
		return nil, err
	}
	return r, nil
}

// replayRecord reads a record, and says what the state is after it; nil: that is not known, for this engine decides otherwise.
func replayRecord(name string, text []byte) (*Record, []byte, error) {
	var differs *engine.DiffError
	var after []byte
	replayed, err := engine.Replay(bytes.NewReader(text))
	switch {
	case errors.As(err, &differs):
	case err != nil:
		return nil, nil, fmt.Errorf("%s: %w", name, err)
	default:
		text, after = text[:replayed.Length], replayed.Engine.Snapshot()
	}
	r, err := readRecords(text)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", name, err)
	}
	r.name, r.differs = name, differs
	return r, after, nil
}

// readRecords reads the records of a log whose checksums were looked at before, up to a torn last one.
func readRecords(text []byte) (*Record, error) {
	out := &Record{}
	lines := bufio.NewReader(bytes.NewReader(text))
	for n := 0; ; n++ {
		line, err := lines.ReadBytes('\n')
		if err != nil { // what has no line feed at its end is torn
			break
		}
		if n == 0 { // names format and version
			continue
		}
		var r logRecord
		if len(line) < 9 || json.Unmarshal(line[9:], &r) != nil {
			return nil, fmt.Errorf("record %d cannot be read: the event log is damaged", n-1)
		}
		if r.Snapshot != nil {
			out.snapshot = r.Snapshot
			continue
		}
		step, err := r.step()
		if err != nil {
			return nil, fmt.Errorf("record %d: %w", n-1, err)
		}
		out.steps = append(out.steps, step)
	}
	if out.snapshot == nil {
		return nil, errors.New("the event log has no snapshot")
	}
	return out, nil
}

func (r *logRecord) step() (recordedStep, error) {
	var s recordedStep
	var err error
	if s.event, err = engine.UnmarshalEvent(r.Event); err != nil {
		return s, err
	}
	for _, data := range r.Actions {
		action, err := engine.UnmarshalAction(data)
		if err != nil {
			return s, err
		}
		s.actions = append(s.actions, action)
	}
	return s, nil
}

// taken are the steps whose events were not rejected.
func (r *Record) taken() []recordedStep {
	return slices.DeleteFunc(slices.Clone(r.steps), func(s recordedStep) bool { return s.rejected() })
}

// state is what of the snapshot is needed here.
func (r *Record) state() (*logSnapshot, error) {
	out := &logSnapshot{}
	_, body, _ := bytes.Cut(r.snapshot, []byte("\n"))
	if err := json.Unmarshal(body, out); err != nil {
		return nil, fmt.Errorf("the snapshot cannot be read: %w", err)
	}
	return out, nil
}

// begin is when the record begins.
func (r *Record) begin(s *logSnapshot) engine.Time {
	if len(r.steps) > 0 {
		return max(s.Now, r.steps[0].event.When())
	}
	return s.Now
}
