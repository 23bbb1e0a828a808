package sim

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/aliquot-dev/aliquot/engine"
)

// What was evicted and came again is one job, however often: by the record, and when it is run again, where it begins anew but for what it had saved.
func TestRecordingOfEvictions(t *testing.T) {
	const quotas = "queue a quota=4\nqueue b quota=4\n"
	for name, c := range map[string]struct {
		lines    string
		duration float64 // s, of the first job
		saves    engine.Time
	}{
		"begins anew":        {"nodes 1\njob a run=100s devices=8 queue=a checkpoint=never\njob b at=10s run=20s devices=4 queue=b\njob b2 at=50s run=20s devices=4 queue=b", 100, NeverSaves},
		"takes a while":      {"nodes 1\njob a run=100s devices=8 queue=a checkpoint=never restart=5s\njob b at=10s run=20s devices=4 queue=b", 100, NeverSaves},
		"had saved":          {"nodes 1\njob a run=100s devices=8 queue=a checkpoint=8s restart=5s\njob b at=10s run=20s devices=4 queue=b", 100, 0},
		"a gang":             {"nodes 1\njob a run=100s tasks=8 queue=a checkpoint=never\njob b at=10s run=20s devices=4 queue=b", 100, NeverSaves},
		"more replicas":      {"nodes 1 devices=4\njob a run=100s tasks=2..4 queue=a checkpoint=never\njob b at=10s run=20s devices=3 queue=b preemptible=no", 100, NeverSaves},
		"nobody else evicts": {"nodes 1\njob a run=100s devices=8 queue=a checkpoint=never", 100, NeverSaves},
	} {
		t.Run(name, func(t *testing.T) {
			path, was := recorded(t, few(t, strings.Split(quotas+c.lines, "\n")...), Fair)
			rec, err := ReadLog(path)
			if err != nil || rec.Differs != nil {
				t.Fatal(err, rec)
			}
			if got, want := rec.Was.Figures(), was.Figures(); !reflect.DeepEqual(without(got), without(want)) {
				t.Errorf("by the record %v, want %v", got, want)
			}
			if j := rec.Trace.Jobs[0]; len(rec.Trace.Jobs) != was.Jobs || seconds(j.Duration) != c.duration || c.saves != 0 && j.Checkpoint != c.saves || c.saves == 0 && j.Checkpoint < 1 {
				t.Errorf("as a trace: %d jobs, the first takes %g s and saves each %d µs", len(rec.Trace.Jobs), seconds(j.Duration), j.Checkpoint)
			}
			if again := runJobs(t, rec.Trace, Fair); c.saves == NeverSaves && !reflect.DeepEqual(without(again.Figures()), without(was.Figures())) {
				t.Errorf("run again %v, want %v", again.Figures(), was.Figures())
			}
		})
	}
}

// without are figures but for those that a record does not have: replicas, and what devices drew.
func without(all []Named) []Named {
	return slices.DeleteFunc(all, func(n Named) bool {
		return slices.Contains([]string{"grown", "shrunk", "energy", "of that idle"}, n.Name)
	})
}

// What was evicted and never ran again did not end: it is in the trace, with as long as it ran.
func TestRecordingOfAnEvictionForGood(t *testing.T) {
	trace := few(t, "nodes 1", "nodes 1 devices=1", "job a run=100s devices=8", "job b run=10s devices=1")
	trace.Events = []engine.Event{engine.NodeGone{At: engine.At{At: 40_000_000}, Node: trace.Nodes[0].Node}}
	path, _ := recorded(t, trace, Fair)
	rec, err := ReadLog(path)
	if err != nil || rec.Was.Jobs != 1 || rec.Was.Preemptions != 1 || rec.Was.P99JCT != 10 || len(rec.Trace.Jobs) != 2 || rec.Trace.Jobs[0].Duration != 40_000_000 || rec.Left != 0 {
		t.Errorf("%v: as recorded %+v; jobs %+v, %d left out", err, rec.Was, rec.Trace.Jobs, rec.Left)
	}
}

// A day that is in several files is one, from the last start of the server on.
func TestRecordingOfAFolder(t *testing.T) {
	path, was := recorded(t, few(t, "nodes 1", "queue a quota=4", "queue b quota=4", "job a run=100s devices=8 queue=a checkpoint=never", "job b at=10s run=20s devices=4 queue=b"), Fair)
	whole, err := OpenRecord(path)
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	write := func(number int, from []byte, steps []recordedStep) []byte {
		t.Helper()
		var text bytes.Buffer
		e, err := engine.Restore(from)
		if err != nil {
			t.Fatal(err)
		}
		log, err := engine.NewLogWriter(&text, from)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range steps {
			if err := log.Append(s.event, e.Step(s.event)); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.WriteFile(filepath.Join(folder, fmt.Sprintf("%08d.events", number)), text.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
		return e.Snapshot()
	}
	write(1, whole.snapshot, whole.steps[:2]) // before the last start
	third := len(whole.steps) / 3
	after := write(2, whole.snapshot, whole.steps[:third])
	after = write(3, after, whole.steps[third:2*third])
	write(4, after, whole.steps[2*third:])
	rec, err := ReadLog(folder)
	if err != nil || rec.Differs != nil || rec.Steps != len(whole.steps) || rec.Was.Preemptions != 1 || rec.Was.MeanJCT != was.MeanJCT {
		t.Fatalf("%v, %+v: %+v, want %+v", err, rec, rec.Was, was)
	}
	if _, err := ReadLog(t.TempDir()); err == nil || !strings.Contains(err.Error(), "there is no event log in ") {
		t.Errorf("an empty folder: %v", err)
	}
}
