package engine

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
)

// An event log is text. Its first line names format and version. Each further line is a record: the CRC-32C of its JSON in eight
// hexadecimal digits, a space, the JSON. The first record is a snapshot, every other a step: an event and the actions it gave.
const logHeader = "aliquot-events 1\n"

type record struct {
	Snapshot []byte            `json:"snapshot,omitempty"`
	Event    json.RawMessage   `json:"event,omitempty"`
	Actions  []json.RawMessage `json:"actions,omitempty"`
}

// LogWriter writes an event log. It writes each record with a single Write, unbuffered; making it durable before acting on it is
// the host's.
type LogWriter struct{ w io.Writer }

// NewLogWriter begins a log with a snapshot, which the caller has from Engine.Snapshot.
func NewLogWriter(w io.Writer, snapshot []byte) (*LogWriter, error) {
	line, err := frame(record{Snapshot: snapshot})
	if err != nil {
		return nil, err
	}
	if _, err := w.Write(append([]byte(logHeader), line...)); err != nil {
		return nil, fmt.Errorf("the event log cannot be begun: %w", err)
	}
	return &LogWriter{w}, nil
}

// ContinueLog appends to a log that was replayed to its end, and cut to Replayed.Length if it was torn.
func ContinueLog(w io.Writer) *LogWriter { return &LogWriter{w} }

// Append writes one step. After an error the end of the log may be torn: Replay drops a torn end, but nothing may be written
// after it.
func (l *LogWriter) Append(event Event, actions []Action) error {
	line, err := frameStep(event, actions)
	if err != nil {
		return err
	}
	if _, err := l.w.Write(line); err != nil {
		return fmt.Errorf("the event log cannot be written: %w", err)
	}
	return nil
}

func frameStep(event Event, actions []Action) ([]byte, error) {
	data, err := MarshalEvent(event)
	if err != nil {
		return nil, err
	}
	r := record{Event: data}
	for _, a := range actions {
		data, err := MarshalAction(a)
		if err != nil {
			return nil, err
		}
		r.Actions = append(r.Actions, data)
	}
	return frame(r)
}

func frame(r record) ([]byte, error) {
	data, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("a record of the event log cannot be written: %w", err)
	}
	line := fmt.Appendf(nil, "%08x ", crc32.Checksum(data, castagnoli))
	return append(append(line, data...), '\n'), nil
}

// unframe is the JSON of a line without its line feed, or nil if the line is damaged.
func unframe(line []byte) []byte {
	if len(line) < 9 || line[8] != ' ' {
		return nil
	}
	var sum [4]byte
	if _, err := hex.Decode(sum[:], line[:8]); err != nil {
		return nil
	}
	want := uint32(sum[0])<<24 | uint32(sum[1])<<16 | uint32(sum[2])<<8 | uint32(sum[3])
	if crc32.Checksum(line[9:], castagnoli) != want {
		return nil
	}
	return line[9:]
}

// Replayed is what came of replaying a log.
type Replayed struct {
	Engine *Engine // as it was after the last whole record
	Steps  int
	Length int64 // bytes of the log that are whole; the host cuts the file to it before it appends
	Torn   int64 // bytes after that of a last record that was not written to its end, and was dropped
}

// DiffError says that replay decided otherwise than the log has it: the engine changed, or the log was made up.
type DiffError struct {
	Record    int   // number of the record, the snapshot being 0
	Offset    int64 // of its line
	Event     string
	Want, Got string // actions as logged, and as decided now
}

func (e *DiffError) Error() string {
	return fmt.Sprintf("record %d at byte %d: for event %s the log has actions %s, and replay gives %s", e.Record, e.Offset, e.Event, e.Want, e.Got)
}

// Replay reads a log, takes every step again and holds the actions against those of the log, byte for byte. A last record that is
// torn is dropped, and said so in Replayed; damage before that, and a first difference (*DiffError), are errors that name
// their place.
func Replay(r io.Reader) (*Replayed, error) {
	in := bufio.NewReader(r)
	header := make([]byte, len(logHeader))
	if _, err := io.ReadFull(in, header); err != nil || string(header) != logHeader {
		return nil, fmt.Errorf("this is no event log of version 1: it begins with %q", header)
	}
	result := &Replayed{Length: int64(len(logHeader))}
	for {
		line, err := in.ReadBytes('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, fmt.Errorf("the event log cannot be read after byte %d: %w", result.Length, err)
		}
		if len(line) == 0 {
			break
		}
		data := unframe(bytes.TrimSuffix(line, []byte("\n")))
		if err != nil || data == nil {
			// Only the last record can be torn. A damaged one with more after it is another matter.
			if _, more := in.Peek(1); more == nil {
				return nil, fmt.Errorf("the event log is damaged at byte %d, record %d, with more after it: restore it from a copy, or begin a new one from the last good snapshot", result.Length, result.records())
			}
			result.Torn = int64(len(line))
			break
		}
		if err := result.take(data); err != nil {
			return nil, err
		}
		result.Length += int64(len(line))
	}
	if result.Engine == nil {
		return nil, errors.New("the event log has no snapshot to begin with: begin a new one")
	}
	return result, nil
}

// records is the number of the next record.
func (r *Replayed) records() int {
	if r.Engine == nil {
		return 0
	}
	return r.Steps + 1
}

func (r *Replayed) take(data []byte) error {
	var rec record
	if err := decodeStrictly(data, &rec); err != nil {
		return fmt.Errorf("record %d at byte %d of the event log cannot be read: %w", r.records(), r.Length, err)
	}
	if r.Engine == nil {
		if rec.Snapshot == nil || rec.Event != nil {
			return errors.New("the event log does not begin with a snapshot")
		}
		var err error
		r.Engine, err = Restore(rec.Snapshot)
		return err
	}
	if rec.Snapshot != nil {
		return fmt.Errorf("record %d at byte %d of the event log is a second snapshot: each log has one, at its beginning", r.records(), r.Length)
	}
	event, err := UnmarshalEvent(rec.Event)
	if err != nil {
		return fmt.Errorf("record %d at byte %d of the event log: %w", r.records(), r.Length, err)
	}
	line, err := frameStep(event, r.Engine.Step(event))
	if err != nil {
		return fmt.Errorf("record %d at byte %d of the event log: %w", r.records(), r.Length, err)
	}
	var got record
	if err := json.Unmarshal(unframe(bytes.TrimSuffix(line, []byte("\n"))), &got); err != nil {
		return fmt.Errorf("record %d: %w", r.records(), err)
	}
	if a, b := join(rec.Actions), join(got.Actions); !bytes.Equal(a, b) {
		return &DiffError{r.records(), r.Length, string(rec.Event), string(a), string(b)}
	}
	r.Steps++
	return nil
}

func join(actions []json.RawMessage) []byte {
	parts := make([][]byte, len(actions))
	for i, a := range actions {
		parts[i] = a
	}
	return append(append([]byte{'['}, bytes.Join(parts, []byte{','})...), ']')
}
