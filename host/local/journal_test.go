package local

import (
	"testing"

	"github.com/aliquot-dev/aliquot/engine"
)

// A snapshot that is longer than an event log may get is not written anew with each step.
func TestLongSnapshotIsNotWrittenWithEachStep(t *testing.T) {
	e := engine.New(engine.Config{})
	begun := len(e.Snapshot())
	j := &journal{folder: t.TempDir(), limit: int64(begun) / 2}
	if err := j.begin(e); err != nil {
		t.Fatal(err)
	}
	defer j.close()
	event, steps := engine.Tick{At: engine.At{At: 1}}, int64(0)
	for j.number == 1 && steps < j.limit {
		j.append(event, e.Step(event))
		steps++
		written := j.buffer.Len()
		if err := j.sync(); err != nil {
			t.Fatal(err)
		}
		behind := j.length - j.begun
		if err := j.rotate(e); err != nil {
			t.Fatal(err)
		}
		if (j.number > 1) != (behind >= j.limit) || written == 0 {
			t.Fatalf("with %d bytes behind a snapshot of %d, of %d that there may be, it is file %d", behind, begun, j.limit, j.number)
		}
	}
	if j.number != 2 || steps < 2 {
		t.Errorf("after %d steps it is file %d", steps, j.number)
	}
}
